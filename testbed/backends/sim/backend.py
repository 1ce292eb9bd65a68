"""The simulated world: time jumps from one completion to the next.

A job with a reserved rate runs exactly at it. A job started at rate 0 that wants bandwidth is
*best effort*: it gets its max-min fair share of what the reserved jobs leave
(:mod:`testbed.backends.sim.sharing`). Progress follows DCloud's Eq. 1
(:mod:`testbed.backends.sim.progress`). Everything is deterministic.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from jobs.request import JobRequest
from testbed.backends.sim.progress import advanced, remaining_s
from testbed.backends.sim.sharing import SharedNetwork, Sharing
from testbed.embedding.placement import Placement
from testbed.engine.backend import Completion, StartFailed
from testbed.errors import RunFailed
from testbed.schedulers.actions import Tier
from topologies.datacentre import DataCentre

Meter = Callable[[float, float, float], None]


@dataclass
class _SimJob:
    """A job in the simulated world.

    ``done`` is its progress at ``since_s``, ``ran_s`` the time it had been on nodes by then; until
    ``idle_until_s`` it makes none (it is being restored); at its present rate it ends at
    ``end_s``. ``epoch`` tells valid entries of the heap from stale ones.
    """

    request: JobRequest
    placement: Placement
    rate_bps: float
    best_effort: bool
    since_s: float
    done: float = 0.0
    ran_s: float = 0.0
    idle_until_s: float = -math.inf
    end_s: float = math.inf
    paused: bool = False
    epoch: int = 0


class SimulatedBackend:
    """See :class:`testbed.engine.backend.Backend`.

    ``datacentre``, ``sharing`` and ``seed`` matter to best-effort jobs alone: whom they compete
    with and where, and the random permutations they send in. ``meter`` is told, for every stretch
    of time in which their rates stay the same: when it begins and ends, and how many bit/s they
    send up the servers' own links.
    """

    name = "sim"

    def __init__(
        self,
        datacentre: DataCentre | None = None,
        sharing: Sharing | None = None,
        seed: int = 0,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter
        self._now_s = 0.0
        self._jobs: dict[str, _SimJob] = {}
        self._ends: list[tuple[float, str, int]] = []
        self._shared = (
            None if datacentre is None else SharedNetwork(datacentre, sharing or Sharing(), seed)
        )
        self._settled_s = 0.0

    @property
    def shared(self) -> SharedNetwork | None:
        """The best-effort jobs' network, to look at."""
        return self._shared

    def now_s(self) -> float:
        return self._now_s

    def wait(self, until_s: float | None) -> list[Completion]:
        """All completions of the earliest instant up to ``until_s``."""
        limit_s = math.inf if until_s is None else until_s
        while True:
            self._settle()
            end_s = self._next_end_s()
            resettle_s = self._next_settling_s()
            if resettle_s < min(end_s, limit_s):
                self._let_pass(resettle_s)
            elif end_s <= limit_s and end_s < math.inf:
                self._let_pass(end_s)
                return self._finish_all(end_s)
            else:
                if until_s is not None:
                    self._let_pass(max(self._now_s, until_s))
                return []

    # -- jobs -------------------------------------------------------------------------------

    def start(self, job: JobRequest, placement: Placement, rate_bps: int, tier: Tier) -> None:
        self._only_foreground(job.id, tier)
        best_effort = rate_bps == 0 and job.bandwidth_bps > 0 and job.kind != "compute"
        if best_effort and self._shared is None:
            raise StartFailed("best-effort jobs need a simulated network to share")
        if best_effort and job.n_vms == 1:
            # It has nobody to send to: nothing can hold it up.
            best_effort, rate_bps = False, job.bandwidth_bps
        entry = _SimJob(job, placement, rate_bps, best_effort, self._now_s)
        self._jobs[job.id] = entry
        self._connect(entry)
        self._plan(entry)

    def rescale(self, job_id: str, rate_bps: int) -> None:
        job = self._jobs[job_id]
        if job.best_effort:
            raise RunFailed(f"job {job_id} has no reservation to rescale")
        self._bring_up_to_date(job)
        job.rate_bps = rate_bps
        if not job.paused:
            self._connect(job)
            self._plan(job)

    def preempt(self, job_id: str) -> None:
        job = self._jobs[job_id]
        if job.best_effort:
            raise RunFailed(f"job {job_id} has no reservation that preempting it would free")
        self._bring_up_to_date(job)
        self._disconnect(job)
        job.paused = True
        job.epoch += 1
        job.end_s = math.inf

    def resume(self, job_id: str, cost_s: float, tier: Tier) -> None:
        self._only_foreground(job_id, tier)
        job = self._jobs[job_id]
        job.paused, job.since_s = False, self._now_s
        job.idle_until_s = self._now_s + cost_s
        self._connect(job)
        self._plan(job)

    def migrate(self, job_id: str, placement: Placement, cost_s: float, tier: Tier) -> None:
        job = self._jobs[job_id]
        if not job.paused:
            self.preempt(job_id)
        job.placement = placement
        self.resume(job_id, cost_s, tier)

    def switch_tier(self, job_id: str, tier: Tier) -> None:
        self._only_foreground(job_id, tier)

    def kill(self, job_id: str) -> None:
        self._disconnect(self._jobs.pop(job_id))

    # -- inside -----------------------------------------------------------------------------

    @staticmethod
    def _only_foreground(job_id: str, tier: Tier) -> None:
        if tier != "foreground":
            raise RunFailed(f"job {job_id}: the simulated world has no {tier} tier yet")

    def _connect(self, job: _SimJob) -> None:
        if self._shared is None:
            return
        if job.best_effort:
            self._shared.join(job.request, job.placement)
        else:
            self._shared.hold(job.request.id, job.placement, int(job.rate_bps))

    def _disconnect(self, job: _SimJob) -> None:
        if self._shared is None:
            return
        if not job.best_effort:
            self._shared.let_go(job.request.id)
        else:
            self._shared.leave(job.request.id)

    def _bring_up_to_date(self, job: _SimJob) -> None:
        if job.paused:
            return
        worked_s = self._now_s - max(job.since_s, job.idle_until_s)
        if worked_s > 0:
            job.done = advanced(job.request, job.done, job.rate_bps, worked_s)
        job.ran_s += self._now_s - job.since_s
        job.since_s = self._now_s

    def _plan(self, job: _SimJob) -> None:
        """When it will end at its present rate; best-effort jobs wait for the next settling."""
        job.epoch += 1
        if job.best_effort and self._shared is not None and self._shared.independent:
            return
        begin_s = max(job.since_s, job.idle_until_s)
        job.end_s = begin_s + remaining_s(job.request, job.done, job.rate_bps)
        if job.end_s < math.inf:
            heapq.heappush(self._ends, (job.end_s, job.request.id, job.epoch))

    def _settle(self) -> None:
        """Give best-effort jobs their present share."""
        if self._shared is None or not self._shared.guests:
            return
        for job_id, rate in self._shared.settle().items():
            job = self._jobs[job_id]
            if self._shared.independent:
                job.end_s = self._now_s + self._shared.longest_left_s(job_id)
            elif rate != job.rate_bps:
                self._bring_up_to_date(job)
                job.rate_bps = rate
                self._plan(job)
        self._settled_s = self._now_s

    def _next_end_s(self) -> float:
        while self._ends:
            end_s, job_id, epoch = self._ends[0]
            job = self._jobs.get(job_id)
            if job is not None and job.epoch == epoch:
                break
            heapq.heappop(self._ends)
        end_s = self._ends[0][0] if self._ends else math.inf
        if self._shared is not None and self._shared.independent:
            guests = (self._jobs[job_id].end_s for job_id in self._shared.guests)
            end_s = min(end_s, min(guests, default=math.inf))
        return max(end_s, self._now_s)

    def _next_settling_s(self) -> float:
        if self._shared is None or not self._shared.independent:
            return math.inf
        return self._settled_s + self._shared.next_settling_s()

    def _let_pass(self, until_s: float) -> None:
        if self._shared is not None and self._shared.guests and until_s > self._now_s:
            if self._meter is not None:
                self._meter(self._now_s, until_s, self._shared.server_uplink_bps())
            if self._shared.independent:
                self._shared.advance(until_s - self._now_s)
        self._now_s = until_s

    def _finish_all(self, end_s: float) -> list[Completion]:
        """Everything that ends at this instant, by id."""
        over = []
        while self._ends and self._ends[0][0] <= end_s:
            _, job_id, epoch = heapq.heappop(self._ends)
            job = self._jobs.get(job_id)
            if job is not None and job.epoch == epoch:
                over.append(job_id)
        if self._shared is not None and self._shared.independent:
            over += [k for k in self._shared.guests if self._jobs[k].end_s <= end_s]
        return [self._finish(job_id) for job_id in sorted(over)]

    def _finish(self, job_id: str) -> Completion:
        job = self._jobs.pop(job_id)
        self._disconnect(job)
        ran_s = job.ran_s + (self._now_s - job.since_s)
        return Completion(job_id, self._now_s, "finished", "", ran_s, {})
