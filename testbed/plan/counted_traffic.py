"""Traffic that limiters counted, compared with what their rates carry. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from testbed.plan.fidelity import KEPT_UP

ROUNDING = 1e-9
SETTLES_S = 1.0
"""Longest time after an outage until TCP sends at its rate again: slow start
and a timer.
"""
SAME_TIME = 0.1
"""Largest difference between a link's interval and a VM's interval that are
taken as one, as a share of the VM's.
"""


class Arrival(NamedTuple):
    """All traffic sent to a VM, with headers, and the arrival of its last byte."""

    wire_bits: float
    last_s: float


class CurveStep(NamedTuple):
    """A step of a demand curve at a reserved rate: its traffic and its length.

    A step that demands more than the rate lasts longer (DCloud, Eq. 1).
    """

    wire_bits: float
    length_s: float


def due_s(phases: Sequence[CurveStep], share: float) -> float:
    """Time at which a VM has sent a share of its curve's traffic, in s from the
    curve's begin.
    """
    left_bits = share * sum(phase.wire_bits for phase in phases)
    at_s = 0.0
    for phase in phases:
        # Rounding must not put the end of a phase into the next one.
        if left_bits <= phase.wire_bits * (1.0 + ROUNDING):
            part = left_bits / max(1.0, phase.wire_bits)
            return at_s + min(1.0, part) * phase.length_s
        left_bits -= phase.wire_bits
        at_s += phase.length_s
    return at_s


class Disturbance(NamedTuple):
    """An interval in which the experiment itself disturbs a job's traffic: it
    stopped the job, or changed its rate.

    The machine is not to blame for traffic that is missing then. The interval
    ends at ``until_s``, or earlier for a limiter that sends at its rate again.
    """

    from_s: float
    until_s: float

    def followed_by(self, later: Disturbance) -> Disturbance:
        """The later disturbance; it lasts at least until this one ends.

        A disturbance without an end, of a stopped job, is over when the later
        one begins.
        """
        if self.until_s == inf:
            return later
        return later._replace(until_s=max(self.until_s, later.until_s))


NONE = Disturbance(-inf, -inf)


def disturbance(now_s: float, outage_s: float) -> Disturbance:
    """The disturbance from now on, after an outage of ``outage_s`` that ends
    now.

    TCP doubles the time between retransmissions, so the next one may come as
    long after the outage as the outage lasted. An infinite ``outage_s`` is a
    stop that begins now: the disturbance has no end.
    """
    return Disturbance(now_s, now_s + outage_s + SETTLES_S)


class LinkUse:
    """The interval between the last two counts of a link, and its idle share.

    ``length_s``: the interval's length, NaN where a count's time is unknown.
    ``idle``: the share of the interval in which the link sent nothing; None:
    unknown.
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
        """Takes a later count. ``idle`` is unknown where the time of this count
        or of the one before is (NaN).
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
    """Time by which a VM's traffic falls behind its cap while no link to it is
    full.

    A full link delays traffic by design. So the time counted between two counts
    is at most the time in which the busiest of these links was idle.
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
        """Takes the interval since the VM's last count.

        ``length_s``: its length. ``lack_s``: the time that the cap needs for
        the traffic missing in it. ``links``: the links to the VM that may be
        full; None: a link without counts.
        """
        for link in links:
            # Whether the link was full is unknown: the interval is left out.
            if link is None or link.idle is None:
                return
            # Not the same interval: VM or link has just begun to be counted.
            if abs(link.length_s - length_s) > SAME_TIME * length_s:
                return
            lack_s = min(lack_s, link.idle * length_s)
        self.watched_s += length_s
        self.lack_s += lack_s

    @property
    def lack(self) -> float:
        """The time by which it fell behind, as a share of the time watched."""
        return max(0.0, self.lack_s) / max(self.watched_s, ROUNDING)


class Counted:
    """Traffic that a limiter has sent, and what its rate would have carried.

    - ``at_s``: the time of the last count.
    - ``watched_s``: total length of the intervals between counts into which no
      disturbance falls; in them, ``due_bits``: what its rate carries, and
      ``sent_bits``: what it sent.
    - ``disturbed_s``: total length of the other intervals.
    """

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
        """Takes a later count, and the rate from now on.

        The interval since the last count is left out of ``watched_s`` if a
        disturbance falls into it.
        """
        length_s = at_s - self.at_s
        # At the old rate: a new one holds from now on.
        due_bits = self._rate_bps * length_s
        sent_bits = 8.0 * (sent_bytes - self._sent_bytes)
        if self._is_in(disturbed, sent_bits >= KEPT_UP * due_bits):
            self.disturbed_s += length_s
        else:
            self.watched_s += length_s
            self.due_bits += due_bits
            self.sent_bits += sent_bits
            # The first interval also holds the costs of a start (`lack_in`).
            if self._first is None:
                self._first = (self.watched_s, self.lack_bits)
        self.at_s = at_s
        self._sent_bytes = sent_bytes
        self._rate_bps = rate_bps

    def _is_in(self, disturbed: Disturbance, at_rate: bool) -> bool:
        """True if a disturbance falls into the interval since the last count.

        ``at_rate``: the limiter sent at its rate in this interval; this is
        recorded, as any earlier disturbance is then over.
        """
        # The interval began before the disturbance and reaches into it.
        if self.at_s < disturbed.from_s:
            return True
        if at_rate:
            # Whatever had stopped it was over when the interval began.
            self._at_rate_s = self.at_s
        is_over = self._at_rate_s >= disturbed.from_s
        return not is_over and self.at_s < disturbed.until_s

    def behind_s(
        self, phases: Sequence[CurveStep], began_s: float, arrival: Arrival
    ) -> tuple[float, float]:
        """Time in s by which a VM's last byte came later than its demand curve
        has it, and the part of this delay that arose after the last count.

        ``began_s``: the time at which the curve began.
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
        """Time in s that bits take at the limiter's mean rate."""
        # Nothing was due yet: only the present rate is known.
        if self.due_bits <= 0:
            return bits / max(1.0, self._rate_bps)
        return bits * self.watched_s / self.due_bits

    def lack_in(self, length_s: float) -> float:
        """Missing bits in ``length_s``, at its rate.

        They are counted in ``watched_s`` and extrapolated to the rest. The
        first interval is no basis for that: it holds the costs of a start,
        which arise once.
        """
        first_s, first_bits = self._first or (0.0, 0.0)
        later_s = self.watched_s - first_s
        if later_s <= 0:
            return self.lack_bits
        per_s = max(0.0, self.lack_bits - first_bits) / later_s
        left_s = max(0.0, length_s - self.watched_s)
        return self.lack_bits + per_s * left_s

    def tail_lack(
        self, arrival: Arrival, disturbed: Disturbance = NONE
    ) -> float:
        """Missing bits between the last count and the last byte: what the
        limiter's rate carries in that time, less the bits that came.

        0 if a disturbance falls into that time.
        """
        if self._is_in(disturbed, at_rate=False):
            return 0.0
        tail_s = max(0.0, arrival.last_s - self.at_s)
        left_bits = max(0.0, arrival.wire_bits - 8.0 * self._sent_bytes)
        return self._rate_bps * tail_s - left_bits
