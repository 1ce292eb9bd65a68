"""Who sends to whom over which links: a placed job's traffic as flat arrays. Pure.

A *bundle* is all flows of a job between two servers, or one flow where they are counted singly.
Flows between VMs of one server load no link.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from jobs.live.patterns import permutation
from jobs.request import JobRequest
from testbed.embedding.placement import Placement, tree_of, vms_below
from topologies.datacentre import DataCentre, IntArray

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Traffic:
    """A job's bundles. ``count`` flows in each, of which every VM sends ``per_vm`` at once.

    Bundle k loads the directed links ``links[start[k] : start[k + 1]]``. At rate b per VM a flow
    carries b / ``per_vm``.
    """

    per_vm: int
    count: IntArray
    start: IntArray
    links: IntArray

    @property
    def n_bundles(self) -> int:
        return len(self.count)


def traffic(datacentre: DataCentre, job: JobRequest, placement: Placement, seed: int) -> Traffic:
    """The job's traffic in its own pattern; a permutation is drawn from ``seed`` and the job's id.

    A single VM and a compute job send nothing.
    """
    servers = np.repeat(
        np.array([s for s, _ in placement.vms_on], dtype=np.int64),
        np.array([count for _, count in placement.vms_on], dtype=np.int64),
    )
    n = len(servers)
    if n < 2 or not job.demand.network:
        none = np.empty(0, dtype=np.int64)
        return Traffic(1, none, np.zeros(1, dtype=np.int64), none)
    if job.demand.pattern == "all-to-all":
        return _all_to_all(datacentre, placement)
    if job.demand.pattern == "ring":
        receiver = np.roll(np.arange(n), -1)
    else:
        # The same draw as the live world's (testbed.plan.agent_plans).
        drawn = permutation(n, 1, Random(f"{seed}/{job.id}"))  # noqa: S311 - no secret
        receiver = np.array([transfer.receiver for transfer in drawn], dtype=np.int64)
    start, links = paths(datacentre, placement.root, servers, servers[receiver])
    return Traffic(1, np.ones(n, dtype=np.int64), start, links)


def proximate_priority(
    datacentre: DataCentre, job: JobRequest, placement: Placement, flows: Traffic
) -> FloatArray:
    """What a flow counts for on each of its bundle's links under PS-P, shape ``flows.links``.

    W_X/N_X on the links of X's side, W_Y/N_Y on those of Y's: N is how many others that VM talks to
    through the link, W is 1 for every VM (FairCloud; JSA, Section V.A). A VM sends to one other, or
    to all: then to all that are not below the link.
    """
    if job.demand.pattern != "all-to-all" or not len(flows.links):
        return np.ones(len(flows.links))
    tree = tree_of(datacentre, placement.root)
    inside = {int(tree.uplink[v]): n for v, n in vms_below(tree, placement).items()}
    n_vms = placement.n_vms
    return np.array([1.0 / (n_vms - inside[link // 2]) for link in flows.links.tolist()])


def _all_to_all(datacentre: DataCentre, placement: Placement) -> Traffic:
    """Every VM to every other: one bundle for every ordered pair of servers, and one for the rest.

    The last bundle is the flows inside servers.
    """
    servers = np.array([s for s, _ in placement.vms_on], dtype=np.int64)
    counts = np.array([count for _, count in placement.vms_on], dtype=np.int64)
    source, target = np.nonzero(~np.eye(len(servers), dtype=np.bool_))
    start, links = paths(datacentre, placement.root, servers[source], servers[target])
    inside = int(np.sum(counts * (counts - 1)))
    count = np.append(counts[source] * counts[target], [inside] if inside else [])
    if inside:
        start = np.append(start, start[-1])
    return Traffic(placement.n_vms - 1, count.astype(np.int64), start, links)


def paths(
    datacentre: DataCentre, root: int, source: IntArray, target: IntArray
) -> tuple[IntArray, IntArray]:
    """Directed links from each source to its target in the tree below ``root``.

    ``links[start[k] : start[k + 1]]`` are those of pair k, in no particular order.
    """
    tree = tree_of(datacentre, root)
    pair = np.arange(len(source))
    pairs: list[IntArray] = []
    links: list[IntArray] = []
    here, there = source.copy(), target.copy()
    apart = here != there
    while np.any(apart):
        low, high = tree.level[here], tree.level[there]
        # Whoever is lower climbs; both where they are equally high. They meet where paths join.
        for nodes, climbing, downward in (
            (here, apart & (low <= high), 0),
            (there, apart & (high <= low), 1),
        ):
            link = tree.uplink[nodes[climbing]]
            known = link >= 0
            pairs.append(pair[climbing][known])
            links.append(2 * link[known] + downward)
            nodes[climbing] = tree.parent[nodes[climbing]]
        apart = here != there
    owner = np.concatenate(pairs) if pairs else np.empty(0, dtype=np.int64)
    used = np.concatenate(links) if links else np.empty(0, dtype=np.int64)
    order = np.argsort(owner, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(source)))))
    return start.astype(np.int64), used[order]
