"""Verbs of a network that stays up: what is wrong on the command line gets a sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import in_vm, main, up
from testbed.standing.keeper_protocol import (
    KeeperRequest,
    ShowNetwork,
    ShowTenant,
)
from testbed.standing.network_state import NetworkState, TenantState
from tests.unit.standing.test_keeper_protocol import served

ADD = ["tenant", "add", "a", "--bandwidth", "100 Mbit/s"]


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            [*ADD[:-1], "100", "--vms", "2"],
            "100 is a bare number: write 100 Mbit/s",
        ),
        (
            [*ADD, "--at", "server 0"],
            "--at server 0: write it as SERVER:VMS",
        ),
        ([*ADD, "--at", "0:x"], "--at 0:x: write it as SERVER:VMS"),
        ([*ADD, "--at", "0:1", "--embedder", "exact"], "choose one"),
        ([*ADD, "--at", "0:1", "--policy", "vc"], "choose one"),
        (
            [*ADD, "--vms", "2", "--embedder", "exact", "--policy", "vc"],
            "choose one",
        ),
        (ADD, "how many VMs?"),
        (["tenant", "rerate", "a", "fast"], "'fast' is not a bandwidth"),
        (["tenant", "frobnicate"], "No such command"),
        (["shell", "a"], "no network is up"),
        (["exec", "a.0"], "Missing argument"),
        (["tenant", "show", "a"], "no network is up"),
        (["exec", "a", "--", "true"], "no network is up"),
        (["measure", "a"], "no network is up"),
        (["down"], "no network is up"),
        (["shell", "h1"], "no network is up"),
        (
            ["up", "x.yaml", "--jobs", "--open"],
            "--jobs makes tenants, --open has all slots in one",
        ),
        (["link", "down"], "Missing argument"),
        (["link", "down", "rack 0", "core 0"], "no network is up"),
        (["link", "show"], "no network is up"),
        (
            ["link", "set", "rack 0", "core 0", "50", "Mbit/s"],
            "no network is",
        ),
        (
            ["link", "set", "rack 0 - core 0", "50Mbit/s"],
            "no network is up",
        ),
        (
            ["link", "set", "rack 0", "core 0"],
            "'core 0' is not a bandwidth",
        ),
        (["link", "set", "50 Mbit/s"], "has a link and a capacity above 0"),
        (["link", "set", "a", "b", "0 Mbit/s"], "a capacity above 0"),
        (["verify"], "no network is up"),
        (["top"], "no network is up"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main.run(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_status_says_that_nothing_is_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["status"]) == 1
    assert (
        capsys.readouterr().out
        == "no network is up: sudo testbed up FILE makes one\n"
    )
    assert main.run(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"up": False}


@pytest.mark.parametrize(
    "verb",
    [
        *(
            ["status"],
            ["down"],
            ["measure", "a"],
            ["tenant", "list"],
            ["mininet"],
        ),
        *(
            ["exec", "h1", "id"],
            ["link", "show"],
            ["link", "up", "a.0"],
            ["verify"],
            ["top"],
        ),
    ],
)
def test_without_root_the_hint_has_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: list[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.run(verb) == 3
    assert f"hint: sudo testbed {verb[0]}" in capsys.readouterr().err


def a_tenant(name: str, *vms: str) -> dict[str, object]:
    at = {
        "server": "server 3",
        "ip": "10.0.4.1",
        "netns": "/run/netns/hn-s3v0",
    }
    at |= {"hosts": "/x"}
    return {
        "name": name,
        "bandwidth_bps": 10**8,
        "wire_bps": 10**7,
        "vms": [{"name": vm, "cgroups": ["/g"], **at} for vm in vms],
        "links": [],
    }


def a_network(
    *tenants: dict[str, object], is_open: bool = False, pid: int = 7
) -> dict[str, Any]:
    words = dict.fromkeys(
        ("file", "name", "user", "topology", "busiest_link", "trouble"), "x"
    )
    numbers = dict.fromkeys(
        ("bridges", "cables", "slots", "slots_taken"), 2
    )
    scales = {"since_unix_s": 0.0, "scale_rate": 0.1, "busiest_share": 0.0}
    return {
        **words,
        **numbers,
        **scales,
        "pid": pid,
        "tenants": tenants,
        "open": is_open,
    }


FILE = """\
name: noted
seed: 1
topology: {kind: tree, fanout: [2, 2], links: [1 Gbit/s, 1 Gbit/s], slots_per_server: 2}
policies: [fcfs]
workload: {kind: feitelson, jobs: 5, load: 0.5}
"""


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A file whose network seems to come up."""
    state = NetworkState(**a_network())
    monkeypatch.setattr(up, "require_live", lambda *_: None)
    monkeypatch.setattr(up, "bring_up", lambda *_: state)
    path = tmp_path / "noted.yaml"
    path.write_text(FILE, "utf-8")
    return str(path)


