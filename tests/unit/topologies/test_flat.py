import pytest

from testbed.embedding.placement import Placement, hose_bps
from topologies.datacentre import TopologyError
from topologies.flat import flat


def test_nodes_without_links() -> None:
    dc = flat(100, 4)
    assert (dc.n_servers, dc.n_links, dc.total_slots) == (100, 0, 400)
    assert dc.nic_bps.tolist() == [0] * 100
    assert dc.trees[0].path_to_root(7) == [7, 100]


def test_nothing_is_reserved() -> None:
    dc = flat(3, [1, 2, 3])
    assert dc.slots.tolist() == [1, 2, 3]
    assert (
        hose_bps(dc.trees[0], Placement(3, ((0, 1), (2, 3))), 10**9) == {}
    )


def test_problems() -> None:
    with pytest.raises(TopologyError) as caught:
        flat(0, -1)
    assert [path for path, _ in caught.value.problems] == [
        ("nodes",),
        ("slots",),
    ]
    with pytest.raises(TopologyError) as caught:
        flat(3, [1, 2], memory_mib=[1, 2])
    assert [path for path, _ in caught.value.problems] == [
        ("slots",),
        ("memory_mib",),
    ]
