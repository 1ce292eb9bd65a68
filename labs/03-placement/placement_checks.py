"""Checks of lab 3: Oktopus' greedy and a placement that keeps every link's capacity."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from hypothesis import strategies as st

from testbed.labs.checking import Check, Margin, Wrong, as_call, for_all, list_of, number_of
from testbed.labs.submission import Submission
from testbed.runs.standing_network import StandingNetwork

FILE = "placement.py"
Tree = dict[str, Any]
Request = tuple[Tree, int, int]

# -- random requests, and the obvious slow answer to each


SERVER = st.fixed_dictionaries({"residual": st.integers(0, 5), "slots": st.integers(0, 4)})
RACK = st.fixed_dictionaries(
    {"residual": st.integers(0, 6), "children": st.lists(SERVER, min_size=1, max_size=3)}
)
TREES = (st.lists(SERVER, min_size=1, max_size=4) | st.lists(RACK, min_size=1, max_size=2)).map(
    lambda children: {"residual": None, "children": children}
)
REQUESTS = st.tuples(TREES, st.integers(1, 8), st.integers(1, 2))
TRIED = 500


def servers(tree: Tree) -> list[Tree]:
    return (
        [tree] if "slots" in tree else [one for child in tree["children"] for one in servers(child)]
    )


def overloaded(tree: Tree, placed: list[int], bandwidth: int) -> tuple[int, int, int] | None:
    """The first link that a placement over-commits: VMs below it, what it needs, what it has."""
    vms = sum(placed)

    def links(part: Tree, first: int) -> Iterator[tuple[int, int, int]]:
        below = sum(placed[first : first + len(servers(part))])
        if part["residual"] is not None:
            yield below, min(below, vms - below) * bandwidth, part["residual"]
        for child in part.get("children", ()):
            yield from links(child, first)
            first += len(servers(child))

    return next((link for link in links(tree, 0) if link[1] > link[2]), None)


def exists(tree: Tree, vms: int, bandwidth: int) -> list[int] | None:
    """Any placement that fits, by trying all."""
    choices = (range(min(server["slots"], vms) + 1) for server in servers(tree))
    fitting = (
        list(placed)
        for placed in product(*choices)
        if sum(placed) == vms and overloaded(tree, list(placed), bandwidth) is None
    )
    return next(fitting, None)


def _most(tree: Tree, vms: int, bandwidth: int) -> list[int]:
    """Counts below a link, as Oktopus' Algorithm 1 computes them from the bottom."""
    own = tree.get("slots", 0)
    below = own + sum(max(_most(child, vms, bandwidth)) for child in tree.get("children", ()))
    free = tree["residual"]
    counts = range(min(below, vms) + 1)
    return [n for n in counts if free is None or min(n, vms - n) * bandwidth <= free]


def published(tree: Tree, vms: int, bandwidth: int) -> list[int] | None:
    """Oktopus' Algorithm 1: each child of the lowest subtree takes as many as it may."""

    def subtrees(part: Tree, first: int) -> Iterator[tuple[int, int, Tree]]:
        if "slots" in part:
            yield 0, first, part
            return
        heights, at = [0], first
        for child in part["children"]:
            for found in subtrees(child, at):
                heights.append(found[0])
                yield found
            at += len(servers(child))
        yield max(heights) + 1, first, part

    def fill(part: Tree, wanted: int, first: int) -> None:
        if "slots" in part:
            placed[first] = wanted
            return
        for child in part["children"]:
            here = min(wanted, max(_most(child, vms, bandwidth)))
            fill(child, here, first)
            wanted -= here
            first += len(servers(child))

    placed = [0] * len(servers(tree))
    for _, first, part in sorted(subtrees(tree, 0), key=lambda found: found[:2]):
        if vms in _most(part, vms, bandwidth):
            fill(part, vms, first)
            return placed
    return None


# -- pure


def link_needs_is_eq_1(submission: Submission) -> None:
    look = "README.md, 'What a link needs'"

    def holds(example: tuple[int, int, int]) -> None:
        vms, below, bandwidth = example[0], min(example[1], example[0]), example[2]
        call = as_call("link_needs", below, vms, bandwidth)
        got = number_of(submission.call(FILE, "link_needs", below, vms, bandwidth), call, look)
        expected = min(below, vms - below) * bandwidth
        if got != expected:
            raise Wrong(f"{call} returned {got:g}", f"{expected}", look)

    for_all(st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(1, 1000)), holds)


def greedy_is_as_published(submission: Submission) -> None:
    look = "README.md, 'Oktopus' greedy'"

    def holds(request: Request) -> None:
        call, got = as_call("greedy", *request), submission.call(FILE, "greedy", *request)
        expected = published(*request)
        if got != expected:
            raise Wrong(f"{call} returned {got!r}", f"{expected!r}", look)

    for_all(REQUESTS, holds, number=TRIED)


