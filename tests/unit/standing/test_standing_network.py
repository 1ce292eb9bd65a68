"""``testbed.up`` from Python, without a network: requests, errors, an interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import testbed
from jobs.python_child import START
from testbed.errors import BadInput, DoesNotFit, MachineCannot, RunFailed
from testbed.standing.keeper_protocol import (
    AddTenant,
    KeeperRequest,
    RemoveTenant,
    RerateTenant,
    ShowNetwork,
    ShowTenant,
)
from testbed.standing.standing_network import StandingNetwork
from tests.unit.cli.test_standing import a_network, a_tenant
from tests.unit.standing.test_keeper_protocol import served

MBIT = 10**6


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path))


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[list[KeeperRequest]]:
    """Requests that a keeper of number 7 gets."""
    seen: list[KeeperRequest] = []

    def handle(request: KeeperRequest) -> object:
        seen.append(request)
        if isinstance(request, ShowNetwork):
            return a_network(a_tenant("a", "a.0"))
        return (
            None
            if isinstance(request, RemoveTenant)
            else a_tenant("a", "a.0")
        )

    (tmp_path / "up").mkdir()
    with served(tmp_path / "up", handle):
        yield seen


def test_tenants_are_asked_of_the_keeper(
    asked: list[KeeperRequest],
) -> None:
    tenants = StandingNetwork(7).tenants
    assert (
        tenants.add("a", vms=3, bandwidth="200 Mbit/s").vms[0].name == "a.0"
    )
    tenants.add("b", bandwidth=MBIT, at={"server 1": 1, "3": 2})
    tenants.add("c", vms=1, bandwidth=MBIT, embedder="exact")
    tenants.add(
        "d", vms=1, bandwidth=MBIT, policy="dcloud", enforcement="none"
    )
    tenants.rerate("a", "1 Gbit/s")
    tenants.remove("a")
    tenants.show("a")
    assert [one.name for one in tenants.list()] == ["a"]
    assert asked == [
        AddTenant("a", 3, 200 * MBIT),
        AddTenant("b", 3, MBIT, None, (("server 1", 1), ("3", 2))),
        AddTenant("c", 1, MBIT, "exact"),
        AddTenant("d", 1, MBIT, enforcement="none", policy="dcloud"),
        RerateTenant("a", 1000 * MBIT),
        RemoveTenant("a"),
        ShowTenant("a"),
        ShowNetwork(),
    ]


def test_a_mistake_asks_nothing(asked: list[KeeperRequest]) -> None:
    tenants = StandingNetwork(7).tenants
    with pytest.raises(BadInput, match="how many VMs"):
        tenants.add("a", bandwidth=MBIT)
    with pytest.raises(BadInput, match=r"tenant a: .* choose one"):
        tenants.add("a", bandwidth=MBIT, policy="vc", at={"3": 2})
    with pytest.raises(
        BadInput, match="100 is a bare number: write 100 Mbit/s"
    ):
        tenants.rerate("a", "100")
    assert asked == []


def test_another_network_is_not_taken_down(
    asked: list[KeeperRequest],
) -> None:
    with StandingNetwork(8):
        pass
    assert asked == [
        ShowNetwork()
    ]  # and no TakeDown, which would have ended the keeper


def test_a_network_that_is_down_is_no_failure(tmp_path: Path) -> None:
    with StandingNetwork(7):
        pass


def test_an_error_of_the_block_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError), StandingNetwork(7):
        raise ZeroDivisionError


def stub(
    monkeypatch: pytest.MonkeyPatch, folder: Path, script: str
) -> None:
    """A shell script in place of the command."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_options_are_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(
        monkeypatch,
        tmp_path,
        'echo "$@" > "${0%/*}/words"; echo \'{"pid": 7}\'',
    )
    given: dict[str, Any] = {
        "settings": {"scale.rate": 0.05, "a": None, "b": [True, "1 s"]},
        "prefix": "x",
        "api_port": 2,
    }
    net = testbed.up(
        Path("a b.yaml"), open=True, jobs=True, openflow_port=1, **given
    )
    assert net.pid == 7
    words = (tmp_path / "words").read_text()
    assert words.removeprefix(f"-I -B {START} ") == (
        "testbed.cli.main up a b.yaml --json --open --jobs --set scale.rate=0.05"
        ' --set a=null --set b=[true, "1 s"]'
        " --prefix x --openflow-port 1 --api-port 2\n"
    )


@pytest.mark.parametrize(
    ("kind", "code"),
    [(DoesNotFit, 1), (BadInput, 2), (MachineCannot, 3), (RunFailed, 4)],
)
def test_its_errors_are_raised_with_their_hints(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Exception],
    code: int,
) -> None:
    record = json.dumps(
        {"error": "it is so", "exit_code": code, "hint": "do that"}
    )
    stub(monkeypatch, tmp_path, f"echo '{record}'; exit {code}")
    with pytest.raises(kind, match="it is so") as raised:
        testbed.up("x.yaml")
    assert raised.value.__notes__ == ["hint: do that"]


def test_a_crash_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch, tmp_path, "exit 9")
    with pytest.raises(
        RunFailed, match="testbed up ended with exit code 9"
    ):
        testbed.up("x.yaml")


def test_without_root_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineCannot, match="needs root"):
        testbed.up("x.yaml")


class InterruptedOnce(subprocess.Popen[bytes]):
    """Ctrl-C while one waits for the process, which is up by then."""

    interrupted = False

    def communicate(self, *arguments: Any, **options: Any) -> Any:
        if not self.interrupted:
            self.interrupted = True
            assert self.stdout is not None
            self.stdout.readline()
            raise KeyboardInterrupt
        return super().communicate(*arguments, **options)


def test_interrupted_it_has_the_command_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[InterruptedOnce] = []

    def popen(*arguments: Any, **options: Any) -> InterruptedOnce:
        made.append(InterruptedOnce(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    stub(monkeypatch, tmp_path, "echo begun; exec sleep 1000")
    with pytest.raises(KeyboardInterrupt):
        testbed.up("x.yaml")
    assert made[0].returncode == -signal.SIGINT


def test_what_is_not_there_is_no_attribute() -> None:
    with pytest.raises(
        AttributeError, match="module 'testbed' has no attribute 'upp'"
    ):
        _ = testbed.upp  # type: ignore[attr-defined]


@pytest.mark.slow
def test_interrupted_after_its_answer_the_network_is_taken_down(
    asked: list[KeeperRequest],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command has printed that the network is up, but has not ended."""
    answered, interrupted = tmp_path / "answered", tmp_path / "interrupted"
    stub(
        monkeypatch,
        tmp_path,
        f"trap '' INT; echo '{{\"pid\": 8}}'; touch {answered};"
        f" until [ -e {interrupted} ]; do sleep 0.05; done",
    )

    class Interrupted(subprocess.Popen[bytes]):
        """Ctrl-C while one waits for the process."""

        def communicate(self, *arguments: Any, **options: Any) -> Any:
            if not interrupted.exists():
                signal.setitimer(signal.ITIMER_REAL, 0.05)
            return super().communicate(*arguments, **options)

    def interrupt(*_: object) -> None:
        if not answered.exists():
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            return
        interrupted.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            testbed.up("x.yaml")
    finally:
        signal.signal(signal.SIGALRM, before)
    # What is up is asked for its number, which is another's.
    assert asked == [ShowNetwork()]
