"""Drops of classes that their own tenant filled beyond its reservation. Pure.

Several VMs of a program may send to one at once. A switch that enforces their
hose then drops packets, which does not make the run suspect. The conditions are
those of ``docs/runs-and-fidelity.md``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import isfinite, sqrt
from typing import NamedTuple

from testbed.embedding.placement import Placement
from testbed.plan.fidelity import KEPT_UP, QUEUE_S
from testbed.plan.limits import (
    RESERVED_CATCH_UP_S,
    largest_packet_bytes,
    port_queue_bytes,
)
from testbed.plan.network_plan import TenantPlan, vms_below_links
from topologies.datacentre import DataCentre, down, up

LATELY_S = 2 * RESERVED_CATCH_UP_S
"""Time before a count in which the switch's waits are summed. If it waited for
more than half of it, it may have caused the drops.
"""


def converging_links(
    datacentre: DataCentre, placement: Placement
) -> frozenset[int]:
    """Directed links on which a tenant's VMs may send more than its hose
    reserves.

    They lead from X of its N VMs to the other N - X, with X > N - X.
    """
    links = []
    below = vms_below_links(datacentre, placement)
    for link, n_below in below.items():
        n_above = placement.n_vms - n_below
        if n_below > n_above:
            links.append(up(link))
        if n_above > n_below:
            links.append(down(link))
    return frozenset(links)


class ClassCount(NamedTuple):
    """Counters of a class, read at ``at_s``.

    ``waited_s``: time for which the switch has waited for a processor so far;
    NaN: not known.
    """

    at_s: float
    sent_bytes: int
    drops: int
    queue_bytes: int
    waited_s: float


class ClassDrops(NamedTuple):
    """Packets that a class has dropped; ``full``: those dropped while it was
    full.
    """

    packets: int
    full: int


class ClassSeen(NamedTuple):
    """Drops of a class, and its traffic in all of its stretches.

    ``sent``: what it sent; ``due``: what its rate carries; both in packets of
    its largest size.
    """

    drops: ClassDrops
    sent: float
    due: float
    stretches: int


class FullClass:
    """A class on a link, and its drops while its reservation was full.

    A *stretch* is a series of counts between which its queue was never empty.
    Drops in the interval just before or after a stretch belong to it, too.
    """

    def __init__(self, tenant: TenantPlan) -> None:
        self._packet_bytes = largest_packet_bytes(tenant)
        self._rate_bps = 0
        self._first_drops = 0
        self._last: ClassCount | None = None
        self._waits: deque[tuple[float, float]] = deque()
        # Of the present stretch, and of all that have ended.
        self._stretch_due_bytes = 0.0
        self._stretch_bytes = 0
        self._stretch_drops = 0
        self._all_due_bytes = 0.0
        self._all_bytes = 0
        self._stretches = 0
        self._full_drops = 0

    def take(self, now: ClassCount, rate_bps: int) -> None:
        """Takes one more count; ignores one whose time or traffic is not known."""
        if not isfinite(now.at_s) or now.sent_bytes < 0:
            return
        last = self._last
        self._last = now
        if last is None:
            self._first_drops = now.drops
            self._rate_bps = rate_bps
        elif rate_bps != self._rate_bps:
            # Drops since the last count belong to neither rate, nor stretch.
            self._end_stretch()
            self._rate_bps = rate_bps
        else:
            self._compare(last, now)
        self._waits.append((now.at_s, now.waited_s))

    def _compare(self, last: ClassCount, now: ClassCount) -> None:
        drops = self._drops_when_full(last, now)
        if self._stayed_queued(last, now):
            self._stretch_due_bytes += self._due_bytes(last, now)
            self._stretch_bytes += now.sent_bytes - last.sent_bytes
            self._stretch_drops += drops
        elif self._is_queued(now):
            # Its queue was empty in between, and filled up: a new stretch.
            self._end_stretch()
            self._stretch_drops += drops
        else:
            if self._is_queued(last):
                self._stretch_drops += drops
            self._end_stretch()

    def _due_bytes(self, last: ClassCount, now: ClassCount) -> float:
        return self._rate_bps / 8 * (now.at_s - last.at_s)

    def _stayed_queued(self, last: ClassCount, now: ClassCount) -> bool:
        """True if its queue was never empty between two counts.

        That is certain if less was sent than the queue held at first, or if as
        much was sent as the rate allows.
        """
        if not self._is_queued(last) or not self._is_queued(now):
            return False
        sent_bytes = now.sent_bytes - last.sent_bytes
        if sent_bytes < last.queue_bytes:
            return True
        due_bytes = self._due_bytes(last, now)
        return self._kept_up(sent_bytes, due_bytes)

    def _is_queued(self, count: ClassCount) -> bool:
        least_bytes = max(QUEUE_S * self._rate_bps / 8, self._packet_bytes)
        return count.queue_bytes > least_bytes

    def _drops_when_full(self, last: ClassCount, now: ClassCount) -> int:
        """Drops between two counts if its queue may have been full then, and
        the switch had hardly waited; else 0.
        """
        # No queue in between was longer than this one with all that was sent.
        most_bytes = now.queue_bytes + now.sent_bytes - last.sent_bytes
        most_bytes += self._packet_bytes
        was_full = most_bytes >= port_queue_bytes(self._rate_bps)
        # False for NaN: the switch may have waited.
        was_on_time = self._waited_s(now) <= RESERVED_CATCH_UP_S
        if was_full and was_on_time:
            return now.drops - last.drops
        return 0

    def _waited_s(self, now: ClassCount) -> float:
        """Time for which the switch waited in the last :data:`LATELY_S`.

        Packets held up by a wait arrive after it, all at once.
        """
        waits = self._waits
        while len(waits) > 1 and waits[1][0] <= now.at_s - LATELY_S:
            waits.popleft()
        return now.waited_s - waits[0][1]

    def _kept_up(self, sent_bytes: int, due_bytes: float) -> bool:
        """True if it sent at its rate, or one packet less."""
        return sent_bytes + self._packet_bytes >= KEPT_UP * due_bytes

    def _end_stretch(self) -> None:
        due_bytes = self._stretch_due_bytes
        if self._kept_up(self._stretch_bytes, due_bytes):
            self._full_drops += self._stretch_drops
        if due_bytes > 0.0:
            self._all_due_bytes += due_bytes
            self._all_bytes += self._stretch_bytes
            self._stretches += 1
        self._stretch_due_bytes = 0.0
        self._stretch_bytes = 0
        self._stretch_drops = 0

    def seen(self) -> ClassSeen:
        """Ends the present stretch; returns its drops and traffic so far."""
        self._end_stretch()
        packets = 0
        if self._last is not None:
            packets = self._last.drops - self._first_drops
        return ClassSeen(
            ClassDrops(packets, self._full_drops),
            self._all_bytes / self._packet_bytes,
            self._all_due_bytes / self._packet_bytes,
            self._stretches,
        )


def drops_of(classes: Mapping[int, FullClass]) -> dict[int, ClassDrops]:
    """Drops of a job's classes, by directed link.

    ``full`` is 0 unless it is certain that all of them together sent at their
    rates. The present stretches end.
    """
    seen = {link: full_class.seen() for link, full_class in classes.items()}
    sent = sum(class_seen.sent for class_seen in seen.values())
    due = sum(class_seen.due for class_seen in seen.values())
    stretches = sum(class_seen.stretches for class_seen in seen.values())
    # By chance each stretch has up to half a packet more or less, which adds up
    # by squares. That must not exceed the tolerance of KEPT_UP. Without any
    # stretch it does.
    chance = sqrt(max(1, stretches)) / 2
    was_enough = chance <= (1.0 - KEPT_UP) * due
    kept_up = was_enough and sent + chance >= KEPT_UP * due
    result = {}
    for link, class_seen in seen.items():
        result[link] = class_seen.drops
        if not kept_up:
            result[link] = ClassDrops(class_seen.drops.packets, 0)
    return result
