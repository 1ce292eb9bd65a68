"""Oktopus' greedy as published, a request that it over-commits, and a placement that never does."""


def link_needs(below, vms, bandwidth):
    """Bandwidth on a link with `below` of the VMs below it: min(X, N - X) B."""
    return min(below, vms - below) * bandwidth


def _counts(tree, vms, bandwidth):
    """Numbers of VMs that fit below this tree's link, each as Oktopus counts them."""
    if "slots" in tree:
        most = tree["slots"]
    else:
        most = sum(max(_counts(child, vms, bandwidth)) for child in tree["children"])
    free = tree["residual"]
    return [
        count
        for count in range(min(most, vms) + 1)
        if free is None or link_needs(count, vms, bandwidth) <= free
    ]


def _subtrees(tree, first=0):
    """(height, first server, number of servers, tree) of each subtree."""
    if "slots" in tree:
        return [(0, first, 1, tree)]
    found, at, height = [], first, 0
    for child in tree["children"]:
        below = _subtrees(child, at)
        found += below
        at += below[-1][2]
        height = max(height, below[-1][0])
    return [*found, (height + 1, first, at - first, tree)]


def _servers(tree):
    return 1 if "slots" in tree else sum(map(_servers, tree["children"]))


def _filled(tree, wanted, vms, bandwidth):
    """`wanted` VMs below a tree, each child taking as many as its link and its slots allow."""
    if "slots" in tree:
        return [wanted]
    placed = []
    for child in tree["children"]:
        here = min(wanted, max(_counts(child, vms, bandwidth)))
        placed += _filled(child, here, vms, bandwidth)
        wanted -= here
    return placed


def greedy(tree, vms, bandwidth):
    """Oktopus' Algorithm 1: the lowest subtree that can hold all, filled from the left."""
    for _, first, number, subtree in sorted(_subtrees(tree), key=lambda found: found[:2]):
        if vms in _counts(subtree, vms, bandwidth):
            placed = _filled(subtree, vms, vms, bandwidth)
            return [0] * first + placed + [0] * (_servers(tree) - first - number)
    return None


def over_committed():
    """Greedy packs 3 + 3, but the second link allows 2 or 4 and not 3."""
    servers = [{"residual": 4, "slots": 3}, {"residual": 2, "slots": 4}]
    return [{"residual": None, "children": servers}, 6, 1]


def place(tree, vms, bandwidth):
    """Searches the counts of the children, first the largest."""
    for _, first, number, subtree in sorted(_subtrees(tree), key=lambda found: found[:2]):
        placed = _within(subtree, vms, vms, bandwidth)
        if placed is not None:
            return [0] * first + placed + [0] * (_servers(tree) - first - number)
    return None


def _within(tree, wanted, vms, bandwidth):
    """`wanted` VMs below a tree with every link wide enough; None where that cannot be."""
    free = tree["residual"]
    if free is not None and link_needs(wanted, vms, bandwidth) > free:
        return None
    if "slots" in tree:
        return [wanted] if wanted <= tree["slots"] else None
    return _shared(tree["children"], wanted, vms, bandwidth)


def _shared(children, wanted, vms, bandwidth):
    """`wanted` VMs among children, the first of them taking as many as can be."""
    if not children:
        return [] if wanted == 0 else None
    for here in range(wanted, -1, -1):
        placed = _within(children[0], here, vms, bandwidth)
        if placed is not None:
            rest = _shared(children[1:], wanted - here, vms, bandwidth)
            if rest is not None:
                return placed + rest
    return None


def our_tree():
    """Free beside the neighbour, in Mbit/s: capacity less `testbed link show`'s reserved."""
    rack_0 = [{"residual": 12, "slots": 4}, {"residual": 4, "slots": 3}]
    rack_1 = [{"residual": 12, "slots": 4}, {"residual": 20, "slots": 5}]
    racks = [{"residual": 22, "children": rack_0}, {"residual": 22, "children": rack_1}]
    return {"residual": None, "children": racks}
