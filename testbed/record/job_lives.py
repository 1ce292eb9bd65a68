"""Lives of a run's jobs, folded once from its events: phases, holds and outcomes.

Tables, summary, report and ``testbed explain`` all read jobs from here; the
audit alone has a fold of its own. A new kind of event touches at most five
files: ``testbed/events.py`` defines it, its producer emits it, ``_EFFECTS``
below says what it does to a job, ``job_history.py`` has its sentence and
``audit/event_order.py`` the phases in which it may occur. A decision is a line of
``comparison.py`` besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from testbed import events

Phase: TypeAlias = Literal["waiting", "reserved", "running", "cut", "ended"]
"""``reserved``: booked, not started; ``cut``: a lost link keeps it from running."""
Links: TypeAlias = Sequence[Sequence[int]]
"""``[directed link, bit/s]``."""
ServerVms: TypeAlias = Sequence[Sequence[int]]
"""``[server, number of VMs]``."""

FOREGROUND = "foreground"


class Stretch(NamedTuple):
    """An uninterrupted phase of a job's life."""

    job_id: str
    phase: Phase
    start_s: float
    end_s: float


class Hold(NamedTuple):
    """VM slots and bandwidth that a running job takes from ``since_s`` on.

    ``bps``: the sum over its links.
    """

    since_s: float
    n_slots: int
    links: Links
    bps: int


class HeldLinks(NamedTuple):
    """Bandwidth that a job took from ``start_s`` to ``end_s``."""

    links: Links
    start_s: float
    end_s: float


@dataclass(slots=True)
class JobLife:
    """One job so far; times in experiment seconds."""

    job_id: str
    request: Mapping[str, Any]
    phase: Phase = "waiting"
    phase_since_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None
    outcome: str = "unfinished"
    reason: str = "the run stopped before its end"
    granted_bps: int | None = None
    estimate_s: float | None = None
    measured_s: float | None = None
    preemptions: int = 0
    migrations: int = 0
    slowed: bool = False
    """Rescaled below the bandwidth of its estimate."""
    quickened: bool = False
    """Rescaled above it."""
    failed: bool = False
    """Interrupted, cut or requeued by a failure."""
    by_policy: bool = False
    """Killed by its policy."""
    price: float = 0.0
    iperf3: Mapping[str, Sequence[float]] = field(default_factory=dict)
    possible_error: str = ""
    """The possible error of a live job's time, by its evidence."""
    delay_s: float = 0.0
    """The most that its links' delay adds to a live job's estimate."""
    network_share: float | None = None
    """Share of a live job's time in which packets waited at its limiters."""
    loses: bool = False
    """Its links lose packets."""
    n_slots: int = 0
    vms_on: ServerVms = ()
    wait_reason: str = ""
    """The reason for its latest wait."""
    share: float | None = None
    """Share of its volume that a live job has received so far."""
    tier: str = FOREGROUND
    links: Links = ()
    hold: Hold | None = None

    @property
    def waits(self) -> bool:
        return self.phase in ("waiting", "reserved")


