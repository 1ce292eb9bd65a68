"""Checks of lab 3: Oktopus' greedy and a placement that keeps every link's capacity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from testbed.errors import DoesNotFit
from testbed.labs.checking import Check, Margin, Wrong, as_call, for_all, list_of, number_of, shown
from testbed.labs.submission import Submission
from testbed.standing.standing_network import StandingNetwork

FILE = "placement.py"
Tree = dict[str, Any]
Request = tuple[Tree, int, int]

# -- random requests, and the obvious slow answer to each


SERVER = st.fixed_dictionaries({"residual": st.integers(0, 5), "slots": st.integers(0, 4)})
RACK = st.fixed_dictionaries(
    {"residual": st.integers(0, 6), "children": st.lists(SERVER, min_size=1, max_size=3)}
)
ROOMY = st.fixed_dictionaries({"residual": st.integers(2, 8), "slots": st.integers(1, 4)})
NARROW = st.fixed_dictionaries(
    {"residual": st.integers(0, 3), "children": st.lists(ROOMY, min_size=1, max_size=2)}
)
"""A rack whose own link is what binds, not those of its servers."""


def _tree(children: st.SearchStrategy[Tree], least: int, most: int) -> st.SearchStrategy[Tree]:
    below = st.lists(children, min_size=least, max_size=most)
    return below.map(lambda found: {"residual": None, "children": found})


REQUESTS = st.one_of(
    st.tuples(_tree(SERVER, 1, 4) | _tree(RACK, 1, 2), st.integers(1, 8), st.integers(1, 2)),
    st.tuples(_tree(NARROW, 2, 3), st.integers(2, 8), st.integers(1, 2)),
)
TRIED = 400


def as_typed(function: str, request: Request) -> str:
    """A call that can be typed again: the tree as a whole."""
    return f"{function}({', '.join(map(repr, request))})"


def servers(tree: Tree) -> list[Tree]:
    if "slots" in tree:
        return [tree]
    return [one for child in tree["children"] for one in servers(child)]


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


def _splits(vms: int, slots: list[int]) -> Iterator[list[int]]:
    """All ways to spread VMs over slots."""
    if not slots:
        if vms == 0:
            yield []
        return
    for here in range(min(slots[0], vms) + 1):
        for rest in _splits(vms - here, slots[1:]):
            yield [here, *rest]


def exists(tree: Tree, vms: int, bandwidth: int) -> list[int] | None:
    """Any placement that fits, by trying all."""
    slots = [server["slots"] for server in servers(tree)]
    splits = _splits(vms, slots)
    fitting = (placed for placed in splits if overloaded(tree, placed, bandwidth) is None)
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
        call, got = as_typed("greedy", request), submission.call(FILE, "greedy", *request)
        expected = published(*request)
        if got != expected:
            raise Wrong(f"{call} returned {shown(got)}", f"{expected!r}", look)

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


def is_tree(part: object, depth: int, *, root: bool = False) -> bool:
    """True of a tree of dicts, at most four levels deep, with small whole numbers."""
    if not isinstance(part, dict) or depth > 4:
        return False
    residual, slots, children = (part.get(key) for key in ("residual", "slots", "children"))
    if not (residual is None if root else type(residual) is int and residual >= 0):
        return False
    if children is None:
        return type(slots) is int and 0 <= slots <= 12
    below = children if isinstance(children, list) and "slots" not in part else [None]
    return all(is_tree(child, depth + 1) for child in below)


def _request(value: object, look: str) -> Request:
    """A student's request, if it is one of at most 8 servers and 12 VMs. Raises Wrong."""
    parts = list_of(value, (dict, int), "over_committed()", look)
    if [type(part) for part in parts] != [dict, int, int]:
        raise Wrong("over_committed() returned another list", "[tree, vms, bandwidth]", look)
    tree, vms, bandwidth = parts

    if not is_tree(tree, 0, root=True) or not 1 <= len(servers(tree)) <= 8:
        raise Wrong("the tree of over_committed() is none", "a tree of at most 8 servers", look)
    if not (1 <= vms <= 12 and bandwidth >= 1):
        raise Wrong(f"over_committed() asks for {vms} VMs", "1 to 12, with a bandwidth", look)
    return tree, vms, bandwidth


