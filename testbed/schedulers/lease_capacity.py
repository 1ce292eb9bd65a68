"""Free capacity of hosts over time for leases, and the actions that follow from
using it.

The view of free capacity of the lease policies: a lease is fitted and taken in
one step (``place_…``), given back (``leave``), or fitted without the
best-effort leases that may be preempted (``place_over``). Behind it stand
MBFCBS's calendar and availability list, which every change updates together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal, TypeAlias

import numpy as np

from jobs.demand import LeaseType
from jobs.request import JobRequest
from testbed.embedding.counts import deal
from testbed.embedding.placement import Placement
from testbed.schedulers.actions import (
    Action,
    Migrate,
    Preempt,
    Reserve,
    Shorten,
    Start,
)
from testbed.schedulers.lease_availability import AvailabilityList
from testbed.schedulers.lease_calendar import (
    FIRM,
    PREEMPTED,
    PREEMPTIBLE,
    Booking,
    Calendar,
    Use,
    greatest_use,
)
from topologies.datacentre import DataCentre, IntArray

State = Literal["waiting", "planned", "running", "reserved"]
UNLIMITED_MIB = 2**29
"""Memory of hosts that have no limit: more than all leases together may ask for
there.
"""
Find: TypeAlias = Callable[[], int | None]


def cores_text(cores: int) -> str:
    """``1 core``, ``2 cores``."""
    return f"{cores} core{'s' * (cores != 1)}"


@dataclass(slots=True)
class HeldLease:
    """A lease as the scheduler keeps it.

    ``start_s`` is when it starts, or started last; ``remaining_s`` what was
    left of it then; ``on`` its VMs by host. ``began``: it has run before.
    """

    request: JobRequest
    order: int
    state: State = "waiting"
    flag: int = FIRM
    start_s: float = 0.0
    remaining_s: float = 0.0
    on: dict[int, int] = field(default_factory=dict)
    began: bool = False

    def __post_init__(self) -> None:
        self.remaining_s = self.request.stated_s
        if self.is_best_effort:
            self.flag = PREEMPTIBLE

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def type(self) -> LeaseType | None:
        return self.request.demand.lease_type

    @property
    def is_best_effort(self) -> bool:
        """True also of a job of no type."""
        return self.type not in ("advance", "immediate")

    @property
    def end_s(self) -> float:
        """The end, if it starts at ``start_s``."""
        return self.start_s + self.remaining_s

    @property
    def vm_size(self) -> Use:
        """Cores and memory of one of its VMs."""
        return Use(
            self.request.demand.cores, self.request.demand.memory_mib
        )

    @property
    def asks(self) -> str:
        """Its demand, in words."""
        cores, memory = self.vm_size
        text = cores_text(cores)
        if self.request.n_vms > 1:
            text = f"{self.request.n_vms} × {text}"
        if memory:
            text += f" and {memory} MiB"
        return text


def fitting(cores: IntArray, memory_mib: IntArray, vm: Use) -> IntArray:
    """Number of VMs of a size that fit on every host with so much free."""
    fit = cores // vm.cores
    if vm.memory_mib:
        return np.minimum(fit, memory_mib // vm.memory_mib)
    return fit


def first_hosts(fit: IntArray, n_vms: int) -> dict[int, int] | None:
    """VMs by host, each host in order of number as full as it can be; None: too
    few fit.
    """
    counts = deal(fit, n_vms)
    if counts.sum() < n_vms:
        return None
    hosts = np.flatnonzero(counts)
    return dict(zip(hosts.tolist(), counts[hosts].tolist(), strict=True))


def _choices(listed: Sequence[str]) -> Iterator[Sequence[str]]:
    """Leases to preempt, from none over each one alone to all of them."""
    # One by itself is Section 4.2's rule. It could never make room for six
    # cores among leases of one, hence several together.
    yield ()
    for lease_id in listed:
        yield (lease_id,)
    for count in range(1, len(listed) + 1):
        yield listed[:count]


class LeaseCapacity:
    """Leases on the hosts of a data centre. A lease's VMs start together or not
    at all.

    ``best_fit`` False is V-MCT's: advance reservations do not keep best-effort
    leases out of their hosts' queues, and hosts that are available equally
    early come by their number, not their use.
    """

    def __init__(
        self,
        datacentre: DataCentre,
        slot_s: float,
        *,
        best_fit: bool = True,
    ) -> None:
        self._datacentre = datacentre
        self._root = datacentre.trees[0].root
        memory = datacentre.memory_mib
        self._limited = memory is not None
        if memory is None:
            memory = np.full_like(datacentre.slots, UNLIMITED_MIB)
        self.calendar = Calendar(datacentre.slots, memory, slot_s)
        self.available = AvailabilityList(
            self.calendar, most_used_first=best_fit
        )
        self._best_fits = best_fit
        self.leases: dict[str, HeldLease] = {}
        self._planned: dict[int, dict[str, HeldLease]] = {}
        self.freed: set[int] = set()
        self.now_s = 0.0
        self._fit_when_empty: dict[Use, IntArray] = {}

    def fit_when_empty(self, vm: Use) -> IntArray:
        """Number of VMs of a size that every host holds when it is empty."""
        if vm not in self._fit_when_empty:
            calendar = self.calendar
            self._fit_when_empty[vm] = fitting(
                calendar.cores, calendar.memory_mib, vm
            )
        return self._fit_when_empty[vm]

    def name(self, host: int) -> str:
        return self._datacentre.names[host]

    def advance(self, now_s: float) -> None:
        """Time has passed."""
        self.now_s = now_s
        self.calendar.forget_before(now_s)
        self.available.update(now_s)

    # -- finding a place --------------------------------------------------------------------

    def place_now(self, lease: HeldLease) -> bool:
        """Best fit among all hosts that have room from now on for as long as it
        needs.
        """
        return self._place_all(
            lease,
            self.now_s,
            lambda: self.available.most_used(
                lease.start_s, lease.end_s, lease.vm_size
            ),
        )

    def place_at(self, lease: HeldLease, start_s: float) -> bool:
        """Best fit among all hosts with room in the lease's interval."""
        return self._place_all(
            lease, start_s, lambda: self._best_fit(lease, firm=False)
        )

    def earliest(
        self, lease: HeldLease
    ) -> tuple[float, dict[int, int]] | None:
        """The least earliest available time for a lease, of cores and memory
        together, and its VMs by host; None where there is none.
        """
        return self.available.earliest(
            self.now_s, lease.vm_size, lease.request.n_vms
        )

    def plan(
        self, lease: HeldLease, start_s: float, on: dict[int, int]
    ) -> None:
        """Books a lease to start at ``start_s`` on hosts that have room then."""
        lease.start_s = start_s
        lease.on = on
        lease.state = "planned"
        for host in lease.on:
            self._book(lease, host)
            self._planned.setdefault(host, {})[lease.id] = lease
        self.leases[lease.id] = lease

    def place_over(
        self, lease: HeldLease, start_s: float
    ) -> list[HeldLease] | None:
        """Place a firm lease where it fits without some leases with flag 1;
        returns those.

        None, and nothing changed, where it fits nowhere so.
        """
        victims: dict[str, HeldLease] = {}

        def find() -> int | None:
            host = self._best_fit(lease, firm=True)
            if host is not None:
                for lease_id in self._victims(lease, host, victims):
                    victims[lease_id] = self.leases[lease_id]
            return host

        if self._place_all(lease, start_s, find):
            return list(victims.values())
        return None

    def _place_all(
        self, lease: HeldLease, start_s: float, find: Find
    ) -> bool:
        """Every VM to the host that ``find`` names, one after the other; undone
        if one has none.
        """
        lease.start_s = start_s
        lease.on = {}
        for _ in range(lease.request.n_vms):
            host = find()
            if host is None:
                self._clear(lease)
                return False
            # A host's booking of a lease is one, and grows by a VM.
            if host in lease.on:
                self.calendar.remove(host, lease.id)
            lease.on[host] = lease.on.get(host, 0) + 1
            self._book(lease, host)
        return True

    def _best_fit(self, lease: HeldLease, *, firm: bool) -> int | None:
        """The most used host in the lease's interval that has room there, by
        the calendar's buckets.

        First among the hosts with room in every bucket that the interval
        touches; if there is none, among those that have room in the interval
        itself.
        """
        calendar = self.calendar
        wanted = (lease.start_s, lease.end_s, lease.vm_size)
        for host in calendar.most_used_first(*wanted, firm=firm):
            return host
        # Buckets at the ends of the interval may be full at another time.
        for host in calendar.perhaps_room(*wanted, firm=firm):
            if calendar.fits(host, *wanted, firm=firm):
                return host
        return None

    def _victims(
        self, lease: HeldLease, host: int, given_up: Collection[str]
    ) -> Sequence[str]:
        """One lease that makes enough room by itself, the first such; else the
        first ones.

        For one more VM on a host, beside those that are preempted already.
        """
        start_s = lease.start_s
        end_s = lease.end_s
        listed = []
        for booking in self.calendar.preemptible(host, start_s, end_s):
            if booking.lease_id not in given_up:
                listed.append(booking.lease_id)
        for gone in _choices(listed):
            if self._has_room(
                host,
                start_s,
                end_s,
                lease.vm_size,
                without={*given_up, *gone},
            ):
                return gone
        # The host has room beside its firm leases: without all the others,
        # and so at the last choice, the VM fits.
        raise AssertionError(f"{lease.id}: host {host} cannot be cleared")

    def _has_room(
        self,
        host: int,
        start_s: float,
        end_s: float,
        wanted: Use,
        *,
        without: Collection[str],
    ) -> bool:
        """True where a host has ``wanted`` free throughout ``[start_s, end_s)``
        beside its bookings but those of the leases ``without``.
        """
        others = []
        for booking in self.calendar.bookings(host):
            if booking.lease_id not in without:
                others.append(booking)
        use = greatest_use(others, start_s, end_s)
        cores = use.cores + wanted.cores
        memory_mib = use.memory_mib + wanted.memory_mib
        return bool(
            cores <= self.calendar.cores[host]
            and memory_mib <= self.calendar.memory_mib[host]
        )

    # -- what becomes of leases ---------------------------------------------------------------

    def start(self, lease: HeldLease) -> list[Action]:
        """It starts, or resumes, now where it has been placed."""
        if lease.state == "planned":
            self._unplan(lease)
        lease.state = "running"
        self.leases[lease.id] = lease
        placement = self._placement(lease)
        # It has progress, which a Start would lose.
        if lease.began:
            return [
                Migrate(
                    lease.id,
                    placement,
                    "there is room",
                    reserve_until_s=lease.end_s,
                    kill_at_end=True,
                )
            ]
        lease.began = True
        return [
            Start(
                lease.id,
                placement,
                lease.request.bandwidth_bps,
                reserve_until_s=lease.end_s,
                kill_at_end=True,
            )
        ]

    def start_on(
        self, lease: HeldLease, on: dict[int, int]
    ) -> list[Action]:
        """It starts, or resumes, now on these hosts, which have room."""
        lease.start_s = self.now_s
        lease.on = on
        for host in on:
            self._book(lease, host)
        return self.start(lease)

    def reserve(self, lease: HeldLease) -> list[Action]:
        """An advance reservation is accepted; it starts by itself."""
        # A Reserve begins later than now.
        if lease.start_s <= self.now_s:
            return self.start(lease)
        lease.state = "reserved"
        lease.began = True
        self.leases[lease.id] = lease
        return [
            Reserve(
                lease.id,
                self._placement(lease),
                lease.request.bandwidth_bps,
                start_s=lease.start_s,
                end_s=lease.end_s,
            )
        ]

    def preempt(
        self, lease: HeldLease, at_s: float, to: HeldLease
    ) -> list[Action]:
        """A best-effort lease is preempted from ``at_s`` on, for the only time."""
        lease.flag = PREEMPTED
        running = lease.state == "running"
        # Until the reservation begins, it goes on where it is.
        if running and at_s > self.now_s:
            for host in lease.on:
                booking = self.calendar.remove(host, lease.id)
                # Its new flag makes it firm from now on: it is preempted at
                # most once.
                self.calendar.add(
                    host, replace(booking, end_s=at_s, flag=PREEMPTED)
                )
            return [Shorten(lease.id, at_s, f"advance reservation {to.id}")]
        self.vacate(lease)
        if running:
            return [Preempt(lease.id, f"{to.type} lease {to.id}")]
        return []

    def vacate(self, lease: HeldLease) -> None:
        """It gives its hosts back, and waits for what is left of it."""
        # A plan that has not begun has used up nothing.
        if lease.state == "running":
            lease.remaining_s -= self.now_s - lease.start_s
        elif lease.state == "planned":
            self._unplan(lease)
        self.freed.update(lease.on)
        self._clear(lease)
        lease.state = "waiting"

    def leave(self, lease_id: str) -> None:
        """It has ended, or its plan is given up."""
        lease = self.leases.pop(lease_id, None)
        if lease is not None:
            self.vacate(lease)

    def planned_on_freed(self) -> list[HeldLease]:
        """Planned leases on hosts where something ended, by their start."""
        leases: dict[str, HeldLease] = {}
        for host in self.freed:
            leases |= self._planned.get(host, {})
        return sorted(leases.values(), key=attrgetter("start_s", "order"))

    def move_up(self, lease: HeldLease) -> bool:
        """Places a planned lease on its hosts from now on, if all have room."""
        self.available.update(self.now_s)
        end_s = self.now_s + lease.remaining_s
        vm = lease.vm_size
        for host, count in lease.on.items():
            needs = Use(count * vm.cores, count * vm.memory_mib)
            # The list decides most of them; bookings are added up for the
            # others.
            if self.available.free_cores[host] < needs.cores:
                return False
            # Without its own plan, which may overlap with starting now.
            if not self._has_room(
                host, self.now_s, end_s, needs, without=(lease.id,)
            ):
                return False
        lease.start_s = self.now_s
        for host in lease.on:
            self.calendar.remove(host, lease.id)
            self._book(lease, host)
        return True

    # -- inside -----------------------------------------------------------------------------

    def _placement(self, lease: HeldLease) -> Placement:
        return Placement(self._root, tuple(sorted(lease.on.items())))

    def _book(self, lease: HeldLease, host: int) -> None:
        count = lease.on[host]
        memory_mib = (
            count * lease.vm_size.memory_mib if self._limited else 0
        )
        booking = Booking(
            start_s=lease.start_s,
            lease_id=lease.id,
            end_s=lease.end_s,
            cores=count * lease.vm_size.cores,
            memory_mib=memory_mib,
            flag=lease.flag,
            advance=self._best_fits and lease.type == "advance",
        )
        self.calendar.add(host, booking)

    def _clear(self, lease: HeldLease) -> None:
        for host in lease.on:
            self.calendar.remove(host, lease.id)
        lease.on = {}

    def _unplan(self, lease: HeldLease) -> None:
        for host in lease.on:
            self._planned[host].pop(lease.id)
