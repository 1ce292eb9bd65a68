"""The one ledger of reservations over time: slots and memory of servers,
bandwidth of directed links.

A hose takes min(X, N-X)·B of both directions of a link, so the timeline has one
number a link: what is reserved in each. It fits where it fits the smaller
capacity; the wider direction has the difference free as well.

Every policy's reservations are in it, in simulation and on the live network.
Intervals are half-open ``[start, end)``; at equal times ends come before
starts. Slots, MiB and bit/s are integers, so whatever was reserved comes back
exactly.

Cost, with S servers, L links and C changes on the timeline: ``reserve``,
``release`` and ``rerate`` move O(C) numbers and look at the reservations on the
servers and links concerned, where those are few, or else sweep the changes
inside the interval; ``residual`` copies O(S + L) and sweeps. Where all
reservations are open-ended there is nothing to sweep.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from testbed.embedding.placement import (
    ONE_SLOT,
    Placement,
    Residual,
    VmSize,
    hose_bps,
    tree_of,
)
from testbed.reservation.timeline import FEW, Footprint, Timeline
from testbed.units import human_bandwidth
from topologies.datacentre import DataCentre, IntArray, down, up


class OverCommit(ValueError):
    """A reservation does not fit; the message names the place and the numbers."""


class LedgerBroken(AssertionError):
    """The ledger contradicts its own list of reservations: a defect of this
    program.
    """


@dataclass(frozen=True)
class Holding:
    """A job's reservation: ``end_s`` None until released. ``number`` is the
    ledger's own.

    ``size`` is what each of its VMs takes of a server.
    """

    job_id: str
    placement: Placement
    rate_bps: int
    start_s: float
    end_s: float | None
    number: int
    size: VmSize = ONE_SLOT

    @property
    def until_s(self) -> float:
        """The end, infinite where it is open."""
        if self.end_s is None:
            return math.inf
        return self.end_s


class Ledger:
    """Slots and directed link bandwidth of one data centre over time.

    ``timeline`` is the record itself, to read: for policies that search it
    (DCloud's RUR).
    """

    def __init__(self, datacentre: DataCentre) -> None:
        self.datacentre = datacentre
        self._capacity = capacities(datacentre)
        self.timeline = Timeline(self._capacity)
        self._holdings: dict[str, Holding] = {}
        # Intervals that no job holds any more (cut short, or over) and their
        # job, for check().
        self._former: dict[int, Holding] = {}
        self._job_of: dict[int, str] = {}
        # Jobs whose reservation ran out and was forgotten before they were
        # released.
        self._ran_out: set[str] = set()
        self._forgotten_s = -math.inf
        # By how much a direction of a link carries more than the other.
        self._wider_bps = datacentre.directed_capacity_bps - np.repeat(
            datacentre.link_capacity_bps, 2
        )
        self._lost: IntArray = np.empty(0, dtype=np.int64)

    # -- booking ----------------------------------------------------------------------------

    def reserve(
        self,
        job_id: str,
        placement: Placement,
        rate_bps: int,
        start_s: float,
        end_s: float | None,
        size: VmSize = ONE_SLOT,
    ) -> None:
        """Reserves the hose in ``[start_s, end_s)``; None holds it until it is
        released.

        Raises OverCommit, changing nothing, when it does not fit at some
        instant; ValueError when the job holds something or the interval is
        none.
        """
        holding = self._holdings.get(job_id)
        if holding is not None:
            raise ValueError(
                f"job {job_id} holds a reservation from {holding.start_s:g} s already"
            )
        until_s = self._interval(start_s, end_s)
        print_ = footprint(self.datacentre, placement, rate_bps, size)
        self._require_room(job_id, print_, start_s, until_s)
        number = self.timeline.add(print_, start_s, until_s)
        # A preempted job reserves again. The end of its first reservation
        # matters no more.
        self._ran_out.discard(job_id)
        self._holdings[job_id] = Holding(
            job_id, placement, rate_bps, start_s, end_s, number, size
        )
        self._job_of[number] = job_id

    def release(self, job_id: str, at_s: float) -> None:
        """Free what is left of a job's reservation from ``at_s`` on (early
        release).

        Nothing is left of one that ran out. Raises KeyError for a job that has
        none to release.
        """
        self._not_forgotten(at_s)
        if job_id in self._ran_out:
            self._ran_out.remove(job_id)
            return
        self._cut(self._holdings.pop(job_id), at_s)

    def rerate(self, job_id: str, at_s: float, rate_bps: int) -> None:
        """From ``at_s`` on the job holds ``rate_bps`` per VM. Raises as
        :meth:`reserve` does.
        """
        self._rebook(
            at_s, replace(self._holdings[job_id], rate_bps=rate_bps)
        )

    def reroot(
        self, job_id: str, at_s: float, placement: Placement
    ) -> None:
        """From ``at_s`` on the job holds another placement. Raises as
        :meth:`reserve` does.
        """
        self._rebook(
            at_s, replace(self._holdings[job_id], placement=placement)
        )

    def _rebook(self, at_s: float, new: Holding) -> None:
        job_id = new.job_id
        old = self._holdings[new.job_id]
        self._not_forgotten(at_s)
        if at_s >= old.until_s:
            raise ValueError(
                f"job {job_id}: its reservation ended at {old.until_s:g} s"
            )
        print_ = footprint(
            self.datacentre, new.placement, new.rate_bps, new.size
        )
        begin_s = max(at_s, old.start_s)
        # What the job itself gives back in that interval is there for it to
        # take.
        held = self.held(job_id)
        self._require_room(job_id, print_, begin_s, old.until_s, held)
        self._cut(old, at_s)
        number = self.timeline.add(print_, begin_s, old.until_s)
        self._holdings[job_id] = replace(
            new, start_s=begin_s, number=number
        )
        self._job_of[number] = job_id

    def shorten(self, job_id: str, end_s: float) -> None:
        """A job's reservation ends at ``end_s``; ValueError unless that is
        inside of it.
        """
        self._not_forgotten(end_s)
        old = self._holdings[job_id]
        if not old.start_s < end_s < old.until_s:
            raise ValueError(
                f"job {job_id} holds [{old.start_s:g} s, {old.until_s:g} s):"
                f" {end_s:g} s is not inside"
            )
        self.timeline.cut(old.number, old.until_s, end_s)
        self._holdings[job_id] = replace(old, end_s=end_s)

    @property
    def has_lost(self) -> bool:
        """True while links or servers are lost."""
        return bool(len(self._lost))

    def set_lost(
        self, servers: Collection[int], links: Collection[int]
    ) -> None:
        """These, and no others, have nothing free from now on; who holds a part
        of them keeps it.

        The record of reservations (``timeline``) does not know of it.
        """
        n_servers = self.datacentre.n_servers
        self._lost = np.array(
            sorted({*servers, *(n_servers + k for k in links)}),
            dtype=np.int64,
        )

    def forget_before(self, now_s: float) -> None:
        """Drops what lies before ``now_s``, which is not read or changed again."""
        if now_s <= self._forgotten_s:
            return
        for number in self.timeline.forget_before(now_s):
            # Not cut short by anybody: the job's reservation ended as it
            # was booked.
            if self._former.pop(number, None) is None:
                job_id = self._job_of.pop(number)
                del self._holdings[job_id]
                self._ran_out.add(job_id)
        self._forgotten_s = now_s

    # -- looking ----------------------------------------------------------------------------

    def residual(self, start_s: float, end_s: float | None) -> Residual:
        """The least that is free at any instant of ``[start_s, end_s)``; None:
        for ever.
        """
        until_s = self._interval(start_s, end_s)
        return self._residual(self.timeline.least_free(start_s, until_s))

    def free_at(
        self,
        placement: Placement,
        rate_bps: int,
        start_s: float,
        end_s: float | None,
        size: VmSize = ONE_SLOT,
    ) -> Residual:
        """:meth:`residual`, of which nobody looks at more than what a placement
        takes: where those are few servers and links they alone are looked up,
        and 0 stands for all others.
        """
        until_s = self._interval(start_s, end_s)
        try:
            objects = footprint(
                self.datacentre, placement, rate_bps, size
            ).objects
        except (LookupError, ValueError):
            # What is wrong with it is for others to say.
            return self.residual(start_s, end_s)
        if len(objects) > FEW:
            return self.residual(start_s, end_s)
        free = np.zeros_like(self._capacity)
        free[objects] = self.timeline.least_free_of(
            objects, start_s, until_s
        )
        return self._residual(free)

    def residuals(
        self, start_s: float, ends_s: Sequence[float]
    ) -> Iterator[Residual]:
        """:meth:`residual` of windows with the same start and rising ends, by
        one sweep.

        The ledger must not be changed in between.
        """
        for end_s in ends_s:
            self._interval(start_s, end_s)
        for free in self.timeline.least_free_by_end(start_s, ends_s):
            yield self._residual(free.copy())

    def holdings(self) -> Mapping[str, Holding]:
        """Reservations of all jobs, now or later, in order of booking."""
        return MappingProxyType(self._holdings)

    def held(self, job_id: str) -> Footprint:
        """Footprint of a job's reservation: views, not to be written. KeyError
        without one.
        """
        return self.timeline.pool.footprint(self._holdings[job_id].number)

    def check(self) -> None:
        """Derive everything anew from the list of reservations; LedgerBroken
        where it differs.
        """
        booked = [*self._holdings.values(), *self._former.values()]
        prints = []
        times = set()
        for holding in booked:
            prints.append(self._checked_footprint(holding))
            times.add(holding.start_s)
            if holding.end_s is not None:
                times.add(holding.until_s)
        # The cursor is put back: a check changes nothing.
        cursor_s = self.timeline.cursor_s
        times.add(cursor_s)
        for at_s in sorted(times):
            if at_s < self._forgotten_s:
                continue
            free = self._capacity.copy()
            for holding, print_ in zip(booked, prints, strict=True):
                if holding.start_s <= at_s < holding.until_s:
                    free[print_.objects] -= print_.amounts
            self._check_instant(at_s, free)
        self.timeline.seek(cursor_s)
        self._check_chains(prints, cursor_s)

    def _check_chains(
        self, prints: Sequence[Footprint], from_s: float
    ) -> None:
        """Raises LedgerBroken where objects' own intervals say something else
        than a sweep over time.
        """
        free = self.timeline.least_free(from_s, math.inf)
        for print_ in prints:
            few = print_.objects[:FEW]
            by_chain = self.timeline.least_free_of(few, from_s, math.inf)
            if not np.array_equal(by_chain, free[few]):
                place = self._place(int(few[0]))
                raise LedgerBroken(
                    f"{place}, or near it, knows other reservations than there are"
                )

    def _checked_footprint(self, holding: Holding) -> Footprint:
        """A holding's footprint as the timeline has it. Raises LedgerBroken
        where it is not that of its placement.
        """
        kept = self.timeline.pool.footprint(holding.number)
        afresh = footprint(
            self.datacentre,
            holding.placement,
            holding.rate_bps,
            holding.size,
        )
        if not (
            np.array_equal(kept.objects, afresh.objects)
            and np.array_equal(kept.amounts, afresh.amounts)
        ):
            raise LedgerBroken(
                f"job {holding.job_id}: its footprint is not its placement's"
            )
        return kept

    def _check_instant(self, at_s: float, free: IntArray) -> None:
        """Raises LedgerBroken unless this is free at an instant."""
        self.timeline.seek(at_s)
        if not np.array_equal(free, self.timeline.free):
            raise LedgerBroken(
                f"at {at_s:g} s the timeline is not the sum of the reservations"
            )
        if free.min(initial=0) < 0:
            place = self._place(int(np.argmin(free)))
            raise LedgerBroken(
                f"at {at_s:g} s {place} is over-committed by {-int(free.min())}"
            )

    # -- inside -----------------------------------------------------------------------------

    def _cut(self, holding: Holding, at_s: float) -> None:
        """Ends a holding's interval at ``at_s``; it is former from then on, or
        never was.
        """
        del self._job_of[holding.number]
        if at_s >= holding.until_s:
            self._former[holding.number] = holding
        # Not begun, and nothing of it forgotten: it leaves no trace.
        elif (
            at_s <= holding.start_s and holding.start_s > self._forgotten_s
        ):
            self.timeline.drop(
                holding.number, holding.start_s, holding.until_s
            )
        else:
            self.timeline.cut(holding.number, holding.until_s, at_s)
            self._former[holding.number] = replace(holding, end_s=at_s)

    def _require_room(
        self,
        job_id: str,
        wanted: Footprint,
        start_s: float,
        until_s: float,
        held: Footprint | None = None,
    ) -> None:
        """Raises OverCommit where ``wanted`` is not free beside what the job
        has ``held`` so far.
        """
        free = self.timeline.least_free_of(wanted.objects, start_s, until_s)
        # The timeline does not know of losses: what it says is free there
        # is not.
        if len(self._lost):
            free = np.where(np.isin(wanted.objects, self._lost), 0, free)
        if held is not None:
            free = free + _amounts_of(held, wanted.objects)
        short = np.flatnonzero(wanted.amounts > free)
        if not len(short):
            return
        worst = int(short[0])
        place = int(wanted.objects[worst])
        asked = self._shortage(
            place, int(wanted.amounts[worst]), int(free[worst])
        )
        when = f"to {until_s:g} s" if until_s < math.inf else "on"
        raise OverCommit(
            f"job {job_id}: {self._place(place)}: {asked} from {start_s:g} s {when}"
        )

    def _shortage(self, place: int, needs: int, has: int) -> str:
        """A shortage in words, in the unit of its place."""
        if place < self.datacentre.n_servers:
            return f"{needs} slots asked, {has} free"
        if place >= self.datacentre.n_servers + self.datacentre.n_links:
            return f"{needs} MiB asked, {has} MiB free"
        return (
            f"{human_bandwidth(needs)} asked, {human_bandwidth(has)} free"
        )

    def _place(self, place: int) -> str:
        """An object as people read it."""
        servers = self.datacentre.n_servers
        if place < servers:
            return self.datacentre.names[place]
        if place >= servers + self.datacentre.n_links:
            return self.datacentre.names[
                place - servers - self.datacentre.n_links
            ]
        # What does not fit lacks room in the narrower direction.
        link = place - servers
        up_bps, down_bps = self.datacentre.directed_capacity_bps[
            up(link) : down(link) + 1
        ]
        directed = down(link) if down_bps < up_bps else up(link)
        return self.datacentre.link_name(directed)

    def _residual(self, free: IntArray) -> Residual:
        """Slots, links and memory out of one number per object; what is lost
        has nothing free.
        """
        if len(self._lost):
            free[self._lost] = 0
        n = self.datacentre.n_servers
        last = self.datacentre.n_servers + self.datacentre.n_links
        memory = None if self.datacentre.memory_mib is None else free[last:]
        # A hose takes as much in both directions: a link is one object of
        # the narrower capacity, and the wider one has the rest on top.
        free_bps = np.repeat(free[n:last], 2)
        if not self.datacentre.symmetric:
            free_bps += self._wider_bps
            lost = self._lost[(self._lost >= n) & (self._lost < last)] - n
            free_bps[2 * lost] = 0
            free_bps[2 * lost + 1] = 0
        return Residual(free[:n], free_bps, memory)

    def _interval(self, start_s: float, end_s: float | None) -> float:
        self._not_forgotten(start_s)
        until_s = math.inf if end_s is None else end_s
        if not until_s > start_s:
            raise ValueError(
                f"[{start_s:g} s, {until_s:g} s) is no interval"
            )
        return until_s

    def _not_forgotten(self, at_s: float) -> None:
        if not at_s >= self._forgotten_s:
            raise ValueError(
                f"{at_s:g} s is before {self._forgotten_s:g} s, which is forgotten"
            )


def _amounts_of(print_: Footprint, objects: IntArray) -> IntArray:
    """Amounts that a footprint takes of each of these objects."""
    # Behind the last object there is no entry; any will do, since the
    # comparison below tells them apart.
    at = np.searchsorted(print_.objects, objects)
    at[at == len(print_.objects)] = 0
    return np.where(print_.objects[at] == objects, print_.amounts[at], 0)


def capacities(datacentre: DataCentre) -> IntArray:
    """Capacity of every object: slots, bit/s that hoses can reserve, and MiB
    where memory counts.
    """
    kinds = [datacentre.slots, datacentre.link_capacity_bps]
    if datacentre.memory_mib is not None:
        kinds.append(datacentre.memory_mib)
    return np.concatenate(kinds)


def footprint(
    datacentre: DataCentre,
    placement: Placement,
    rate_bps: int,
    size: VmSize = ONE_SLOT,
) -> Footprint:
    """Slots, memory, and min(X, N-X)·B on every link with X of the N VMs below
    it.

    Raises KeyError when no tree has the placement's root, ValueError when a
    server is not in it.
    """
    servers = datacentre.n_servers
    links = datacentre.n_links
    # Numbers of objects: servers' slots, links, servers' memory.
    taken = {
        server: count * size.slots for server, count in placement.vms_on
    }
    need = hose_bps(
        tree_of(datacentre, placement.root), placement, rate_bps
    )
    for link, bps in need.items():
        # Both directions need the same: one number stands for the link.
        taken[servers + link // 2] = bps
    if datacentre.memory_mib is not None and size.memory_mib:
        for server, count in placement.vms_on:
            taken[servers + links + server] = count * size.memory_mib
    objects = sorted(taken)
    amounts = [taken[place] for place in objects]
    return Footprint(
        np.array(objects, dtype=np.int64), np.array(amounts, dtype=np.int64)
    )