def fault(request: Request, value: object, call: str, look: str) -> tuple[str, str] | None:
    """Whatever is wrong with a placement: seen and expected. Raises Wrong where it is no list."""
    tree, vms, bandwidth = request
    placed = list_of(value, int, call, look)
    slots = [server["slots"] for server in servers(tree)]
    fits = len(placed) == len(slots) and all(map(int.__le__, placed, slots)) and min(placed) >= 0
    if not fits or sum(placed) != vms:
        return f"{call} returned {shown(placed)}", f"{vms} VMs within the slots {slots}"
    if (link := overloaded(tree, placed, bandwidth)) is not None:
        seen = f"{call} returned {placed}: the link above {link[0]} of the VMs needs {link[1]}"
        return seen, f"at most its {link[2]}"
    return None


def placements_keep_every_link(submission: Submission) -> None:
    look = "README.md, 'A placement that holds'"

    def holds(request: Request) -> None:
        call, got = as_typed("place", request), submission.call(FILE, "place", *request)
        if got is not None and (found := fault(request, got, call, look)):
            raise Wrong(*found, look)

    for_all(REQUESTS, holds, number=TRIED)


def what_fits_is_placed(submission: Submission) -> None:
    look = "README.md, 'A placement that holds'"

    def holds(request: Request) -> None:
        call, got = as_typed("place", request), submission.call(FILE, "place", *request)
        bad = got is None or fault(request, got, call, look) is not None
        if bad and (found := exists(*request)) is not None:
            raise Wrong(
                f"{call} returned {shown(got)}", f"a placement that holds, as {found}", look
            )

    for_all(REQUESTS, holds, number=TRIED)


# -- on the wire


LOOK = "README.md, 'On the wire'"
NEIGHBOUR = 8, {"server 0": 1, "server 1": 2, "server 2": 1}
"""The tenant that is there first, as on the page: Mbit/s, and VMs by server."""
VMS, MBPS = 8, 6
SERVERS = 4
SECONDS = 4


@contextmanager
def placed_live(submission: Submission, network: StandingNetwork) -> Iterator[dict[str, int]]:
    """Student's placement as a tenant of the live network, in what their tree says is free."""
    tree = submission.call(FILE, "our_tree")
    if not is_tree(tree, 0, root=True) or len(servers(tree)) != SERVERS:
        raise Wrong("our_tree() is no tree of four servers", "the tree of this network", LOOK)
    call = f"place(our_tree(), {VMS}, {MBPS})"
    value = submission.call(FILE, "place", tree, VMS, MBPS)
    if value is None:
        raise Wrong(f"{call} returned None", "a placement: there is room for it", LOOK)
    placed = list_of(value, int, call, LOOK)
    if len(placed) != SERVERS or min(placed) < 0 or sum(placed) != VMS:
        raise Wrong(f"{call} returned {shown(placed)}", f"{VMS} VMs on four servers", LOOK)
    at = {f"server {server}": count for server, count in enumerate(placed) if count}
    mbps, places = NEIGHBOUR
    network.tenants.add("neighbour", bandwidth=f"{mbps} Mbit/s", at=places)
    try:
        try:
            network.tenants.add("mine", bandwidth=f"{MBPS} Mbit/s", at=at)
        except DoesNotFit as refused:
            seen = f"{call} returned {placed}, and the network refuses it: {refused}"
            raise Wrong(seen, "a placement in what the neighbour leaves", LOOK) from None
        yield at
        network.tenants.remove("mine")
    finally:
        network.tenants.remove("neighbour")


def the_network_admits_it(submission: Submission, network: StandingNetwork) -> None:
    with placed_live(submission, network):
        pass


def the_guarantee_holds(submission: Submission, network: StandingNetwork) -> list[Margin]:
    with placed_live(submission, network):
        slowest = min(network.measure("mine", SECONDS), key=lambda pair: pair.ratio)
    if slowest.lost_share:
        raise Wrong(f"{slowest.sender} to {slowest.receiver} lost pings", "none lost", LOOK)
    return [Margin("the slowest VM has of its guarantee", slowest.ratio, 0.96, 1.03)]


CHECKS = (
    Check("a link needs min(X, N-X) B", "pure", link_needs_is_eq_1),
    Check("greedy places as published", "pure", greedy_is_as_published, 2),
    Check("over_committed() is one that greedy over-commits", "pure", its_request_over_commits),
    Check("place() over-commits no link", "pure", placements_keep_every_link, 2),
    Check("place() refuses only what fits nowhere", "pure", what_fits_is_placed, 2),
    Check("the network admits place(our_tree(), 8, 6)", "wire", the_network_admits_it, 2),
    Check("a tenant that is placed so has its guarantee", "wire", the_guarantee_holds),
)
