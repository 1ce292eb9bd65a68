"""Your search over starting times and bandwidths.

Times have one unit, and so have bandwidths; in day.json they are seconds and Mbit/s.

A data centre is a core switch over racks of servers. "link" is what a link carries upward:

    {"racks": [{"link": 2, "servers": [{"link": 1, "slots": 4}, …]}, …]}

A reservation holds VMs on the servers, counted from the left through all racks, from its start up
to its end (at its end it holds nothing any more):

    {"start": 0, "end": 2, "bandwidth": 0.5, "placed": [4, 2, 0, 0, 0, 0]}

A request ⟨n, b, p, d⟩ that arrives at "at"; its deadline counts from there:

    {"at": 0, "vms": 6, "bandwidth": 1, "duration": 1, "deadline": 2}

Python's standard library is all that your code may import.
"""

STEPS = 10


def relaxed(duration, deadline, gamma):
    """The duration with its tolerated error, p~."""
    return duration


def grid(bandwidth, duration, deadline):
    """The points of Algorithm 1 in its order, each [t', b', p']; `duration` is relaxed already."""
    return [[0, bandwidth, duration]]


def free(centre, reservations, start, end):
    """The data centre as `centre` is written, with what is free in all of [start, end)."""
    return centre


def dru_at(centre, reservations, at):
    """[sum of the racks' DRU, sum of the servers' DRU] at an instant: Eq. 2 and 3."""
    return [0, 0]


def dru(centre, reservations, start, end):
    """The same two, integrated over [start, end): Eq. 4."""
    return [0, 0]


def search(centre, reservations, request, gamma):
    """The reservation that Algorithm 1 makes for a request, or None.

    What stands here is VC: at once, with all the bandwidth, or not at all.
    """
    start = request["at"]
    end = start + request["duration"]
    there = free(centre, reservations, start, end)
    placed = valloc(there, request["vms"], request["bandwidth"])
    if placed is None:
        return None
    return {"start": start, "end": end, "bandwidth": request["bandwidth"], "placed": placed}


def as_job(request, found):
    """A reservation as a job of an experiment file: numbers in s and Mbit/s.

    Policy `scripted` starts a job `at` once with `granted` per VM; the job moves what it would move
    at `bandwidth` in `duration`. Its `deadline` counts from `at`.
    """
    return {
        "at": request["at"],
        "vms": request["vms"],
        "bandwidth": request["bandwidth"],
        "granted": request["bandwidth"],
        "duration": request["duration"],
        "deadline": request["deadline"],
    }


# -- given: leave this as it is

TINY = 1e-9


def valloc(there, vms, bandwidth):
    """VMs on each server, in what is free: the paper's VAlloc. None where it finds no room.

    The first rack that can hold all, else all racks; filled from the left, and every link checked.
    """
    for rack in there["racks"]:
        racks = [one if one is rack else {**one, "link": -1.0} for one in there["racks"]]
        if placed := _filled(racks, vms, bandwidth):
            return placed
    return _filled(there["racks"], vms, bandwidth)


def _filled(racks, vms, bandwidth):
    """VMs on each server, each rack and server taking the most it may; None if that fails."""
    placed, left, sound = [], vms, True
    for rack in racks:
        most = sum(_most(one["slots"], vms, bandwidth, one["link"]) for one in rack["servers"])
        here = _most(min(left, most), vms, bandwidth, rack["link"])
        left -= here
        for server in rack["servers"]:
            count = _most(min(here, server["slots"]), vms, bandwidth, server["link"])
            placed.append(count)
            here -= count
        sound = sound and here == 0
    return placed if sound and left == 0 else None


def _most(wanted, vms, bandwidth, link):
    """The most VMs, up to `wanted`, for which a link is wide enough; rounding decides nothing."""
    fitting = (n for n in range(wanted, 0, -1) if min(n, vms - n) * bandwidth <= link + TINY)
    return next(fitting, 0)
