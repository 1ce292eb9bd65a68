"""Another tree for a tenant whose own has lost a link: its VMs stay, its root
changes.

In a fat-tree every core is the root of a tree of its own over the same servers,
so a placement has as many routes as there are trees. A tree has one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.reservation.ledger import Ledger, OverCommit
from topologies.datacentre import DataCentre


def links_used(
    datacentre: DataCentre, placement: Placement
) -> frozenset[int]:
    """Links on which some of a tenant's VMs reach others; none where all are on
    one server.
    """
    hose = hose_bps(tree_of(datacentre, placement.root), placement, 1)
    return frozenset(directed // 2 for directed in hose)


def other_roots(
    datacentre: DataCentre, placement: Placement, lost: Collection[int]
) -> Iterator[Placement]:
    """The same VMs below other roots, in their order, on whose paths no lost
    link is.
    """
    for tree in datacentre.trees:
        moved = placement._replace(root=tree.root)
        if tree.root == placement.root:
            continue
        inside = all(
            tree.parent[server] >= 0 for server, _ in placement.vms_on
        )
        if inside and links_used(datacentre, moved).isdisjoint(lost):
            yield moved


def reroot(
    ledger: Ledger, job_id: str, at_s: float, lost: Collection[int]
) -> Placement | str:
    """Book a job's reservation from ``at_s`` on below the first other root that
    has room for it.

    Returns its placement there; else, the reservation as it was, the reason.
    """
    old = ledger.holdings()[job_id].placement
    refused = ""
    for moved in other_roots(ledger.datacentre, old, lost):
        try:
            ledger.reroot(job_id, at_s, moved)
        except OverCommit as error:
            refused = refused or str(error).removeprefix(f"job {job_id}: ")
        else:
            return moved
    if refused:
        return f"no other root has room ({refused})"
    if len(ledger.datacentre.trees) == 1:
        return "a tree has no other path"
    return "no other root has a path without a lost link"
