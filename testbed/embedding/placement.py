"""A tenant's placement on one tree, and the bandwidth of its hose on each link.

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

    - ``root``: root of the tree.
    - ``vms_on``: pairs ``(server, count)``, sorted by server id, with counts
      above 0.
    - ``processes``: for each VM, in the order of ``vms_on``, the number of the
      process of a parallel job that it runs, from 0. Empty if VM *i* runs
      process *i*, or if the VMs are interchangeable.
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

    For a lease with a number of cores, a slot is a core.
    """

    slots: int = 1
    memory_mib: int = 0


ONE_SLOT = VmSize()


class Refusal:
    """The result of an embedder that finds no placement, with the reason for
    the user.

    ``reason`` may be a function that returns the text. It is called when the
    reason is first read, since a policy that tries a whole queue reads few
    reasons. Until then the residual that the function describes must not
    change.
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

    ``free_slots``: by server. ``free_bps``: by directed link, in bit/s.
    ``free_memory_mib``: by server; None if memory is not limited. The arrays
    must not be modified after they were passed to an embedder.
    """

    free_slots: IntArray
    free_bps: IntArray
    free_memory_mib: IntArray | None = None


def vms_below(tree: Tree, placement: Placement) -> dict[int, int]:
    """The number of the tenant's VMs in each node's subtree, by node.

    Servers and the root are included. Nodes whose subtrees have no VM of the
    tenant are absent.
    """
    below: dict[int, int] = {}
    for server, count in placement.vms_on:
        for node in tree.path_to_root(server):
            below[node] = below.get(node, 0) + count
    return below


# Cached, since the same placement is passed several times in a row: for its
# check, its reservation, and its record.
@lru_cache(maxsize=4)
def hose_bps(
    tree: Tree, placement: Placement, rate_bps: int
) -> Mapping[int, int]:
    """The bit/s that the hose reserves, by directed link (Oktopus; DCloud,
    Section II).

    Links without a reservation are absent.
    """
    n = placement.n_vms
    reserved: dict[int, int] = {}
    for node, x in sorted(vms_below(tree, placement).items()):
        # The root has no uplink: -1.
        link = int(tree.uplink[node])
        link_bps = min(x, n - x) * rate_bps
        if link >= 0 and link_bps > 0:
            reserved[up(link)] = link_bps
            reserved[down(link)] = link_bps
    return reserved


def tree_of(datacentre: DataCentre, root: int) -> Tree:
    """The tree with this root. Raises KeyError if no tree has it."""
    try:
        return datacentre.tree_by_root[root]
    except KeyError:
        raise KeyError(
            f"no tree of this data centre has root {root}"
        ) from None


def is_idle(datacentre: DataCentre, free: Residual) -> bool:
    """True if all slots and all bandwidth of the data centre are free.

    False also while a server or a link has failed.
    """
    slots_free = np.array_equal(free.free_slots, datacentre.slots)
    return slots_free and np.array_equal(
        free.free_bps, datacentre.directed_capacity_bps
    )


def empty_residual(datacentre: DataCentre) -> Residual:
    """The residual of a data centre without jobs: its whole capacity.

    The arrays are copies, which may be modified.
    """
    memory_mib = datacentre.memory_mib
    return Residual(
        datacentre.slots.copy(),
        datacentre.directed_capacity_bps.copy(),
        None if memory_mib is None else memory_mib.copy(),
    )


def only_on_servers(free: Residual, servers: slice) -> Residual:
    """The residual in which only these servers have free slots.

    ``servers``: a range of server ids. Bandwidth and memory are unchanged.
    """
    slots = np.zeros_like(free.free_slots)
    slots[servers] = free.free_slots[servers]
    return replace(free, free_slots=slots)


class Embedder(Protocol):
    """Places hoses ⟨N, B⟩: ``n_vms`` VMs with ``rate_bps`` bit/s each.

    Embedders are deterministic, and never over-commit a slot or a link.
    ``largest_bps``: the largest bandwidth per VM that a job has requested so
    far, in bit/s (AdaBa's B_max). Embedders that look ahead compare the request
    with it; the others ignore it.
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
