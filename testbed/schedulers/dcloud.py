"""DCloud: deadlines give room to slide jobs in time and to scale their
bandwidth (Section III.D).

On arrival a request ⟨n, b, p, d⟩ is relaxed to p̃ = min((1 + γ)p, d) and every
point of a grid of starting times and bandwidths is tried; the one that raises
the network's DRU least is reserved. Nothing is changed afterwards. What a job
leaves when it ends early is free at once; one that has not ended when its
reservation does is killed, or moves to servers for best effort (Section VI, Bad
Profiling).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from jobs.demand import scaled_duration_s
from jobs.request import JobRequest
from testbed.embedding.placement import Embedder, Refusal, only_on_servers
from testbed.events import OUTLASTED
from testbed.schedulers.actions import (
    Action,
    Arrived,
    Kill,
    Migrate,
    Outlasted,
    PolicyEvent,
    Reject,
    Reserve,
    Start,
)
from testbed.schedulers.bl import SlotsAlone
from testbed.schedulers.charging import is_service, job_price
from testbed.schedulers.dcloud_search import (
    Choice,
    Search,
    Shape,
    search_of,
)
from testbed.schedulers.policy import Claim, PolicyKind, View, parameter
from topologies.datacentre import DataCentre

GAMMA = 0.12
"""The profiling relax index of the paper's comparisons: profiles err by up to
12 %.
"""


STEPS = 10
"""Bins of either range: 11 starting times, and for each 11 bandwidths
(Algorithm 1).
"""


@dataclass(frozen=True)
class Reshaping:
    """Which of the two means are allowed."""

    slides: bool = True
    scales: bool = True


def exact(value: float) -> Fraction:
    """The decimal number that a float is written as: 0.12 is 12/100.

    In binary 1.12 lies above that, and so did p̃: half of a bandwidth was then
    a little more than half.
    """
    return Fraction(repr(float(value)))


def relaxed_exactly(
    duration_s: float, deadline_s: Fraction, gamma: float
) -> Fraction:
    """p̃ = min((1 + γ)p, d): the profile with its tolerated error (Section
    III.A).
    """
    return min((1 + exact(gamma)) * exact(duration_s), deadline_s)


def shapes(
    bandwidth_bps: int,
    relaxed_s: Fraction,
    deadline_s: Fraction,
    reshaping: Reshaping,
) -> list[list[Shape]]:
    """The grid of Algorithm 1, one list per t' in rising order, b' falling
    within it.

    t' goes from 0 to d - p̃, b' from b down to b·p̃/(d - t'), each in ten equal
    steps; a range without extent has one point (the printed loop would never
    end). b' is rounded up to whole bit/s, so that t' + p' ≤ d. Reckoned in
    exact fractions: a bandwidth of exactly one half is one half.

    Raises ValueError when p̃ > d.
    """
    p = relaxed_s
    d = deadline_s
    if not 0 < p <= d:
        raise ValueError(
            f"a relaxed duration of {float(p):g} s does not fit {float(d):g} s"
        )
    # Over the common denominator everything is an integer, and integers are
    # fast.
    scale = math.lcm(p.denominator, d.denominator)
    p_ticks = int(p * scale)
    d_ticks = int(d * scale)
    room = d_ticks - p_ticks
    slides = room > 0 and reshaping.slides
    rows = []
    for step in range(STEPS + 1 if slides else 1):
        # In tenths of a tick, so that a tenth of the room is whole.
        time = d_ticks * STEPS - step * room
        rates = _rates(bandwidth_bps, p_ticks * STEPS, time, reshaping)
        # The only rounding: everything before it is exact.
        delay_s = (
            float(Fraction(step * room, STEPS * scale)) if step else 0.0
        )
        row = []
        for rate in rates:
            duration_s = scaled_duration_s(float(p), bandwidth_bps, rate)
            row.append(Shape(delay_s, rate, duration_s))
        rows.append(row)
    return rows


def _rates(
    bandwidth_bps: int, need: int, time: int, reshaping: Reshaping
) -> list[int]:
    """Falling bandwidths for a job that needs ``need`` ticks at b and has
    ``time`` ticks.
    """
    spare = time - need
    # No room, or nothing to scale: a job without bandwidth takes as long at
    # any rate.
    if spare <= 0 or not reshaping.scales or bandwidth_bps == 0:
        return [bandwidth_bps]
    # b' = b - k·b(d - t' - p̃) / (10(d - t')), rounded up.
    divisor = STEPS * time
    rates = []
    for step in range(STEPS + 1):
        rates.append(
            -(-bandwidth_bps * (divisor - step * spare) // divisor)
        )
    return rates


def first_best_effort(n_servers: int, share: float) -> int:
    """Number of the first server for best effort.

    These are the last ones, so that they are whole racks as far as possible:
    ``share`` of all, rounded up, and one is left for reservations.
    """
    # A share's rounding is no server more.
    wanted = math.ceil(share * n_servers - 1e-9)
    return n_servers - min(wanted, n_servers - 1)


class DCloud:
    """Algorithm 1. ``embedder`` is its VAlloc; ``gamma`` the profiling relax
    index γ.

    ``reshaping`` narrows it to DCloud-TS (sliding alone) or DCloud-BS (scaling
    alone). ``best_effort_servers``: the share of servers that jobs move to at
    the end of their reservation; nothing is reserved there.
    """

    def __init__(
        self,
        embedder: Embedder,
        gamma: float = GAMMA,
        reshaping: Reshaping | None = None,
        name: str = "dcloud",
        best_effort_servers: float = 0.0,
    ) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(
                f"the profiling relax index lies between 0 and 1, not at {gamma:g}"
            )
        self.name = name
        self._embedder = embedder
        self._gamma = gamma
        self._reshaping = reshaping or Reshaping()
        self._best_effort_servers = best_effort_servers
        self._search: Search | None = None

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        match event:
            case Arrived(job_id):
                return self._admit(view, view.job(job_id))
            case Outlasted(job_id):
                return self._move(view, view.job(job_id))
            # Nothing waits: what an end frees is seen by the next search.
            case _:
                return []

    def _admit(self, view: View, job: JobRequest) -> list[Action]:
        if is_service(job):
            return self._serve(view, job)
        if job.deadline_s is not None and job.deadline_s < job.duration_s:
            return [
                Reject(
                    job.id, "its deadline is shorter than its own duration"
                )
            ]
        choice = self.choose(view, job)
        if choice is None:
            return [Reject(job.id, self._why_not(view, job))]
        asks = self._best_effort_servers > 0
        return [_action(view.now_s, job, choice, asks=asks)]

    def price(self, job: JobRequest, ran_s: float) -> float:
        """Price, for its tenant, of a job that met its deadline."""
        return job_price(job, ran_s, discounts=True)

    def choose(self, view: View, job: JobRequest) -> Choice | None:
        """The point of the grid that raises U least; the first of equals; None:
        no point fits.
        """
        search = self._search_in(view.datacentre)
        grid = self.grid(job)
        return search.best(view.ledger, view.now_s, job.n_vms, grid)

    def grid(self, job: JobRequest) -> list[list[Shape]]:
        """The points that are tried, by starting time. Without a deadline there
        is no room.
        """
        # With d = p̃ there is neither a later start nor a smaller
        # bandwidth.
        deadline_s = (1 + exact(self._gamma)) * exact(job.duration_s)
        if job.deadline_s is not None:
            deadline_s = exact(job.deadline_s)
        relaxed_s = relaxed_exactly(job.duration_s, deadline_s, self._gamma)
        return shapes(
            job.bandwidth_bps, relaxed_s, deadline_s, self._reshaping
        )

    # -- inside -----------------------------------------------------------------------------

    def _serve(self, view: View, job: JobRequest) -> list[Action]:
        """A user-facing service: now, at b, until it ends by itself (Section
        VI).
        """
        free = view.residual(view.now_s, None)
        answer = self._search_in(view.datacentre).embed(
            free, job.n_vms, job.bandwidth_bps
        )
        if isinstance(answer, Refusal):
            return [Reject(job.id, answer.reason)]
        return [Start(job.id, answer, job.bandwidth_bps)]

    def _move(self, view: View, job: JobRequest) -> list[Action]:
        """The second way for bad profiles (Section VI): at the end of its
        reservation a job is "immediately migrated to the particular servers",
        placed there as BL does, and runs "on a best-effort basis" until it
        ends. It is killed where they have no room.
        """
        first = self._search_in(view.datacentre).n_open
        free = only_on_servers(
            view.residual(view.now_s, None), slice(first, None)
        )
        answer = SlotsAlone().embed(view.datacentre, free, job.n_vms, 0)
        if isinstance(answer, Refusal):
            full = f"servers for best effort: {answer.reason}"
            return [Kill(job.id, f"{OUTLASTED}; {full}")]
        return [Migrate(job.id, answer, OUTLASTED, best_effort=True)]

    def _why_not(self, view: View, job: JobRequest) -> str:
        grid = self.grid(job)
        # The first point is the request itself: at once, at b.
        answer = self._search_in(view.datacentre).place(
            view.ledger, view.now_s, job.n_vms, grid[0][0]
        )
        others = sum(map(len, grid)) - 1
        reason = "it fits nowhere"
        if isinstance(answer, Refusal):
            reason = answer.reason
        if not others:
            return reason
        return f"{reason}; nor does it fit at {others} later starts and smaller bandwidths"

    def _search_in(self, datacentre: DataCentre) -> Search:
        if (
            self._search is None
            or self._search.datacentre is not datacentre
        ):
            n_open = first_best_effort(
                datacentre.n_servers, self._best_effort_servers
            )
            self._search = search_of(datacentre, self._embedder, n_open)
        return self._search


def _action(
    now_s: float, job: JobRequest, choice: Choice, *, asks: bool
) -> Action:
    shape = choice.shape
    start_s = now_s + shape.delay_s
    end_s = start_s + shape.duration_s
    # A delay below the clock's resolution at this time is none: a Reserve
    # must begin later than now.
    if start_s <= now_s:
        return Start(
            job.id,
            choice.placement,
            shape.rate_bps,
            reserve_until_s=end_s,
            kill_at_end=True,
            ask_at_end=asks,
        )
    return Reserve(
        job.id,
        choice.placement,
        shape.rate_bps,
        start_s=start_s,
        end_s=end_s,
        ask_at_end=asks,
    )


@dataclass(frozen=True)
class DCloudParameters:
    gamma: float = parameter(
        GAMMA, "profiling relax index γ", unit="share", limits=(0.0, 1.0)
    )
    best_effort_servers: float = parameter(
        0.0,
        "share of servers for jobs that outlast their reservations; 0 kills them",
        unit="share",
        limits=(0.0, 0.5),
    )


def _claims(parameters: DCloudParameters) -> tuple[Claim, ...]:
    if parameters.best_effort_servers:
        return ("within-deadline", "moved-at-reservation-end")
    return ("within-deadline", "no-preemption")


def _kind(name: str, summary: str, reshaping: Reshaping) -> PolicyKind:
    return PolicyKind(
        name,
        summary,
        lambda embedder, parameters: DCloud(
            embedder,
            gamma=parameters.gamma,
            reshaping=reshaping,
            name=name,
            best_effort_servers=parameters.best_effort_servers,
        ),
        DCloudParameters,
        embeds=True,
        on_failure=("wait", "kill"),
        claims=_claims,
    )


POLICIES = (
    _kind(
        "dcloud",
        "DCloud: slides jobs in time and scales their bandwidth",
        Reshaping(),
    ),
    _kind(
        "dcloud-ts",
        "DCloud with time sliding alone",
        Reshaping(scales=False),
    ),
    _kind(
        "dcloud-bs",
        "DCloud with bandwidth scaling alone",
        Reshaping(slides=False),
    ),
)
