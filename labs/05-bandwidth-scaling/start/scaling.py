"""Your answers. Bandwidths are numbers in Mbit/s, times in seconds.

A demand is a list of pieces [seconds, rate]: so long the piece takes where bandwidth is no limit,
and so much one VM then sends. Python's standard library is all that your code may import.
"""


def estimate(p, b, granted):
    """DCloud's estimate of the running time at the bandwidth `granted`."""
    return p


def relaxed(p, deadline, gamma):
    """The running time that DCloud reserves for, with the relax index gamma (0.12 is 12 %)."""
    return p


def least_bandwidth(p, b, deadline, gamma, start):
    """The least bandwidth at which the relaxed job is estimated to be in time, started at `start`.

    `deadline` and `start` count from the job's arrival. None where it is late even at `b`.
    """
    return None


def duration(demand, granted):
    """The running time at a constant bandwidth, by Eq. 1."""
    return 0


def ends(demand, steps):
    """The running time where the bandwidth changes: steps [second, bandwidth], each from then on.

    The first step is at second 0, the last one lasts.
    """
    return 0


def least_known(demand, deadline):
    """The least bandwidth at which `duration` is at most `deadline`; None where there is none."""
    return None


def profile(measured, tolerance):
    """A sweep of an application. `measured`: [bandwidth, seconds], in any order.

    "threshold": the least measured bandwidth whose time is within `tolerance` (0.02 is 2 %) of the
    shortest. "between": for each bandwidth and the next higher one "network", "both" or
    "application".
    """
    return {"threshold": 0, "between": []}


def counterexamples():
    """Two applications [demand, b, granted] that the estimate is wrong about, by 20 % and more.

    p is the true running time at b. "early": it ends before its estimate; "late": after it.
    """
    return {"early": [[[1, 10]], 10, 5], "late": [[[1, 10]], 10, 5]}


def application():
    """The demand of index.py, from what you measured: a list of pieces."""
    return []
