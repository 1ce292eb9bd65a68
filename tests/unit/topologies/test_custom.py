from copy import deepcopy
from typing import Any

import pytest

from topologies.custom import custom
from topologies.datacentre import Path, TopologyError

GOOD: dict[str, Any] = {
    "servers": [
        {"name": "s0", "slots": 2},
        {"name": "s1", "slots": 3},
        {"name": "s2", "slots": 1},
    ],
    "switches": ["top", "left"],
    "links": [
        {"lower": "left", "upper": "top", "capacity": 40},
        {"lower": "s0", "upper": "left", "capacity": 10},
        {"lower": "s1", "upper": "left", "capacity": 20},
        {"lower": "s2", "upper": "top", "capacity": 30},
    ],
}
TWO_ROOTS: dict[str, Any] = {
    "servers": [{"name": f"s{i}", "slots": 1} for i in range(4)],
    "switches": ["r0", "r1", "c0", "c1"],
    "links": [
        *(
            {"lower": f"s{i}", "upper": f"r{i // 2}", "capacity": 10}
            for i in range(4)
        ),
        *(
            {"lower": r, "upper": c, "capacity": 10}
            for r in ("r0", "r1")
            for c in ("c0", "c1")
        ),
    ],
    "roots": ["c0", "c1"],
}


def custom_problems(content: dict[str, Any]) -> list[tuple[Path, str]]:
    """Errors of ``content`` as ``(path, message)``; empty when :func:`custom` takes it."""
    try:
        custom(content)
    except TopologyError as error:
        return list(error.problems)
    return []


def changed(content: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**deepcopy(content), **changes}


def with_link(
    content: dict[str, Any], lower: str, upper: str, capacity: int = 10
) -> dict[str, Any]:
    link = {"lower": lower, "upper": upper, "capacity": capacity}
    return changed(content, links=[*content["links"], link])


def only_problem(
    content: dict[str, Any],
) -> tuple[tuple[str | int, ...], str]:
    (problem,) = custom_problems(content)
    return problem


def test_an_uneven_tree() -> None:
    dc = custom(GOOD)
    assert dc.names == ("s0", "s1", "s2", "left", "top")
    assert dc.level.tolist() == [0, 0, 0, 1, 2]
    assert dc.slots.tolist() == [2, 3, 1]
    (tree,) = dc.trees
    assert tree.root == 4
    assert tree.parent.tolist() == [3, 3, 4, 4, -1]
    assert tree.uplink.tolist() == [1, 2, 3, 0, -1]
    assert dc.link_capacity_bps.tolist() == [40, 10, 20, 30]
    assert dc.link_name(0) == "left -> top"
    assert not dc.uniform_depth


def test_a_link_with_two_capacities() -> None:
    links = [
        {"lower": "a", "upper": "x", "capacity": {"up": 5, "down": 7}},
        {"lower": "b", "upper": "x", "capacity": 6},
    ]
    dc = custom(
        {
            "servers": [{"name": s, "slots": 1} for s in "ab"],
            "switches": ["x"],
            "links": links,
        }
    )
    assert dc.directed_capacity_bps.tolist() == [5, 7, 6, 6]
    assert dc.nic_bps.tolist() == [5, 6]


def test_two_roots() -> None:
    dc = custom(TWO_ROOTS)
    assert [dc.names[tree.root] for tree in dc.trees] == ["c0", "c1"]
    assert all(len(tree.members) == 7 for tree in dc.trees)
    assert dc.uniform_depth


def test_a_server_may_have_a_link_in_each_tree() -> None:
    content = {
        "servers": [{"name": "a", "slots": 1}, {"name": "b", "slots": 1}],
        "switches": ["x", "y"],
        "links": [
            {"lower": s, "upper": r, "capacity": 5}
            for s in "ab"
            for r in "xy"
        ],
        "roots": ["x", "y"],
    }
    dc = custom(content)
    assert [tree.uplink.tolist()[:2] for tree in dc.trees] == [
        [0, 2],
        [1, 3],
    ]
    assert dc.nic_bps.tolist() == [10, 10]


def test_what_is_wrong_with_entries_comes_all_at_once() -> None:
    found = custom_problems(
        {
            "servers": [
                {"name": "s0", "slots": 0},
                {"name": "s0", "slots": 1},
                {"name": "", "slots": 1},
                {"nam": "s3", "slots": 1},
            ],
            "switches": ["r0", "r0", "s0"],
            "links": [
                {"lower": "s0", "upper": "r1", "capacity": 10},
                {"lower": "s0", "upper": "r0", "capacity": 5},
                {"lower": "r0", "upper": "s0", "capacity": 5},
                {"lower": "r0", "upper": "r0", "capacity": 5},
            ],
            "roots": ["s0", "rr"],
            "rots": [],
        }
    )
    assert found == [
        (("rots",), "unknown key"),
        (("servers", 0, "slots"), "a slot count must be at least 1, not 0"),
        (("servers", 1, "name"), "'s0' is already the name of a server"),
        (
            ("servers", 2, "name"),
            "a name is a text of 1 to 40 characters, not ''",
        ),
        (("servers", 3, "name"), "missing"),
        (("switches", 1), "'r0' is already the name of a switch"),
        (("switches", 2), "'s0' is already the name of a server"),
        (("links", 0, "upper"), "no node is named 'r1'"),
        (("links", 2, "upper"), "s0 is a server: nothing hangs below it"),
        (("links", 3), "both ends are r0"),
        (("roots", 0), "s0 is a server, a root is a switch"),
        (("roots", 1), "no switch is named 'rr'"),
    ]