class JobLives:
    """Jobs of an event stream, by id, as of the last event that was followed.

    ``recording`` keeps every stretch and hold of every job, for pictures and
    link rates; without it memory grows with jobs, not with events. Jobs that
    were never submitted, in a damaged folder, are left to the audit.
    """

    def __init__(self, *, recording: bool = False) -> None:
        self.jobs: dict[str, JobLife] = {}
        self.now_s = 0.0
        self.slot_s = 0.0
        """VM slots in use, integrated over time."""
        self.reserved_bits = 0.0
        """Bandwidth reserved over all links, integrated over time."""
        self._n_slots = 0
        self._reserved_bps = 0
        self._recording = recording
        self._stretches: list[Stretch] = []
        self._held: list[HeldLinks] = []

    def follow(self, event: events.Event) -> JobLife | None:
        """Takes an event in, in O(1).

        Returns the life of the job that it changes; None for an event that
        changes none, or several.
        """
        # Use is constant between events: each interval is added with what
        # was held during it.
        step_s = event.t - self.now_s
        if step_s:
            self.slot_s += self._n_slots * step_s
            self.reserved_bits += self._reserved_bps * step_s
            self.now_s = event.t
        # A look-up by exact type, since a long run has a million events. Event
        # classes of jobs have no subclasses.
        effect = _EFFECTS.get(type(event))
        if effect is not None:
            life = self.jobs.get(event.job_id)  # type: ignore[attr-defined]
            if life is not None:
                effect(self, life, event)
            return life
        if isinstance(event, events.JobSubmitted):
            job_id = str(event.job["id"])
            life = JobLife(job_id, event.job, phase_since_s=event.t)
            self.jobs[job_id] = life
            return life
        # Every running job counts as hit, whether it crosses the switch or not:
        # none is judged by its time then.
        if isinstance(event, events.SwitchRestarted):
            for running in self.jobs.values():
                running.failed |= running.hold is not None
        return None

    def stretches(self) -> list[Stretch]:
        """All stretches in the order of their ends; open ones end with the
        stream.
        """
        living = [
            life for life in self.jobs.values() if life.phase != "ended"
        ]
        living.sort(key=lambda life: life.phase_since_s)
        recorded = list(self._stretches)
        for life in living:
            if self.now_s > life.phase_since_s:
                recorded.append(self._stretch(life))
        return recorded

    def held(self) -> Iterator[HeldLinks]:
        """Bandwidth of running jobs in the order of release; what is still held
        ends with the stream.
        """
        yield from self._held
        holds = [life.hold for life in self.jobs.values() if life.hold]
        for hold in sorted(holds, key=lambda hold: hold.since_s):
            if self.now_s > hold.since_s:
                yield HeldLinks(hold.links, hold.since_s, self.now_s)

    # -- what an event does to a life

    def enter(self, life: JobLife, phase: Phase) -> None:
        """Begins a phase; the phase before it is kept, if it took time."""
        lasted = self.now_s > life.phase_since_s and life.phase != "ended"
        if lasted and self._recording:
            self._stretches.append(self._stretch(life))
        life.phase = phase
        life.phase_since_s = self.now_s

    def take(
        self, life: JobLife, *, links_since_s: float | None = None
    ) -> None:
        """Makes the job hold its slots and links, in place of what it held.

        ``links_since_s``: since when it has held these links; None: from now on.
        """
        # First, so that one interval ends where the next begins.
        self.release(life, links_too=links_since_s is None)
        # A background VM runs in what the foreground leaves: no slot of its own.
        n_slots = life.n_slots if life.tier == FOREGROUND else 0
        bps = sum(bps for _, bps in life.links)
        since_s = self.now_s if links_since_s is None else links_since_s
        life.hold = Hold(since_s, n_slots, life.links, bps)
        self._n_slots += n_slots
        self._reserved_bps += bps

    def release(self, life: JobLife, *, links_too: bool = True) -> None:
        """Makes the job hold nothing.

        ``links_too=False``: it takes the same links again at once, so the
        interval in which it holds them does not end here.
        """
        hold = life.hold
        if hold is None:
            return
        self._n_slots -= hold.n_slots
        self._reserved_bps -= hold.bps
        life.hold = None
        ends = links_too and self._recording and hold.links
        if ends and self.now_s > hold.since_s:
            held = HeldLinks(hold.links, hold.since_s, self.now_s)
            self._held.append(held)

    def _stretch(self, life: JobLife) -> Stretch:
        return Stretch(
            life.job_id, life.phase, life.phase_since_s, self.now_s
        )


def _reserved(
    lives: JobLives, life: JobLife, event: events.JobReserved
) -> None:
    life.links = event.links
    life.vms_on = event.vms_on
    life.tier = event.tier
    life.granted_bps = event.rate_bps
    life.estimate_s = event.estimate_s
    n_vms = sum(count for _, count in event.vms_on)
    # A VM of a lease takes a slot for each of its cores.
    life.n_slots = n_vms * int(life.request.get("cores", 1))
    lives.enter(life, "reserved")


def _waits(_: JobLives, life: JobLife, event: events.JobWaits) -> None:
    life.wait_reason = event.reason


