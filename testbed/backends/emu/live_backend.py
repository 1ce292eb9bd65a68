"""The live backend of the engine: places tenants, starts agents, follows them,
removes tenants.

Single-threaded: everything happens inside :meth:`LiveBackend.wait` and the
calls the engine makes. Experiment time is wall time since
:meth:`LiveBackend.begin`, times ``scale.time``.

A preempted job's processes are frozen where they are; connections, limits and
flows stay. Only where a new VM finds no namespace left on its server is a
frozen job *checkpointed*, which is what a migration does too: its agents report
what they have done and end, and others resume the rest.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

from jobs.demand import Program
from jobs.live.agent_pool import AgentPoolError, Message
from jobs.live.agent_protocol import (
    AgentExited,
    AgentProgress,
    AgentRefused,
    Plan,
)
from jobs.live.compute import ComputePlan
from jobs.request import Enforcement, JobRequest
from jobs.wire import wire_rate_bps
from testbed import events
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.job_evidence import Followed, may_converge
from testbed.backends.emu.live_job import LiveJob
from testbed.backends.emu.sampling import Watch
from testbed.backends.emu.work_evidence import Claim
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion, StartFailed
from testbed.engine.refusals import ActionRefused
from testbed.errors import RunFailed
from testbed.expectations import Expectation
from testbed.failures import Failure
from testbed.plan.agent_plans import (
    agent_plans,
    payload_bps,
    remaining,
    time_limit_s,
    with_volume,
)
from testbed.plan.crowded_links import (
    Placed,
    crowded_by_vm,
    crowded_links,
)
from testbed.plan.full_classes import converging_links
from testbed.plan.network_plan import (
    Slot,
    TenantPlan,
    TenantVm,
    enforced,
    proximate_weights,
    rerooted,
    scaled_bps,
    tenant_plan,
)
from testbed.schedulers.actions import Tier
from testbed.spec.experiment import Scale

READY_TIMEOUT_S = 60.0
# Preparation and launcher are before it.
PROGRAM_READY_TIMEOUT_S = 180.0
EXIT_TIMEOUT_S = 30.0
# Between SIGTERM and SIGKILL.
GRACE_S = 5.0
# Time for the message that gives an agent the instant of its start.
START_MARGIN_NS = 3_000_000
PROGRESS_EVERY_S = 0.5
# Progress messages of all agents together: this process reads each of them.
# From 40 VM slots on agents report less often, from 1000 on every 5 s.
PROGRESS_PER_S = 200
AGENT_PROGRESS_EVERY_S = (0.2, 5.0)
CHECK_EVERY_NS = 500_000_000
STALL_S = 30.0


class LiveBackend:
    """See :class:`testbed.engine.backend.Backend`."""

    name = "live"

    def __init__(
        self,
        emulation: Emulation,
        scale: Scale,
        seed: int,
        sink: Callable[[events.Event], None],
        *,
        weighted: bool = False,
        enforcement: Enforcement = "strict",
        played_for_s: float = 0.0,
        expect: Expectation | None = None,
    ) -> None:
        """A backend without jobs, whose clock has not begun.

        ``weighted``: jobs without guarantees share a link in proportion to
        their VMs, as under PS-P; otherwise as their TCP flows do in the link's
        default class. ``enforcement``: how reservations are enforced.
        ``played_for_s``: wall time of the whole job where a run plays only
        pieces of jobs; packet sizes are chosen for the whole. ``expect``: by
        how much jobs may be late.
        """
        self._expect = expect or Expectation()
        self._weighted = weighted
        self._enforcement = enforcement
        self._played_for_s = played_for_s
        self._emulation = emulation
        self._scale = scale
        self._seed = seed
        self._sink = sink
        self._free: dict[int, list[Slot]] = {}
        for server, slots in emulation.plan.slots_of_server.items():
            self._free[server] = list(slots)
        self._jobs: dict[str, LiveJob] = {}
        # Jobs by their agents' names, and the agents whose processes are
        # there. An agent may still be ending when its job is gone.
        self._owner: dict[str, LiveJob] = {}
        self._alive: set[str] = set()
        self._running: list[Placed] = []
        self._crowded: frozenset[int] = frozenset()
        self._tenant_ids = count(1)
        # Number of VMs, and time from the first command to the last agent that
        # was ready.
        self._placings_ns: list[tuple[int, int]] = []
        self._zero_ns = time.monotonic_ns()
        # Until `begin` jobs are made ready, but do not start.
        self._held = True
        self._next_check_ns = 0
        self._emitting = False
        self._emitted_ns = 0
        often_s, seldom_s = AGENT_PROGRESS_EVERY_S
        all_s = len(emulation.plan.slots) / PROGRESS_PER_S
        self.progress_every_s = min(seldom_s, max(often_s, all_s))
        if scale.instant_s:
            # Completion windows need each agent's present pace.
            self.progress_every_s = often_s
        self.watch = Watch(emulation, scale, self._emit, self.now_s)

    def begin(self) -> None:
        """Sets experiment time 0, and begins all jobs started so far together.

        Links that an earlier run's failures took down come up first.
        """
        self._emulation.restore_links()
        self._zero_ns = time.monotonic_ns()
        self.watch.start()
        self._held = False
        # Agents get their messages one after the other, and begin together.
        margin_ns = START_MARGIN_NS * max(1, len(self._jobs))
        at_ns = time.monotonic_ns() + margin_ns
        for live in self._jobs.values():
            live.begin(at_ns, at_ns)
            # One that was ready may have ended while others got ready.
            present = [name for name in live.agents if name in self._alive]
            self._emulation.agents.begin(present, at_ns)

    # -- time -------------------------------------------------------------------------------

    def now_s(self) -> float:
        return self._experiment_s(time.monotonic_ns())

    def _experiment_s(self, at_ns: int) -> float:
        return (at_ns - self._zero_ns) / 1e9 * self._scale.time

    def _wall_ns(self, duration_s: float) -> int:
        return round(duration_s / self._scale.time * 1e9)

    def wait(self, until_s: float | None) -> list[Completion]:
        while True:
            self._thaw_due()
            if any(job.over for job in self._jobs.values()):
                return self._completion_window()
            if until_s is None:
                if not self._jobs:
                    return []
                left_s = 1.0
            else:
                left_s = (until_s - self.now_s()) / self._scale.time
                if left_s <= 0:
                    return []
            with self._emitting_events():
                self._listen(min(left_s, self._patience_s()))

    def _completion_window(self) -> list[Completion]:
        """Completions of one completion window (``scale.instant_s``).

        All get the time of the last. A job is waited for only if its agents'
        pace says that it ends within the window.
        """
        window_ns = self._wall_ns(self._scale.instant_s)
        until_ns = time.monotonic_ns() + window_ns
        with self._emitting_events():
            while (left_ns := until_ns - time.monotonic_ns()) > 0:
                if not any(
                    job.ends_by(until_ns) for job in self._jobs.values()
                ):
                    break
                self._thaw_due()
                self._listen(min(left_ns / 1e9, self._patience_s()))
        # Noted first: to finish a job takes it out, and listens to the others.
        over = sorted(
            job_id for job_id, job in self._jobs.items() if job.over
        )
        done = [self._finish(job_id) for job_id in over]
        if self._scale.instant_s:
            last_s = max((ended.at_s for ended in done), default=0.0)
            done = [ended._replace(at_s=last_s) for ended in done]
        return sorted(done, key=lambda ended: (ended.at_s, ended.job_id))

    @contextmanager
    def _emitting_events(self) -> Iterator[None]:
        self._emitting = True
        try:
            yield
        finally:
            self._emitting = False

    def _patience_s(self) -> float:
        """Time in s until the next check or thaw is due."""
        # Whether a lost connection has a better reason is known after
        # TROUBLE_S, without a message.
        if any(job.trouble is not None for job in self._jobs.values()):
            return 0.05
        left_ns = CHECK_EVERY_NS
        now_ns = time.monotonic_ns()
        for job in self._jobs.values():
            if job.thaw_ns:
                left_ns = min(left_ns, job.thaw_ns - now_ns)
        return max(0.0, left_ns / 1e9)

    def _listen(self, timeout_s: float) -> None:
        """Reads agents' messages for at most ``timeout_s``, and takes due samples."""
        if self._emitting:
            timeout_s = self._sample_when_due(timeout_s)
        asleep_s = time.monotonic()
        try:
            messages = self._emulation.agents.poll(timeout_s)
        except AgentPoolError as error:
            raise RunFailed(str(error)) from error
        # Another message ends the sleep early, which says nothing of how late
        # this process is woken.
        if self._emitting and all(
            isinstance(message, AgentProgress) for _, message in messages
        ):
            self.watch.slept(timeout_s, time.monotonic() - asleep_s)
        for agent, message in messages:
            self._receive(agent, message)
        for job in self._jobs.values():
            self._show(job)
        if time.monotonic_ns() >= self._next_check_ns:
            self._next_check_ns = time.monotonic_ns() + CHECK_EVERY_NS
            self._emulation.check()
            for job in self._jobs.values():
                self._check_job(job)

    def _sample_when_due(self, timeout_s: float) -> float:
        """Takes due samples; returns how long to listen at most."""
        tenants = []
        cap_limited = {}
        for job, tenant in self._on_nodes():
            tenants.append(tenant)
            # Without enforcement a VM's cap is no reservation's.
            if job.is_cap_limited and self._enforcement != "none":
                cap_limited[tenant.tenant_id] = job.delivered_share
        timeout_s = self.watch.look(timeout_s, self._followed)
        return self.watch.tick(timeout_s, tenants, cap_limited)

    def _on_nodes(self) -> Iterator[tuple[LiveJob, TenantPlan]]:
        """Jobs that are on their nodes, with their tenants."""
        for job in self._jobs.values():
            if job.since_ns is not None and job.tenant is not None:
                yield job, job.tenant

    def _followed(self) -> list[Followed]:
        """Running jobs, described for the collection of evidence."""
        result = []
        datacentre = self._emulation.datacentre
        crowded = self._crowded_links()
        full_nodes = self._full_nodes()
        for job, tenant in self._on_nodes():
            followed = self._followed_job(job, tenant, full_nodes)
            if followed.kind == "best effort":
                placed = Placed(tenant, job.placement)
                by_vm = crowded_by_vm(datacentre, placed, crowded)
                followed = replace(followed, crowded=by_vm)
            demand = job.request.demand
            if may_converge(followed, demand, self._enforcement):
                links = converging_links(datacentre, job.placement)
                followed = replace(followed, converging=links)
            result.append(followed)
        return result

    def _followed_job(
        self,
        job: LiveJob,
        tenant: TenantPlan,
        full_nodes: dict[int, Claim],
    ) -> Followed:
        # Processes of a person's program are known by their groups alone.
        groups: tuple[Path, ...] = ()
        if job.request.demand.own_program:
            groups = self._emulation.vm_groups(tenant)
        beside_full_nodes = []
        for vm in tenant.vms:
            if vm.slot.server in full_nodes:
                beside_full_nodes.append(full_nodes[vm.slot.server])
        # Of the VMs that still have work to do.
        claims = []
        for _, _, claim, end_ns in self._computing(job, tenant):
            if end_ns is None:
                claims.append(claim)
        return job.followed(
            tenant,
            self._scale,
            groups=groups,
            claims=tuple(claims),
            nodes=tuple(beside_full_nodes),
            band=self._expect.late_share(job.request.application),
            enforced=self._enforcement != "none",
            offloads=self._emulation.network.offloads,
        )

    def _crowded_links(self) -> frozenset[int]:
        """Links that jobs without a reservation may have to share."""
        running = []
        for job in self._jobs.values():
            if job.tenant is not None:
                running.append(Placed(job.tenant, job.placement))
        # Asked for at each look, but it changes only as jobs come and go.
        if self._running == running:
            return self._crowded
        self._running = running
        self._crowded = frozenset()
        unreserved = self._enforcement == "none"
        if unreserved or any(
            job.best_effort for job in self._jobs.values()
        ):
            self._crowded = crowded_links(
                self._emulation.datacentre, self._emulation.plan, running
            )
        return self._crowded

    def _full_nodes(self) -> dict[int, Claim]:
        """Claims, by server, of background VMs that use all that others leave."""
        nodes = {}
        for job, tenant in self._on_nodes():
            if job.frozen or job.tier != "background":
                continue
            for vm, plan, claim, end_ns in self._computing(job, tenant):
                if plan.share >= 1.0 and end_ns is None:
                    nodes[vm.slot.server] = claim
        return nodes

    def _done_s(
        self, live: LiveJob, tenant: TenantPlan
    ) -> dict[Claim, float]:
        """Instants in s at which a job's VMs had computed everything."""
        # On a background VM's node others use what it leaves: its account
        # does not stand still.
        if live.tier == "background":
            return {}
        done_s = {}
        for _, _, claim, end_ns in self._computing(live, tenant):
            if end_ns is not None:
                done_s[claim] = end_ns / 1e9
        return done_s

    def _computing(
        self, job: LiveJob, tenant: TenantPlan
    ) -> Iterator[tuple[TenantVm, ComputePlan, Claim, int | None]]:
        """A job's computing VMs with their plans and claims.

        The last value is the instant in ns at which a VM had computed
        everything; None while it still has work.
        """
        end_ns = {
            report.index: report.end_ns for report in job.reports.values()
        }
        cores = job.request.demand.cores
        for vm, plan in zip(tenant.vms, job.plans, strict=True):
            if isinstance(plan, ComputePlan):
                claim = self._emulation.claim(
                    vm.slot, plan, cores, job.tier
                )
                yield vm, plan, claim, end_ns.get(vm.index)

    def _receive(self, agent: str, message: Message) -> None:
        if isinstance(message, AgentExited | AgentRefused):
            self._alive.discard(agent)
        job = self._owner.get(agent)
        if job is not None:
            job.receive(agent, message)

    def listen_until(self, until_s: float) -> None:
        """Follows the jobs until ``until_s``, or until all are over.

        No job is removed meanwhile.
        """
        with self._emitting_events():
            while (
                left_s := (until_s - self.now_s()) / self._scale.time
            ) > 0:
                if all(job.over for job in self._jobs.values()):
                    return
                self._listen(min(left_s, self._patience_s()))

    def delivered_share(self, job_id: str) -> float:
        """Share of its payload that a running job's VMs have received."""
        return self._jobs[job_id].delivered_share

    def _check_job(self, job: LiveJob) -> None:
        """Fails a running job that lost a port, is far too late, or stalls."""
        is_working = job.since_ns is not None and job.begun and not job.over
        # A job that a failure has cut is to stand still.
        if not is_working or job.tenant is None or job.cut_ns is not None:
            return
        now_ns = time.monotonic_ns()
        for tenant, vm in self.watch.lost_ports:
            if tenant == job.tenant.tenant_id:
                port = job.tenant.vms[vm].slot.port.name
                job.fail(f"VM {vm}: its port {port} is gone", cause=True)
        limit_s = job.limit_s
        if limit_s is not None and job.ran_until_ns(now_ns) > limit_s * 1e9:
            job.fail(
                f"not done after {limit_s:g} s of wall time, several times its estimate"
            )
        # TCP itself waits for a week: a preempted job's connections have to.
        stalled_s = (now_ns - max(job.progress_ns, job.begin_ns)) / 1e9
        always_moves = job.volume_bytes and not job.request.demand.pauses
        if always_moves and stalled_s > STALL_S:
            job.fail(
                f"nothing has arrived at any of its VMs for {stalled_s:.0f} s of wall time"
            )

    def _emit(self, event: events.Event) -> None:
        self._emitted_ns = time.monotonic_ns()
        self._sink(event)

    def _show(self, job: LiveJob) -> None:
        """Records a running job's progress, if there is any since the last time."""
        now_ns = time.monotonic_ns()
        # Bytes sent before a freeze may arrive after it: not shown, as the job
        # is off its nodes.
        if job.since_ns is None or job.progress_ns <= max(
            job.shown_ns, job.begin_ns
        ):
            return
        due = now_ns - job.shown_ns >= PROGRESS_EVERY_S * 1e9
        if due and self._emitting and job.volume_bytes and job.begun:
            job.shown_ns = now_ns
            received = job.received_bytes
            share = min(1.0, received / job.volume_bytes)
            self._emit(
                events.JobProgress(
                    self.now_s(), job.request.id, received, share
                )
            )

    # -- starting ---------------------------------------------------------------------------

    def start(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
    ) -> None:
        best_effort = job.is_best_effort(rate_bps)
        # Without a reservation, or in the background, others decide how
        # long it takes.
        limit_s = None
        if not best_effort and tier == "foreground":
            limit_s = time_limit_s(job, rate_bps, self._scale)
        live = LiveJob(
            request=job,
            placement=placement,
            rate_bps=rate_bps,
            tier=tier,
            best_effort=best_effort,
            limit_s=limit_s,
            decided_ns=time.monotonic_ns(),
        )
        self._jobs[job.id] = live
        try:
            with self._emitting_events():
                self._let_borrow(live)
                self._deploy(live, time.monotonic_ns())
        except (OSError, RunFailed) as error:
            self.remove(job.id)
            raise StartFailed(str(error)) from error
        live.volume_bytes = sum(plan.receives_bytes for plan in live.plans)

    def _let_borrow(self, live: LiveJob) -> None:
        """Lets a job without an enforced reservation use what others leave."""
        borrows = live.best_effort and not self._weighted
        if self._enforcement == "none" or borrows:
            self._emulation.network.allow_borrowing()

    def _deploy(
        self,
        live: LiveJob,
        since_ns: int,
        cost_ns: int = 0,
    ) -> None:
        """Makes a job's tenant and agents, and has them start together.

        The time of a new job begins with its agents. A restarted job is on its
        new nodes from ``since_ns`` on, so that its preparation counts, and
        works ``cost_ns`` later at the earliest. Raises RunFailed, OSError.
        """
        placing_ns = time.monotonic_ns()
        tenant = live.tenant = self._tenant(live)
        cores = live.request.demand.cores
        with self._emulation.opening_vms(tenant, cores):
            self._emulation.admit(tenant)
        live.plans = self._plans(live, tenant)
        self._spawn(live, tenant)
        self._until_ready(live)
        # Not before: at a background weight agents would hardly get ready.
        self._emulation.set_tier(tenant, live.tier)
        placed_in_ns = time.monotonic_ns() - placing_ns
        self._placings_ns.append((len(tenant.vms), placed_in_ns))
        # The jobs of time 0 begin together, in `begin`.
        if self._held:
            return
        ready_ns = time.monotonic_ns() + START_MARGIN_NS
        at_ns = max(ready_ns, since_ns + cost_ns)
        if live.generation:
            waited_ns = at_ns - since_ns - cost_ns
            usual_ns = self._usual_placing_ns(len(tenant.vms))
            live.moving_ns += max(0, waited_ns - usual_ns)
        live.begin(since_ns if live.generation else at_ns, at_ns)
        self._emulation.agents.begin(live.agents, at_ns)

    def _usual_placing_ns(self, n_vms: int) -> int:
        """The least time that placing so many VMs, or more, took in this run.

        To resume elsewhere is to be placed again, which takes its time on any
        machine; only what it takes beyond that is the machine's fault.
        """
        return min(
            took_ns
            for n_placed, took_ns in self._placings_ns
            if n_placed >= n_vms
        )

    def _plans(self, live: LiveJob, tenant: TenantPlan) -> tuple[Plan, ...]:
        """Plans of a job's agents; of a restarted job, the rest of its earlier ones."""
        if live.generation:
            ips = [str(vm.ip) for vm in tenant.vms]
            return tuple(plan.readdressed(ips) for plan in live.plans)
        return agent_plans(
            live.request,
            tenant,
            self._scale,
            seed=self._seed,
            granted_bps=live.granted_bps,
            offloads=self._emulation.network.offloads,
        )

    def _spawn(self, live: LiveJob, tenant: TenantPlan) -> None:
        # Agents of before a restart may still be ending: names differ.
        suffix = f":{live.generation}" if live.generation else ""
        live.agents = tuple(
            f"{live.request.id}.{vm.index}{suffix}" for vm in tenant.vms
        )
        live.waiting_for = set(live.agents)
        cores = live.request.demand.cores
        for name, vm, work in zip(
            live.agents, tenant.vms, live.plans, strict=True
        ):
            self._owner[name] = live
            self._alive.add(name)
            plan = replace(work, progress_every_s=self.progress_every_s)
            self._emulation.spawn(name, vm.slot, plan, cores)

    def _tenant(self, live: LiveJob) -> TenantPlan:
        datacentre = self._emulation.datacentre
        tenant = tenant_plan(
            datacentre,
            self._emulation.plan,
            live.placement,
            tuple(self._slots(live.placement)),
            tenant_id=next(self._tenant_ids),
            job_id=live.request.id,
            rate_bps=scaled_bps(self._cap_bps(live), self._scale.rate),
        )
        tenant = with_volume(
            tenant,
            live.request,
            self._scale,
            granted_bps=live.granted_bps,
            for_s=self._played_for_s,
            offloads=self._emulation.network.offloads,
        )
        if not live.best_effort:
            return enforced(self._emulation.plan, tenant, self._enforcement)
        # Nothing is reserved on links: its packets share their default
        # class.
        tenant = replace(tenant, link_bps=())
        if not self._weighted:
            return tenant
        weights = proximate_weights(datacentre, live.placement)
        return replace(tenant, weights=weights)

    def _cap_bps(self, live: LiveJob) -> int:
        """The cap of each VM's sending, in the experiment's bit/s."""
        if not live.best_effort:
            return live.rate_bps
        # Without a reservation its cap is the bandwidth that it asks for.
        nics_bps = self._emulation.datacentre.wider_nic_bps
        nic_bps = max(
            int(nics_bps[server]) for server, _ in live.placement.vms_on
        )
        return min(nic_bps, live.request.bandwidth_bps)

    def _slots(self, placement: Placement) -> list[Slot]:
        """A namespace for every VM, by server: all of them or none."""
        slots: list[Slot] = []
        try:
            for server, n_vms in placement.vms_on:
                for _ in range(n_vms):
                    slots.append(self._slot(server))
        except BaseException:
            self._give_back(slots)
            raise
        return slots

    def _give_back(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._free[slot.server].append(slot)
            self._free[slot.server].sort(key=lambda free: free.index)

    def _slot(self, server: int) -> Slot:
        """Takes a free namespace on a server.

        Where none is left, the first frozen job there, by id, is checkpointed.
        Raises RunFailed without one.
        """
        if not self._free[server]:
            for _, job in sorted(self._jobs.items()):
                # A resumed job stays frozen for the cost of its resumption;
                # since_ns says that its nodes are its own again.
                is_away = job.frozen and job.since_ns is None
                if is_away and server in dict(job.placement.vms_on):
                    self._checkpoint(job)
                    break
        if not self._free[server]:
            name = self._emulation.plan.bridge_of_node[server].name
            raise RunFailed(f"no VM namespace is left on {name}")
        return self._free[server].pop(0)

    def _until_ready(self, live: LiveJob) -> None:
        timeout_s = READY_TIMEOUT_S
        if isinstance(live.request.demand, Program):
            timeout_s = PROGRAM_READY_TIMEOUT_S
        give_up = time.monotonic() + timeout_s
        while live.waiting_for:
            left_s = give_up - time.monotonic()
            waited_for = len(live.waiting_for)
            self._listen(max(0.0, min(left_s, self._patience_s())))
            if live.trouble is not None:
                raise RunFailed(live.trouble)
            # A timeout re-checks the condition once: this process itself may
            # have been paused.
            if left_s <= 0 and len(live.waiting_for) == waited_for:
                silent = ", ".join(sorted(live.waiting_for))
                raise RunFailed(
                    f"no connection within {timeout_s:g} s: {silent}"
                )

    # -- ending -----------------------------------------------------------------------------

    def _finish(self, job_id: str) -> Completion:
        live = self._jobs[job_id]
        live.check_output()
        end_ns = time.monotonic_ns()
        if live.trouble is None:
            end_ns = live.end_ns()
        # Not before the last recorded event: times in events.jsonl never
        # decrease.
        at_s = self._experiment_s(max(end_ns, self._emitted_ns))
        measured_s = live.ran_until_ns(end_ns) / 1e9 * self._scale.time
        # Before its tenant goes: counters and limits are read in its VMs.
        observed = self._observed(live, measured_s)
        self._tell_of_limits(live)
        self.remove(job_id)
        if live.trouble is not None:
            return Completion(
                job_id,
                at_s,
                "killed",
                reason=live.trouble,
                detail=live.detail(),
            )
        return Completion(
            job_id,
            at_s,
            "finished",
            measured_s=measured_s,
            detail=live.detail() | observed,
        )

    def _observed(self, live: LiveJob, measured_s: float) -> dict[str, Any]:
        """Figures of the network on a job that ends, for its record."""
        observed: dict[str, Any] = dict(live.delays(self._scale.time))
        if iperf3 := self._iperf3(live, measured_s):
            observed["iperf3"] = iperf3
        if live.tenant is None:
            return observed
        lost = [report.lost_s for report in live.reports.values()]
        evidence = self.watch.evidence.finish(
            live.tenant.tenant_id,
            lost_s=max(lost, default=0.0),
            arrivals=live.arrivals,
            resent=live.resent,
            done_s=self._done_s(live, live.tenant),
        )
        if evidence is not None:
            observed["evidence"] = evidence.record()
        return observed

    def _tell_of_limits(self, live: LiveJob) -> None:
        """Adds the VMs that reached their limits to a job's failure."""
        if live.trouble is None or live.tenant is None:
            return
        if reached := self._emulation.limits_reached(live.tenant):
            live.trouble += f"; {reached}"

    def _iperf3(
        self, live: LiveJob, measured_s: float
    ) -> dict[str, list[float]]:
        """Bandwidth of each VM by iperf3, and by its cap's counter.

        In bit/s on the wire, in the experiment's units, averaged over the job.
        Empty for jobs that were restarted elsewhere.
        """
        if (
            live.tenant is None
            or live.generation
            or not (reported := live.iperf3_bps)
        ):
            return {}
        wall_s = measured_s / self._scale.time
        rate = self._scale.rate
        received_bps: list[float] = []
        for reported_bps in reported:
            received_bps.append(round(wire_rate_bps(reported_bps) / rate))
        counted_bps: list[float] = []
        for sent_bytes in self._emulation.network.vm_sent_bytes(
            live.tenant
        ):
            counted_bps.append(round(8 * sent_bytes / wall_s / rate))
        return {"received_bps": received_bps, "counted_bps": counted_bps}

    def kill(self, job_id: str, reason: str) -> None:
        """Ends a job now.

        The evidence on a job that its reservation's end stops is kept: it ends
        unfinished if the machine has held it up.
        """
        live = self._jobs[job_id]
        tenant = live.tenant
        if reason == events.OUTLASTED and live.begun and tenant is not None:
            # Before its tenant goes, as of a job that ends by itself.
            followed = self._followed_job(live, tenant, self._full_nodes())
            # Delay of the links is no time of the job's.
            delay_s = followed.began_s - live.first_begin_ns / 1e9
            self.watch.evidence.finish_stopped(
                followed,
                live.ran_until_ns(time.monotonic_ns()) / 1e9 - delay_s,
                computes=live.computes_as_planned,
            )
        self.remove(job_id)

    def remove(self, job_id: str) -> None:
        """Ends a job's agents, removes its tenant, and frees its namespaces."""
        live = self._jobs[job_id]
        # In this order: agents without limits would send as they like, and a
        # namespace with processes is not free.
        self._end_agents(live, by_force=True)
        tenant_id = None
        if live.tenant is not None:
            tenant_id = live.tenant.tenant_id
        # That on a job that ended by itself has been taken.
        self.watch.evidence.forget(job_id, tenant_id)
        self._vacate(live)
        del self._jobs[job_id]

    def _end_agents(self, live: LiveJob, *, by_force: bool) -> None:
        """Ends a job's agents that still run.

        ``by_force``: by SIGKILL; otherwise by SIGTERM, so that they report.
        Programs of people always get SIGTERM first. Raises RunFailed if agents
        do not end.
        """
        live.stopping = True
        own_program = live.request.demand.own_program
        running = self._alive.intersection(live.agents)
        silent = running - live.reports.keys()
        graceful = own_program or not by_force
        # An agent of a launched program that has reported serves the others
        # until it is ended.
        is_launched = isinstance(live.request.demand, Program)
        number = signal.SIGTERM if graceful else signal.SIGKILL
        for name in sorted(running if is_launched else silent):
            self._emulation.agents.signal(name, number)
        if running and live.tenant is not None:
            self._let_end(live, live.tenant)
        live.frozen = False
        # After SIGKILL `end_processes` waits for the processes themselves.
        if graceful or not silent:
            timeout_s = GRACE_S if own_program else EXIT_TIMEOUT_S
            self._until_ended(live, timeout_s)
        # What a person's program has started may outlive its agent: only
        # the VM's control group still knows of it.
        lingering = self._alive.intersection(live.agents)
        left_running = own_program or silent or lingering
        if live.tenant is not None and left_running:
            self._emulation.end_processes(live.tenant)
        self._until_ended(live, EXIT_TIMEOUT_S)
        if left := self._alive.intersection(live.agents):
            raise RunFailed(f"agents do not end: {', '.join(sorted(left))}")

    def _let_end(self, live: LiveJob, tenant: TenantPlan) -> None:
        """Gives processes with a signal to end what they need for it."""
        if live.tier == "background":
            # Even a killed process needs CPU time to exit, and a weight of 1
            # beside a busy VM gives it next to none. The higher priority moves
            # processes to another group; a command stays in its own, by which
            # its children are found.
            with suppress(OSError):
                self._emulation.set_tier(tenant, "foreground")
                if not live.request.demand.own_program:
                    self._emulation.raise_priority(tenant)
        if live.frozen:
            # A frozen process does not end by SIGTERM; an agent may be frozen
            # between its report and its exit.
            self._emulation.freeze(tenant, frozen=False)

    def _until_ended(self, live: LiveJob, timeout_s: float) -> None:
        give_up = time.monotonic() + timeout_s
        while self._alive.intersection(live.agents):
            if time.monotonic() >= give_up:
                return
            self._listen(0.2)

    def _vacate(self, live: LiveJob) -> None:
        """Removes a job's tenant from the network, and frees its namespaces."""
        if live.tenant is not None:
            self._emulation.dismiss(live.tenant)
            self._give_back(vm.slot for vm in live.tenant.vms)
        # Later messages of its agents belong to no job.
        for name in live.agents:
            self._owner.pop(name, None)

    # -- failures ---------------------------------------------------------------------------

    def fail(self, failure: Failure) -> None:
        began_s = time.monotonic()
        tenants = []
        for job in self._jobs.values():
            if job.tenant is not None:
                tenants.append(job.tenant)
        self._emulation.fail(failure, tenants)
        # A restarted switch has new processes.
        if failure.kind == "switch_restarted":
            self.watch.follow_switches()
        outage_s = time.monotonic() - began_s
        for job in self._jobs.values():
            self._disturb(job, outage_s)

    def _disturb(self, job: LiveJob, outage_s: float = 0.0) -> None:
        """Records that the experiment itself stops a job's traffic.

        ``outage_s``: for how long; without an end while the job is cut or off
        its nodes.
        """
        if job.tenant is None:
            return
        if job.cut_ns is not None or job.since_ns is None:
            outage_s = inf
        self.watch.evidence.disturb(job.tenant.tenant_id, outage_s)

    def reroot(self, job_id: str, placement: Placement) -> None:
        live = self._jobs[job_id]
        live.placement = placement
        # Checkpointed: it resumes there.
        if live.tenant is None:
            return
        centre = self._emulation.datacentre
        plan = self._emulation.plan
        moved = rerooted(centre, plan, live.tenant, placement)
        failed = self._emulation.reroot([(live.tenant, moved)])
        for why in failed.values():
            live.fail(why.message)
        if not failed:
            live.tenant = moved
        self._disturb(live)

    def cut(self, job_id: str) -> None:
        """Suspends the checks of a job whose network a failure has cut."""
        self._jobs[job_id].cut_ns = time.monotonic_ns()
        self._disturb(self._jobs[job_id])

    def reconnect(self, job_id: str) -> None:
        live = self._jobs[job_id]
        now_ns = time.monotonic_ns()
        if live.cut_ns is None:
            return
        # It stood still by design: from here on it is to move.
        live.progress_ns = now_ns
        cut_s = (now_ns - live.cut_ns) / 1e9
        live.cut_ns = None
        self._disturb(live, cut_s)
        if live.limit_s is not None:
            live.limit_s += cut_s

    # -- changing ---------------------------------------------------------------------------

    def rescale(self, job_id: str, rate_bps: int) -> None:
        live = self._jobs[job_id]
        if live.best_effort:
            raise ActionRefused(
                f"job {job_id} has no reservation to rescale"
            )
        self._disturb(live)
        # Before the rate changes: queued data left at the old one.
        self._count_drained(live)
        live.rate_bps = rate_bps
        # None stays: part of its time in the background was up to others.
        if live.limit_s is not None:
            live.limit_s = time_limit_s(
                live.request, rate_bps, self._scale, live.limit_s
            )
        if live.tenant is not None:
            live.tenant = self._emulation.rerate(
                live.tenant, scaled_bps(rate_bps, self._scale.rate)
            )
            if live.request.demand.at_once:
                self._emulation.agents.rerate(
                    live.agents, payload_bps(live.tenant)
                )

    def preempt(self, job_id: str) -> None:
        live = self._jobs[job_id]
        if live.best_effort:
            raise ActionRefused(
                f"job {job_id} has no reservation that preempting it would free"
            )
        live.thaw_ns = None
        if live.tenant is not None:
            try:
                # A resumed job is still frozen until its cost has passed.
                if not live.frozen:
                    self._emulation.freeze(live.tenant, frozen=True)
            except OSError as error:
                live.fail(f"it could not be frozen: {error}")
            live.frozen = True
            live.sent_when_frozen = self._emulation.network.vm_sent_bytes(
                live.tenant
            )
        # After the freeze: until then its processes worked on their nodes.
        live.pause(time.monotonic_ns())
        self._disturb(live)

    def _count_drained(self, live: LiveJob) -> None:
        """Counts the time in which a frozen job's VMs still sent queued data."""
        if (
            live.tenant is not None
            and live.frozen
            and live.since_ns is None
        ):
            sent = self._emulation.network.vm_sent_bytes(live.tenant)
            live.drained(sent, live.tenant.rate_bps, time.monotonic_ns())

    def resume(
        self,
        job_id: str,
        cost_s: float,
        tier: Tier,
    ) -> None:
        live = self._jobs[job_id]
        now_ns = time.monotonic_ns()
        if live.tenant is None:
            self._restore(live, since_ns=now_ns, cost_s=cost_s, tier=tier)
            return
        away_s = (now_ns - live.off_nodes_ns) / 1e9
        # While it is still off its nodes: what its queues sent meanwhile is
        # counted against the time of the freeze.
        self._count_drained(live)
        self._set_tier(live, tier)
        live.begin(now_ns, now_ns + self._wall_ns(cost_s))
        self._disturb(live, away_s + cost_s / self._scale.time)
        live.thaw_ns = live.begin_ns
        # Without a cost it is due now, and not when the next message comes.
        self._thaw_due()

    def migrate(
        self,
        job_id: str,
        placement: Placement,
        cost_s: float,
        tier: Tier,
        *,
        best_effort: bool = False,
    ) -> None:
        live = self._jobs[job_id]
        if live.since_ns is not None:
            self.preempt(job_id)
        left_ns = time.monotonic_ns()
        if live.tenant is not None:
            left_ns = self._checkpoint(live)
        if best_effort:
            self._give_up_rate(live)
        live.placement = placement
        self._restore(live, since_ns=left_ns, cost_s=cost_s, tier=tier)

    def _give_up_rate(self, live: LiveJob) -> None:
        """Makes a checkpointed job one without a reservation."""
        live.rate_bps = 0
        live.best_effort = live.request.is_best_effort(0)
        # How long it takes from here on is up to the others.
        live.limit_s = None
        self._let_borrow(live)

    def switch_tier(self, job_id: str, tier: Tier) -> None:
        self._set_tier(self._jobs[job_id], tier)

    def _set_tier(self, live: LiveJob, tier: Tier) -> None:
        live.tier = tier
        # How long it takes there is up to the foreground.
        if tier == "background":
            live.limit_s = None
        if live.tenant is not None:
            self._emulation.set_tier(live.tenant, tier)

    def _thaw_due(self) -> None:
        """Thaws every job whose resume cost has passed."""
        for live in self._jobs.values():
            if live.tenant is None or not live.thaw_ns:
                continue
            if live.thaw_ns > time.monotonic_ns():
                continue
            try:
                self._emulation.freeze(live.tenant, frozen=False)
            except OSError as error:
                live.fail(f"it could not be thawed: {error}")
            live.frozen = False
            live.thaw_ns = None

    def _checkpoint(self, live: LiveJob) -> int:
        """Gives up a preempted job's VMs and keeps the rest of its work.

        Its agents are thawed to report, and may work until they end, so this
        time counts as time on nodes. Returns the instant at which it left them.
        """
        thawed_ns = time.monotonic_ns()
        self._count_drained(live)
        self._end_agents(live, by_force=False)
        left_ns = time.monotonic_ns()
        live.ran_ns += left_ns - thawed_ns
        live.moving_ns += left_ns - thawed_ns
        for index, name in enumerate(live.agents):
            if name not in live.reports:
                live.fail(
                    f"VM {index} did not report what it had done when it was to migrate"
                )
        live.plans = remaining(
            live.plans, {r.index: r for r in live.reports.values()}
        )
        if live.tenant is not None:
            self.watch.evidence.leave(live.tenant.tenant_id)
        self._vacate(live)
        # Last, as it forgets the agents' names, which `_vacate` needs.
        live.absorb_reports()
        live.tenant = None
        return left_ns

    def _restore(
        self,
        live: LiveJob,
        *,
        since_ns: int,
        cost_s: float,
        tier: Tier,
    ) -> None:
        """Resumes a checkpointed job on its placement's nodes, ``cost_s`` after
        ``since_ns``.
        """
        live.generation += 1
        live.stopping = False
        live.frozen = False
        self._set_tier(live, tier)
        # It failed while it was checkpointed: `wait` says so.
        if live.trouble is not None:
            return
        try:
            self._deploy(live, since_ns, self._wall_ns(cost_s))
        except (OSError, RunFailed) as error:
            live.fail(f"it could not resume elsewhere: {error}")
