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
    """The servers of a tenant's VMs, and the tree that it is pinned to.

    ``root``: the tree's. ``vms_on``: ``(server, count)`` in the order of server
    ids, with counts above 0. ``processes``: the number of the parallel job's
    process that each VM runs, in the order of ``vms_on``; empty where the
    numbers are in that order too, or do not matter.
    """

    root: int
    vms_on: tuple[tuple[int, int], ...]
    processes: tuple[int, ...] = ()

    @property
    def n_vms(self) -> int:
        return sum(count for _, count in self.vms_on)


@dataclass(frozen=True, slots=True)
class VmSize:
    """The slots and the memory of a server that each VM of a job takes.

    Of leases that count cores, slots are cores.
    """

    slots: int = 1
    memory_mib: int = 0


ONE_SLOT = VmSize()


class Refusal:
    """The reason for which there is no placement, in words a person can act on.

    A function in place of the words puts them together when they are first
    read: a policy that tries a whole queue reads few reasons. Until then the
    residual that the function describes must not change.
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
    """Free capacity of a data centre.

    ``free_slots``: by server. ``free_bps``: by directed link.
    ``free_memory_mib``: by server; None without a memory limit. The arrays must
    not be modified after they were passed to an embedder.
    """

    free_slots: IntArray
    free_bps: IntArray
    free_memory_mib: IntArray | None = None


def vms_below(tree: Tree, placement: Placement) -> dict[int, int]:
    """The number of the tenant's VMs in a node's subtree, by node.

    Nodes without VMs below them are absent; the root is among the others.
    """
    below: dict[int, int] = {}
    for server, count in placement.vms_on:
        for node in tree.path_to_root(server):
            below[node] = below.get(node, 0) + count
    return below


# One placement is asked for several times in a row: when it is checked, when
# it is reserved, and when it is recorded.
@lru_cache(maxsize=4)
def hose_bps(
    tree: Tree, placement: Placement, rate_bps: int
) -> Mapping[int, int]:
    """The bit/s that the hose reserves, by directed link.

    Links where it reserves nothing are absent.
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
    """The tree below a root. Raises KeyError where it has none."""
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
    """The residual of an idle data centre, in arrays that may be modified."""
    memory_mib = datacentre.memory_mib
    return Residual(
        datacentre.slots.copy(),
        datacentre.directed_capacity_bps.copy(),
        None if memory_mib is None else memory_mib.copy(),
    )


def on_servers(free: Residual, servers: slice) -> Residual:
    """Free capacity without the slots of servers other than these."""
    slots = np.zeros_like(free.free_slots)
    slots[servers] = free.free_slots[servers]
    return replace(free, free_slots=slots)


class Embedder(Protocol):
    """Places a hose ⟨n, b⟩; deterministic; never over-commits a slot or a link.

    ``largest_bps``: the most that any job so far has asked for per VM (AdaBa's
    B_max). Only embedders that look ahead read it: they compare the request
    with it.
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
