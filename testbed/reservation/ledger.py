"""The ledger of reservations over time: slots and memory of servers, bandwidth
of directed links.

A hose takes min(X, N-X)·B in both directions of a link. So the timeline keeps
one number per link, the bandwidth reserved in each direction. A hose that fits
the narrower direction fits the link; the wider one has the difference free in
addition.

All policies reserve here, in simulation and on the live network. Intervals are
half-open ``[start, end)``; at equal times ends come before starts. Slots, MiB
and bit/s are integers: a release gives back exactly what was reserved.

Cost, with S servers, L links and C changes on the timeline: ``reserve``,
``release`` and ``rerate`` move O(C) numbers. To find what is free, ``reserve``
and ``rerate`` read the reservations on the servers and links concerned; if those
are many, they sweep the changes inside the interval. ``residual`` copies
O(S + L) numbers and sweeps. If no reservation has an end, there is nothing to
sweep.
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
from testbed.reservation.timeline import FEW_OBJECTS, Footprint, Timeline
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
    """A job's reservation; without an ``end_s`` it lasts until it is released.

    ``number``: that of its interval on the timeline. ``size``: the share of a
    server that each VM takes.
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
        """The end; infinite if there is none."""
        if self.end_s is None:
            return math.inf
        return self.end_s


class Ledger:
    """Slots and directed link bandwidth of one data centre over time.

    ``timeline`` is for policies that search the record itself (DCloud's RUR).
    They must not change it.
    """

    def __init__(self, datacentre: DataCentre) -> None:
        self.datacentre = datacentre
        self._capacity = capacities(datacentre)
        self.timeline = Timeline(self._capacity)
        self._holdings: dict[str, Holding] = {}
        # By number of their interval: reservations that were cut short or
        # released, kept for check().
        self._former: dict[int, Holding] = {}
        # By the same number: jobs of present and future reservations.
        self._job_of: dict[int, str] = {}
        # Jobs to be released whose reservation has ended and is forgotten.
        self._ran_out: set[str] = set()
        self._forgotten_s = -math.inf
        # By directed link: its capacity beyond that of the narrower direction.
        self._wider_bps = datacentre.directed_capacity_bps - np.repeat(
            datacentre.link_capacity_bps, 2
        )
        # Objects, numbered as by footprint().
        self._lost: IntArray = np.empty(0, dtype=np.int64)

    # -- reservations -----------------------------------------------------------------------

    def reserve(
        self,
        job_id: str,
        placement: Placement,
        rate_bps: int,
        start_s: float,
        end_s: float | None,
        size: VmSize = ONE_SLOT,
    ) -> None:
        """Reserves a hose in ``[start_s, end_s)``; without an end, until it is
        released.

        Raises OverCommit if it does not fit throughout, ValueError if the job
        has a reservation already or the interval is empty. An error changes
        nothing.
        """
        holding = self._holdings.get(job_id)
        if holding is not None:
            raise ValueError(
                f"job {job_id} holds a reservation from {holding.start_s:g} s already"
            )
        until_s = self._checked_end(start_s, end_s)
        wanted = footprint(self.datacentre, placement, rate_bps, size)
        self._require_room(job_id, wanted, start_s, until_s)
        number = self.timeline.add(wanted, start_s, until_s)
        # A preempted job reserves again. The end of its first reservation
        # matters no more.
        self._ran_out.discard(job_id)
        self._holdings[job_id] = Holding(
            job_id,
            placement,
            rate_bps,
            start_s=start_s,
            end_s=end_s,
            number=number,
            size=size,
        )
        self._job_of[number] = job_id

    def release(self, job_id: str, at_s: float) -> None:
        """Ends a job's reservation at ``at_s``, or where it ends by itself if
        that is earlier.

        Raises KeyError for a job without one, also if it was released before.
        """
        self._require_known(at_s)
        if job_id in self._ran_out:
            self._ran_out.remove(job_id)
            return
        self._cut(self._holdings.pop(job_id), at_s)

    def rerate(self, job_id: str, at_s: float, rate_bps: int) -> None:
        """Changes a job's bandwidth to ``rate_bps`` per VM from ``at_s`` on.

        Raises OverCommit if that does not fit, ValueError after the
        reservation's end, KeyError without one. An error changes nothing.
        """
        old = self._holdings[job_id]
        self._rebook(at_s, replace(old, rate_bps=rate_bps))

    def reroot(
        self, job_id: str, at_s: float, placement: Placement
    ) -> None:
        """Changes a job's placement from ``at_s`` on. Raises as :meth:`rerate`."""
        old = self._holdings[job_id]
        self._rebook(at_s, replace(old, placement=placement))

    def _rebook(self, at_s: float, new: Holding) -> None:
        """Replaces a job's reservation by ``new``, from ``at_s`` or its start on,
        whichever is later.
        """
        job_id = new.job_id
        old = self._holdings[job_id]
        self._require_known(at_s)
        if at_s >= old.until_s:
            raise ValueError(
                f"job {job_id}: its reservation ended at {old.until_s:g} s"
            )
        wanted = self._footprint_of(new)
        begin_s = max(at_s, old.start_s)
        # The job may take again what it holds now.
        self._require_room(
            job_id, wanted, begin_s, old.until_s, held=self.held(job_id)
        )
        self._cut(old, at_s)
        number = self.timeline.add(wanted, begin_s, old.until_s)
        self._holdings[job_id] = replace(
            new, start_s=begin_s, number=number
        )
        self._job_of[number] = job_id

    def shorten(self, job_id: str, end_s: float) -> None:
        """Moves the end of a job's reservation to an earlier ``end_s``.

        Raises ValueError if ``end_s`` is not between its start and its end,
        KeyError for a job without one.
        """
        self._require_known(end_s)
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
        """Sets all servers and links that are lost: no slots and no bandwidth are
        free there, at any time.

        Jobs keep what they hold there. ``timeline`` holds no losses.
        """
        n_servers = self.datacentre.n_servers
        self._lost = np.array(
            sorted({*servers, *(n_servers + k for k in links)}),
            dtype=np.int64,
        )

    def forget_before(self, now_s: float) -> None:
        """Drops the record before ``now_s``, which must not be asked for again."""
        if now_s <= self._forgotten_s:
            return
        for number in self.timeline.forget_before(now_s):
            # Neither cut short nor released: the job still has this
            # reservation.
            if self._former.pop(number, None) is None:
                job_id = self._job_of.pop(number)
                del self._holdings[job_id]
                self._ran_out.add(job_id)
        self._forgotten_s = now_s

    # -- queries ----------------------------------------------------------------------------

    def residual(self, start_s: float, end_s: float | None) -> Residual:
        """The capacity that is free throughout ``[start_s, end_s)``; without an
        end, for ever.
        """
        until_s = self._checked_end(start_s, end_s)
        return self._residual(self.timeline.least_free(start_s, until_s))

    def free_at(
        self,
        placement: Placement,
        rate_bps: int,
        start_s: float,
        end_s: float | None,
        size: VmSize = ONE_SLOT,
    ) -> Residual:
        """:meth:`residual`, valid only for the servers and links that a placement
        takes.

        It is quicker if those are few: only they are looked up.
        """
        until_s = self._checked_end(start_s, end_s)
        try:
            taken = footprint(self.datacentre, placement, rate_bps, size)
        except (LookupError, ValueError):
            # The caller finds the error in such a placement.
            return self.residual(start_s, end_s)
        objects = taken.objects
        if len(objects) > FEW_OBJECTS:
            return self.residual(start_s, end_s)
        free = np.zeros_like(self._capacity)
        free[objects] = self.timeline.least_free_of(
            objects, start_s, until_s
        )
        return self._residual(free)

    def residuals(
        self, start_s: float, ends_s: Sequence[float]
    ) -> Iterator[Residual]:
        """:meth:`residual` of windows with the same start and ascending ends, by
        one sweep.

        The ledger must not change before the last is read.
        """
        for end_s in ends_s:
            self._checked_end(start_s, end_s)
        for free in self.timeline.least_free_by_end(start_s, ends_s):
            yield self._residual(free.copy())

    def holdings(self) -> Mapping[str, Holding]:
        """Present and future reservations by job, in the order of :meth:`reserve`."""
        return MappingProxyType(self._holdings)

    def held(self, job_id: str) -> Footprint:
        """Footprint of a job's reservation, as views that must not be written.

        Raises KeyError without one.
        """
        return self.timeline.pool.footprint(self._holdings[job_id].number)

    def check(self) -> None:
        """Computes the timeline again from the list of reservations; raises
        LedgerBroken where it differs.
        """
        booked = [*self._holdings.values(), *self._former.values()]
        footprints = list(map(self._checked_footprint, booked))
        # The checks move the cursor. It is put back below.
        cursor_s = self.timeline.cursor_s
        times = {cursor_s}
        for holding in booked:
            times |= {holding.start_s, holding.until_s}
        for at_s in sorted(times):
            if not self._forgotten_s <= at_s < math.inf:
                continue
            free = self._capacity.copy()
            for holding, taken in zip(booked, footprints, strict=True):
                if holding.start_s <= at_s < holding.until_s:
                    free[taken.objects] -= taken.amounts
            self._check_instant(at_s, free)
        self.timeline.seek(cursor_s)
        self._check_chains(footprints, cursor_s)

    def _check_chains(
        self, footprints: Sequence[Footprint], from_s: float
    ) -> None:
        """Raises LedgerBroken if the chains of objects' own intervals contradict
        a sweep over time.
        """
        by_sweep = self.timeline.least_free(from_s, math.inf)
        for taken in footprints:
            # Of more objects at once the timeline would not use the chains.
            few = taken.objects[:FEW_OBJECTS]
            by_chain = self.timeline.least_free_of(few, from_s, math.inf)
            if not np.array_equal(by_chain, by_sweep[few]):
                name = self._name(int(few[0]))
                raise LedgerBroken(
                    f"{name}, or near it, knows other reservations than there are"
                )

    def _checked_footprint(self, holding: Holding) -> Footprint:
        """A holding's footprint on the timeline. Raises LedgerBroken if it is not
        that of the holding's placement.
        """
        recorded = self.timeline.pool.footprint(holding.number)
        computed = self._footprint_of(holding)
        if not (
            np.array_equal(recorded.objects, computed.objects)
            and np.array_equal(recorded.amounts, computed.amounts)
        ):
            raise LedgerBroken(
                f"job {holding.job_id}: its footprint is not its placement's"
            )
        return recorded

    def _check_instant(self, at_s: float, free: IntArray) -> None:
        """Raises LedgerBroken if the timeline has another ``free`` at ``at_s``, or
        if an amount in it is negative.
        """
        self.timeline.seek(at_s)
        if not np.array_equal(free, self.timeline.free):
            raise LedgerBroken(
                f"at {at_s:g} s the timeline is not the sum of the reservations"
            )
        if free.min(initial=0) < 0:
            name = self._name(int(np.argmin(free)))
            raise LedgerBroken(
                f"at {at_s:g} s {name} is over-committed by {-int(free.min())}"
            )

    # -- helpers ----------------------------------------------------------------------------

    def _cut(self, holding: Holding, at_s: float) -> None:
        """Takes a holding from its job, and ends its interval at ``at_s``.

        It becomes a former holding; one that has not begun leaves no trace.
        """
        del self._job_of[holding.number]
        if at_s >= holding.until_s:
            self._former[holding.number] = holding
        # Only an interval whose start is not forgotten can be dropped.
        elif (
            at_s <= holding.start_s and holding.start_s > self._forgotten_s
        ):
            self.timeline.drop(
                holding.number, holding.start_s, holding.until_s
            )
        else:
            self.timeline.cut(holding.number, holding.until_s, at_s)
            self._former[holding.number] = replace(holding, end_s=at_s)

    def _footprint_of(self, holding: Holding) -> Footprint:
        return footprint(
            self.datacentre,
            holding.placement,
            holding.rate_bps,
            holding.size,
        )

    def _require_room(
        self,
        job_id: str,
        wanted: Footprint,
        start_s: float,
        until_s: float,
        *,
        held: Footprint | None = None,
    ) -> None:
        """Raises OverCommit if ``wanted`` is more than what is free and what the
        job has ``held`` together.
        """
        free = self.timeline.least_free_of(wanted.objects, start_s, until_s)
        # The timeline holds no losses.
        if len(self._lost):
            free = np.where(np.isin(wanted.objects, self._lost), 0, free)
        if held is not None:
            free = free + _amounts_of(held, wanted.objects)
        short = wanted.amounts > free
        if not short.any():
            return
        first = int(short.argmax())
        place = int(wanted.objects[first])
        shortage = self._shortage(
            place, int(wanted.amounts[first]), int(free[first])
        )
        when = f"to {until_s:g} s" if until_s < math.inf else "on"
        raise OverCommit(
            f"job {job_id}: {self._name(place)}: {shortage} from {start_s:g} s {when}"
        )

    def _shortage(self, place: int, asked: int, free: int) -> str:
        """The amounts asked for and free of an object, with their unit."""
        link = place - self.datacentre.n_servers
        if link < 0:
            return f"{asked} slots asked, {free} free"
        if link >= self.datacentre.n_links:
            return f"{asked} MiB asked, {free} MiB free"
        return (
            f"{human_bandwidth(asked)} asked, {human_bandwidth(free)} free"
        )

    def _name(self, place: int) -> str:
        """Name of the server or directed link that an object belongs to."""
        datacentre = self.datacentre
        link = place - datacentre.n_servers
        if link < 0:
            return datacentre.names[place]
        if link >= datacentre.n_links:
            return datacentre.names[link - datacentre.n_links]
        # A hose that does not fit lacks room in the narrower direction.
        capacity_bps = datacentre.directed_capacity_bps
        narrower = up(link)
        if capacity_bps[down(link)] < capacity_bps[narrower]:
            narrower = down(link)
        return datacentre.link_name(narrower)

    def _residual(self, free: IntArray) -> Residual:
        """The residual, from the free amount of each object.

        Lost servers have no slots free, lost links no bandwidth.
        """
        free[self._lost] = 0
        links = self.datacentre.n_servers
        memory = links + self.datacentre.n_links
        free_memory_mib = None
        if self.datacentre.memory_mib is not None:
            free_memory_mib = free[memory:]
        # A link's number is that of its narrower direction.
        free_bps = np.repeat(free[links:memory], 2)
        if not self.datacentre.symmetric:
            free_bps += self._wider_bps
            lost = self._lost[self._lost >= links] - links
            free_bps[2 * lost] = 0
            free_bps[2 * lost + 1] = 0
        return Residual(free[:links], free_bps, free_memory_mib)

    def _checked_end(self, start_s: float, end_s: float | None) -> float:
        """The end of an interval, infinite for None.

        Raises ValueError if the interval is empty or its start forgotten.
        """
        self._require_known(start_s)
        until_s = math.inf if end_s is None else end_s
        if not until_s > start_s:
            raise ValueError(
                f"[{start_s:g} s, {until_s:g} s) is no interval"
            )
        return until_s

    def _require_known(self, at_s: float) -> None:
        """Raises ValueError for a time that is forgotten."""
        if not at_s >= self._forgotten_s:
            raise ValueError(
                f"{at_s:g} s is before {self._forgotten_s:g} s, which is forgotten"
            )


