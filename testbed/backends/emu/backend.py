"""The live network under the engine: places tenants, starts agents, listens, takes tenants out.

Single-threaded: everything happens inside :meth:`LiveBackend.wait` and the calls the engine
makes. Experiment time is wall time since :meth:`LiveBackend.begin`, times ``scale.time``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.live.client import (
    AgentDone,
    AgentExited,
    AgentPoolError,
    AgentProgress,
    AgentReady,
    AgentRefused,
    Message,
)
from jobs.live.protocol import AgentReport, Plan, TransferPlan
from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.watch import Watch
from testbed.backends.emu.world import LiveWorld
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion, StartFailed
from testbed.errors import RunFailed
from testbed.plan.job import agent_plans, produces_last
from testbed.plan.network import Slot, TenantPlan, scaled_bps, tenant_plan
from testbed.schedulers.actions import Tier
from testbed.spec.experiment import Scale

READY_TIMEOUT_S = 15.0
EXIT_TIMEOUT_S = 5.0
START_MARGIN_NS = 3_000_000
PROGRESS_EVERY_S = 0.5


@dataclass
class _LiveJob:
    """A job on the network: its tenant, its agents, what they said."""

    request: JobRequest
    tenant: TenantPlan
    plans: tuple[Plan, ...]
    waiting_for: set[str]
    begin_ns: int = 0
    received: dict[str, int] = field(default_factory=dict)
    reports: dict[str, AgentReport] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    trouble: str | None = None
    said_ns: int = 0

    @property
    def volume_bytes(self) -> int:
        return sum(
            flow.size_bytes
            for plan in self.plans
            if isinstance(plan, TransferPlan)
            for flow in plan.receives
        )

    @property
    def over(self) -> bool:
        """All agents have reported, or one is in trouble after the start."""
        return len(self.reports) == len(self.plans) or (
            self.trouble is not None and self.begin_ns > 0
        )


class LiveBackend:
    """See :class:`testbed.engine.backend.Backend`."""

    name = "live"

    def __init__(
        self, world: LiveWorld, scale: Scale, seed: int, sink: Callable[[events.Event], None]
    ) -> None:
        self._world = world
        self._scale = scale
        self._seed = seed
        self._sink = sink
        self._free: dict[int, list[Slot]] = {
            server: list(slots) for server, slots in world.plan.slots_of_server.items()
        }
        self._jobs: dict[str, _LiveJob] = {}
        self._owner: dict[str, str] = {}
        self._alive: set[str] = set()
        self._next_tenant = 1
        self._zero_ns = time.monotonic_ns()
        self.watch = Watch(world, scale, sink, self.now_s)

    def begin(self) -> None:
        """Experiment time 0 is now."""
        self._zero_ns = time.monotonic_ns()
        self.watch.start()

    # -- time -------------------------------------------------------------------------------

    def now_s(self) -> float:
        return self._experiment_s(time.monotonic_ns())

    def _experiment_s(self, at_ns: int) -> float:
        return (at_ns - self._zero_ns) / 1e9 * self._scale.time

    def wait(self, until_s: float | None) -> list[Completion]:
        while True:
            over = [job_id for job_id, job in self._jobs.items() if job.over]
            if over:
                done = [self._finish(job_id) for job_id in over]
                return sorted(done, key=lambda c: (c.at_s, c.job_id))
            if until_s is None:
                if not self._jobs:
                    return []
                left_s = 1.0
            else:
                left_s = (until_s - self.now_s()) / self._scale.time
                if left_s <= 0:
                    return []
            self._listen(left_s)

    def _listen(self, timeout_s: float) -> None:
        """Take in what agents say, for at most ``timeout_s``; look after the samplers."""
        tenants = [job.tenant for job in self._jobs.values()]
        timeout_s = self.watch.tick(timeout_s, tenants)
        try:
            messages = self._world.agents.poll(timeout_s)
        except AgentPoolError as error:
            raise RunFailed(str(error)) from error
        for message in messages:
            self._hear(message)

    def _hear(self, message: Message) -> None:
        agent = message.agent_id
        if isinstance(message, AgentExited | AgentRefused) and agent is not None:
            self._alive.discard(agent)
        if isinstance(message, AgentExited):
            self._note_exit(message)
        job_id = self._owner.get(agent) if agent is not None else None
        job = self._jobs.get(job_id) if job_id is not None else None
        if job is None or job_id is None or agent is None:
            return
        match message:
            case AgentReady():
                job.waiting_for.discard(agent)
            case AgentProgress(progress=progress):
                job.received[agent] = progress.received_bytes
                self._show(job_id, job)
            case AgentDone(report=report):
                job.reports[agent] = report
                if report.error is not None:
                    job.trouble = job.trouble or f"VM {report.index}: {report.error}"
            case AgentRefused(reason=reason):
                job.trouble = job.trouble or f"agent {agent} was refused: {reason}"
            case AgentExited(code=code, signum=signum) if agent not in job.reports:
                how = f"exit code {code}" if signum is None else signal.Signals(signum).name
                job.trouble = job.trouble or f"agent {agent} ended with {how} and no report"
            case _:
                pass

    def _note_exit(self, message: AgentExited) -> None:
        """Exit codes as a shell shows them: 128 + the signal's number."""
        job = self._jobs.get(message.agent_id.rpartition(".")[0])
        if job is not None:
            code = 128 + (message.signum or 0) if message.code is None else message.code
            job.exits[message.agent_id] = code

    def _show(self, job_id: str, job: _LiveJob) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - job.said_ns < PROGRESS_EVERY_S * 1e9 or not job.volume_bytes:
            return
        job.said_ns = now_ns
        received = sum(job.received.values())
        share = min(1.0, received / job.volume_bytes)
        self._sink(events.JobProgress(self._experiment_s(now_ns), job_id, received, share))

    # -- starting ---------------------------------------------------------------------------

    def start(self, job: JobRequest, placement: Placement, rate_bps: int, tier: Tier) -> None:  # noqa: ARG002 one tier
        tenant = self._tenant(job, placement, rate_bps)
        estimate_s = job.duration_s * max(1.0, job.bandwidth_bps / max(1, rate_bps))
        plans = agent_plans(job, tenant, self._scale, self._seed, estimate_s)
        names = [f"{job.id}.{vm.index}" for vm in tenant.vms]
        live = _LiveJob(job, tenant, plans, set(names))
        self._jobs[job.id] = live
        try:
            self._world.admit(tenant)
            for name, vm, plan in zip(names, tenant.vms, plans, strict=True):
                self._owner[name] = job.id
                self._alive.add(name)
                self._world.spawn(name, vm.slot, plan)
            self._until_ready(live)
        except (OSError, RunFailed) as error:
            self._take_out(job.id, live)
            raise StartFailed(str(error)) from error
        live.begin_ns = time.monotonic_ns() + START_MARGIN_NS
        self._world.agents.begin(names, live.begin_ns)

    def _tenant(self, job: JobRequest, placement: Placement, rate_bps: int) -> TenantPlan:
        slots = [
            self._free[server].pop(0) for server, count in placement.vms_on for _ in range(count)
        ]
        tenant_id, self._next_tenant = self._next_tenant, self._next_tenant + 1
        return tenant_plan(
            self._world.datacentre,
            self._world.plan,
            placement,
            tuple(slots),
            tenant_id,
            job.id,
            scaled_bps(rate_bps, self._scale.rate),
        )

    def _until_ready(self, live: _LiveJob) -> None:
        give_up = time.monotonic() + READY_TIMEOUT_S
        while live.waiting_for:
            left_s = give_up - time.monotonic()
            if live.trouble is not None:
                raise RunFailed(live.trouble)
            if left_s <= 0:
                silent = ", ".join(sorted(live.waiting_for))
                raise RunFailed(f"no connection within {READY_TIMEOUT_S:g} s: {silent}")
            self._listen(left_s)

    # -- ending -----------------------------------------------------------------------------

    def _finish(self, job_id: str) -> Completion:
        live = self._jobs[job_id]
        self._take_out(job_id, live)
        detail = self._detail(live)
        if live.trouble is not None:
            return Completion(job_id, self.now_s(), "killed", live.trouble, None, detail)
        end_ns = max(self._end_ns(live, report) for report in live.reports.values())
        measured_s = (end_ns - live.begin_ns) / 1e9 * self._scale.time
        return Completion(job_id, self.now_s(), "finished", "", measured_s, detail)

    @staticmethod
    def _end_ns(live: _LiveJob, report: AgentReport) -> int:
        """The receiver's last byte; where the application computes on or moves none, its end."""
        last_ns = report.last_byte_ns
        if last_ns is None or produces_last(live.request):
            return report.end_ns
        return last_ns

    def _detail(self, live: _LiveJob) -> dict[str, object]:
        reports = list(live.reports.values())
        return {
            "volume_bytes_raw": live.volume_bytes,
            "received_bytes_raw": sum(f.size_bytes for r in reports for f in r.received),
            "acknowledged_bytes_raw": sum(f.acknowledged_bytes for r in reports for f in r.sent),
            "retransmits": sum(f.retransmits for r in reports for f in r.sent),
            "cpu_s_raw": sum(r.cpu_s for r in reports),
            "rate_bps_raw": live.tenant.rate_bps,
            "congestion_control": sorted(
                {r.congestion_control for r in reports if r.congestion_control}
            ),
            "vms": [vm.slot.netns for vm in live.tenant.vms],
            "exit_codes": [live.exits[name] for name in sorted(live.exits)],
        }

    def _take_out(self, job_id: str, live: _LiveJob) -> None:
        """Agents gone, limits and flows removed, slots free again."""
        names = [f"{job_id}.{vm.index}" for vm in live.tenant.vms]
        for name in names:
            if name in self._alive and name not in live.reports:
                self._world.agents.signal(name, signal.SIGKILL)
            self._owner.pop(name, None)
        give_up = time.monotonic() + EXIT_TIMEOUT_S
        while (left := self._alive.intersection(names)) and time.monotonic() < give_up:
            self._listen(0.2)
        if left:
            raise RunFailed(f"agents do not end: {', '.join(sorted(left))}")
        self._world.dismiss(live.tenant)
        for vm in live.tenant.vms:
            self._free[vm.slot.server].append(vm.slot)
            self._free[vm.slot.server].sort(key=lambda slot: slot.index)
        del self._jobs[job_id]

    def kill(self, job_id: str) -> None:
        self._take_out(job_id, self._jobs[job_id])

    # -- changing ---------------------------------------------------------------------------

    def rescale(self, job_id: str, rate_bps: int) -> None:
        live = self._jobs[job_id]
        live.tenant = self._world.rerate(live.tenant, scaled_bps(rate_bps, self._scale.rate))

    def preempt(self, job_id: str) -> None:
        raise RunFailed(f"job {job_id}: preemption is not available in the live world yet")

    def resume(self, job_id: str, cost_s: float, tier: Tier) -> None:  # noqa: ARG002 not yet
        raise RunFailed(f"job {job_id}: resuming is not available in the live world yet")

    def migrate(
        self,
        job_id: str,
        placement: Placement,  # noqa: ARG002 not yet
        cost_s: float,  # noqa: ARG002
        tier: Tier,  # noqa: ARG002
    ) -> None:
        raise RunFailed(f"job {job_id}: migration is not available in the live world yet")

    def switch_tier(self, job_id: str, tier: Tier) -> None:
        raise RunFailed(f"job {job_id}: tier {tier} is not available in the live world yet")
