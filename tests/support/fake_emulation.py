"""An emulation without a network: agents are entries of a table, their messages wait in a queue."""

from __future__ import annotations

import heapq
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jobs.live.agent_pool import Message
from jobs.live.agent_protocol import (
    AgentExited,
    AgentRefused,
    AgentReport,
    Plan,
    Ready,
    ReceivedPayload,
)
from jobs.live.compute import ComputePlan
from testbed.backends.emu.limiter_counters import COUNTERS, Limiter
from testbed.backends.emu.vm_users import VmUsers
from testbed.backends.emu.work_evidence import Claim
from testbed.errors import RunFailed
from testbed.failures import Failure
from testbed.plan.fidelity import Finding
from testbed.plan.network_plan import (
    NetworkPlan,
    Slot,
    TenantPlan,
    network_plan,
)
from testbed.plan.vm_limits import VmLimits
from topologies.datacentre import DataCentre

SCALE_RATE = 0.02


class FakeAgents:
    """The messages of a fork server, in its order. ``lasts_s``: how long a job's agents work.

    A frozen slot's agents neither report nor end; ``lingers`` says whose exit comes only after a
    thaw, as of one that is stopped between its report and its exit. ``deaf`` ones never connect.
    """

    def __init__(self) -> None:
        self.lasts_s: dict[str, float] = {}
        self.otherwise_s: float | None = None
        self.alive: dict[str, tuple[Slot, Plan]] = {}
        self.frozen: set[Slot] = set()
        self.lingers: set[str] = set()
        self.deaf: Callable[[str], bool] = lambda _: False
        self.refused: list[str] = []
        self._asked: list[tuple[str, int]] = []
        self._queue: list[tuple[float, int, tuple[str, Message] | str]] = []
        self._sequence = 0

    def later(
        self, delay_s: float, message: tuple[str, Message] | str
    ) -> None:
        """A message; a name: that agent's report, if it still works then."""
        # Messages have no order: of two for one instant the number decides.
        self._sequence += 1
        heapq.heappush(
            self._queue,
            (time.monotonic() + delay_s, self._sequence, message),
        )

    def spawn(self, name: str, slot: Slot, plan: Plan) -> None:
        self.alive[name] = (slot, plan)
        if not self.deaf(name):
            self.later(0, (name, Ready(plan.index, time.monotonic_ns())))

    def begin(self, names: tuple[str, ...], at_ns: int) -> None:
        for name in names:
            lasts_s = self.lasts_s.get(name.split(".")[0], self.otherwise_s)
            if lasts_s is not None:
                self.later(lasts_s, name)

    def signal(self, name: str, number: int) -> None:
        if name not in self.alive:
            self.refused.append(name)
            self.later(
                0, (name, AgentRefused("no agent of this name is running"))
            )
        elif self.alive[name][0] in self.frozen:
            # As with the freezer of control groups, version 1: signals wait
            # for the thaw.
            self._asked.append((name, number))
        else:
            self._ended_by(name, number)

    def thaw(self, slot: Slot) -> None:
        self.frozen.discard(slot)
        for name, number in [
            asked
            for asked in self._asked
            if self.alive[asked[0]][0] == slot
        ]:
            self._asked.remove((name, number))
            self._ended_by(name, number)
        for name in [
            name for name in self.lingers if self.alive[name][0] == slot
        ]:
            self.lingers.discard(name)
            self.exit(name)

    def end_all_in(self, slot: Slot) -> None:
        self.thaw(slot)
        for name in [
            name for name, (where, _) in self.alive.items() if where == slot
        ]:
            self._ended_by(name, signal.SIGKILL)

    def report(self, name: str) -> tuple[str, AgentReport]:
        plan, now_ns = self.alive[name][1], time.monotonic_ns()
        came = tuple(
            ReceivedPayload(
                incoming.peer, incoming.size_bytes, now_ns, now_ns
            )
            for incoming in getattr(plan, "receives", ())
        )
        return name, AgentReport(plan.index, now_ns, now_ns, came)

    def exit(
        self, name: str, code: int | None = 0, signum: int | None = None
    ) -> None:
        del self.alive[name]
        self.later(0, (name, AgentExited(code, signum)))

    def poll(self, timeout_s: float) -> list[tuple[str, Message]]:
        until = time.monotonic() + timeout_s
        messages: list[tuple[str, Message]] = []
        while True:
            while self._queue and self._queue[0][0] <= time.monotonic():
                message = heapq.heappop(self._queue)[2]
                messages += (
                    self._worked(message)
                    if isinstance(message, str)
                    else [message]
                )
            if messages or time.monotonic() >= until:
                return messages
            time.sleep(0.001)

    def _worked(self, name: str) -> list[tuple[str, Message]]:
        if name not in self.alive or self.alive[name][0] in self.frozen:
            return []
        report = self.report(name)
        if name not in self.lingers:
            self.exit(name)
        return [report]

    def _ended_by(self, name: str, number: int) -> None:
        if number == signal.SIGTERM:
            self.later(0, self.report(name))
            # 128 and the signal's number, as shells have it.
            self.exit(name, 143)
        else:
            self.exit(name, None, number)


def own_clock(patch: pytest.MonkeyPatch) -> None:
    """Time that passes while messages are waited for, and a microsecond with each look
    at it, however busy the machine is.
    """
    now_ns = time.monotonic_ns()

    def monotonic_ns() -> int:
        nonlocal now_ns
        now_ns += 1_000
        return now_ns

    def sleep(length_s: float) -> None:
        nonlocal now_ns
        now_ns += round(length_s * 1e9)

    patch.setattr(time, "monotonic_ns", monotonic_ns)
    patch.setattr(time, "monotonic", lambda: monotonic_ns() / 1e9)
    patch.setattr(time, "sleep", sleep)