def _amounts_of(taken: Footprint, objects: IntArray) -> IntArray:
    """Amounts that a footprint takes of ``objects``; 0 of those not in it."""
    places = np.searchsorted(taken.objects, objects)
    # Beyond the footprint's last object there is no entry. Any will do: the
    # comparison finds that it is another object's.
    places[places == len(taken.objects)] = 0
    return np.where(
        taken.objects[places] == objects, taken.amounts[places], 0
    )


def capacities(datacentre: DataCentre) -> IntArray:
    """Capacity of every object, numbered as by :func:`footprint`: slots, bit/s in
    a link's narrower direction, and MiB if servers state their memory.
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

    Objects are numbered: slots by server, then links, then memory by server.
    Raises KeyError when no tree has the placement's root, ValueError when a
    server is not in the tree.
    """
    servers = datacentre.n_servers
    links = datacentre.n_links
    taken = {
        server: count * size.slots for server, count in placement.vms_on
    }
    tree = tree_of(datacentre, placement.root)
    need = hose_bps(tree, placement, rate_bps)
    for directed, bps in need.items():
        # Both directions of a link need the same, and share a number.
        taken[servers + directed // 2] = bps
    if datacentre.memory_mib is not None and size.memory_mib:
        for server, count in placement.vms_on:
            taken[servers + links + server] = count * size.memory_mib
    objects = sorted(taken)
    amounts = [taken[place] for place in objects]
    return Footprint(
        np.array(objects, dtype=np.int64), np.array(amounts, dtype=np.int64)
    )
