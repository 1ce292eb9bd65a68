"""Tenants in, out and to another root while switches, or the controller, end under way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.api_client import (
    ControllerRefused,
    ControllerUnreachable,
    SwitchesMissing,
)
from controller.passes import LoopPass
from jobs.live.agent_protocol import SpawnRequest
from jobs.live.command import CommandPlan
from jobs.live.compute import ComputePlan
from testbed.backends.emu import emulation as emulation_module
from testbed.backends.emu.emulation import Emulation
from testbed.embedding.placement import Placement
from testbed.errors import MachineCannot, RunFailed
from testbed.plan.network_plan import (
    Slot,
    TenantPlan,
    network_plan,
    rerooted,
    tenant_plan,
)
from topologies.fat_tree import fat_tree

DATACENTRE = fat_tree(4, 10**9, 1)
PLAN = network_plan(DATACENTRE, "hn")
VMS_ON = ((0, 1), (4, 1))


def tenant() -> TenantPlan:
    slots = tuple(PLAN.slots_of_server[server][0] for server, _ in VMS_ON)
    placement = Placement(DATACENTRE.trees[0].root, VMS_ON)
    return tenant_plan(DATACENTRE, PLAN, placement, slots, 3, "j", 10**8)


def elsewhere() -> TenantPlan:
    there = Placement(DATACENTRE.trees[1].root, VMS_ON)
    return rerooted(DATACENTRE, PLAN, tenant(), there)


class Scripted:
    """Controller and its client; what they are asked is in ``done``.

    ``failures``: of the next calls of the client. ``ended``: the controller's process has.
    """

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failures: deque[Exception | None] = deque()
        self.ended = False
        self.is_stopped = False
        self.stood_s = 0.0
        self.passes = SimpleNamespace(
            last=lambda: LoopPass(0, round(self.stood_s * 1e9), 0, 1),
            stood_s=lambda _: self.stood_s,
        )
        self.replying = threading.Event()
        self.replying.set()

    def __getattr__(self, name: str) -> Any:
        def note(*_: object) -> None:
            if "tenant" in name and not self.replying.wait(60):
                raise ControllerUnreachable("no answer")
            self.done.append(name)
            failure = (
                self.failures.popleft()
                if self.failures and "tenant" in name
                else None
            )
            if failure is not None:
                raise failure

        return note

    def client(self) -> Scripted:
        return self

    @property
    def process(self) -> Any:
        return SimpleNamespace(
            wait=lambda _: None,
            poll=lambda: None,
            returncode=-9 if self.ended else None,
            pid=77,
        )

    def start_again(self) -> Any:
        self.done.append("start")
        self.ended = False
        return Restarted(self)


class Restarted:
    """Another controller that does what the first did."""

    def __init__(self, former: Scripted) -> None:
        self._former = former

    def __getattr__(self, name: str) -> Any:
        return getattr(self._former, name)


class FakeNetwork:
    """Whatever it is asked is ``done``, too, with a word before."""

    plan = PLAN

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted
        self.dead_part = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._scripted.done.append(f"network {name}")

    def check_switch(self, _: Path) -> None:
        if self.dead_part:
            raise RunFailed("switch part hn-part0 has died")


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def emulation(scripted: Scripted) -> Iterator[Emulation]:
    fake: Any = scripted
    network: Any = FakeNetwork(scripted)
    nothing: Any = None
    journal: Any = SimpleNamespace(tag=SimpleNamespace(run="00000000"))
    made = Emulation(
        DATACENTRE, network, fake, nothing, fake, Path("logs"), {}, journal,
        start_controller=scripted.start_again,
    )  # fmt: skip
    yield made
    made.close()


def test_switches_that_take_their_time_are_waited_for(
    emulation: Emulation, scripted: Scripted
) -> None:
    scripted.failures.extend([SwitchesMissing(["hn-s0"])] * 3)
    emulation.admit(tenant())
    assert scripted.done.count("add_tenant") == 4
    assert "remove_tenant" not in scripted.done


def test_a_part_that_has_died_ends_an_admission_and_nothing_is_left(
    emulation: Emulation, scripted: Scripted
) -> None:
    scripted.failures.append(SwitchesMissing(["hn-s0"]))
    emulation.network.dead_part = True  # type: ignore[attr-defined]
    with pytest.raises(
        RunFailed, match="job j: switch part hn-part0 has died"
    ):
        emulation.admit(tenant())
    assert "network remove_tenant" in scripted.done
    assert scripted.done[-1] == "remove_tenant"
    assert scripted.done.count("add_tenant") == 1


def test_a_controller_that_ends_under_way_is_started_and_asked_again(
    emulation: Emulation, scripted: Scripted
) -> None:
    scripted.failures.append(ControllerUnreachable("gone"))
    scripted.ended = True
    emulation.admit(tenant())
    asked = [
        word for word in scripted.done if word in ("add_tenant", "start")
    ]
    assert asked == ["add_tenant", "start", "add_tenant"]
    assert not [word for word in scripted.done if "remove" in word]
    # Out: had the first request come through, the tenant is unknown to the second.
    scripted.failures.extend(
        [ControllerUnreachable("gone"), ControllerRefused(404, "none", [])]
    )
    scripted.ended = True
    emulation.dismiss(tenant())
    assert scripted.done.count("start") == 2


def test_one_that_lives_and_does_not_answer_fails_the_admission(
    emulation: Emulation, scripted: Scripted
) -> None:
    scripted.failures.append(ControllerUnreachable("no answer"))
    with pytest.raises(RunFailed, match="job j: no answer"):
        emulation.admit(tenant())
    assert {"network remove_tenant", "remove_tenant"} < set(scripted.done)


def test_a_standstill_while_something_waits_is_told_apart(
    emulation: Emulation, scripted: Scripted
) -> None:
    scripted.stood_s = 1.0
    with emulation._waits_for_controller():
        scripted.stood_s += 2.0
    assert (emulation.controller_stood_s, emulation.held_up_s) == (3.0, 2.0)
    # The next controller counts anew.
    scripted.ended = True
    assert emulation.revive_controller()
    scripted.stood_s = 0.5
    assert emulation.controller_stood_s == 3.5


def test_one_that_is_stopped_is_told_of_and_left_without_the_tenant(
    emulation: Emulation,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have the request, and carry it out when it continues."""
    monkeypatch.setattr(emulation_module, "STOPPED_S", 0.0)
    monkeypatch.setattr(emulation_module, "CONFIRM_EVERY_S", 0.01)
    scripted.is_stopped = True
    scripted.replying.clear()
    stopped = r"the controller \(process 77\) is stopped by a signal"
    with pytest.raises(RunFailed, match=f"job j: {stopped}") as raised:
        emulation.admit(tenant())
    assert "kill -CONT 77" in str(raised.value.hint)
    assert "network remove_tenant" in scripted.done
    first, second = emulation.controller_trouble()
    assert "VMs reach each other as before" in first
    assert "tenant j is not in" in second
    failed = emulation.reroot([(tenant(), elsewhere())])
    assert "is stopped" in failed["j"].message
    with pytest.raises(RunFailed, match=r"job j: .* is stopped"):
        emulation.dismiss(tenant())

    scripted.is_stopped = False
    scripted.replying.set()
    emulation.admit(tenant())
    assert emulation.controller_trouble() == []
    asked = [word for word in scripted.done if word.endswith("_tenant")]
    asked = [word for word in asked if "network" not in word]
    assert asked[:3] == ["add_tenant", "remove_tenant", "remove_tenant"]
    assert asked[-1] == "add_tenant"