def unread(limiters: list[Limiter]) -> np.ndarray:
    """Counters of which nobody knows when they were read."""
    return np.array([(np.nan, 0, 0, 0)] * len(limiters), COUNTERS)


class FakeEmulation:
    """As much of :class:`testbed.backends.emu.emulation.Emulation` as a run asks for."""

    def __init__(
        self,
        datacentre: DataCentre,
        namespaces_per_server: tuple[int, ...] | None = None,
    ) -> None:
        self.datacentre = datacentre
        self.plan = network_plan(
            datacentre, "hn", SCALE_RATE, namespaces_per_server
        )
        self.agents = FakeAgents()
        self.here: set[str] = set()
        self.admitted: list[TenantPlan] = []
        self.borrowing = 0
        self.stopped = False
        self.refused_bps: set[int] = set()
        self.recorded: set[str] = set()
        self.reached: dict[str, str] = {}
        self.users = VmUsers(self.plan.slots, {})
        self.limits = VmLimits(1 << 30, 1 << 28, 64)
        self.lost: set[str] = set()
        self.own_controller: object = None
        self.controller_stood_s: float | None = None
        self.held_up_s = 0.0
        self.failures: list[Failure] = []
        self.reroot_refused: set[str] = set()
        self.refuses_capacities = False
        self.capacities: list[
            tuple[
                DataCentre, NetworkPlan, list[tuple[TenantPlan, TenantPlan]]
            ]
        ] = []
        self.journal = SimpleNamespace(
            add=lambda entries: self.recorded.update(
                entry.name for entry in entries
            ),
            remove=lambda entries: self.recorded.difference_update(
                e.name for e in entries
            ),
        )
        self.log_dir = Path("logs")
        self.agent_mounts = "/proc/self/ns/mnt"
        self.network = SimpleNamespace(
            vm_sent_bytes=lambda tenant: [0] * len(tenant.vms),
            counter_reader=lambda at: SimpleNamespace(
                read=lambda: unread(at)
            ),
            unshaped_packets=dict,
            switch_pids=[],
            forwarders=[],
            forwards_in_kernel=False,
            offloads=True,
            allow_borrowing=self._allow_borrowing,
            forbid_borrowing=lambda: None,
            lost_cables=lambda: frozenset(self.lost),
            set_ports=self._set_ports,
            switch_of_bridge={
                bridge.name: SimpleNamespace(netns=None)
                for bridge in self.plan.bridges
            },
        )

    def folder_of(self, slot: Slot) -> Path:
        return Path("/run/nowhere", slot.netns)

    def check(self) -> None: ...

    def flow_findings(self) -> list[Finding]:
        return []

    def _allow_borrowing(self) -> None:
        self.borrowing += 1

    def _set_ports(self, names: tuple[str, ...], *, up: bool) -> None:
        (self.lost.difference_update if up else self.lost.update)(names)

    def admit(self, tenant: TenantPlan) -> None:
        self.here.add(tenant.job_id)
        self.admitted.append(tenant)

    def dismiss(self, tenant: TenantPlan) -> None:
        self.here.discard(tenant.job_id)

    def await_controller(self) -> None:
        if self.stopped:
            raise RunFailed("the controller is stopped")

    def opening_vms(self, *_: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def spawn(
        self, name: str, slot: Slot, plan: Plan, cores: int = 1
    ) -> None:
        self.agents.spawn(name, slot, plan)

    def freeze(self, tenant: TenantPlan, *, frozen: bool) -> None:
        for vm in tenant.vms:
            if frozen:
                self.agents.frozen.add(vm.slot)
            else:
                self.agents.thaw(vm.slot)

    def limits_reached(self, tenant: TenantPlan) -> str:
        return self.reached.get(tenant.job_id, "")

    def end_processes(self, tenant: TenantPlan) -> None:
        for vm in tenant.vms:
            self.agents.end_all_in(vm.slot)

    def claim(self, _: Slot, plan: ComputePlan, *more: Any) -> Claim:
        # Nothing counts processor time here.
        return Claim(Path("/nowhere"), plan.share)

    def vm_groups(self, _: TenantPlan) -> tuple[Path, ...]:
        return ()

    def set_tier(self, *_: Any) -> None: ...

    def raise_priority(self, *_: Any) -> None: ...

    def write_plans_to(self, *_: Any) -> None: ...

    def rerate(self, tenant: TenantPlan, rate_bps: int) -> TenantPlan:
        if rate_bps in self.refused_bps:
            raise RunFailed(f"tc refused {rate_bps}")
        return replace(tenant, rate_bps=rate_bps)

    def set_capacities(
        self,
        datacentre: DataCentre,
        plan: NetworkPlan,
        tenants: list[tuple[TenantPlan, TenantPlan]],
    ) -> None:
        if self.refuses_capacities:
            raise RunFailed("tc refused the capacities")
        self.capacities.append((datacentre, plan, tenants))
        self.plan = plan

    def reroot(
        self, moves: list[tuple[TenantPlan, TenantPlan]]
    ) -> dict[str, RunFailed]:
        names = self.reroot_refused & {new.job_id for _, new in moves}
        return {name: RunFailed(f"tc refused {name}") for name in names}

    def restore_links(self) -> None: ...

    def fail(self, failure: Failure, _: list[TenantPlan]) -> None:
        self.failures.append(failure)

    def open_vm(self, slot: Slot) -> tuple[Path, ...]:
        return (
            Path(f"/cgroup/node{slot.server}/vm{slot.index}/cgroup.procs"),
        )

    def facts(self) -> dict[str, Any]:
        return {"log": str(Path("/nowhere"))}
