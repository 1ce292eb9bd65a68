"""Free capacity as policies see it.

A policy decides about several jobs before the engine books the first of them.
It does so in a transaction of its own; the engine books the resulting actions
in its ledger and checks every placement again.

- :class:`HoseCapacity`: slots and links in an interval, places found by an embedder.
- :class:`NodeCapacity`: whole nodes of a machine whose network limits nothing. Its counters live as
  long as the policy: EASY decides about a job of the KTH log in 4 µs (``bench easy-kth``), in
  which time a residual of 100 nodes is not even copied.
- :class:`TierCapacity`: one of CMCBF's two VMs on every node, with the CPU that each job uses.

Leases have theirs over time: :mod:`testbed.schedulers.lease_capacity`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.placement import (
    Embedder,
    Placement,
    Refusal,
    Residual,
    is_idle,
)
from testbed.reservation.ledger import Ledger, footprint
from testbed.reservation.timeline import Footprint
from testbed.units import with_tolerance_s
from topologies.datacentre import DataCentre

Holder: TypeAlias = tuple[float, int, int, str]
"""A job and its nodes: sort key (planned end, order of arrival), tie break,
nodes, identity.
"""


class ReservationView(Protocol):
    """The part of a policy's view that free capacity is counted from."""

    @property
    def now_s(self) -> float: ...
    @property
    def datacentre(self) -> DataCentre: ...
    @property
    def largest_bps(self) -> int: ...
    @property
    def ledger(self) -> Ledger: ...
    def residual(self, start_s: float, end_s: float | None) -> Residual: ...


@dataclass
class Refused:
    """Hoses that found no place, remembered for as long as nothing about free
    capacity changes.

    An embedder is a function of what is free and of the largest request so far;
    asking it the same again costs time and has the same answer. Most passes
    begin where the last one ended.
    """

    asked_with: tuple[int, bytes, bytes] | None = None
    reasons: dict[tuple[int, int], Refusal] = field(default_factory=dict)

    def still(
        self, largest_bps: int, free: Residual
    ) -> dict[tuple[int, int], Refusal]:
        """Refusals by ⟨VMs, bit/s⟩ that still hold; empty where anything is
        different.
        """
        # Bytes: compared in one step, and a copy that nobody changes.
        # The largest request is part of it: AdaBa's order of servers
        # follows it.
        asked_with = (
            largest_bps,
            free.free_slots.tobytes(),
            free.free_bps.tobytes(),
        )
        if asked_with != self.asked_with:
            self.asked_with = asked_with
            self.reasons = {}
        return self.reasons


class HoseCapacity:
    """Free slots and link bandwidth from now on, for hoses ⟨n, b⟩.

    ``refused`` carries refusals from one transaction to the next. ``free``
    stands for the residual where the caller knows it (that of the empty data
    centre).
    """

    def __init__(
        self,
        view: ReservationView,
        embedder: Embedder,
        refused: Refused | None = None,
        free: Residual | None = None,
    ) -> None:
        self._view = view
        self._embedder = embedder
        self._refused = refused
        # Footprints taken here.
        self._taken: dict[str, Footprint] = {}
        self._free = (
            view.residual(view.now_s, None) if free is None else free
        )
        self._free_slots = int(self._free.free_slots.sum())
        self._known = self._still_refused()

    @property
    def idle(self) -> bool:
        """True where no slot is taken, and no server or link is lost."""
        return is_idle(self._view.datacentre, self._free)

    def fit(self, job: JobRequest) -> Placement | Refusal:
        """Finds a place for a job by the embedder, or the reason why there is
        none.
        """
        return self.fit_hose(job.n_vms, job.bandwidth_bps)

    def fit_hose(self, n_vms: int, rate_bps: int) -> Placement | Refusal:
        """Finds a place for ⟨n, b⟩ by the embedder, or the reason why there is
        none.
        """
        if n_vms > self._free_slots:
            return Refusal(
                f"not enough slots: {n_vms} asked, {self._free_slots} free"
            )
        hose = (n_vms, rate_bps)
        known = self._known.get(hose)
        if known is not None:
            return known
        view = self._view
        answer = self._embedder.embed(
            view.datacentre, self._free, *hose, largest_bps=view.largest_bps
        )
        if isinstance(answer, Refusal):
            self._known[hose] = answer
        return answer

    @property
    def residual(self) -> Residual:
        """Free slots and bandwidth, for searches by other means than the
        embedder.
        """
        return self._free

    def take(self, job: JobRequest, place: Placement) -> None:
        """Takes the slots of a place, and the job's bandwidth on the links
        between them.
        """
        taken = footprint(self._view.datacentre, place, job.bandwidth_bps)
        self._taken[job.id] = taken
        self._change(taken, -1)

    def give_back(self, job_id: str) -> None:
        """Gives back what a job took here, or had booked before (once)."""
        # What was taken here comes first: a job that was evicted and placed
        # again in one pass has a booking in the ledger too.
        taken = self._taken.pop(job_id, None)
        if taken is None:
            taken = self._view.ledger.held(job_id)
        self._change(taken, +1)

    def without(self, job_ids: Collection[str]) -> HoseCapacity:
        """A copy in which these jobs have given back what they have: to ask,
        not to act.
        """
        other: HoseCapacity = copy(self)
        # The memory is of what is free without this question.
        other._refused = None
        other._taken = dict(self._taken)
        for job_id in job_ids:
            other.give_back(job_id)
        return other

    def _change(self, change: Footprint, sign: int) -> None:
        """Adds (+1) or subtracts (-1) a footprint."""
        # Copies: the residual may be the caller's, or another
        # transaction's.
        slots = self._free.free_slots.copy()
        bps = self._free.free_bps.copy()
        n_servers = self._view.datacentre.n_servers
        # Objects stand in order of their numbers: servers, then links.
        links = int(np.searchsorted(change.objects, n_servers))
        amounts = sign * change.amounts
        slots[change.objects[:links]] += amounts[:links]
        upward = 2 * (change.objects[links:] - n_servers)
        bps[upward] += amounts[links:]
        bps[upward + 1] += amounts[links:]
        self._free_slots += int(amounts[:links].sum())
        self._free = Residual(slots, bps)
        self._known = self._still_refused()

    def _still_refused(self) -> dict[tuple[int, int], Refusal]:
        if self._refused is None:
            return {}
        return self._refused.still(self._view.largest_bps, self._free)


