import numpy as np
import pytest

from topologies.datacentre import DataCentre, down, frozen_array, make_tree, up
from topologies.fat_tree import fat_tree
from topologies.tree import tree


def test_children_in_both_forms() -> None:
    (only,) = tree([3, 2], 1, 1).trees
    for node in range(10):
        low, high = only.child_start[node], only.child_start[node + 1]
        assert tuple(only.child_list[low:high].tolist()) == only.children[node]
    assert only.children[9] == (6, 7, 8)
    assert only.children[7] == (2, 3)


def test_a_node_outside_the_tree_has_no_path() -> None:
    dc = fat_tree(4, 1, 1)
    with pytest.raises(ValueError, match="not below root 32"):
        dc.trees[0].path_to_root(25)


def test_directed_links() -> None:
    assert (up(3), down(3)) == (6, 7)


def test_layers_refuse_trees_that_disagree() -> None:
    level = frozen_array([0, 0, 1, 2, 2])
    both = make_tree(3, 5, {0: (2, 0), 1: (2, 1), 2: (3, 2)}, level)
    one = make_tree(4, 5, {0: (2, 0), 2: (4, 3)}, level)
    dc = DataCentre(
        kind="custom",
        names=("a", "b", "r", "c0", "c1"),
        level=level,
        slots=frozen_array([1, 1]),
        link_lower=frozen_array([0, 1, 2, 2]),
        link_upper=frozen_array([2, 2, 3, 4]),
        link_capacity_bps=frozen_array([1, 1, 1, 1]),
        trees=(both, one),
    )
    with pytest.raises(ValueError, match="disagree on what is below r"):
        _ = dc.layers


def test_layer_indices_are_slices_where_they_can_be() -> None:
    dc = tree([2, 2, 2], 1, 1)
    for layer in dc.layers:
        assert isinstance(layer.child_index, slice)
        assert np.array_equal(np.arange(dc.n_nodes)[layer.child_index], layer.child)
        assert layer.position(int(layer.switches[-1])) == len(layer.switches) - 1
