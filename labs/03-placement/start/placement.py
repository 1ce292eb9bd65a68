"""Your placement. A tree is a dict:

    {"residual": 10, "children": [TREE, …]}    a switch and the free bandwidth of its link upward
    {"residual": 4, "slots": 3}                a server, and its free slots

The root's residual is None: it has no link upward. Servers are numbered from the left. Bandwidths
are whole numbers in one unit. Python's standard library is all that your code may import.
"""


def link_needs(below, vms, bandwidth):
    """Bandwidth that a tenant of `vms` VMs needs on a link, with `below` of them below it."""
    return 0


def greedy(tree, vms, bandwidth):
    """The placement that Oktopus' Algorithm 1 makes: a list with the VMs on each server.

    None where no subtree fits. Not checked against the links any more: exactly as published.
    """
    return []


def over_committed():
    """A request for which `greedy` over-commits a link: [tree, vms, bandwidth]."""
    return [{"residual": None, "children": [{"residual": 1, "slots": 1}]}, 1, 1]


def place(tree, vms, bandwidth):
    """A placement that no link is too narrow for; None only where there is none at all.

    What stands here fills the slots from the left and looks at no link.
    """
    placed = []
    for slots in _slots(tree):
        placed.append(min(slots, vms - sum(placed)))
    return placed if sum(placed) == vms else None


def _slots(tree):
    """The free slots of all servers, from the left."""
    if "slots" in tree:
        return [tree["slots"]]
    return [slots for child in tree["children"] for slots in _slots(child)]


def our_tree():
    """The live network, 2 racks of 2 servers, with what its neighbour leaves free, in Mbit/s."""
    return {"residual": None, "children": []}
