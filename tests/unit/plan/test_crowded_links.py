"""Links on which jobs without a reservation may hold each other up."""

from __future__ import annotations

import pytest

from testbed.embedding.placement import Placement
from testbed.plan.crowded_links import (
    Placed,
    crowded_by_vm,
    crowded_links,
)
from testbed.plan.network_plan import network_plan, tenant_plan
from topologies.tree import tree

# Two racks of two servers; racks' links carry as much as a server's.
CENTRE = tree([2, 2], [100_000_000, 100_000_000], 4)
PLAN = network_plan(CENTRE, "hn", 0.1)


def placed(servers: list[int], rate_bps: int, first: int = 0) -> Placed:
    root = CENTRE.trees[0].root
    placement = Placement(root, tuple((server, 1) for server in servers))
    slots = []
    for server in servers:
        free = [slot for slot in PLAN.slots if slot.server == server]
        slots.append(free[first])
    tenant = tenant_plan(
        CENTRE, PLAN, placement, tuple(slots), first + 1, "job", rate_bps
    )
    return Placed(tenant, placement)


@pytest.mark.parametrize(
    ("rate_bps", "crowded"), [(5_000_000, False), (6_000_000, True)]
)
def test_caps_together_may_ask_for_more_than_a_link_carries(
    rate_bps: int, crowded: bool
) -> None:
    """Two jobs from the first server to the other rack, of 10 Mbit/s each."""
    both = [placed([0, 2], rate_bps), placed([0, 3], rate_bps, first=1)]
    found = crowded_links(CENTRE, PLAN, both)
    assert bool(found) == crowded
    assert bool(crowded_by_vm(CENTRE, both[0], found)) == crowded
    elsewhere = placed([2, 3], rate_bps, first=2)
    assert not crowded_by_vm(CENTRE, elsewhere, found)


def test_a_job_may_fill_a_link_by_itself() -> None:
    alone = placed([0, 2], 20_000_000)
    found = crowded_links(CENTRE, PLAN, [alone])
    assert crowded_by_vm(CENTRE, alone, found)


def test_a_crowded_link_leads_to_the_vms_beyond_it() -> None:
    job = placed([0, 2, 3], 20_000_000)
    root = CENTRE.trees[0]
    racks = [root.path_to_root(server)[1] for server in (0, 2)]
    up_0, up_1 = (2 * int(root.uplink[rack]) for rack in racks)
    crowded = frozenset({up_0, up_1 + 1})
    assert crowded_by_vm(CENTRE, job, crowded) == {1: crowded, 2: crowded}
    assert crowded_by_vm(CENTRE, job, frozenset({up_1})) == {
        0: frozenset({up_1})
    }


def test_vms_of_one_server_pass_no_link() -> None:
    lone = placed([0], 20_000_000)
    assert crowded_links(CENTRE, PLAN, [lone]) == frozenset()
    assert not crowded_by_vm(CENTRE, lone, frozenset({0}))
