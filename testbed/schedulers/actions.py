"""Actions of a policy, and the events that it gets: frozen values, no clock, no
I/O.

**Tiers.** Every node has a foreground and a background VM per slot. Without a
tier, everything happens in the foreground. The background has no links: a job
in it holds no bandwidth (its rate is 0).

**Preemption.** :class:`Preempt` takes a job off its nodes at once and keeps
what it has done; it waits again, at its old place by arrival. It resumes by
:class:`Resume` (where it was) or :class:`Migrate` (elsewhere). Either may cost
``cost_s``: for so long the job holds its nodes and makes no progress. A job
that is preempted within that time resumes later from the progress it had, and
pays again.

What every job has (:class:`Start`, :class:`Arrived`, :class:`Ended`) is a named
tuple, made in a third of the time that a frozen dataclass takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from testbed.embedding.placement import Placement

Tier = Literal["foreground", "background"]


class Start(NamedTuple):
    """Start the job now at ``rate_bps`` per VM; hold its reservation until
    ``reserve_until_s``.

    ``reserve_until_s`` None holds until the job ends; any other wants
    ``kill_at_end``, as the job may run on with nothing reserved. ``kill_at_end``:
    the job is killed when the reservation ends, whatever it has done by then;
    with ``ask_at_end``, too, the policy is asked first (:class:`Outlasted`).
    """

    job_id: str
    placement: Placement
    rate_bps: int
    reserve_until_s: float | None = None
    kill_at_end: bool = False
    tier: Tier = "foreground"
    ask_at_end: bool = False


@dataclass(frozen=True)
class Reserve:
    """Start the job at ``start_s`` (later than now) and hold until ``end_s``:
    time sliding. The rest as in :class:`Start`.
    """

    job_id: str
    placement: Placement
    rate_bps: int
    start_s: float
    end_s: float
    kill_at_end: bool = True
    ask_at_end: bool = False


@dataclass(frozen=True)
class Rescale:
    """Give a running job another rate per VM; refused in the background."""

    job_id: str
    rate_bps: int


@dataclass(frozen=True)
class Shorten:
    """The running job gives its nodes back at ``until_s``, before its
    reservation's end.

    Its nodes can be reserved at once for times from ``until_s`` on. A job that
    has not ended by then is preempted, and the policy is asked
    (:class:`Preempted`).
    """

    job_id: str
    until_s: float
    reason: str


@dataclass(frozen=True)
class Preempt:
    """Take a running job off its nodes; its capacity is free at once, its
    progress is kept.

    ``reason``: text for people, such as the job that needs the nodes.
    """

    job_id: str
    reason: str


@dataclass(frozen=True)
class Resume:
    """Resume a preempted job where it was, at the rate it had.

    ``reserve_until_s`` and ``kill_at_end`` are those of :class:`Start`.
    """

    job_id: str
    cost_s: float = 0.0
    tier: Tier = "foreground"
    reserve_until_s: float | None = None
    kill_at_end: bool = False


@dataclass(frozen=True)
class Migrate:
    """Let a preempted or a running job resume at ``placement``, at the rate it
    had.

    What a running job holds is given back before the new placement is checked,
    so that the two may overlap. ``cost_s``: for so long it holds its new nodes
    and makes no progress. ``reserve_until_s`` and ``kill_at_end`` are those of
    :class:`Start`. ``best_effort``: a running job gives up its bandwidth, in the
    foreground; from then on it shares what reservations leave.
    """

    job_id: str
    placement: Placement
    reason: str
    cost_s: float = 0.0
    tier: Tier = "foreground"
    reserve_until_s: float | None = None
    kill_at_end: bool = False
    best_effort: bool = False


@dataclass(frozen=True)
class SwitchTier:
    """The running job's VMs go to the other tier of the same nodes, which must
    be free there.

    A change of CPU priority: it costs nothing, and is no migration (CMBF,
    Section 4.2).
    """

    job_id: str
    tier: Tier


@dataclass(frozen=True)
class Wait:
    """The reason why a job waits: for the event stream alone, so that ``testbed
    explain`` has it.

    ``reason``: what was tried and what stood in the way ("6 nodes asked, 3
    free"). ``behind``: the jobs that it waits for. ``until_s``: when it can
    start at the earliest by what the policy knows. The engine writes it down
    only where it differs from the last one of that job, so a policy may say it
    at every decision; cheaper is to say it only of jobs it has looked at.
    """

    job_id: str
    reason: str
    behind: tuple[str, ...] = ()
    until_s: float | None = None


@dataclass(frozen=True)
class Reject:
    job_id: str
    reason: str


@dataclass(frozen=True)
class Kill:
    job_id: str
    reason: str


@dataclass(frozen=True)
class Wake:
    """Ask for a decision (:class:`Woken`) at ``at_s``."""

    at_s: float


Action: TypeAlias = (
    Start
    | Reserve
    | Rescale
    | Shorten
    | Preempt
    | Resume
    | Migrate
    | SwitchTier
    | Wait
    | Reject
    | Kill
    | Wake
)


class Arrived(NamedTuple):
    """A job was submitted."""

    job_id: str


class Ended(NamedTuple):
    """A job left the data centre (finished, killed): its capacity is back.

    ``more_at_this_time``: others ended at this very instant; their capacity is
    back too, and their own events follow. A policy that plans once an instant
    waits for the last, where it is False.
    """

    job_id: str
    outcome: str
    more_at_this_time: bool = False


@dataclass(frozen=True)
class Preempted:
    """A job reached the end that :class:`Shorten` gave its reservation; it
    waits again.
    """

    job_id: str


@dataclass(frozen=True)
class Outlasted:
    """A running job has not ended when its reservation does
    (``ask_at_end``): it is killed unless the answer moves or preempts it.
    """

    job_id: str


@dataclass(frozen=True)
class Woken:
    """A time the policy asked for has come (:class:`Wake`)."""

    at_s: float


@dataclass(frozen=True)
class Restored:
    """A link or a server that was lost is back: there is more free than before."""


PolicyEvent: TypeAlias = (
    Arrived | Ended | Preempted | Outlasted | Woken | Restored
)
