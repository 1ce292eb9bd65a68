"""DCloud's estimate of a job's running time, and what its demand curve says instead."""

from itertools import pairwise


def estimate(p, b, granted):
    """The inversely proportional rule: p' = p b / b'."""
    return p * b / granted


def relaxed(p, deadline, gamma):
    """Running time that is reserved for: (1 + gamma) p, and never beyond the deadline."""
    return min((1 + gamma) * p, deadline)


def least_bandwidth(p, b, deadline, gamma, start):
    """The least b' at which a job that starts at `start` is estimated to meet its deadline."""
    longest = relaxed(p, deadline, gamma)
    if start + longest > deadline:
        return None
    return longest * b / (deadline - start)


def duration(demand, granted):
    """Eq. 1: where c(x) is above the bandwidth a piece takes c(x) / b times as long."""
    return sum(seconds * max(1, rate / granted) for seconds, rate in demand)


def ends(demand, steps):
    """Eq. 1 with a bandwidth that changes."""
    now = 0
    at = 0
    for seconds, rate in demand:
        left = seconds
        while True:
            while at + 1 < len(steps) and steps[at + 1][0] <= now:
                at += 1
            slower = max(1, rate / steps[at][1])
            until = steps[at + 1][0] if at + 1 < len(steps) else None
            if until is None or now + left * slower <= until:
                now += left * slower
                break
            left -= (until - now) / slower
            now = until
    return now


def least_known(demand, deadline):
    """The least bandwidth that meets a deadline, for who knows the demand curve."""
    if sum(seconds for seconds, _ in demand) > deadline:
        return None
    # Where the k pieces with the highest rates are slowed, D = fixed + volume / bandwidth.
    fixed = sum(seconds for seconds, _ in demand)
    volume = least = 0
    for seconds, rate in sorted(demand, key=lambda piece: -piece[1]):
        if rate <= least:
            break
        fixed -= seconds
        volume += seconds * rate
        least = volume / (deadline - fixed)
    return least


def profile(measured, tolerance):
    """The no-elongation threshold, and what limits the application between two bandwidths."""
    ordered = sorted(measured)
    best = min(seconds for _, seconds in ordered)
    threshold = min(rate for rate, seconds in ordered if seconds <= best * (1 + tolerance))
    between = []
    for (low, slow), (high, fast) in pairwise(ordered):
        if slow <= fast * (1 + tolerance):
            between.append("application")
        elif slow * low * (1 + tolerance) >= fast * high:
            between.append("network")
        else:
            between.append("both")
    return {"threshold": threshold, "between": between}


def counterexamples():
    """Early: the network limits only half of it. Late: a bandwidth that it has no use for."""
    return {"early": [[[3, 10], [1, 40]], 40, 16], "late": [[[4, 10]], 10, 20]}


def application():
    """index.py, as measured: what more bandwidth than 24 Mbit/s does not shorten, and the rest."""
    return [[1.55, 5], [0.8, 40]]
