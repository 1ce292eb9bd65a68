"""Traffic that a limiter has counted, against what its rate carries. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from testbed.plan.fidelity import KEPT_UP

ROUNDING = 1e-9
SETTLES_S = 1.0
"""Beyond an outage, until TCP sends at its rate again: slow start, a timer."""
SAME_TIME = 0.1
"""Share by which the times of two limiters of one count may differ."""


class Arrival(NamedTuple):
    """All that a VM was sent, with headers, and when its last byte had come."""

    wire_bits: float
    last_s: float


class CurveStep(NamedTuple):
    """A step of a demand curve at a reserved rate: its traffic and its time.

    DCloud's Eq. 1: it takes longer where it asks for more than that rate.
    """

    wire_bits: float
    length_s: float


def due_s(phases: Sequence[CurveStep], share: float) -> float:
    """The time by which a VM has sent a share of what its curve asks for."""
    left_bits = share * sum(phase.wire_bits for phase in phases)
    at_s = 0.0
    for phase in phases:
        # Rounding must not end a phase that is all sent one step later.
        if left_bits <= phase.wire_bits * (1.0 + ROUNDING):
            part = left_bits / max(1.0, phase.wire_bits)
            return at_s + min(1.0, part) * phase.length_s
        left_bits -= phase.wire_bits
        at_s += phase.length_s
    return at_s


class Disturbance(NamedTuple):
    """A time in which the experiment itself stops a job, or changes its rate.

    The machine is not to blame for traffic that is missing then. For a limiter
    that sends at its rate again the time ends before ``until_s``.
    """

    from_s: float
    until_s: float

    def then(self, later: Disturbance) -> Disturbance:
        """The time of both; the later one begins before this one ends."""
        if self.until_s == inf:
            return later
        return later._replace(until_s=max(self.until_s, later.until_s))


NONE = Disturbance(-inf, -inf)


def disturbance(now_s: float, outage_s: float) -> Disturbance:
    """A disturbance that ends now, or has no end where ``outage_s`` is infinite.

    TCP doubles the time between retransmissions: after an outage the next one
    comes no later than the outage was long.
    """
    return Disturbance(now_s, now_s + outage_s + SETTLES_S)


class LinkUse:
    """The time between the last two counts of a link, and its idle share.

    ``idle``: the share of that time in which the link could have sent more;
    None: unknown.
    """

    def __init__(
        self, at_s: float, sent_bytes: int, rate_bps: float
    ) -> None:
        self._at_s = at_s
        self._sent_bytes = sent_bytes
        self._rate_bps = rate_bps
        self.length_s = 0.0
        self.idle: float | None = None

    def take(self, at_s: float, sent_bytes: int, rate_bps: float) -> None:
        """Takes a later count. After one of an unknown time (NaN) ``idle`` is
        unknown.
        """
        self.length_s = at_s - self._at_s
        sent_bits = 8.0 * (sent_bytes - self._sent_bytes)
        self.idle = None
        if self.length_s > 0.0:
            self.idle = 1.0 - sent_bits / self._rate_bps / self.length_s
        self._at_s = at_s
        self._sent_bytes = sent_bytes
        self._rate_bps = rate_bps


class HeldUp:
    """Traffic that a VM lacks, against its cap, while no link to it is full.

    A full link may delay it by design: between two counts no more is counted as
    lacking than the time in which each of these links was idle.
    """

    def __init__(self) -> None:
        self.watched_s = 0.0
        self.lack_s = 0.0

    def take(
        self,
        length_s: float,
        lack_s: float,
        links: Sequence[LinkUse | None],
    ) -> None:
        """Takes the time since the VM's last count.

        ``lack_s``: the time that its cap needs for what it lacks. ``links``:
        those on the way to it that may be full; None: unknown.
        """
        for link in links:
            # Nothing is known of this time: it is not watched.
            if link is None or link.idle is None:
                return
            # Another time than the VM's, as one of them has just begun.
            if abs(link.length_s - length_s) > SAME_TIME * length_s:
                return
            lack_s = min(lack_s, link.idle * length_s)
        self.watched_s += length_s
        self.lack_s += lack_s

    @property
    def lack(self) -> float:
        """The time that it lacks, as a share of the time watched."""
        return max(0.0, self.lack_s) / max(self.watched_s, ROUNDING)


class Counted:
    """Traffic of a limiter, beside what its rate carries."""

    def __init__(
        self, at_s: float, sent_bytes: int, rate_bps: float
    ) -> None:
        self._sent_bytes = sent_bytes
        self._rate_bps = rate_bps
        self.at_s = at_s
        self.watched_s = 0.0
        self.disturbed_s = 0.0
        self.due_bits = 0.0
        self.sent_bits = 0.0
        self._first: tuple[float, float] | None = None
        self._at_rate_s = -inf

    def take(
        self,
        at_s: float,
        sent_bytes: int,
        rate_bps: float,
        disturbed: Disturbance = NONE,
    ) -> None:
        """Takes a later count. The time since the last one does not count if a
        disturbance falls into it.
        """
        length_s = at_s - self.at_s
        due_bits = self._rate_bps * length_s
        # The rate is that of the time since the last count: a new one holds
        # from now on.
        sent_bits = 8.0 * (sent_bytes - self._sent_bytes)
        if self._is_in(disturbed, sent_bits >= KEPT_UP * due_bits):
            self.disturbed_s += length_s
        else:
            self.watched_s += length_s
            self.due_bits += due_bits
            self.sent_bits += sent_bits
            # Kept apart: it holds what a start costs, once (`lack_in`).
            if self._first is None:
                self._first = (self.watched_s, self.lack_bits)
        self.at_s = at_s
        self._sent_bytes = sent_bytes
        self._rate_bps = rate_bps

    def _is_in(self, disturbed: Disturbance, at_rate: bool) -> bool:
        """True if a disturbance falls into the time since the last count."""
        # It began since the last count, so that this count holds time of
        # both.
        if self.at_s < disturbed.from_s:
            return True
        if at_rate:
            # It has kept up since the last count, so whatever had stopped
            # it was over by then.
            self._at_rate_s = self.at_s
        is_over = self._at_rate_s >= disturbed.from_s
        return not is_over and self.at_s < disturbed.until_s

    def behind_s(
        self, phases: Sequence[CurveStep], began_s: float, arrival: Arrival
    ) -> tuple[float, float]:
        """The time by which a VM's last byte is behind its demand curve, and the
        part of that time after the last count.
        """
        share = min(1.0, 8.0 * self._sent_bytes / arrival.wire_bits)
        counted_s = self.at_s - began_s - due_s(phases, share)
        left_s = due_s(phases, 1.0) - due_s(phases, share)
        tail_s = arrival.last_s - self.at_s - left_s
        return counted_s + tail_s, tail_s

    @property
    def lack_bits(self) -> float:
        return self.due_bits - self.sent_bits

    def seconds(self, bits: float) -> float:
        """The time that bits take at the limiter's mean rate."""
        # Nothing was due yet: only the present rate is known.
        if self.due_bits <= 0:
            return bits / max(1.0, self._rate_bps)
        return bits * self.watched_s / self.due_bits

    def lack_in(self, length_s: float) -> float:
        """Bits that will lack after ``length_s``.

        For the time that was not counted they are extrapolated from the time
        after the first count.
        """
        first_s, first_bits = self._first or (0.0, 0.0)
        later_s = self.watched_s - first_s
        if later_s <= 0:
            return self.lack_bits
        per_s = max(0.0, self.lack_bits - first_bits) / later_s
        # The first interval has what a start costs once; only later ones
        # tell the pace.
        left_s = max(0.0, length_s - self.watched_s)
        return self.lack_bits + per_s * left_s

    def tail_lack(
        self, arrival: Arrival, disturbed: Disturbance = NONE
    ) -> float:
        """Bits that lack from the last count until the last byte.

        They are what the limiter's rate carries in that time, less what came.
        """
        if self._is_in(disturbed, at_rate=False):
            return 0.0
        tail_s = max(0.0, arrival.last_s - self.at_s)
        left_bits = max(0.0, arrival.wire_bits - 8.0 * self._sent_bytes)
        return self._rate_bps * tail_s - left_bits