def _progressed(
    _: JobLives, life: JobLife, event: events.JobProgress
) -> None:
    life.share = event.share


def _started(
    lives: JobLives, life: JobLife, event: events.JobStarted
) -> None:
    # Of a job that was requeued, the first start counts.
    if life.start_s is None:
        life.start_s = event.t
    lives.take(life)
    lives.enter(life, "running")


def _rescaled(
    lives: JobLives, life: JobLife, event: events.JobRescaled
) -> None:
    life.links = event.links
    # The rate that the estimate was made for.
    granted_bps = life.granted_bps or 0
    life.slowed |= event.rate_bps < granted_bps
    life.quickened |= event.rate_bps > granted_bps
    lives.take(life)


def _preempted(
    lives: JobLives, life: JobLife, _: events.JobPreempted
) -> None:
    life.preemptions += 1
    lives.release(life)
    lives.enter(life, "waiting")


def _resumed(
    lives: JobLives, life: JobLife, event: events.JobResumed
) -> None:
    life.tier = event.tier
    lives.take(life)
    lives.enter(life, "running")


def _migrated(
    lives: JobLives, life: JobLife, event: events.JobMigrated
) -> None:
    life.migrations += 1
    life.links = event.links
    life.vms_on = event.vms_on
    life.tier = event.tier
    lives.take(life)
    lives.enter(life, "running")


def _tier_switched(
    lives: JobLives, life: JobLife, event: events.JobTierSwitched
) -> None:
    life.tier = event.tier
    # The slots are those of the other tier; the links are held on.
    links_since_s = life.hold.since_s if life.hold else None
    lives.take(life, links_since_s=links_since_s)


def _rerooted(
    lives: JobLives, life: JobLife, event: events.JobRerooted
) -> None:
    life.links = event.links
    # A job that is booked ahead may be moved before it holds anything.
    if life.hold is not None:
        lives.take(life)


def _cut(lives: JobLives, life: JobLife, _: events.JobCut) -> None:
    life.failed = True
    lives.enter(life, "cut")


def _reconnected(
    lives: JobLives, life: JobLife, _: events.JobReconnected
) -> None:
    lives.enter(life, "running")


def _requeued(
    lives: JobLives, life: JobLife, _: events.JobRequeued
) -> None:
    life.failed = True
    lives.release(life)
    lives.enter(life, "waiting")


def _ended(lives: JobLives, life: JobLife, event: events.JobEnded) -> None:
    life.end_s = event.t
    life.outcome = event.outcome
    life.reason = event.reason
    life.measured_s = event.measured_s
    life.by_policy = event.killed_by_policy
    life.price = float(event.detail.get("price", 0.0))
    life.iperf3 = event.detail.get("iperf3", {})
    # The delay of each VM's transfers: the slowest ends the job.
    life.delay_s = float(max(event.detail.get("delay_s", (0.0,))))
    life.loses = bool(event.detail.get("loss_share"))
    # Only live jobs have evidence.
    evidence = event.detail.get("evidence")
    if isinstance(evidence, Mapping):
        life.possible_error = str(evidence.get("possible_error", ""))
        # Share of the samples in which packets waited at its limiters.
        queued_share = evidence.get("queued")
        if isinstance(queued_share, float):
            life.network_share = queued_share
    lives.release(life)
    lives.enter(life, "ended")


_EFFECTS: dict[
    type[events.Event], Callable[[JobLives, JobLife, Any], None]
] = {
    events.JobReserved: _reserved,
    events.JobWaits: _waits,
    events.JobProgress: _progressed,
    events.JobStarted: _started,
    events.JobRescaled: _rescaled,
    events.JobPreempted: _preempted,
    events.JobResumed: _resumed,
    events.JobMigrated: _migrated,
    events.JobTierSwitched: _tier_switched,
    events.JobRerooted: _rerooted,
    events.JobCut: _cut,
    events.JobReconnected: _reconnected,
    events.JobRequeued: _requeued,
    events.JobEnded: _ended,
}
"""Kinds of events that change a job, with their effect on its life."""
