"""The slots of a machine whose network limits nothing: which are free, and placements of them.

EASY and the CMBF family place parallel jobs of one process a node; they know no links. A slot of
a server with several is a node to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.request import JobRequest
from testbed.embedding.placement import Placement
from topologies.datacentre import DataCentre


class Slots:
    """Free slots, lowest first. ``server[k]`` is where slot ``k`` is."""

    def __init__(self, datacentre: DataCentre) -> None:
        self.server = [s for s, n in enumerate(datacentre.slots.tolist()) for _ in range(n)]
        self.total = len(self.server)
        self.free = list(range(self.total))
        self._root = datacentre.trees[0].root
        self._single = max(datacentre.slots.tolist(), default=1) <= 1
        self._pair_of = [(server, 1) for server in self.server].__getitem__
        self._networked = bool(len(datacentre.link_capacity_bps))
        self._memory = datacentre.memory_mib is not None

    def take(self, n: int) -> tuple[list[int], Placement]:
        """The ``n`` lowest free slots and a VM on each; the caller knows that there are so many."""
        free = self.free
        taken = free[:n]
        del free[:n]
        if self._single:
            return taken, Placement(self._root, tuple(map(self._pair_of, taken)))
        return taken, self.placement(taken)

    def give_back(self, slots: Sequence[int]) -> None:
        self.free += slots
        self.free.sort()

    def placement(self, slots: Sequence[int]) -> Placement:
        """A VM on each of these slots, which are in order; which process is where is all one."""
        return Placement(self._root, _counted([self.server[k] for k in slots]))

    def placement_of(self, at: Sequence[int]) -> Placement:
        """Process ``p`` on slot ``at[p]``."""
        order = sorted(range(len(at)), key=lambda p: at[p])
        servers = [self.server[at[p]] for p in order]
        processes = () if order == list(range(len(order))) else tuple(order)
        return Placement(self._root, _counted(servers), processes)

    def objection(self, job: JobRequest, *, any_bandwidth: bool = False) -> str | None:
        """Why a job can never run here; None where it can."""
        if job.n_vms > self.total:
            return f"{job.n_vms} nodes asked, the machine has {self.total}"
        if job.bandwidth_bps and job.demand.network and (any_bandwidth or self._networked):
            return "it asks for bandwidth, which this policy cannot reserve"
        if job.demand.cores != 1 or (job.demand.memory_mib and self._memory):
            return "it asks for several cores or memory, which this policy does not count"
        return None


def _counted(servers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Servers, in order, with how often each occurs."""
    counts: dict[int, int] = {}
    for server in servers:
        counts[server] = counts.get(server, 0) + 1
    return tuple(counts.items())
