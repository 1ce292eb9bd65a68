"""CMBF, AMBF, CMCBF and AMCBF: backfilling without running times, repaired by
preemption.

Running times are unknown, so every job that fits runs at once. An earlier job
takes its nodes back: it starts as soon as the idle nodes and those of jobs that
arrived later are enough for it, and preempts as few of these as necessary (CMBF,
Section 4.1). In AMBF and AMCBF only the first waiting job may preempt. A
preempted job keeps its progress; resuming costs ``cost_s``.

In CMCBF and AMCBF (Section 4.2) every node has a foreground and a background
VM, and all this happens in the foreground. A job without a place there runs in
the background, where the foreground uses less than 96 % of the CPU, and moves
to the foreground when it can. A job that must leave the foreground stays on the
same nodes where their background VMs are all idle (a change of priority, which
costs nothing), and goes back into the queue otherwise. The foreground is filled
anew when one of its jobs ends (Algorithm 2); the end of a background job fills
the background alone (Algorithm 3). A job of AMCBF that this makes the first may
therefore preempt from the next end of a foreground job on.

The printed algorithm stops when *more* nodes are idle than the job needs (line
14); here as many are enough. The "backfilling jobs" of a job are the running
ones that arrived later, looked up each time: a stored list would be out of date
as soon as the head starts.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.request import JobRequest
from testbed.embedding.placement import Refusal
from testbed.reservation.capacity import Holder, NodeCapacity, TierCapacity
from testbed.schedulers.actions import (
    Action,
    Arrived,
    Ended,
    Migrate,
    PolicyEvent,
    Preempt,
    Reject,
    Start,
    SwitchTier,
    Tier,
    Wait,
)
from testbed.schedulers.policy import PolicyKind, View, parameter

MIGRATION_COST_S = 20.0
THRESHOLD = 0.96
"""CPU use from which a foreground VM leaves nothing to a background VM
(Section 3).
"""

CPU = ("known", "unknown")


class Cmbf:
    """``background``: CMCBF. ``head_only``: AMBF and AMCBF.

    ``cpu``: ``unknown`` places background VMs as if every VM were idle.
    ``cost_s``: what resuming elsewhere costs a job, 20 s as published. The end
    of a foreground job costs O(waiting + running) and O(nodes) per job that
    moves; other events O(waiting + nodes).
    """

    _nodes: NodeCapacity
    _foreground: TierCapacity
    _background: TierCapacity

    def __init__(
        self,
        name: str = "cmbf",
        *,
        background: bool = False,
        head_only: bool = False,
        cpu: str = CPU[0],
        cost_s: float = MIGRATION_COST_S,
    ) -> None:
        if cpu not in CPU:
            raise ValueError(f"cpu is one of {', '.join(CPU)}, not {cpu!r}")
        self.name = name
        self._has_background = background
        self._head_only = head_only
        # Without a background the CPU use decides nothing.
        self._blind = cpu == "unknown" or not background
        self._cost_s = cost_s
        self._use: dict[str, tuple[float, ...]] = {}
        self._rate_bps: dict[str, int] = {}
        # Waiting jobs by order of arrival, as the holders of both tiers are.
        self._queue: list[Holder] = []
        self._actions: list[Action] = []
        self._started: set[str] = set()
        self._begun = False
        self._recorded: str | None = None
        # True if a job of that tier ended at this instant. Decisions follow when
        # all jobs that end at the instant have ended.
        self._foreground_left = self._background_left = False

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not self._begun:
            self._begun = True
            self._begin(NodeCapacity(view.datacentre))
        self._actions = []
        if isinstance(event, Arrived):
            self._arrive(view, view.job(event.job_id))
        elif isinstance(event, Ended):
            self._leave(event.job_id)
            if not event.more_at_this_time:
                self._after_ends()
        return self._actions

    def _begin(self, nodes: NodeCapacity) -> None:
        self._nodes = nodes
        # A foreground VM gets its CPU whatever is behind it.
        self._foreground = TierCapacity(nodes.total, self._use, math.inf)
        # No CPU use is below -inf: without background VMs none is ever open.
        limit = THRESHOLD if self._has_background else -math.inf
        self._background = TierCapacity(nodes.total, self._use, limit)
        self._foreground.other = self._background
        self._background.other = self._foreground

    # -- events -------------------------------------------------------------------------------

    def _arrive(self, view: View, job: JobRequest) -> None:
        """Algorithm 4."""
        never = self._nodes.never(job, any_bandwidth=self._has_background)
        if never is not None:
            self._actions.append(Reject(job.id, never))
            return
        entry = (view.order(job.id), 0, job.n_vms, job.id)
        self._note_demand(job)
        insort(self._queue, entry)
        # The newest job can preempt nobody, since no job arrived later than
        # it: idle nodes alone decide (Algorithm 4, line 6).
        if job.n_vms <= self._foreground.idle:
            self._to_foreground(entry)
        if self._background_left:
            self._fill_background(self._queue)
        # No background VM came free since the queue was last gone through,
        # so the jobs before this one still do not fit.
        elif job.id not in self._foreground.at:
            self._fill_background([entry])
        if (
            job.id not in self._foreground.at
            and job.id not in self._background.at
        ):
            self._actions.append(self._waits(entry))

    def _note_demand(self, job: JobRequest) -> None:
        """Keeps the job's CPU use and rate, as far as the policy uses them."""
        if self._blind:
            self._use[job.id] = (0.0,) * job.n_vms
        else:
            self._use[job.id] = job.cpu_uses
        # With two tiers two jobs share a node, and no bandwidth is reserved.
        self._rate_bps[job.id] = (
            0 if self._has_background else job.bandwidth_bps
        )

    def _leave(self, job_id: str) -> None:
        if self._use.pop(job_id, None) is None:
            return
        self._started.discard(job_id)
        if self._foreground.give_back(job_id) is not None:
            self._foreground_left = True
        elif self._background.give_back(job_id) is not None:
            self._background_left = True
        else:
            self._queue = [
                entry for entry in self._queue if entry[3] != job_id
            ]
            # A waiting job that leaves may be the first, behind which
            # others waited. With a background nothing but the end of a
            # foreground job lets another have its turn.
            self._foreground_left |= not self._has_background

    def _after_ends(self) -> None:
        if self._foreground_left:
            self._foreground_left = False
            self._fill_foreground()
            # Jobs that moved from the background to the foreground left room
            # there, and preempted jobs may use it.
            self._background_left = True
        if self._background_left:
            self._fill_background(self._queue)
        if self._queue and self._queue[0][3] != self._recorded:
            self._recorded = self._queue[0][3]
            self._actions.append(self._waits(self._queue[0]))

    # -- Algorithm 2 --------------------------------------------------------------------------

    def _fill_foreground(self) -> None:
        """Moves every job to the foreground that can, in order of arrival.

        In CMBF this is Algorithm 1. The next job is looked up at each step,
        since preempted jobs join the background and the queue meanwhile. They
        arrived later than the job that preempted them, so none is missed.
        """
        order = 0.0
        ahead = 0
        later = 0
        moved = True
        foreground = self._foreground
        holders = foreground.holders
        while (entry := self._next(order)) is not None:
            order, _, n, _ = entry
            # The last step changed who holds nodes: place and sum of the
            # later ones are counted anew.
            if moved:
                ahead = bisect_right(holders, entry)
                later = sum(held for _, _, held, _ in holders[ahead:])
                moved = False
            # Holders are by arrival: the count of later ones shrinks with
            # each step, so that a pass is linear.
            while ahead < len(holders) and holders[ahead][0] < order:
                later -= holders[ahead][2]
                ahead += 1
            may_preempt = not self._head_only or self._next(0) == entry
            idle = foreground.idle
            # With no idle node and no node of a later job this job cannot
            # start, nor can those behind it, for fewer jobs are later than
            # they.
            if idle + (later if may_preempt else 0) == 0:
                return
            # Lines 9-17: preempt backfilled jobs where that makes enough room.
            if may_preempt and 0 < n - idle <= later:
                for victim in victims(holders[ahead:], n - idle):
                    self._from_foreground(victim, entry)
            if n <= foreground.idle:
                self._to_foreground(entry)
                moved = True

    def _next(self, order: float) -> Holder | None:
        """The earliest job outside the foreground that arrived after ``order``."""
        # Orders are whole numbers: the next job's is at least one more.
        key: Holder = (order + 1, 0, 0, "")
        first: Holder | None = None
        for jobs in (self._queue, self._background.holders):
            at = bisect_left(jobs, key)
            if at < len(jobs) and (first is None or jobs[at] < first):
                first = jobs[at]
        return first

    def _from_foreground(self, entry: Holder, winner: Holder) -> None:
        """Takes a job's foreground nodes for ``winner``, which arrived earlier.

        It moves to the background on the same nodes, or back into the queue.
        """
        job_id = entry[3]
        at = self._foreground.give_back(job_id)
        # Line 9 of Algorithm 2: to the background of the same nodes where
        # all of it is idle, otherwise saved and suspended.
        if (
            at is not None
            and self._has_background
            and self._background.fits_at(at)
        ):
            self._background.take(entry, at)
            self._actions.append(SwitchTier(job_id, "background"))
        else:
            insort(self._queue, entry)
            nodes = "foreground nodes" if self._has_background else "nodes"
            reason = (
                f"{winner[3]} arrived earlier and needs {winner[2]} {nodes}"
            )
            self._actions.append(Preempt(job_id, reason))

    # -- dispatching --------------------------------------------------------------------------

    def _to_foreground(self, entry: Holder) -> None:
        """``dispatch(FG, j)``, from the queue or from the background."""
        job_id = entry[3]
        at = self._background.give_back(job_id)
        # It held no background nodes, so it waited in the queue.
        if at is None:
            del self._queue[bisect_left(self._queue, entry)]
        else:
            self._background_left = True
        # On the same nodes it is a change of priority, which costs nothing.
        # Its own background VMs stood there, so that no other job's need be
        # preempted.
        if at is not None and self._foreground.fits_at(at):
            self._actions.append(SwitchTier(job_id, "foreground"))
        else:
            place = self._foreground.match(entry, self._foreground.open())
            # The caller has counted the idle nodes.
            if isinstance(place, Refusal):
                raise AssertionError(f"{job_id}: {place.reason}")
            at = place
            self._clear_background(entry, at)
            why = "nodes are free for it again"
            if self._has_background:
                why = "moves to the foreground"
            self._dispatch(job_id, at, "foreground", why)
        self._foreground.take(entry, at)

    def _clear_background(self, entry: Holder, at: list[int]) -> None:
        """Preempt background jobs to which a foreground job leaves no CPU."""
        background = self._background
        for node, share in zip(at, self._use[entry[3]], strict=True):
            loser = background.who[node]
            if loser is not None and share >= THRESHOLD:
                insort(self._queue, background.holder_of[loser])
                background.give_back(loser)
                self._background_left = True
                reason = f"{entry[3]} in the foreground uses {share:.0%} of a CPU"
                self._actions.append(Preempt(loser, reason))

    def _fill_background(self, waiting: list[Holder]) -> None:
        """Algorithm 3: start or resume waiting jobs in the background.

        In order of arrival.
        """
        self._background_left = False
        if not waiting or not self._has_background:
            return
        room = self._background.open()
        # A copy: those that start leave the queue.
        for entry in list(waiting):
            if not room:
                return
            at = self._background.match(entry, room)
            # Algorithm 3 goes through the whole queue: a job that does not
            # fit holds up nobody behind it.
            if isinstance(at, Refusal):
                continue
            del self._queue[bisect_left(self._queue, entry)]
            why = "fits in the background"
            self._dispatch(entry[3], at, "background", why)
            self._background.take(entry, at)
            del room[: entry[2]]

    def _dispatch(
        self, job_id: str, at: list[int], tier: Tier, why: str
    ) -> None:
        placement = self._nodes.placement(at)
        action: Action
        # On its old nodes too: its state was saved, and restoring it is
        # what costs.
        if job_id in self._started:
            action = Migrate(
                job_id, placement, why, cost_s=self._cost_s, tier=tier
            )
        else:
            self._started.add(job_id)
            rate_bps = self._rate_bps[job_id]
            action = Start(job_id, placement, rate_bps, tier=tier)
        self._actions.append(action)

    # -- why others wait ----------------------------------------------------------------------

    def _waits(self, entry: Holder) -> Wait:
        order, _, n, job_id = entry
        holders = self._foreground.holders
        head = self._queue[0]
        later = sum(held for at, _, held, _ in holders if at > order)
        reason = self._what_is_free(n, later)
        if entry == head:
            # Holders are sorted by arrival: it waits for all earlier ones.
            earlier = holders[: bisect_left(holders, (order, 0, 0, ""))]
            waits_for = tuple(holder for _, _, _, holder in earlier)
            return Wait(job_id, f"first in the queue: {reason}", waits_for)
        enough = n <= self._foreground.idle + later
        if enough and self._head_only and not self._has_background:
            reason += "; the head of the queue alone may preempt"
        return Wait(job_id, reason, (head[3],))

    def _what_is_free(self, n: int, later: int) -> str:
        idle = self._foreground.idle
        text = f"{idle} idle, {later} held by jobs that came later"
        if not self._has_background:
            return f"{n} nodes asked, {text}"
        n_open = len(self._background.open())
        return f"{n} nodes asked; in the foreground {text}; in the background {n_open} open"


