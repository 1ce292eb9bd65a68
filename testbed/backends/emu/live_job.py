"""A job on the live network: its tenant, its agents, how long it has been on
nodes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from jobs.demand import DemandCurve, Program
from jobs.linux import signal_name
from jobs.live.agent_pool import Message
from jobs.live.agent_protocol import (
    AgentExited,
    AgentProgress,
    AgentRefused,
    AgentReport,
    AgentStarted,
    Plan,
    Ready,
)
from jobs.live.compute import ComputePlan
from jobs.request import JobRequest
from jobs.wire import wire_bits, with_acknowledgements
from testbed.backends.emu.job_evidence import NEARLY_OVER, Followed
from testbed.backends.emu.work_evidence import Claim
from testbed.embedding.placement import Placement
from testbed.plan.agent_plans import ACKNOWLEDGED_BYTES
from testbed.plan.counted_traffic import Arrival, CurveStep
from testbed.plan.direct_evidence import BAND, Kind
from testbed.plan.installation import transfer_added_s
from testbed.plan.network_plan import TenantPlan, TenantVm
from testbed.plan.path_delay import path_delay
from testbed.schedulers.actions import Tier
from testbed.spec.experiment import Scale

# A failed agent makes its peers fail too, and their messages may come first:
# for this long a better reason may replace "connection lost".
TROUBLE_S = 0.2


@dataclass
class LiveJob:
    """A job with the state of its agents.

    - ``tenant``: None while the job is checkpointed, that is preempted with its
      VMs given up.
    - ``generation``: number of restarts on other nodes; ``agents``: names of
      this generation's agents, by VM; ``plans``: their work.
    - ``delivered_bytes``, ``used_cpu_s``: of earlier generations.
    - ``ran_ns``: time on nodes before ``since_ns``; ``since_ns`` is None while
      the job is off its nodes, which it left at ``off_nodes_ns``.
    - ``limit_s``: wall time on nodes after which it fails; None: never.
    - ``decided_ns``: instant of the decision to start it; ``first_begin_ns``: of
      its agents' first start, ``begin_ns``: of their last; ``progress_ns``: of
      its last progress, ``shown_ns``: of the last event on it.
    - ``moving_ns``: time on nodes that moves took, beyond the policy's cost and
      the usual time of placing.
    - ``thaw_ns``: instant of a due thaw; ``cut_ns``: instant at which a failure
      cut its network, None while connected.
    - ``sent_when_frozen``: bytes that its VMs had sent at the freeze.
    """

    request: JobRequest
    placement: Placement
    rate_bps: int
    tier: Tier
    best_effort: bool
    limit_s: float | None
    tenant: TenantPlan | None = None
    plans: tuple[Plan, ...] = ()
    agents: tuple[str, ...] = ()
    generation: int = 0
    waiting_for: set[str] = field(default_factory=set)
    begun: bool = False
    begin_ns: int = 0
    first_begin_ns: int = 0
    since_ns: int | None = None
    ran_ns: int = 0
    moving_ns: int = 0
    frozen: bool = False
    stopping: bool = False
    received: dict[str, int] = field(default_factory=dict)
    progress_ns: int = 0
    reports: dict[str, AgentReport] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    volume_bytes: int = 0
    delivered_bytes: int = 0
    used_cpu_s: float = 0.0
    pace: Pace = field(default_factory=lambda: Pace(()))
    trouble: str | None = None
    trouble_ns: int = 0
    shown_ns: int = 0
    thaw_ns: int | None = None
    cut_ns: int | None = None
    off_nodes_ns: int = 0
    sent_when_frozen: list[int] = field(default_factory=list)
    decided_ns: int = 0

    @property
    def over(self) -> bool:
        """True if all agents have reported, or the job failed after its start.

        A lost connection is often the consequence of an agent's death, which is
        learnt a moment later: failures of this kind wait for TROUBLE_S.
        """
        if not self.begun:
            return False
        if self.trouble is not None:
            late = time.monotonic_ns() - self.trouble_ns > TROUBLE_S * 1e9
            return late or not self._is_consequence
        return bool(self.agents) and len(self.reports) == len(self.plans)

    @property
    def _is_consequence(self) -> bool:
        """True of a lost connection, which another agent's end may have caused."""
        return self.trouble is not None and "connection" in self.trouble

    def fail(self, reason: str, *, cause: bool = False) -> None:
        """Records a failure. The first reason stays, unless it is a lost
        connection and the later one its ``cause``.
        """
        if self.trouble is None:
            self.trouble = reason
            self.trouble_ns = time.monotonic_ns()
        elif cause and self._is_consequence:
            self.trouble = reason

    @property
    def granted_bps(self) -> int:
        """The reserved rate; 0 for best effort."""
        return 0 if self.best_effort else self.rate_bps

    def receive(self, agent: str, message: Message) -> None:
        """Updates the state by a message of one of its agents."""
        match message:
            case AgentStarted(pid=pid):
                self.pids[agent] = pid
            case Ready():
                self.waiting_for.discard(agent)
            case AgentProgress(received_bytes=received_bytes):
                if received_bytes > self.received.get(agent, 0):
                    self.progress_ns = time.monotonic_ns()
                self.received[agent] = received_bytes
                self.pace.receive(message)
            case AgentReport(index=index, error=error):
                self.reports[agent] = message
                self.progress_ns = time.monotonic_ns()
                if error is not None and not self.stopping:
                    self.fail(f"VM {index}: {error}")
            # While the job is being stopped, a signal may be refused because
            # the agent has just ended by itself: no failure.
            case AgentRefused(reason=reason) if not self.stopping:
                self.fail(
                    f"agent {agent} was refused: {reason}", cause=True
                )
            case AgentExited():
                self._exited(agent, message)
            case _:
                pass

    def _exited(self, agent: str, message: AgentExited) -> None:
        code = message.code
        how = f"exit code {code}"
        if message.signum is not None:
            how = signal_name(message.signum)
        if code is None:
            # As shells count.
            code = 128 + (message.signum or 0)
        self.exits[agent] = code
        if agent not in self.reports and not self.stopping:
            self.fail(
                f"agent {agent} ended with {how} and no report", cause=True
            )

    # -- time on nodes ----------------------------------------------------------------------

    def begin(self, at_ns: int, progress_from_ns: int) -> None:
        """Counts time on nodes from ``at_ns``, and expects progress from
        ``progress_from_ns``.
        """
        self.since_ns = at_ns
        self.begin_ns = progress_from_ns
        self.progress_ns = progress_from_ns
        # A new pace: samples from before a pause would show too low a speed.
        self.pace = Pace(self.plans)
        if not self.begun:
            self.begun = True
            self.first_begin_ns = progress_from_ns

    @property
    def is_cap_limited(self) -> bool:
        """True if each VM sends to one other VM, without pauses, at its cap.

        Only then does a queue at the cap in every sample mean a queue all the
        time. Commands and demand curves pause; in a shuffle, or without a
        reservation, another limit may be the narrowest.
        """
        return self.request.demand.cap_limited and not self.best_effort

    def followed(
        self,
        tenant: TenantPlan,
        scale: Scale,
        *,
        groups: tuple[Path, ...] = (),
        claims: tuple[Claim, ...] = (),
        nodes: tuple[Claim, ...] = (),
        band: float | None = None,
        enforced: bool,
        offloads: bool = True,
    ) -> Followed:
        """The job's description for the collection of evidence.

        ``groups``: control groups of the VMs of a user's program; ``claims``:
        processors that the job's VMs use whenever they get them; ``nodes``:
        processors of its nodes whose background VMs use all that the job leaves;
        ``enforced``: reservations have limits; ``band``: the share of its time
        by which the job may be late, None: the default; ``offloads``: VMs leave
        segmentation to the switch.
        """
        request = self.request
        kind = self._evidence_kind
        if not enforced and request.demand.network and kind != "one VM":
            kind = "best effort"
        length_s = request.duration_s
        # A best-effort job of one VM is of the kind "one VM"; and enforcement
        # may be off.
        if kind != "best effort" and not self.best_effort:
            length_s = request.demand.estimate_s(request, self.rate_bps)
        is_reserved = self.tier == "foreground"
        is_whole = is_reserved and self.generation == 0
        # Delay of the links is the experiment's, not the machine's.
        delay_s = max(transfer_added_s(tenant))
        arriving = 1.0
        if not offloads:
            arriving = with_acknowledgements(ACKNOWLEDGED_BYTES)
        return Followed(
            request.id,
            kind,
            tenant,
            began_s=self.first_begin_ns / 1e9 + delay_s,
            length_s=length_s / scale.time,
            pids=self._working_pids,
            is_whole=is_whole,
            was_paused=self.ran_ns > 0,
            moving_s=self.moving_ns / 1e9,
            groups=groups,
            is_paced=kind == "compute" and self._is_paced,
            claims=claims,
            # Several VMs' waits are added up, and on which node is not known.
            nodes=nodes if request.n_vms == 1 else (),
            phases=self._phases(scale),
            is_continuous=self._is_continuous,
            is_nearly_over=self.delivered_share > NEARLY_OVER,
            band=band or BAND,
            resumed_s=self._resumed_s,
            is_reserved=is_reserved,
            left_bytes=self._left_bytes,
            arriving=arriving,
        )

    @property
    def _working_pids(self) -> tuple[int, ...]:
        """Processes of its agents; one that has reported rests legitimately."""
        pids = []
        for name, pid in self.pids.items():
            if name not in self.reports:
                pids.append(pid)
        return tuple(pids)

    def _phases(self, scale: Scale) -> tuple[CurveStep, ...]:
        """Steps of a demand curve at the job's rate, on the emulated wire."""
        demand = self.request.demand
        if not isinstance(demand, DemandCurve) or self.rate_bps <= 0:
            return ()
        bits_scale = scale.rate / scale.time
        phases = []
        for bits, length_s in demand.phases(self.request, self.rate_bps):
            phases.append(
                CurveStep(bits * bits_scale, length_s / scale.time)
            )
        return tuple(phases)

    @property
    def _resumed_s(self) -> float:
        """When its present agents began, if it has moved; else 0."""
        if self.generation == 0:
            return 0.0
        return self.begin_ns / 1e9

    @property
    def _left_bytes(self) -> dict[int, int] | None:
        """Payload that VMs are still to receive, if it has moved."""
        if self.generation == 0:
            return None
        return {plan.index: plan.receives_bytes for plan in self.plans}

    @property
    def _is_continuous(self) -> bool:
        """True if its VMs send to each other without a pause until all is sent."""
        demand = self.request.demand
        alone = self.request.n_vms == 1
        is_transfer = demand.network and not demand.own_program
        return is_transfer and not demand.pauses and not alone

    @property
    def _is_paced(self) -> bool:
        """True if its agents compute for less than all of the time."""
        return all(
            isinstance(plan, ComputePlan) and plan.share < 1.0
            for plan in self.plans
        )

    @property
    def _evidence_kind(self) -> Kind:
        demand = self.request.demand
        kind: Kind = "shuffle"
        lone = self.request.n_vms == 1 and not demand.own_program
        if demand.network and lone:
            # It sends nothing, whatever is reserved.
            kind = "one VM"
        elif self.best_effort:
            kind = "best effort"
        elif not demand.network:
            kind = "compute"
        elif demand.own_program:
            kind = "command"
            if demand.kind == "iperf3" and demand.cap_limited:
                kind = "iperf3"
        elif demand.pauses:
            kind = "demand curve"
        elif demand.cap_limited:
            kind = "ring"
        return kind

    @property
    def computes_as_planned(self) -> bool:
        """True if it only computes, by the testbed's agents, and needs no more
        time than policies plan with.
        """
        request = self.request
        demand = request.demand
        if demand.network or demand.own_program:
            return False
        return request.true_s <= min(request.duration_s, request.stated_s)

    def ends_by(self, at_ns: int) -> bool:
        """True if the job runs and, at its present pace, ends by ``at_ns``."""
        if self.since_ns is None or self.over:
            return False
        end_ns = self.pace.end_ns(
            frozenset(r.index for r in self.reports.values())
        )
        return end_ns is not None and end_ns <= at_ns

    def pause(self, at_ns: int) -> None:
        """Stops counting time on nodes: the job left them or is frozen."""
        if self.since_ns is not None:
            self.off_nodes_ns = at_ns
        self.ran_ns = self.ran_until_ns(at_ns)
        self.since_ns = None

    def drained(
        self,
        sent_bytes: list[int],
        rate_bps: int,
        at_ns: int,
    ) -> None:
        """Counts the time in which the frozen VMs still sent queued data.

        The freezer stops processes, but data in the kernel's queues still
        leaves at the job's rate, which is progress on its nodes. HTB may send a
        full bucket faster: no more is counted than the time since the freeze. A
        transfer's progress is that of the VM furthest behind. A program's volume
        is unknown: its VM that sent most counts. A second call counts from the
        first.
        """
        if self.request.demand.own_program:
            drained_bytes = max(
                now - before
                for before, now in zip(
                    self.sent_when_frozen, sent_bytes, strict=True
                )
            )
        else:
            left_bytes = self._left_to_send(self.sent_when_frozen)
            drained_bytes = left_bytes - self._left_to_send(sent_bytes)
        drained_bytes = max(0, drained_bytes)
        drained_ns = round(drained_bytes * 8e9 / rate_bps)
        self.ran_ns += min(drained_ns, at_ns - self.off_nodes_ns)
        self.sent_when_frozen = sent_bytes
        self.off_nodes_ns = at_ns

    def _left_to_send(self, sent_bytes: Sequence[int]) -> int:
        """Wire bytes that the VM which is furthest behind has still to send."""
        left_bytes = []
        for plan, sent in zip(self.plans, sent_bytes, strict=True):
            volume_bytes = round(wire_bits(plan.sends_bytes) / 8)
            left_bytes.append(volume_bytes - sent)
        return max(left_bytes)

    def ran_until_ns(self, at_ns: int) -> int:
        """Time on nodes until ``at_ns``, in ns."""
        if self.since_ns is None:
            return self.ran_ns
        return self.ran_ns + max(0, at_ns - self.since_ns)

    def end_ns(self) -> int:
        """Instant of the job's end: the last byte at any VM.

        An agent's end stands in for a VM without one, and for all VMs of a job
        that computes after its last byte.
        """
        reports = self.reports.values()
        if self.request.demand.ends_computing:
            return max(report.end_ns for report in reports)
        return max(
            report.last_byte_ns or report.end_ns for report in reports
        )

    @property
    def arrivals(self) -> dict[int, Arrival]:
        """Arrivals, by VM, of VMs that have received all of their volume; none
        for a user's program, whose volume is unknown.
        """
        result: dict[int, Arrival] = {}
        if self.request.demand.own_program:
            return result
        for report in self.reports.values():
            last_ns = report.last_byte_ns
            if last_ns is not None:
                bits = wire_bits(_received_bytes(report))
                result[report.index] = Arrival(bits, last_ns / 1e9)
        return result

    @property
    def resent(self) -> int | None:
        """The most segments that one VM sent again; None if a VM reports no
        flows, as a user's program does not.
        """
        counts = []
        for report in self.reports.values():
            flows = [flow.retransmits for flow in report.sent]
            if not flows:
                return None
            counts.append(sum(flows))
        return max(counts, default=None)

    # -- volumes ----------------------------------------------------------------------------

    @property
    def received_bytes(self) -> int:
        """Payload that has arrived, by reports and the latest progress."""
        total_bytes = self.delivered_bytes
        for agent in self.agents:
            report = self.reports.get(agent)
            if report is None:
                total_bytes += self.received.get(agent, 0)
            else:
                total_bytes += _received_bytes(report)
        return total_bytes

    @property
    def delivered_share(self) -> float:
        """Share of the job's payload that has arrived."""
        return self.received_bytes / max(1, self.volume_bytes)

    def absorb_reports(self) -> None:
        """Adds the reports of ended agents to the totals, and forgets them."""
        for report in self.reports.values():
            self.delivered_bytes += _received_bytes(report)
            self.used_cpu_s += report.cpu_s
        self.reports = {}
        self.received = {}
        self.agents = ()

    def _start_s(self) -> float | None:
        """Wall time in s from the decision to the first byte at a receiver.

        Without a byte, to the agents' start. None for a job that was restarted.
        """
        if self.generation or not self.begun:
            return None
        firsts_ns = []
        for report in self.reports.values():
            for flow in report.received:
                if flow.first_ns is not None:
                    firsts_ns.append(flow.first_ns)
        started_ns = min(firsts_ns, default=self.first_begin_ns)
        return (started_ns - self.decided_ns) / 1e9

    def delays(self, time_scale: float) -> dict[str, object]:
        """Effects of the links' delay and loss, in the experiment's time."""
        if self.tenant is None or not self.request.demand.network:
            return {}
        path = path_delay(self.tenant)
        if path.round_trip_s == 0.0 and path.loss_share == 0.0:
            return {}
        added = transfer_added_s(self.tenant)
        return {
            "delay_s": [round(s * time_scale, 6) for s in added],
            "loss_share": path.loss_share,
        }

    @property
    def iperf3_bps(self) -> list[float]:
        """Payload rate of each receiving VM by iperf3, in bit/s as emulated."""
        rates_bps = []
        for report in sorted(
            self.reports.values(), key=lambda report: report.index
        ):
            flows_bps = [
                flow.reported_bps
                for flow in report.received
                if flow.reported_bps is not None
            ]
            if flows_bps:
                rates_bps.append(sum(flows_bps))
        return rates_bps

    def _ranks(self) -> list[dict[str, object]]:
        """VM, exit code and wall time in s since the common start of each rank
        of a launched program.
        """
        rows: list[dict[str, object]] = []
        for report in self.reports.values():
            for end in report.ranks:
                rows.append(
                    {
                        "rank": end.rank,
                        "vm": report.index,
                        "exit_code": end.code,
                        "took_s_raw": (end.end_ns - self.begin_ns) / 1e9,
                    }
                )
        return sorted(rows, key=itemgetter("rank"))

    def _traffic(self) -> list[dict[str, int]]:
        """Counters of each VM's kernel, for a launched program."""
        rows = []
        for report in self.reports.values():
            if report.traffic is not None:
                rows.append({"vm": report.index, **vars(report.traffic)})
        return sorted(rows, key=itemgetter("vm"))

    def check_output(self) -> None:
        """Fails a program whose ranks have not printed all that they should."""
        demand = self.request.demand
        if not isinstance(demand, Program) or self.trouble is not None:
            return
        printed: set[int] = set()
        for report in self.reports.values():
            printed.update(report.printed)
        for number, text in enumerate(demand.expected):
            if number not in printed:
                self.fail(f"no rank has printed {text!r}")

    def detail(self) -> dict[str, object]:
        """Raw metrics for ``events.jsonl``."""
        reports = list(self.reports.values())
        received_bytes = sum(map(_received_bytes, reports))
        sent_flows = [flow for report in reports for flow in report.sent]
        acknowledged_bytes = sum(
            flow.acknowledged_bytes for flow in sent_flows
        )
        used_cpu_s = sum(report.cpu_s for report in reports)
        rate_bps = 0
        vms: tuple[TenantVm, ...] = ()
        if self.tenant is not None:
            rate_bps = self.tenant.rate_bps
            vms = self.tenant.vms
        out: dict[str, object] = {
            "volume_bytes_raw": self.volume_bytes,
            "received_bytes_raw": self.delivered_bytes + received_bytes,
            "acknowledged_bytes_raw": self.delivered_bytes
            + acknowledged_bytes,
            "retransmits": sum(flow.retransmits for flow in sent_flows),
            "cpu_s_raw": self.used_cpu_s + used_cpu_s,
            "rate_bps_raw": rate_bps,
            "congestion_control": _congestion_controls(reports),
            "vms": [vm.slot.netns for vm in vms],
            "exit_codes": [self.exits[name] for name in sorted(self.exits)],
            "start_s_raw": self._start_s(),
        }
        if isinstance(self.request.demand, Program):
            out["ranks"] = self._ranks()
            out["traffic"] = self._traffic()
        if self.generation:
            out["restarts"] = self.generation
        return out