def test_notes_on_jobs_are_for_those_who_admit_them(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "5 jobs of "
    assert main.run(["up", file]) == 0
    assert sentence not in capsys.readouterr().err
    assert main.run(["up", file, "--jobs"]) == 0
    assert sentence in capsys.readouterr().err


def test_ctrl_c_while_the_page_starts_leaves_the_network_up(
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 130 would say that nothing is left of it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(up, "start_page", interrupted)
    assert main.run(["up", file, "--watch"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("x is up")
    assert "no live page: interrupted" in shown.err


@pytest.fixture
def up_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "up"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("h3", "unknown VM 'h3': known are h1 to h2"),
        ("web", "unknown VM 'web': known are h1 to h2"),
        ("open", "a shell is in one of a tenant's, as open.0"),
    ],
)
def test_hosts_of_an_open_network_are_vms(
    up_folder: Path,
    capsys: pytest.CaptureFixture[str],
    target: str,
    sentence: str,
) -> None:
    with served(
        up_folder,
        lambda _: a_network(a_tenant("open", "h1", "h2"), is_open=True),
    ):
        assert main.run(["shell", target]) == 2
        assert sentence in capsys.readouterr().err
        place = in_vm._vm("h2", "shell")
        assert place is not None
        assert place.name == "h2"
        assert main.run(["status"]) == 0
        assert (
            "open: no reservations, VM slots are hosts h1 to h2\n"
            in capsys.readouterr().out
        )
    (up_folder / "socket").unlink()
    with served(up_folder, lambda _: a_network()):
        assert in_vm._vm("h2", "exec") is None  # it can be a tenant's name
    (up_folder / "socket").unlink()
    with served(
        up_folder,
        lambda _: a_network(a_tenant("open", "h1.rack"), is_open=True),
    ):
        place = in_vm._vm("h1.rack", "exec")
        assert place is not None
        assert place.name == "h1.rack"
    (up_folder / "socket").unlink()
    # VMs without named hosts, and a variable that the shell left empty.
    with served(up_folder, lambda _: a_network(a_tenant("a", "a.0"))):
        assert in_vm._vm("", "exec") is None


@pytest.mark.needs("mininet")
@pytest.mark.filterwarnings("ignore:.*distutils:DeprecationWarning")
def test_the_prompt_needs_a_network(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["mininet"]) == 2
    assert (
        "no network is up\nhint: sudo testbed up FILE"
        in capsys.readouterr().err
    )


def test_a_tenant_is_shown_with_its_vms(
    up_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(request: KeeperRequest) -> object:
        if isinstance(request, ShowNetwork):
            return a_network(a_tenant("a", "a.0"))
        assert isinstance(request, ShowTenant)
        return a_tenant("a", "a.0")

    with served(up_folder, handle):
        assert main.run(["tenant", "show", "a"]) == 0
        shown = capsys.readouterr().out
        assert main.run(["tenant", "show", "a", "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert main.run(["exec", "a.7", "--", "true"]) == 2
    assert (
        "tenant a: 1 × 100 Mbit/s (10 Mbit/s on the wire): a.0 on server 3"
        in shown
    )
    assert "hn-s3v0" in shown
    assert record["vms"][0]["name"] == "a.0"
    assert (
        "unknown VM 'a.7': known are a.0 to a.0" in capsys.readouterr().err
    )
    assert TenantState(**record).name == "a"