@pytest.mark.parametrize("capacity", ["fast", None, 0, -5, 10**30])
def test_a_capacity_that_no_link_has(capacity: Any) -> None:
    content = deepcopy(GOOD)
    content["links"][2]["capacity"] = capacity
    ((path, message),) = custom_problems(content)
    assert path == ("links", 2, "capacity")
    assert message.startswith("a link's capacity ")


def test_a_hundred_problems_have_hints() -> None:
    content = deepcopy(GOOD)
    wrong = {"lower": "s00", "upper": "lef", "capacity": 1}
    content["links"] = [wrong] * 200
    found = custom_problems(content)
    assert [message.endswith("?)") for _, message in found] == (
        [True] * 100 + [False] * 300
    )


def test_nothing_at_all() -> None:
    assert [path for path, _ in custom_problems({})] == [
        ("servers",),
        ("switches",),
        ("links",),
    ]
    assert custom_problems(
        {"servers": "s0", "switches": [], "links": [3]}
    ) == [
        (("servers",), "missing"),
        (("switches",), "must not be empty"),
        (("links", 0), "missing"),
    ]


def test_a_root_that_is_no_text() -> None:
    path, message = only_problem(
        changed(TWO_ROOTS, roots=["c0", "c1", {"name": "r0"}])
    )
    assert (path, message) == (
        ("roots", 2),
        "no switch is named {'name': 'r0'}",
    )


def test_duplicate_link() -> None:
    assert only_problem(with_link(GOOD, "s0", "left")) == (
        ("links", 4),
        "s0 and left are already joined by links[1]",
    )


def test_server_with_two_uplinks_in_one_tree() -> None:
    assert only_problem(with_link(GOOD, "s0", "top")) == (
        ("links",),
        "no tree: below top, s0 hangs from top and left",
    )


def test_several_tops_need_roots() -> None:
    content = changed(TWO_ROOTS)
    del content["roots"]
    assert only_problem(content) == (
        ("roots",),
        "missing: c0, c1 have no uplink; name them as roots, or join them",
    )


def test_a_root_has_no_uplink() -> None:
    path, message = only_problem(
        changed(TWO_ROOTS, roots=["c0", "c1", "r1"])
    )
    assert (path, message) == (
        ("roots", 2),
        "r1 is no root: it has an uplink to c0",
    )


def test_a_switch_that_no_root_reaches() -> None:
    assert only_problem(changed(TWO_ROOTS, roots=["c0"])) == (
        ("switches", 3),
        "c1 is below no root",
    )


def test_a_circle() -> None:
    content = with_link(
        changed(GOOD, switches=["top", "left", "extra"]), "top", "extra"
    )
    path, message = only_problem(with_link(content, "extra", "left"))
    assert path == ("links",)
    assert message.startswith("a circle upward: ")
    assert sorted(
        message.removeprefix("a circle upward: ").split(" -> ")[:-1]
    ) == [
        "extra",
        "left",
        "top",
    ]


def test_switch_without_children_and_server_without_uplink() -> None:
    content = changed(
        GOOD,
        switches=["top", "left", "idle"],
        servers=[*GOOD["servers"], {"name": "lonely", "slots": 1}],
    )
    content["links"].append(
        {"lower": "idle", "upper": "top", "capacity": 1}
    )
    assert custom_problems(content) == [
        (("servers", 3), "server lonely has no uplink"),
        (("switches", 2), "switch idle has nothing below it"),
    ]


def test_disconnected_parts() -> None:
    content = changed(
        GOOD,
        servers=[*GOOD["servers"], {"name": "far", "slots": 1}],
        switches=["top", "left", "island"],
        roots=["top", "island"],
    )
    content["links"].append(
        {"lower": "far", "upper": "island", "capacity": 1}
    )
    assert only_problem(content) == (
        ("links",),
        "disconnected: nothing joins s0 and far",
    )


def test_custom_raises_with_the_same_problems() -> None:
    with pytest.raises(
        TopologyError, match=r"links\[4\]: s0 and left"
    ) as caught:
        custom(with_link(GOOD, "s0", "left"))
    assert list(caught.value.problems) == custom_problems(
        with_link(GOOD, "s0", "left")
    )


@pytest.mark.slow
def test_a_deep_chain_is_no_problem() -> None:
    switches = [f"w{i}" for i in range(3000)]
    dc = custom(
        {
            "servers": [{"name": "s", "slots": 1}],
            "switches": switches,
            "links": [
                {"lower": "s", "upper": "w0", "capacity": 1},
                *(
                    {"lower": f"w{i}", "upper": f"w{i + 1}", "capacity": 1}
                    for i in range(len(switches) - 1)
                ),
            ],
        }
    )
    assert dc.n_levels == 3001
