"""DCloud's search over starting times and bandwidths (Algorithm 1), and the DRU that it lowers."""

from itertools import pairwise

STEPS = 10
TOLERANCE = 1e-9


def relaxed(duration, deadline, gamma):
    """The duration with its tolerated error, p~."""
    return min((1 + gamma) * duration, deadline)


def grid(bandwidth, duration, deadline):
    """The points of Algorithm 1 in its order, each [t', b', p']."""
    room = deadline - duration
    points = []
    for start in _range(0, room, deadline):
        least = bandwidth * duration / (deadline - start)
        scaled = _range(bandwidth, least, bandwidth)
        points += [[start, one, duration * bandwidth / one] for one in scaled]
    return points


def _range(first, last, scale):
    """Eleven values from first to last; one where rounding alone keeps them apart."""
    if abs(last - first) <= TOLERANCE * scale:
        return [first]
    return [first + (last - first) * step / STEPS for step in range(STEPS + 1)]


def _load(centre, reservation):
    """A reservation's share: of each rack its link's bandwidth, and (slots, link) by server."""
    placed, vms = iter(reservation["placed"]), sum(reservation["placed"])

    def need(below):
        return min(below, vms - below) * reservation["bandwidth"]

    racks = []
    for rack in centre["racks"]:
        below = [next(placed) for _ in rack["servers"]]
        racks.append((need(sum(below)), [(count, need(count)) for count in below]))
    return racks


def _used(centre, reservations, at):
    """The sum of what is taken at an instant, as :func:`_load` gives it."""
    racks = [[0, [[0, 0] for _ in rack["servers"]]] for rack in centre["racks"]]
    for one in reservations:
        if one["start"] <= at < one["end"]:
            for rack, (link, servers) in zip(racks, _load(centre, one), strict=True):
                rack[0] += link
                for server, (slots, carried) in zip(rack[1], servers, strict=True):
                    server[0] += slots
                    server[1] += carried
    return racks


def _instants(reservations, start, end):
    """Instants in [start, end) at which anything begins or ends, and the first."""
    every = {time for one in reservations for time in (one["start"], one["end"])}
    return [start, *sorted(time for time in every if start < time < end)]


def free(centre, reservations, start, end):
    """Free in all of [start, end): capacity less the most that is used at any instant."""
    used = [_used(centre, reservations, at) for at in _instants(reservations, start, end)]
    racks = []
    for r, rack in enumerate(centre["racks"]):
        servers = [
            {
                "link": server["link"] - max(one[r][1][s][1] for one in used),
                "slots": server["slots"] - max(one[r][1][s][0] for one in used),
            }
            for s, server in enumerate(rack["servers"])
        ]
        racks.append({"link": rack["link"] - max(one[r][0] for one in used), "servers": servers})
    return {"racks": racks}


def dru_at(centre, reservations, at):
    """[sum of the racks' DRU, sum of the servers' DRU] at an instant: Eq. 2 and 3."""
    of_racks = of_servers = 0
    used = _used(centre, reservations, at)
    for rack, (link, servers) in zip(centre["racks"], used, strict=True):
        below = sum(
            max(slots / server["slots"], carried / server["link"])
            for server, (slots, carried) in zip(rack["servers"], servers, strict=True)
        )
        of_servers += below
        of_racks += max(below / len(servers), link / rack["link"])
    return [of_racks, of_servers]


def dru(centre, reservations, start, end):
    """The same two, integrated over [start, end): Eq. 4."""
    instants = [*_instants(reservations, start, end), end]
    total = [0, 0]
    for at, until in pairwise(instants):
        now = dru_at(centre, reservations, at)
        total = [sum_ + value * (until - at) for sum_, value in zip(total, now, strict=True)]
    return total


def search(centre, reservations, request, gamma):
    """The reservation that Algorithm 1 makes for a request, or None."""
    duration = relaxed(request["duration"], request["deadline"], gamma)
    best = least = None
    for delay, bandwidth, lasting in grid(request["bandwidth"], duration, request["deadline"]):
        start = request["at"] + delay
        end = start + lasting
        placed = valloc(free(centre, reservations, start, end), request["vms"], bandwidth)
        if placed is None:
            continue
        tried = {"start": start, "end": end, "bandwidth": bandwidth, "placed": placed}
        after = dru(centre, [*reservations, tried], start, end)
        before = dru(centre, reservations, start, end)
        rise = [new - old for new, old in zip(after, before, strict=True)]
        if least is None or _less(rise, least):
            best, least = tried, rise
    return best


def _less(one, other):
    """Lexicographic; values that differ by rounding alone are equal."""
    for a, b in zip(one, other, strict=True):
        if abs(a - b) > TOLERANCE * max(abs(a), abs(b)):
            return a < b
    return False


def as_job(request, found):
    """A reservation as a job of an experiment file: numbers in s and Mbit/s."""
    return {
        "at": found["start"],
        "vms": request["vms"],
        "bandwidth": request["bandwidth"],
        "granted": found["bandwidth"],
        "duration": request["duration"],
        "deadline": request["at"] + request["deadline"] - found["start"],
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
