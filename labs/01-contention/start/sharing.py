"""Your predictions. Rates and capacities are in Mbit/s, of frames on the wire.

Python's standard library is all that your code may import.
"""


def shares(capacity, flows):
    """Rate of each tenant on one link that all flows cross; `flows`: how many each tenant has."""
    return [0 for _ in flows]


def max_min(capacities, paths):
    """Max-min fair rate of each flow; a path is the list of the links that the flow crosses.

    Links are numbered as in `capacities`, from 0. Every path has a link, and none twice.
    """
    return [0 for _ in paths]


def tenant_rates(capacities, tenants):
    """Rate of each tenant, the sum of its flows'; a tenant is the list of its flows' paths."""
    return [0 for _ in tenants]


def with_guarantees(capacity, flows, guarantees):
    """Rate of each tenant on one link, some of them with a guarantee (0: none).

    A guarantee is strict: with it a tenant has neither less nor more while it sends.
    """
    return [0 for _ in flows]


def experiment(flows):
    """The lab's experiment as [capacities, tenants], tenants a and b as in `tenant_rates`.

    a has one flow from a.0 to a.1; b has `flows` from b.0 to b.3, and one from b.1 to b.2.
    """
    return [[1], [[[0]], [[0]]]]