@dataclass(slots=True)
class Shadow:
    """The reservation of the first in a queue: the earliest time by the planned
    ends.

    From ``at_s`` on it has its nodes and leaves ``extra`` ones. ``limit_s`` is
    the latest end that counts as at that time (sums of floats).
    """

    at_s: float = 0.0
    limit_s: float = 0.0
    extra: int = 0


class NodeCapacity:
    """Free nodes of a machine without network limits, and the holders of the
    others.

    A slot of a server with several is a node here. ``free`` lists the free
    ones, the lowest first; ``holders`` the jobs by the key that they were
    placed with.
    """

    def __init__(self, datacentre: DataCentre) -> None:
        self.server = []
        for server, slots in enumerate(datacentre.slots.tolist()):
            self.server += [server] * slots
        self.total = len(self.server)
        self.free = list(range(self.total))
        self.holders: list[Holder] = []
        self._held: dict[str, tuple[Holder, list[int]]] = {}
        self._root = datacentre.trees[0].root
        self._single = max(datacentre.slots.tolist(), default=1) <= 1
        # Made once: a placement of single slots is looked up, not built.
        self._pair_of = [(server, 1) for server in self.server].__getitem__
        self._networked = bool(datacentre.n_links)
        self._memory = datacentre.memory_mib is not None
        self._placed = 0
        self._reserved = (0, 0.0)
        self._shadow = Shadow()
        self._known = False

    def never(
        self, job: JobRequest, *, any_bandwidth: bool = False
    ) -> str | None:
        """The reason why a job can never run here; None where it can."""
        if job.n_vms > self.total:
            return f"{job.n_vms} nodes asked, the machine has {self.total}"
        # Two VMs on a node share it, so a policy with tiers takes no
        # bandwidth even where there are no links.
        if (
            job.bandwidth_bps
            and job.demand.network
            and (any_bandwidth or self._networked)
        ):
            return "it asks for bandwidth, which this policy cannot reserve"
        if job.demand.cores != 1 or (
            job.demand.memory_mib and self._memory
        ):
            return "it asks for several cores or memory, which this policy does not count"
        return None

    def place(self, job_id: str, n: int, key: float) -> Placement:
        """Takes the ``n`` lowest free nodes, a VM on each; the caller has
        checked that they exist.

        ``key`` is what ``holders`` are sorted by; equal ones stand in the order
        of placing.
        """
        nodes = self.free[:n]
        del self.free[:n]
        self._placed += 1
        holder = (key, self._placed, n, job_id)
        self._held[job_id] = holder, nodes
        insort(self.holders, holder)
        if self._single:
            return Placement(self._root, tuple(map(self._pair_of, nodes)))
        return self.placement(nodes)

    def give_back(self, job_id: str) -> Holder | None:
        """Frees the nodes of a job; None where it has none."""
        held = self._held.pop(job_id, None)
        if held is None:
            return None
        holder, nodes = held
        self.free += nodes
        # Two sorted runs, which one pass of the sort merges.
        self.free.sort()
        del self.holders[bisect_left(self.holders, holder)]
        return holder

    def reserve(self, n: int, now_s: float) -> None:
        """Reserves ``n`` nodes at the earliest time, which is computed on first
        use.
        """
        self._reserved = (n, now_s)
        self._known = False

    def admits(self, n: int, end_s: float) -> bool:
        """True where ``n`` nodes until ``end_s`` do not delay the reservation.

        The nodes that they need of its extra ones are used up then.
        """
        shadow = self._shadow if self._known else self.shadow
        # EASY's first condition: it is over when the reservation begins.
        if end_s <= shadow.limit_s:
            return True
        # The second: it needs no more than the nodes that the reservation
        # leaves.
        if n > shadow.extra:
            return False
        shadow.extra -= n
        return True

    @property
    def shadow(self) -> Shadow:
        """The reservation, if every holder gives its nodes back at its key.
        O(holders).
        """
        shadow = self._shadow
        if self._known:
            return shadow
        n, now_s = self._reserved
        free = len(self.free)
        # The second loop below continues where the first ends.
        running = iter(self.holders)
        for end_s, _, nodes, _ in running:
            free += nodes
            if free >= n:
                # Who has run longer than planned may end at any moment.
                shadow.at_s = at_s = end_s if end_s > now_s else now_s
                break
        else:
            raise AssertionError(
                f"{n} nodes were admitted, which the machine does not have"
            )
        shadow.limit_s = limit_s = with_tolerance_s(at_s)
        # Who ends at that very time leaves nodes as well, of which later
        # jobs may have those that the first in the queue does not need.
        for end_s, _, nodes, _ in running:
            if end_s > limit_s:
                break
            free += nodes
        shadow.extra = free - n
        self._known = True
        return shadow

    def placement(self, nodes: Sequence[int]) -> Placement:
        """Process ``p`` on node ``nodes[p]``."""
        # Servers in rising order, as placements have them; which process is
        # where is told apart only where that is another order.
        order = sorted(range(len(nodes)), key=nodes.__getitem__)
        counts: dict[int, int] = {}
        for p in order:
            server = self.server[nodes[p]]
            counts[server] = counts.get(server, 0) + 1
        processes = () if order == list(range(len(order))) else tuple(order)
        return Placement(self._root, tuple(counts.items()), processes)


