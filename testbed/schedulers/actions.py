"""What a policy may answer, and what it is told: frozen values, no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from testbed.embedding.placement import Placement

Tier = Literal["foreground", "background"]


@dataclass(frozen=True)
class Start:
    """Start the job now at ``rate_bps`` per VM; hold its reservation until ``reserve_until_s``.

    ``reserve_until_s`` None holds until the job ends. ``kill_at_end``: the job is killed when the
    reservation ends, whatever it has done by then.
    """

    job_id: str
    placement: Placement
    rate_bps: int
    reserve_until_s: float | None = None
    kill_at_end: bool = False
    tier: Tier = "foreground"


@dataclass(frozen=True)
class Reserve:
    """Start the job at ``start_s`` (later than now) and hold until ``end_s``: time sliding."""

    job_id: str
    placement: Placement
    rate_bps: int
    start_s: float
    end_s: float
    kill_at_end: bool = True


@dataclass(frozen=True)
class Rescale:
    job_id: str
    rate_bps: int


@dataclass(frozen=True)
class Preempt:
    job_id: str
    reason: str


@dataclass(frozen=True)
class Resume:
    job_id: str


@dataclass(frozen=True)
class Migrate:
    job_id: str
    placement: Placement
    reason: str


@dataclass(frozen=True)
class SwitchTier:
    job_id: str
    tier: Tier


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
    """Ask to be told (:class:`Woken`) at ``at_s``."""

    at_s: float


Action: TypeAlias = (
    Start | Reserve | Rescale | Preempt | Resume | Migrate | SwitchTier | Reject | Kill | Wake
)


@dataclass(frozen=True)
class Arrived:
    """A job was submitted."""

    job_id: str


@dataclass(frozen=True)
class Ended:
    """A job left the data centre (finished, killed): its capacity is back."""

    job_id: str
    outcome: str


@dataclass(frozen=True)
class Woken:
    """A time the policy asked for has come (:class:`Wake`)."""

    at_s: float


PolicyEvent: TypeAlias = Arrived | Ended | Woken
