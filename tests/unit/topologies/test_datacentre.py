import numpy as np
import pytest

from topologies.datacentre import down, up
from topologies.fat_tree import fat_tree
from topologies.tree import tree


def test_children_are_grouped_by_parent() -> None:
    (only,) = tree([3, 2], 1, 1).trees
    start, nodes = only.child_start.tolist(), only.child_list.tolist()
    assert nodes[start[7] : start[8]] == [2, 3]
    assert nodes[start[9] : start[10]] == [6, 7, 8]
    assert start[6] == 0


def test_a_node_outside_the_tree_has_no_path() -> None:
    dc = fat_tree(4, 1, 1)
    with pytest.raises(ValueError, match="not below root 32"):
        dc.trees[0].path_to_root(25)


def test_directed_links() -> None:
    assert (up(3), down(3)) == (6, 7)


def test_layer_indices_are_slices_where_they_can_be() -> None:
    dc = tree([2, 2, 2], 1, 1)
    for layer in dc.layers:
        assert isinstance(layer.child_index, slice)
        assert np.array_equal(
            np.arange(dc.n_nodes)[layer.child_index], layer.child
        )
        assert (
            layer.position(int(layer.switches[-1]))
            == len(layer.switches) - 1
        )
