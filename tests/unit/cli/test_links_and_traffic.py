"""Output of `link`, `verify` and `top`, on a screen of 80 columns too."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.cli import main, top, verify
from testbed.standing import verification
from testbed.standing.keeper_protocol import (
    KeeperRequest,
    RestartSwitch,
    SetCapacity,
    SetLink,
    ShowLinks,
    ShowSwitches,
)
from testbed.standing.network_state import LinkState, SwitchState
from testbed.standing.traffic_rates import TrafficRates, TrafficSample
from testbed.standing.verification import NetworkCheck
from tests.unit.standing.test_keeper_protocol import served

CUT = "tenant a is cut: a.0 a.1 | a.2; 2 of 3 pairs"


def state(
    name: str,
    *,
    up: bool,
    bps: tuple[int, int],
    tenants: str,
    broken: str = "",
) -> LinkState:
    low, _, high = name.partition(" - ")
    ports, cuts = (
        ("hn-x-u0", "hn-y-d0") if bps[0] else ("hn-x",),
        (broken,) if broken else (),
    )
    return LinkState(
        name,
        (low, high),
        ports,
        up,
        *bps,
        tuple(tenants.split()),
        cuts,
        capacity_down_bps=bps[0],
    )


CORE = state("rack 0 - core 0", up=True, bps=(10**9, 10**8), tenants="a")
DOWN = state(
    "rack 1 - core 0", up=False, bps=(10**9, 0), tenants="a b", broken=CUT
)
VM = state("a.0 - server 0", up=True, bps=(0, 0), tenants="a")
LOST_VM = state("a.1 - server 0", up=False, bps=(0, 0), tenants="a")


PARTS = (
    SwitchState("hn-part0", ("server 0", "edge 0"), 4711, 1_800_000_000.0),
    SwitchState("hn-part1", ("core 0",), None, 0.0),
)
DONE = replace(
    PARTS[0], done="started again in 0.30 s; 0 of its limits were missing"
)


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path))
    monkeypatch.setattr("testbed.cli.console.PIPED_WIDTH", 80)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[list[KeeperRequest]]:
    """A keeper that answers what is asked of links; what was asked."""
    requests: list[KeeperRequest] = []

    def handle(request: KeeperRequest) -> object:
        requests.append(request)
        if isinstance(request, ShowLinks):
            return (CORE, DOWN, VM, LOST_VM)
        if isinstance(request, ShowSwitches | RestartSwitch):
            return PARTS if isinstance(request, ShowSwitches) else (DONE,)
        assert isinstance(request, SetLink)
        return CORE if request.up else DOWN

    folder = tmp_path / "up"
    folder.mkdir()
    with served(folder, handle):
        yield requests


@pytest.mark.parametrize(
    ("problems", "note", "shown"),
    [
        ((), "", "ok"),
        ((), "an application has its own flows", "–"),
        (("a flow of nobody",), "", "1 WRONG"),
        (
            ("a flow of nobody",),
            "an application has its own flows",
            "1 WRONG",
        ),
    ],
)
def test_a_check_with_a_problem_is_wrong_whatever_is_noted(
    problems: tuple[str, ...], note: str, shown: str
) -> None:
    check = NetworkCheck("flows", 7, problems, note)
    assert verify._verdict(check).plain == shown


def test_parts_of_the_switch_are_listed_and_restarted(
    asked: list[KeeperRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["switch", "show"]) == 0
    shown = capsys.readouterr().out
    rows = [
        line.split("│")
        for line in shown.splitlines()
        if line.startswith("│")
    ]
    assert [
        [cell.strip() for cell in row[1:-1] if ":" not in cell]
        for row in rows
    ] == [
        ["hn-part0", "4711", "server 0, edge 0"],
        ["hn-part1", "ENDED", "", "core 0"],
    ]
    assert main.run(["switch", "restart", "core 0"]) == 0
    assert asked[-1] == RestartSwitch("core 0")
    assert (
        capsys.readouterr().out
        == f"hn-part0: {DONE.done}, 2 bridges are back\n"
    )
    for verb in (["show"], ["restart"]):
        assert main.run(["switch", *verb, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["name"] == "hn-part0"
    assert asked[-1] == RestartSwitch("all")


def test_a_link_that_goes_down_says_who_has_moved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    moved = replace(
        DOWN, broken=(), moved=("tenant a has moved from core 0 to core 1",)
    )
    (tmp_path / "up").mkdir()
    with served(tmp_path / "up", lambda _: moved):
        assert main.run(["link", "down", "rack 1", "core 0"]) == 0
    assert capsys.readouterr().out == (
        f"link rack 1 - core 0 is down\n{moved.moved[0]}\nno tenant's VMs are cut\n"
    )


def test_links_are_listed_and_of_vms_those_that_are_down(
    asked: list[KeeperRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["link", "show"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    rows = [
        line.split("│")
        for line in shown.splitlines()
        if line.startswith("│")
    ]
    assert [[cell.strip() for cell in row[1:-1]] for row in rows] == [
        ["rack 0 - core 0", "up", "1 Gbit/s", "100 Mbit/s", "10 %", "a"],
        ["rack 1 - core 0", "DOWN", "1 Gbit/s", "0 bit/s", "0 %", "a b"],
        ["a.1 - server 0", "DOWN", "–", "–", "–", "a"],
    ]
    assert shown.endswith(f"{CUT}\n")
    assert main.run(["link", "show", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["name"] for record in records] == [
        s.name for s in (CORE, DOWN, VM, LOST_VM)
    ]
    assert len(asked) == 2


def test_what_a_lost_link_cuts_is_said(
    asked: list[KeeperRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["link", "down", "rack 1", "core 0"]) == 0
    said = capsys.readouterr()
    assert said.out == f"link rack 1 - core 0 is down\n{CUT}\n"
    assert "sudo testbed link up 'rack 1' 'core 0'" in said.err
    assert main.run(["link", "up", "rack 0 - core 0"]) == 0
    assert capsys.readouterr().out == "link rack 0 - core 0 is up\n"
    assert asked == [
        SetLink(("rack 1", "core 0"), up=False),
        SetLink(("rack 0 - core 0",), up=True),
    ]


@pytest.mark.parametrize(
    ("words", "ends", "mbit"),
    [
        ("a|7|50Mbit/s", ("a", "7"), 50),
        ("a|7|50 Mbit/s", ("a", "7"), 50),
        ("7|8|50|Mbit/s", ("7", "8"), 50),
        ("rack 0|core 0|0.5|Gbit/s", ("rack 0", "core 0"), 500),
        ("rack 0 - core 0|50|Mbit/s", ("rack 0 - core 0",), 50),
    ],
)
def test_ends_of_a_link_may_be_numbers(
    words: str,
    ends: tuple[str, ...],
    mbit: int,
    tmp_path: Path,
) -> None:
    asked = []

    def handle(request: KeeperRequest) -> object:
        asked.append(request)
        return CORE

    (tmp_path / "up").mkdir()
    with served(tmp_path / "up", handle):
        assert main.run(["link", "set", *words.split("|")]) == 0
    assert asked == [SetCapacity(ends, mbit * 10**6)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a|b|50", "write 50 Mbit/s"),
        ("a|b|fast", "'fast' is not a bandwidth"),
        ("a|b|1,5|Gbit/s", "1.5 Gbit/s"),
        ("a|b|0|Mbit/s", "a capacity above 0"),
        ("a|b|2000|Tbit/s", "is more than any bandwidth"),
        ("50|Mbit/s", "has a link"),
    ],
)
def test_a_rate_that_cannot_be_read_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["link", "set", *words.split("|")]) == 2
    assert said in capsys.readouterr().err


def test_the_way_back_can_be_pasted_into_a_shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ends = ("o'hara", "core 0")
    cut = replace(DOWN, name=" - ".join(ends), ends=ends)
    (tmp_path / "up").mkdir()
    with served(tmp_path / "up", lambda _: cut):
        assert main.run(["link", "down", *ends]) == 0
    command = capsys.readouterr().err.partition("its way back: ")[2]
    assert shlex.split(command)[-2:] == list(ends)


GOOD = [NetworkCheck(name, 4, ()) for name in verification.CHECKS]
BAD = [
    NetworkCheck(
        "limits", 9, tuple(f"hn-r{i} root: missing" for i in range(30))
    ),
    NetworkCheck("flows", 0, ()),
]


@pytest.mark.parametrize(("checks", "code"), [(GOOD, 0), (BAD, 1), ([], 0)])
def test_verify_ends_with_1_where_something_differs(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    checks: list[NetworkCheck],
    code: int,
) -> None:
    monkeypatch.setattr(verify, "ask", lambda *_: None)
    monkeypatch.setattr(verification, "checks", lambda *_: iter(checks))
    assert main.run(["verify"]) == code
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert shown.count("│ ok ") == sum(
        check.good and check.compared > 0 for check in checks
    )
    if code:
        assert "30 WRONG" in shown
        assert "limits: hn-r0 root: missing\n" in shown
        assert f"limits: {30 - verify.MOST_LISTED} more\n" in shown
    assert main.run(["verify", "--json"]) == code
    records = json.loads(capsys.readouterr().out)
    assert [record["good"] for record in records] == [
        check.good for check in checks
    ]


def test_flows_of_a_persons_controller_have_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "ask", lambda *_: None)
    own = NetworkCheck("flows", 7, (), "those of mine.py are not compared")
    monkeypatch.setattr(verification, "checks", lambda *_: iter([own]))
    assert main.run(["verify"]) == 0
    shown = capsys.readouterr().out
    assert "ok" not in shown
    assert "flows: those of mine.py are not compared\n" in shown


def traffic(
    name: str, reserved: float, sent: float, capacity: float = 0.0
) -> TrafficRates:
    return TrafficRates(name, reserved, sent, 12_345, 3, capacity)


SAMPLE = TrafficSample(
    1.0,
    (
        traffic("rack 0 -> core 0", 2e8, 1e8, 1e9),
        traffic("core 0 -> rack 0", 0.0, 0.0, 1e9),
        traffic("aggregation 10 -> core 12", 2e8, 9e8, 1e9),
    ),
    (traffic("a", 6e8, 1.234e8),),
)


def test_top_shows_the_fullest_links_first_within_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class State:
        name, trouble, scale_rate = (
            "standing",
            f"link rack 1 - core 0 is down; {CUT}",
            0.05,
        )

    monkeypatch.setattr(
        top, "samples", lambda: (each for each in [(State, SAMPLE)])
    )
    assert main.run(["top"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert all(len(line) <= 80 for line in lines if "trouble" not in line)
    words = [line.split() for line in lines]
    assert ["a", "600", "Mbit/s", "123", "Mbit/s", "12", "kB", "3"] in words
    assert shown.index("aggregation 10 -> core 12") < shown.index(
        "rack 0 -> core 0"
    )
    assert "core 0 -> rack 0" not in shown
    assert "and 1 directions of links" in shown
    assert CUT in shown.replace("\n", "")
    assert main.run(["top", "--json"]) == 0
    record: Any = json.loads(capsys.readouterr().out)
    assert record["scale_rate"] == 0.05
    assert [each["name"] for each in record["links"]] == [
        each.name for each in SAMPLE.links
    ]


def test_a_terminal_that_cannot_be_written_over_has_one_sample(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class State:
        name, trouble, scale_rate = "standing", "", 0.05

    def taken() -> Iterator[tuple[type[State], Any]]:
        yield State, SAMPLE
        pytest.fail("a second sample")

    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(top, "samples", taken)
    monkeypatch.setattr(
        top.console, "out", lambda: Console(force_terminal=True, width=80)
    )
    assert main.run(["top"]) == 0
    assert "rack 0 -> core 0" in capsys.readouterr().out