class Clock:
    """Time that passes only while somebody waits for an answer."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, length_s: float) -> None:
        self.now_s += length_s


class NoAnswer:
    """A request to a controller that does not answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def result(self, timeout_s: float) -> None:
        self._clock.now_s += timeout_s
        raise TimeoutError

    def done(self) -> bool:
        return False

    def running(self) -> bool:
        return True

    def exception(self) -> None: ...


@pytest.mark.parametrize(
    "verb", ["admit", "dismiss", "reroot", "await_controller"]
)
def test_one_that_is_stopped_is_told_of_within_four_seconds(
    verb: str,
    emulation: Emulation,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the sum of all waits: a fifth second is for the command's own start."""
    clock = Clock()
    monkeypatch.setattr(emulation_module, "time", clock)
    flows: Any = SimpleNamespace(submit=lambda *_: NoAnswer(clock))
    monkeypatch.setattr(emulation, "_flows", flows)
    scripted.is_stopped = True
    if verb == "reroot":
        failed = emulation.reroot([(tenant(), elsewhere())])
        said = failed["j"].message
    else:
        arguments = () if verb == "await_controller" else (tenant(),)
        with pytest.raises(RunFailed) as raised:
            getattr(emulation, verb)(*arguments)
        said = raised.value.message
    assert "is stopped by a signal" in said
    assert clock.now_s - 100.0 <= 4.0
    assert "is stopped by a signal" in emulation.controller_trouble()[0]
    assert clock.now_s - 100.0 <= 4.0


def test_one_that_does_not_start_again_says_why(
    emulation: Emulation,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def taken() -> None:
        raise MachineCannot(
            "port 6653 is taken by another process", "end it"
        )

    monkeypatch.setattr(emulation, "start_controller", taken)
    scripted.ended = True
    with pytest.raises(
        RunFailed, match="the controller has ended: port 6653 is taken"
    ):
        emulation.check()


def test_limits_of_the_new_tree_come_first_and_those_of_the_old_go_last(
    emulation: Emulation, scripted: Scripted
) -> None:
    assert emulation.reroot([(tenant(), elsewhere())]) == {}
    assert scripted.done == [
        "network begin_reroot",
        "move_tenant",
        "close",
        "network end_reroot",
    ]


def test_a_move_that_fails_is_taken_back(
    emulation: Emulation, scripted: Scripted
) -> None:
    scripted.failures.append(
        ControllerRefused(502, "a switch refused the rules", [])
    )
    failed = emulation.reroot([(tenant(), elsewhere())])
    assert failed["j"].message == "job j: a switch refused the rules"
    assert scripted.done == [
        *("network begin_reroot", "move_tenant", "close"),
        *("move_tenant", "close", "network end_reroot"),
    ]


@pytest.mark.parametrize("n", [1, 3])
def test_moves_of_a_controller_that_ends_are_asked_again(
    emulation: Emulation, scripted: Scripted, n: int
) -> None:
    scripted.failures.extend([ControllerUnreachable("gone")] * n)
    scripted.ended = True
    assert emulation.reroot([(tenant(), elsewhere())] * n) == {}
    assert scripted.done.count("start") == 1
    assert scripted.done.count("move_tenant") == 2 * n


def test_what_is_installed_is_recorded_as_text(
    emulation: Emulation, scripted: Scripted
) -> None:
    texts: dict[str, str] = {}
    emulation.write_plans_to(texts.__setitem__)
    emulation.admit(tenant())
    emulation.reroot([(tenant(), elsewhere())])
    assert [*texts] == [
        "plan/0000-network.txt",
        "plan/0001-j.txt",
        "plan/0002-j-reroot.txt",
    ]
    assert texts["plan/0002-j-reroot.txt"].startswith(
        "# new limits (tc -batch)\n"
    )
    assert (
        emulation_module.MOVES_AT_ONCE < 64
    )  # connections with the token at the controller


def test_a_commands_vm_has_folders_that_go_with_its_tenant(
    emulation: Emulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[SpawnRequest] = []
    monkeypatch.setattr(emulation_module, "RUN_ROOT", tmp_path)
    monkeypatch.setattr(emulation, "open_vm", lambda *_: ())
    monkeypatch.setattr(emulation, "_cores", lambda _: ())
    agents = SimpleNamespace(spawn=requests.append)
    monkeypatch.setattr(emulation, "agents", agents)
    leaving = tenant()
    argv = ("/opt/x/run", "a", "/tmp/b/c", "/tmp/d")  # noqa: S108
    plan = CommandPlan(0, "10.0.0.1", ("10.0.0.1",), argv)
    emulation.spawn("vm0", leaving.vms[0].slot, plan)
    (request,) = requests
    assert Path(request.folder).is_relative_to(tmp_path / "00000000")
    assert request.shared_bytes > 0
    where = str(Path("logs").absolute().parent), str(Path.cwd())
    named = ("/opt/x", "/tmp/b", "/tmp/d")  # noqa: S108
    assert request.shown == (*where, *named)
    Path(request.folder).mkdir(parents=True)
    emulation.dismiss(leaving)
    assert not Path(request.folder).exists()


def test_vms_groups_are_made_while_flows_are_installed(
    emulation: Emulation,
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joins = (Path("vm/cgroup.procs"),)
    made: list[Slot] = []

    def make(slot: Slot, _: int) -> tuple[Path, ...]:
        made.append(slot)
        return joins

    prepared = threading.Event()
    monkeypatch.setattr(emulation, "open_vm", make)
    group: Any = SimpleNamespace(prepare_moves=prepared.set)
    monkeypatch.setattr(emulation, "cgroup", group)
    scripted.replying.clear()
    requests: list[SpawnRequest] = []
    agents = SimpleNamespace(spawn=requests.append)
    monkeypatch.setattr(emulation, "agents", agents)
    coming = tenant()
    slots = [vm.slot for vm in coming.vms]
    with emulation.opening_vms(coming):
        # The controller answers only after the groups have been made.
        assert prepared.wait(60)
        scripted.replying.set()
        emulation.admit(coming)
    assert made == slots
    plan = ComputePlan(0, 1.0)
    monkeypatch.setattr(emulation, "_cores", lambda _: ())
    emulation.spawn("vm0", slots[0], plan)
    assert requests[0].cgroups == ("vm/cgroup.procs",)
    assert made == slots


def test_a_group_that_cannot_be_made_is_told_after_the_admission(
    emulation: Emulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> tuple[Path, ...]:
        raise OSError("no space left on device")

    monkeypatch.setattr(emulation, "open_vm", refuse)
    with (
        pytest.raises(OSError, match="no space left"),
        emulation.opening_vms(tenant()),
    ):
        emulation.admit(tenant())
