"""The simulator: time jumps from one completion to the next.

A job with a reserved rate runs exactly at it. A best-effort job gets its
max-min fair share of what the reserved jobs leave
(:mod:`testbed.backends.sim.flow_sharing`). Progress follows DCloud's Eq. 1
(:mod:`jobs.demand`), slowed down where two VMs share a node
(:mod:`testbed.backends.sim.node_sharing`). Everything is deterministic.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from jobs.interference import Interference
from jobs.request import JobRequest
from testbed.backends.sim.flow_sharing import SharedNetwork
from testbed.backends.sim.node_sharing import TwoTiers
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion, StartFailed
from testbed.engine.refusals import ActionRefused
from testbed.failures import Failure
from testbed.schedulers.actions import Tier
from testbed.schedulers.policy import SharingModel
from testbed.units import with_tolerance_s
from topologies.datacentre import DataCentre

Meter = Callable[[float, float, float, float], None]


@dataclass(slots=True)
class _SimJob:
    """A job in the simulator.

    - ``done``: progress at ``since_s``.
    - ``ran_s``: time on nodes up to ``since_s``.
    - ``speed``: the part of its speed that is left where nodes are shared.
    - ``cpus``: number of CPUs that it keeps busy.
    - ``idle_until_s``: it is being restored, and makes no progress before.
    - ``cut``: lost links keep it from any progress.
    - ``end_s``: its end at the present rate.
    - ``connected``: the shared network has its flows or its hose.
    - ``epoch``: entries of the heap with another epoch are stale.
    """

    request: JobRequest
    placement: Placement
    rate_bps: float
    best_effort: bool
    since_s: float
    tier: Tier
    speed: float = 1.0
    cpus: float = 0.0
    done: float = 0.0
    ran_s: float = 0.0
    idle_until_s: float = -math.inf
    end_s: float = math.inf
    paused: bool = False
    cut: bool = False
    connected: bool = False
    epoch: int = 0

    def __lt__(self, _: _SimJob) -> bool:
        """False: the heap compares jobs where all else is equal, as in the
        entries of a killed job that starts anew.
        """
        return False


class SimulatedBackend:
    """See :class:`testbed.engine.backend.Backend`.

    ``datacentre``, ``sharing`` and ``seed`` concern best-effort jobs: the links
    that they compete for, how, and the random permutations they send in.
    ``meter`` is called with the begin and end of every stretch of time in which
    their rates stay the same, with the bit/s that they send up the servers' own
    links, and with those between all their VMs. ``interference`` and ``seed``
    set the slowdown of nodes with a background VM.
    """

    name = "sim"

    def __init__(
        self,
        datacentre: DataCentre | None = None,
        sharing: SharingModel | None = None,
        seed: int = 0,
        meter: Meter | None = None,
        interference: Interference | None = None,
    ) -> None:
        self._meter = meter
        self._datacentre = datacentre
        self._seed = seed
        self._interference = interference or Interference()
        self._tiers: TwoTiers | None = None
        self._cpu_s = 0.0
        self._now_s = 0.0
        self._jobs: dict[str, _SimJob] = {}
        self._ends: list[tuple[float, str, int, _SimJob]] = []
        self._shared: SharedNetwork | None = None
        # A live view, which `wait` looks at for each event: most runs have no
        # best-effort jobs.
        self._sharers: Collection[str] = ()
        if datacentre is not None:
            self._shared = SharedNetwork(
                datacentre, sharing or SharingModel(), seed
            )
            self._sharers = self._shared.jobs
        self._recomputed_s = 0.0

    @property
    def cpu_s(self) -> float:
        """CPU seconds used so far; divided by CPUs times span they are the
        utilisation.

        In the foreground a process uses what it uses when alone; in the
        background, its share.
        """
        running_s = []
        for job in self._jobs.values():
            if not job.paused:
                running_s.append((self._now_s - job.since_s) * job.cpus)
        return self._cpu_s + sum(running_s)

    def now_s(self) -> float:
        return self._now_s

    def wait(self, until_s: float | None) -> list[Completion]:
        """All completions of the earliest instant up to ``until_s``."""
        if self._sharers and self._shared is not None:
            return self._wait_sharing(self._shared, until_s)
        # Without best-effort jobs rates change only by what the engine does.
        end_s = math.inf
        if self._ends:
            end_s, _, epoch, job = self._ends[0]
            if job.epoch != epoch:
                end_s = self._first_end_s()
        if until_s is None or end_s <= until_s:
            if end_s == math.inf:
                return []
            # Time never goes back: ends within the tolerance count as one
            # instant, so the next end may lie a little before the last one.
            if end_s > self._now_s:  # noqa: PLR1730 - here and below: the call would cost
                self._now_s = end_s
        else:
            if until_s > self._now_s:  # noqa: PLR1730
                self._now_s = until_s
            if end_s > with_tolerance_s(until_s):
                return []
        return self._finish_all(with_tolerance_s(end_s))

    def _wait_sharing(
        self, shared: SharedNetwork, until_s: float | None
    ) -> list[Completion]:
        """As :meth:`wait`, with best-effort jobs, whose rates change as they
        come and go.
        """
        limit_s = math.inf
        late_s = math.inf
        if until_s is not None:
            limit_s = until_s
            late_s = with_tolerance_s(until_s)
        while True:
            self._recompute_rates(shared)
            end_s = self._next_end_s(shared)
            recompute_s = math.inf
            if shared.independent:
                recompute_s = self._recomputed_s + shared.model.recompute_s
            # Without an end or a limit, computing anew would never end.
            if recompute_s < min(end_s, limit_s) < math.inf:
                self._let_pass(shared, recompute_s)
            elif end_s <= late_s and end_s < math.inf:
                instant_s = max(self._now_s, min(end_s, limit_s))
                self._let_pass(shared, instant_s)
                return self._finish_all(with_tolerance_s(end_s))
            else:
                if until_s is not None:
                    self._let_pass(shared, max(self._now_s, until_s))
                return []

    # -- jobs -------------------------------------------------------------------------------

    def start(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
    ) -> None:
        best_effort = job.is_best_effort(rate_bps)
        if best_effort:
            self._check_can_share(tier)
            if job.n_vms == 1:
                # It has nobody to send to: nothing can hold it up.
                best_effort = False
                rate_bps = job.bandwidth_bps
        # Without `cpu_uses`, which lists all processes: most jobs' are alike.
        use = job.demand.cpu_use
        cpus = sum(use) if isinstance(use, tuple) else use * job.n_vms
        entry = _SimJob(
            job,
            placement,
            rate_bps,
            best_effort,
            since_s=self._now_s,
            tier=tier,
            cpus=cpus,
        )
        self._jobs[job.id] = entry
        if best_effort or rate_bps:
            self._connect(entry)
        if self._tiers is not None or tier == "background":
            self._occupy(entry)
        self._plan(entry)

    def _check_can_share(self, tier: Tier) -> None:
        """Raises StartFailed where best-effort jobs have nothing to share."""
        if self._shared is None:
            missing = "a simulated network"
        elif tier == "background":
            missing = "the foreground"
        else:
            return
        raise StartFailed(f"best-effort jobs need {missing} to share")

    def rescale(
        self,
        job_id: str,
        rate_bps: int,
    ) -> None:
        job = self._jobs[job_id]
        if job.best_effort:
            raise ActionRefused(
                f"job {job_id} has no reservation to rescale"
            )
        self._bring_up_to_date(job)
        job.rate_bps = rate_bps
        if not job.paused:
            self._connect(job)
            self._plan(job)

    def preempt(self, job_id: str) -> None:
        job = self._jobs[job_id]
        if job.best_effort:
            raise ActionRefused(
                f"job {job_id} has no reservation that preempting it would free"
            )
        self._bring_up_to_date(job)
        self._disconnect(job)
        self._vacate(job)
        job.paused = True
        job.epoch += 1
        job.end_s = math.inf

    def resume(
        self,
        job_id: str,
        cost_s: float,
        tier: Tier,
    ) -> None:
        job = self._jobs[job_id]
        job.paused = False
        job.since_s = self._now_s
        job.tier = tier
        job.idle_until_s = self._now_s + cost_s
        self._connect(job)
        self._occupy(job)
        self._plan(job)

    def migrate(
        self,
        job_id: str,
        placement: Placement,
        cost_s: float,
        tier: Tier,
        *,
        best_effort: bool = False,
    ) -> None:
        job = self._jobs[job_id]
        if not job.paused:
            self.preempt(job_id)
        job.placement = placement
        if best_effort:
            self._give_up_rate(job, cost_s)
        self.resume(job_id, cost_s, tier)

    def _give_up_rate(self, job: _SimJob, cost_s: float) -> None:
        """Makes a paused job one without a reservation."""
        if self._shared is None:
            raise ActionRefused("best effort needs a simulated network")
        if self._shared.independent and cost_s:
            raise ActionRefused(
                "flows that are independent resume at no cost only"
            )
        request = job.request
        job.rate_bps = 0
        job.best_effort = request.is_best_effort(0) and request.n_vms > 1
        # A single VM has nobody to send to: nothing can hold it up.
        if not job.best_effort:
            job.rate_bps = request.bandwidth_bps

    def switch_tier(
        self,
        job_id: str,
        tier: Tier,
    ) -> None:
        job = self._jobs[job_id]
        self._bring_up_to_date(job)
        self._vacate(job)
        job.tier = tier
        self._occupy(job)
        self._plan(job)

    def kill(self, job_id: str, reason: str) -> None:
        del reason
        job = self._jobs[job_id]
        self._bring_up_to_date(job)
        self._disconnect(job)
        if not job.paused:
            self._vacate(job)
        job.epoch += 1
        del self._jobs[job_id]

    # -- failures ---------------------------------------------------------------------------

    def fail(self, failure: Failure) -> None:
        """Does nothing: the engine names the jobs that a failure stops, and no
        other job is affected.
        """

    def reroot(
        self,
        job_id: str,
        placement: Placement,
    ) -> None:
        job = self._jobs[job_id]
        job.placement = placement
        if job.best_effort and self._shared is not None:
            self._shared.join(job.request, placement)
        else:
            self._connect(job)

    def cut(self, job_id: str) -> None:
        self._set_cut(self._jobs[job_id], cut=True)

    def reconnect(self, job_id: str) -> None:
        self._set_cut(self._jobs[job_id], cut=False)

    def _set_cut(
        self,
        job: _SimJob,
        *,
        cut: bool,
    ) -> None:
        if job.best_effort and self._shared is not None:
            self._shared.cut(job.request.id, cut=cut)
            return
        self._bring_up_to_date(job)
        job.cut = cut
        self._plan(job)

    # -- shared nodes -------------------------------------------------------------

    def _occupy(self, job: _SimJob) -> None:
        """Puts a job on its nodes. Sets its speed, and that of the jobs with
        which it shares them.
        """
        if self._tiers is None:
            if job.tier == "foreground":
                return
            self._tiers = self._begin_tiers(job)
        touched = self._tiers.enter(job.request, job.placement, job.tier)
        self._pace(self._tiers, job)
        self._repace(self._tiers, touched)

    def _vacate(self, job: _SimJob) -> None:
        if self._tiers is not None:
            self._repace(self._tiers, self._tiers.leave(job.request.id))

    def _begin_tiers(self, first: _SimJob) -> TwoTiers:
        """Begins to track which job is on which node, as ``first`` is the first
        job in the background.
        """
        if self._datacentre is None:
            raise StartFailed(
                "a background VM needs to know the nodes it is on"
            )
        tiers = TwoTiers(
            self._datacentre.slots.tolist(), self._interference, self._seed
        )
        for job in self._jobs.values():
            if job is not first and not job.paused:
                tiers.enter(job.request, job.placement, job.tier)
        return tiers

    def _repace(
        self,
        tiers: TwoTiers,
        touched: set[str],
    ) -> None:
        for job_id in sorted(touched):
            job = self._jobs[job_id]
            self._bring_up_to_date(job)
            if self._pace(tiers, job):
                self._plan(job)

    @staticmethod
    def _pace(
        tiers: TwoTiers,
        job: _SimJob,
    ) -> bool:
        """Gives a job its present speed; True if it changes."""
        before = job.speed
        job.speed, job.cpus = tiers.pace(job.request.id)
        return job.speed != before

    # -- progress -----------------------------------------------------------------------------

    def _connect(self, job: _SimJob) -> None:
        # A reserved job at rate 0 sends nothing, but may still have a hose,
        # which is replaced.
        sends = job.best_effort or job.rate_bps or job.connected
        if self._shared is None or not sends:
            return
        job.connected = True
        if job.best_effort:
            self._shared.join(job.request, job.placement, job.done)
        else:
            self._shared.hold(
                job.request.id, job.placement, int(job.rate_bps)
            )

    def _disconnect(self, job: _SimJob) -> None:
        if self._shared is not None and job.connected:
            job.connected = False
            self._shared.leave(job.request.id)

    def _bring_up_to_date(self, job: _SimJob) -> None:
        if job.paused:
            return
        worked_s = self._now_s - max(job.since_s, job.idle_until_s)
        if worked_s > 0 and not job.cut:
            request = job.request
            worked_s = worked_s * job.speed
            job.done = request.demand.advanced(
                request, job.done, job.rate_bps, worked_s
            )
        elapsed_s = self._now_s - job.since_s
        job.ran_s += elapsed_s
        self._cpu_s += elapsed_s * job.cpus
        job.since_s = self._now_s

    def _plan(self, job: _SimJob) -> None:
        """Plans a job's end at its present rate; not that of a job with
        independent flows, which is computed with their rates.
        """
        # The heap keeps its earlier entry, which is stale from now on: to
        # look for it would take longer than to pass it over later.
        job.epoch += 1
        if job.cut:
            job.end_s = math.inf
            return
        if job.best_effort and self._flow_by_flow(job):
            return
        begin_s = (
            job.since_s
            if job.since_s > job.idle_until_s
            else job.idle_until_s
        )
        request = job.request
        left_s = request.demand.remaining_s(request, job.done, job.rate_bps)
        job.end_s = end_s = begin_s + left_s / job.speed
        if end_s < math.inf:
            heapq.heappush(self._ends, (end_s, request.id, job.epoch, job))

    def _flow_by_flow(self, job: _SimJob) -> bool:
        """True if a job ends with the last of its flows, each of which has its
        own volume.
        """
        if self._shared is None or not self._shared.independent:
            return False
        return job.best_effort and not job.request.demand.timed

    def _recompute_rates(self, shared: SharedNetwork) -> None:
        """Gives best-effort jobs their present share."""
        rates = shared.recompute()
        left_s = {}
        if shared.independent:
            left_s = shared.longest_left_s()
        for job_id, rate in rates.items():
            job = self._jobs[job_id]
            if self._flow_by_flow(job):
                job.end_s = self._now_s + left_s[job_id]
            elif rate != job.rate_bps:
                self._bring_up_to_date(job)
                job.rate_bps = rate
                self._plan(job)
        self._recomputed_s = self._now_s

    def _first_end_s(self) -> float:
        """The first valid planned end; infinite where there is none."""
        ends = self._ends
        while ends:
            end_s, _, epoch, job = ends[0]
            if job.epoch == epoch:
                return end_s
            heapq.heappop(ends)
        return math.inf

    def _next_end_s(self, shared: SharedNetwork) -> float:
        end_s = self._first_end_s()
        if shared.independent:
            ends_s = (self._jobs[job_id].end_s for job_id in self._sharers)
            end_s = min(end_s, min(ends_s, default=math.inf))
        return max(end_s, self._now_s)

    def _let_pass(self, shared: SharedNetwork, until_s: float) -> None:
        if until_s > self._now_s:
            if self._meter is not None:
                self._meter(
                    self._now_s,
                    until_s,
                    shared.server_uplink_bps(),
                    shared.between_vms_bps(),
                )
            if shared.independent:
                shared.advance(until_s - self._now_s)
        self._now_s = until_s

    def _finish_all(self, end_s: float) -> list[Completion]:
        """Everything that ends at this instant, by id."""
        over = []
        ends = self._ends
        while ends and ends[0][0] <= end_s:
            _, _, epoch, job = heapq.heappop(ends)
            if job.epoch == epoch:
                over.append(job)
        # Ends of independent flows change with every other flow's: the heap
        # has none of them.
        for job_id in self._sharers:
            job = self._jobs[job_id]
            if job.end_s <= end_s and self._flow_by_flow(job):
                over.append(job)
        # Nearly always one job ends: sorting would cost.
        if len(over) == 1:
            return [self._finish(over[0])]
        over.sort(key=lambda job: job.request.id)
        return [self._finish(job) for job in over]

    def _finish(self, job: _SimJob) -> Completion:
        elapsed_s = self._now_s - job.since_s
        self._cpu_s += elapsed_s * job.cpus
        if job.connected:
            self._disconnect(job)
        if self._tiers is not None:
            self._vacate(job)
        job_id = job.request.id
        job.epoch += 1
        del self._jobs[job_id]
        return Completion(
            job_id,
            self._now_s,
            "finished",
            measured_s=job.ran_s + elapsed_s,
        )
