"""Switches of a network that stays up: found by any name in them, started when they have ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.backends.emu import emulation as live
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.open_vswitch import MACHINE
from testbed.errors import BadInput, MachineCannot
from testbed.standing.standing_switches import StandingSwitches
from testbed.standing.standing_tenants import StandingTenants
from tests.support.fake_emulation import SCALE_RATE, FakeEmulation
from topologies.tree import tree


@dataclass(eq=False)
class Part:
    """A switch whose process sleeps."""

    netns: str
    process: subprocess.Popen[bytes] | None = None
    database_pid: int | None = field(default_factory=os.getpid)

    def start(self) -> None:
        if not self.running:
            self.process = subprocess.Popen(["sleep", "1000"])

    @property
    def pid(self) -> int | None:
        running = self.process is not None and self.process.poll() is None
        return self.process.pid if running and self.process else None

    @property
    def running(self) -> bool:
        return self.pid is not None


class Network:
    """Two parts of a tree of two racks: the first rack's bridges, and the rest."""

    def __init__(self, folder: Path) -> None:
        fake = FakeEmulation(tree([2, 1], [10**9, 10**9], 1))
        self.parts = [Part("hn-part0"), Part("hn-part1")]
        self.started: list[str] = []
        self.controllers: list[str] = []
        first = [
            b for b in fake.plan.bridges if b.name in ("hn-s0", "hn-r0")
        ]
        rest = [b for b in fake.plan.bridges if b not in first]
        fake.network.switches = tuple(self.parts)
        fake.network.plan = fake.plan
        fake.network.bridges_of = lambda part: (
            first if part is self.parts[0] else rest
        )
        emulation: Any = fake
        emulation.controller = SimpleNamespace(
            process=SimpleNamespace(pid=0)
        )
        emulation.start_switch = self._start
        emulation.restart_switch = partial(
            Emulation.restart_switch, emulation
        )
        emulation.revive_controller = lambda: self.controllers.append(
            "again"
        )
        for part in self.parts:
            part.start()
        self.switches = StandingSwitches(
            emulation,
            StandingTenants(emulation, SCALE_RATE, "oktopus", folder),
        )

    def _start(self, part: Part, _: object) -> int:
        part.start()
        self.started.append(part.netns)
        return 3


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path)
    yield made
    for part in made.parts:
        assert part.process is not None
        part.process.kill()
        part.process.wait()
    for descriptor in made.switches.watched():
        os.close(descriptor)


@pytest.fixture(autouse=True)
def grace_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "expedited_rcu", lambda _: nullcontext())


def test_they_are_listed_with_their_bridges(network: Network) -> None:
    first, rest = network.switches.states()
    assert (first.name, first.bridges) == (
        "hn-part0",
        ("server 0", "rack 0"),
    )
    assert rest.bridges == ("server 1", "rack 1", "core 0")
    assert first.pid == network.parts[0].pid
    assert first.since_unix_s > 0


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hn-part0", ["hn-part0"]),
        ("server 0", ["hn-part0"]),
        ("core 0", ["hn-part1"]),
        ("hn-c0", ["hn-part1"]),
        ("all", ["hn-part0", "hn-part1"]),
    ],
)
def test_one_is_restarted_by_any_name_in_it(
    network: Network, name: str, parts: list[str]
) -> None:
    before = {part.netns: part.pid for part in network.parts}
    states = network.switches.restart(name)
    assert [state.name for state in states] == network.started == parts
    assert all(
        state.pid not in (None, before[state.name]) for state in states
    )
    assert all(
        "; 3 of its limits were missing" in state.done for state in states
    )
    # Their ends were wanted: nothing more comes of them.
    for ended in network.switches.watched().values():
        ended()
    assert network.started == parts


def test_one_that_is_killed_is_started_again(network: Network) -> None:
    part = network.parts[1]
    assert part.process is not None
    (descriptor,) = [
        each
        for each in network.switches.watched()
        if f"Pid:\t{part.pid}\n"
        in Path(f"/proc/self/fdinfo/{each}").read_text()
    ]
    part.process.kill()
    part.process.wait()
    assert network.switches.states()[1].pid is None
    network.switches.watched()[descriptor]()
    assert network.started == ["hn-part1"]
    assert network.switches.states()[1].pid == part.pid is not None


def test_an_unknown_one_gets_a_sentence(network: Network) -> None:
    with pytest.raises(
        BadInput,
        match=r"unknown switch 'rak 0' \(did you mean 'rack 0'\?\)",
    ):
        network.switches.restart("rak 0")
    assert network.started == []


def test_beside_bridges_of_others_the_machines_own_is_left_alone(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        live, "foreign_bridges", lambda _: ["br-ex", "br-int"]
    )
    with pytest.raises(
        MachineCannot, match="has bridges of others: br-ex, br-int"
    ):
        network.switches._emulation.restart_switch(MACHINE, ())
    assert network.started == []