def victims(later: Sequence[Holder], needs: int) -> list[Holder]:
    """Jobs to preempt for ``needs`` nodes.

    ``later``: jobs by arrival, which have enough nodes together. They are
    collected from the latest arrival on until they have enough; then, from the
    earliest on, those that are not needed are spared (Fig. 1: J6 and J5 are
    collected, J5 alone is preempted).
    """
    collected: list[Holder] = []
    have = 0
    for holder in reversed(later):
        if have >= needs:
            break
        collected.append(holder)
        have += holder[2]
    for holder in reversed(collected[:]):
        if have - holder[2] >= needs:
            collected.remove(holder)
            have -= holder[2]
    return collected


@dataclass(frozen=True)
class CmbfParameters:
    migration_cost_s: float = parameter(
        MIGRATION_COST_S,
        "time that it costs a preempted job to resume",
        unit="s",
    )


@dataclass(frozen=True)
class CmcbfParameters(CmbfParameters):
    cpu: str = parameter(
        CPU[0], "CPU use of the VMs, to match by", choices=CPU
    )


def _kind(
    name: str, summary: str, *, background: bool, head_only: bool
) -> PolicyKind:
    def build(_: object, parameters: CmbfParameters) -> Cmbf:
        cpu = CPU[0]
        if isinstance(parameters, CmcbfParameters):
            cpu = parameters.cpu
        return Cmbf(
            name,
            background=background,
            head_only=head_only,
            cpu=cpu,
            cost_s=parameters.migration_cost_s,
        )

    return PolicyKind(
        name,
        summary,
        build,
        CmcbfParameters if background else CmbfParameters,
        claims=("no-starvation-without-bandwidth",),
    )


POLICIES = (
    _kind(
        "cmbf",
        "CMBF: backfills all, earlier jobs preempt later",
        background=False,
        head_only=False,
    ),
    _kind(
        "ambf",
        "AMBF: CMBF where the head of the queue preempts",
        background=False,
        head_only=True,
    ),
    _kind(
        "cmcbf",
        "CMCBF: CMBF with background VMs on every node",
        background=True,
        head_only=False,
    ),
    _kind(
        "amcbf",
        "AMCBF: AMBF with background VMs on every node",
        background=True,
        head_only=True,
    ),
)