def _received_bytes(report: AgentReport) -> int:
    return sum(flow.size_bytes for flow in report.received)


def _congestion_controls(reports: Sequence[AgentReport]) -> list[str]:
    """Congestion controls that agents have read back, each once.

    Agents without sockets have none.
    """
    names = {report.congestion_control for report in reports}
    return sorted(filter(None, names))


# ---------------------------------------------------------------------------------------- pace


SAMPLES = 6
"""Samples that give an agent's speed: 1.2 s, as progress comes every 0.2 s."""


@dataclass
class Pace:
    """Recent progress of each agent of a job: instants and shares of its plan."""

    plans: tuple[Plan, ...]
    _seen: dict[int, deque[tuple[int, float]]] = field(default_factory=dict)

    def receive(self, progress: AgentProgress) -> None:
        """Adds a sample."""
        share = self.plans[progress.index].done_share(progress)
        if share is not None:
            seen = self._seen.setdefault(
                progress.index, deque(maxlen=SAMPLES)
            )
            seen.append((progress.at_ns, share))

    def end_ns(self, over: frozenset[int]) -> float | None:
        """Instant at which the last agent ends at its present speed.

        ``over``: agents that have ended already. None if unknown.
        """
        latest = 0.0
        for index in range(len(self.plans)):
            if index in over:
                continue
            # One that stands still, or was not heard of, may end at any time.
            seen = self._seen.get(index)
            if seen is None:
                return None
            from_ns, had = seen[0]
            at_ns, has = seen[-1]
            if has <= had:
                return None
            rest_ns = (1.0 - has) * (at_ns - from_ns) / (has - had)
            latest = max(latest, at_ns + rest_ns)
        return latest