def its_request_over_commits(submission: Submission) -> None:
    look = "README.md, 'Where it over-commits'"
    request = submission.call(FILE, "over_committed")
    tree, vms, bandwidth = _request(request, look)
    placed = published(tree, vms, bandwidth)
    if placed is None:
        raise Wrong("greedy refuses the request of over_committed()", "one that it places", look)
    if overloaded(tree, placed, bandwidth) is None:
        seen = f"greedy places the request of over_committed() as {placed}, and every link holds"
        raise Wrong(seen, "a link that needs more than it has", look)
    if exists(tree, vms, bandwidth) is None:
        seen = "no placement at all fits the request of over_committed()"
        raise Wrong(seen, "one that another placement fits", look)


def _request(value: object, look: str) -> Request:
    """A student's request, if it is one of at most 8 servers and 12 VMs. Raises Wrong."""
    parts = list_of(value, (dict, int), "over_committed()", look)
    if [type(part) for part in parts] != [dict, int, int]:
        raise Wrong("over_committed() returned another list", "[tree, vms, bandwidth]", look)
    tree, vms, bandwidth = parts

    def is_tree(part: object, depth: int, *, root: bool = False) -> bool:
        if not isinstance(part, dict) or depth > 4:
            return False
        residual, slots, children = (part.get(key) for key in ("residual", "slots", "children"))
        if not (residual is None if root else type(residual) is int and residual >= 0):
            return False
        if children is None:
            return type(slots) is int and 0 <= slots <= 12
        return isinstance(children, list) and all(is_tree(child, depth + 1) for child in children)

    if not is_tree(tree, 0, root=True) or not 1 <= len(servers(tree)) <= 8:
        raise Wrong("the tree of over_committed() is none", "a tree of at most 8 servers", look)
    if not (1 <= vms <= 12 and bandwidth >= 1):
        raise Wrong(f"over_committed() asks for {vms} VMs", "1 to 12, with a bandwidth", look)
    return tree, vms, bandwidth


def placements_keep_every_link(submission: Submission) -> None:
    look = "README.md, 'A placement that holds'"

    def holds(request: Request) -> None:
        tree, vms, bandwidth = request
        call, got = as_call("place", *request), submission.call(FILE, "place", *request)
        if got is None:
            return
        placed = list_of(got, int, call, look)
        slots = [server["slots"] for server in servers(tree)]
        fits = len(placed) == len(slots) and all(0 <= a <= b for a, b in zip(placed, slots))
        if not fits or sum(placed) != vms:
            raise Wrong(f"{call} returned {placed}", f"{vms} VMs within the slots {slots}", look)
        if (link := overloaded(tree, placed, bandwidth)) is not None:
            seen = f"{call} returned {placed}: the link above {link[0]} of the VMs needs {link[1]}"
            raise Wrong(seen, f"at most its {link[2]}", look)

    for_all(REQUESTS, holds, number=TRIED)


def what_fits_is_placed(submission: Submission) -> None:
    look = "README.md, 'A placement that holds'"

    def holds(request: Request) -> None:
        if submission.call(FILE, "place", *request) is None:
            found = exists(*request)
            if found is not None:
                call = as_call("place", *request)
                raise Wrong(f"{call} returned None", f"a placement, as {found}", look)

    for_all(REQUESTS, holds, number=TRIED)


# -- on the wire


TREE: Tree = {
    "residual": None,
    "children": [
        {"residual": 40, "children": [{"residual": 20, "slots": 3} for _ in range(3)]}
        for _ in range(2)
    ],
}
"""The network of network.yaml, in Mbit/s."""
TENANT = (7, 9)
SECONDS = 4


def the_guarantee_holds(submission: Submission, network: StandingNetwork) -> list[Margin]:
    look = "README.md, 'On the wire'"
    vms, mbps = TENANT
    placed = submission.call(FILE, "place", TREE, vms, mbps)
    at = {str(server): count for server, count in enumerate(placed) if count}
    network.tenants.add("placed", bandwidth=mbps * 1_000_000, at=at)
    try:
        slowest = min(network.measure("placed", SECONDS), key=lambda pair: pair.ratio)
    finally:
        network.tenants.remove("placed")
    if slowest.lost_share:
        raise Wrong(f"{slowest.sender} to {slowest.receiver} lost pings", "none lost", look)
    return [Margin("the slowest VM has of its guarantee", slowest.ratio, 0.97, 1.02)]


CHECKS = (
    Check("a link needs min(X, N-X) B", "pure", link_needs_is_eq_1),
    Check("greedy places as published", "pure", greedy_is_as_published, 2),
    Check(
        "over_committed() is a request that greedy over-commits", "pure", its_request_over_commits
    ),
    Check("place() over-commits no link", "pure", placements_keep_every_link, 2),
    Check("place() refuses only what fits nowhere", "pure", what_fits_is_placed, 2),
    Check("a tenant that is placed so has its guarantee", "wire", the_guarantee_holds, 2),
)