class TierCapacity:
    """One tier's VM of every node: its holder and the holder's share of the
    CPU.

    ``uses`` gives the CPU use of each process of a job. A VM may run only where
    the other tier's uses less than ``limit`` of the CPU.
    """

    def __init__(
        self, nodes: int, uses: Mapping[str, Sequence[float]], limit: float
    ) -> None:
        self.who: list[str | None] = [None] * nodes
        self.use = [0.0] * nodes
        self.idle = nodes
        self.holders: list[Holder] = []
        self.at: dict[str, list[int]] = {}
        self.other = self
        self._limit = limit
        self._uses = uses
        self.holder_of: dict[str, Holder] = {}

    def open(self) -> list[int]:
        """Idle VMs that may run, those with the least load in the other tier
        first.
        """
        load = self.other.use
        limit = self._limit
        idle = []
        for vm, job_id in enumerate(self.who):
            if job_id is None and load[vm] < limit:
                idle.append(vm)
        # Stable: equal loads by the node's number.
        idle.sort(key=load.__getitem__)
        return idle

    def match(
        self, holder: Holder, room: Sequence[int]
    ) -> list[int] | Refusal:
        """Finds VMs for a job: its busiest process on the least loaded node,
        and so on.

        ``room``: the VMs of :meth:`open`, or those of them that are left.
        """
        _, _, n, job_id = holder
        if n > len(room):
            return Refusal(f"{n} nodes asked, {len(room)} open")
        use = self._uses[job_id]
        at = [0] * n
        # The largest use beside the smallest load, so that no node is
        # beyond its CPU where that can be avoided.
        busiest = sorted(range(n), key=lambda process: -use[process])
        for process, node in zip(busiest, room, strict=False):
            at[process] = node
        return at

    def fits_at(self, at: Sequence[int]) -> bool:
        """True where all these VMs are idle."""
        return all(self.who[node] is None for node in at)

    def take(self, holder: Holder, at: list[int]) -> None:
        """Takes idle VMs for the processes of a job, in their order."""
        job_id = holder[3]
        for node, share in zip(at, self._uses[job_id], strict=True):
            self.who[node] = job_id
            self.use[node] = share
        self.idle -= len(at)
        self.at[job_id] = at
        self.holder_of[job_id] = holder
        insort(self.holders, holder)

    def give_back(self, job_id: str) -> list[int] | None:
        """Frees the VMs of a job and returns them; None where it has none."""
        at = self.at.pop(job_id, None)
        if at is None:
            return None
        for node in at:
            self.who[node] = None
            self.use[node] = 0.0
        self.idle += len(at)
        del self.holders[
            bisect_left(self.holders, self.holder_of.pop(job_id))
        ]
        return at
