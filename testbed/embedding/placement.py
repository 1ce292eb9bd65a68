"""A tenant's placement on one tree, and what its hose needs on every link.

Hose model ⟨N, B⟩ on a tree: a link with X of the tenant's VMs below it carries
min(X, N-X)·B in each direction (Oktopus; DCloud, Section II).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from topologies.datacentre import DataCentre, IntArray, Tree, down, up


class Placement(NamedTuple):
    """``vms_on``: ``(server, count)`` by server id, counts above 0; ``root``
    names the tree.

    ``processes``: which process of a parallel job each VM runs, in the order of
    ``vms_on``; empty where that is their own order or does not matter.
    """

    root: int
    vms_on: tuple[tuple[int, int], ...]
    processes: tuple[int, ...] = ()

    @property
    def n_vms(self) -> int:
        return sum(count for _, count in self.vms_on)


@dataclass(frozen=True, slots=True)
class VmSize:
    """Share of a server for each VM of a job: slots (cores, where leases count
    them), memory.
    """

    slots: int = 1
    memory_mib: int = 0


ONE_SLOT = VmSize()


class Refusal:
    """Why there is no placement, in words a person can act on.

    The words may be given as what puts them together, which happens when they
    are first read: who tries a whole queue reads few of them. The residual must
    not have changed by then.
    """

    __slots__ = ("_reason",)

    def __init__(self, reason: str | Callable[[], str]) -> None:
        self._reason = reason

    @property
    def reason(self) -> str:
        if not isinstance(self._reason, str):
            self._reason = self._reason()
        return self._reason

    def __repr__(self) -> str:
        return f"Refusal({self.reason!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusal) and self.reason == other.reason

    def __hash__(self) -> int:
        return hash(self.reason)


@dataclass(frozen=True, eq=False)
class Residual:
    """Free capacity: slots per server ``(n_servers,)``, bit/s per directed link
    ``(2 n_links,)``.

    ``free_memory_mib`` is per server too; None without a memory limit. The
    arrays must not be modified after they were passed to an embedder.
    """

    free_slots: IntArray
    free_bps: IntArray
    free_memory_mib: IntArray | None = None


def vms_below(tree: Tree, placement: Placement) -> dict[int, int]:
    """VMs of the tenant in the subtree of every node that has any, the root
    included.
    """
    below: dict[int, int] = {}
    for server, count in placement.vms_on:
        for node in tree.path_to_root(server):
            below[node] = below.get(node, 0) + count
    return below


# A placement is checked, reserved and noted one after the other.
@lru_cache(maxsize=4)
def hose_bps(
    tree: Tree, placement: Placement, rate_bps: int
) -> Mapping[int, int]:
    """Directed link -> bit/s that the hose reserves there; links that carry 0
    are absent.
    """
    n = placement.n_vms
    need: dict[int, int] = {}
    for node, x in sorted(vms_below(tree, placement).items()):
        link = int(tree.uplink[node])
        amount = min(x, n - x) * rate_bps
        if link >= 0 and amount > 0:
            need[up(link)] = amount
            need[down(link)] = amount
    return need


def tree_of(datacentre: DataCentre, root: int) -> Tree:
    """The tree a placement names by its root."""
    try:
        return datacentre.tree_by_root[root]
    except KeyError:
        raise KeyError(
            f"no tree of this data centre has root {root}"
        ) from None


def is_idle(datacentre: DataCentre, free: Residual) -> bool:
    """True while no slot and no bandwidth is taken, and no server or link is
    lost.
    """
    return np.array_equal(
        free.free_slots, datacentre.slots
    ) and np.array_equal(free.free_bps, datacentre.directed_capacity_bps)


def empty_residual(datacentre: DataCentre) -> Residual:
    """The residual of an idle data centre."""
    return Residual(
        np.array(datacentre.slots, dtype=np.int64),
        np.array(datacentre.directed_capacity_bps, dtype=np.int64),
        None
        if datacentre.memory_mib is None
        else np.array(datacentre.memory_mib, dtype=np.int64),
    )


def on_servers(free: Residual, servers: slice) -> Residual:
    """Free capacity without the slots of all other servers."""
    slots = np.zeros_like(free.free_slots)
    slots[servers] = free.free_slots[servers]
    return replace(free, free_slots=slots)


class Embedder(Protocol):
    """Places a hose ⟨n, b⟩; deterministic; never over-commits a slot or a link.

    ``largest_bps`` is the most that any job so far has asked for per VM: what
    embedders that look ahead weigh a request against (AdaBa's B_max). The
    others do not read it.
    """

    name: str

    def embed(
        self,
        datacentre: DataCentre,
        residual: Residual,
        n_vms: int,
        rate_bps: int,
        *,
        largest_bps: int = 0,
    ) -> Placement | Refusal: ...
