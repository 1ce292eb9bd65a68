"""Shares of TCP on links: by flow, and what a guarantee changes."""


def shares(capacity, flows):
    """All flows have the same."""
    every = sum(flows)
    return [capacity * own / every if every else 0 for own in flows]


def max_min(capacities, paths):
    """Progressive filling: the link with the least for each of its flows settles those."""
    rates = [None] * len(paths)
    free = list(capacities)
    while None in rates:
        crossing = [
            [flow for flow, path in enumerate(paths) if link in path and rates[flow] is None]
            for link in range(len(capacities))
        ]
        share, link = min((free[n] / len(on), n) for n, on in enumerate(crossing) if on)
        for flow in crossing[link]:
            rates[flow] = share
            for crossed in paths[flow]:
                free[crossed] -= share
    return rates


def tenant_rates(capacities, tenants):
    """Flows compete with each other, whoever's they are."""
    rates = iter(max_min(capacities, [path for paths in tenants for path in paths]))
    return [sum(next(rates) for _ in paths) for paths in tenants]


def with_guarantees(capacity, flows, guarantees):
    """Guarantees of those that send come first; the others' flows share the rest."""
    sending = [guarantee if own else 0 for own, guarantee in zip(flows, guarantees, strict=True)]
    others = [0 if guarantee else own for own, guarantee in zip(flows, guarantees, strict=True)]
    rest = shares(capacity - sum(sending), others)
    return [guarantee or share for guarantee, share in zip(sending, rest, strict=True)]


def experiment(flows):
    """The racks' link carries all but b's flow within a rack, which has servers' links alone."""
    rack_up, server_0, server_1, server_2 = range(4)
    across = [[server_1, rack_up]] * flows
    return [[20, 30, 30, 30], [[[server_0, rack_up]], [*across, [server_2]]]]
