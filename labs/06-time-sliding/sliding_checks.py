"""Checks of lab 6: DRU, DCloud's search over starts and bandwidths, a day of requests, a live day.

The reference computes with fractions: what is equal is equal, and rounding decides nothing.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from testbed.labs.checking import Check, Margin, Wrong, for_all, list_of, number_of, shown
from testbed.labs.live_runs import played
from testbed.labs.submission import Submission
from testbed.record.reading import RecordedRun

FILE = "search.py"
Record = dict[str, Any]
Numbers = list[Fraction]
NEAR = 1e-6
"""Relative difference that is rounding: what a student's floats may differ by."""


def near(value: float, other: float) -> bool:
    """True for finite numbers that are equal up to rounding."""
    try:
        difference = abs(value - other)
        size = max(1.0, abs(value), abs(other))
    except OverflowError:
        return False
    return difference <= NEAR * size < math.inf


def typed(function: str, *arguments: object) -> str:
    """A call as text that can be typed again."""
    return f"{function}({', '.join(map(repr, arguments))})"


# -- the reference: shares of every part at an instant, by Eq. 2 to 4


def exact(value: float | Fraction) -> Fraction:
    """A number of an example as it is written: 0.1 is exactly a tenth."""
    return value if isinstance(value, Fraction) else Fraction(str(value))


def carried(parts: list[int], vms: int, bandwidth: Fraction) -> Numbers:
    return [min(below, vms - below) * bandwidth for below in parts]


def by_rack(centre: Record, values: list[Any]) -> list[list[Any]]:
    """Values of the servers, rack by rack."""
    left = iter(values)
    return [[next(left) for _ in rack["servers"]] for rack in centre["racks"]]


@dataclass(frozen=True)
class Used:
    """Use at an instant: of each server's slots and link, and of each rack's link."""

    slots: list[int]
    links: Numbers
    racks: Numbers


def used_at(centre: Record, reservations: list[Record], at: Fraction) -> Used:
    n_servers = sum(len(rack["servers"]) for rack in centre["racks"])
    nothing = Fraction()
    slots, links = [0] * n_servers, [nothing] * n_servers
    racks = [nothing] * len(centre["racks"])
    for reservation in reservations:
        if not exact(reservation["start"]) <= at < exact(reservation["end"]):
            continue
        placed, bandwidth = reservation["placed"], exact(reservation["bandwidth"])
        vms, below = sum(placed), [sum(rack) for rack in by_rack(centre, placed)]
        slots = [a + b for a, b in zip(slots, placed, strict=True)]
        links = [a + b for a, b in zip(links, carried(placed, vms, bandwidth), strict=True)]
        racks = [a + b for a, b in zip(racks, carried(below, vms, bandwidth), strict=True)]
    return Used(slots, links, racks)


def instants(reservations: list[Record], start: Fraction, end: Fraction) -> Numbers:
    """Starts of the pieces of [start, end) in which nothing changes."""
    edges = {exact(held[edge]) for held in reservations for edge in ("start", "end")}
    return sorted({start} | {time for time in edges if start < time < end})


def left_in(centre: Record, reservations: list[Record], start: Fraction, end: Fraction) -> Record:
    """The data centre with what is free in all of [start, end), in fractions."""
    pieces = [used_at(centre, reservations, at) for at in instants(reservations, start, end)]
    flat = [server for rack in centre["racks"] for server in rack["servers"]]
    servers = [
        {
            "link": exact(server["link"]) - max(piece.links[k] for piece in pieces),
            "slots": server["slots"] - max(piece.slots[k] for piece in pieces),
        }
        for k, server in enumerate(flat)
    ]
    racks = [
        {"link": exact(rack["link"]) - max(piece.racks[k] for piece in pieces), "servers": below}
        for k, (rack, below) in enumerate(
            zip(centre["racks"], by_rack(centre, servers), strict=True)
        )
    ]
    return {"racks": racks}


def shares(centre: Record, used: Used) -> tuple[Fraction, Fraction]:
    """Sums of DRU at an instant: of the racks, of the servers."""
    flat = [server for rack in centre["racks"] for server in rack["servers"]]
    servers = [
        max(Fraction(slots, server["slots"]), link / exact(server["link"]))
        for server, slots, link in zip(flat, used.slots, used.links, strict=True)
    ]
    racks = [
        max(sum(below, Fraction()) / len(below), link / exact(rack["link"]))
        for rack, below, link in zip(
            centre["racks"], by_rack(centre, servers), used.racks, strict=True
        )
    ]
    return sum(racks, Fraction()), sum(servers, Fraction())


def integral(
    centre: Record, reservations: list[Record], start: Fraction, end: Fraction
) -> tuple[Fraction, Fraction]:
    edges = [*instants(reservations, start, end), end]
    racks = servers = Fraction()
    for at, until in pairwise(edges):
        now = shares(centre, used_at(centre, reservations, at))
        racks, servers = racks + now[0] * (until - at), servers + now[1] * (until - at)
    return racks, servers


def points(bandwidth: Fraction, duration: Fraction, deadline: Fraction) -> list[Numbers]:
    """Algorithm 1's grid: t', b', p'."""
    room = deadline - duration
    grid = []
    for i in range(11 if room else 1):
        start = i * room / 10
        spare = deadline - start - duration
        for k in range(11 if spare else 1):
            scaled = bandwidth - k * bandwidth * spare / (10 * (deadline - start))
            grid.append([start, scaled, duration * bandwidth / scaled])
    return grid


def allotted(free: Record, vms: int, bandwidth: Fraction) -> list[int] | None:
    """As valloc() of search.py: in the first rack that can hold all VMs, else in all racks."""

    def largest(wanted: int, link: Fraction) -> int:
        return max(n for n in range(wanted + 1) if n == 0 or min(n, vms - n) * bandwidth <= link)

    def spread(chosen: range) -> list[int]:
        placed: list[int] = []
        for k, rack in enumerate(free["racks"]):
            by_server = [largest(server["slots"], server["link"]) for server in rack["servers"]]
            quota = 0
            if k in chosen:
                quota = largest(min(vms - sum(placed), sum(by_server)), rack["link"])
            for server in rack["servers"]:
                placed.append(largest(min(quota, server["slots"]), server["link"]))
                quota -= placed[-1]
            if quota:
                return []
        return placed

    n_racks = len(free["racks"])
    chosen = [range(k, k + 1) for k in range(n_racks)] + [range(n_racks)]
    return next((placed for these in chosen if sum(placed := spread(these)) == vms), None)


# -- examples: small data centres, whose numbers are whole or tenths


SMALL: Record = {"racks": [{"link": 2, "servers": [{"link": 2, "slots": 4}]}]}
TWO_JOBS = [
    {"start": 0, "end": 1, "bandwidth": 1, "placed": [1]},
    {"start": 2, "end": 3, "bandwidth": 1, "placed": [2]},
]
"""Tried first: a failure that can be seen through."""
SERVER = st.fixed_dictionaries({"link": st.integers(1, 3), "slots": st.integers(1, 4)})
RACK = st.fixed_dictionaries(
    {"link": st.integers(1, 4), "servers": st.lists(SERVER, min_size=1, max_size=3)}
)
CENTRE: st.SearchStrategy[Record] = st.lists(RACK, min_size=1, max_size=2).map(
    lambda racks: {"racks": racks}
)
TENTHS = st.integers(1, 9).map(lambda tenths: tenths / 10)
WHEN = st.integers(0, 5)


@st.composite
def busy(draw: st.DrawFn) -> tuple[Record, list[Record]]:
    """A data centre and reservations in it, which it need not have room for."""
    centre = draw(CENTRE)
    n_servers = sum(len(rack["servers"]) for rack in centre["racks"])
    placed = st.lists(st.integers(0, 2), min_size=n_servers, max_size=n_servers)

    def reservation(values: tuple[int, int, float, list[int]]) -> Record:
        start, lasts, bandwidth, counts = values
        return {"start": start, "end": start + lasts, "bandwidth": bandwidth, "placed": counts}

    reservations = st.tuples(WHEN, st.integers(1, 3), TENTHS, placed).map(reservation)
    return centre, draw(st.lists(reservations, max_size=3))


@st.composite
def feasible(draw: st.DrawFn) -> tuple[Record, list[Record], Record]:
    """A data centre with reservations that it has room for, and a request."""
    centre, wanted = draw(busy())
    kept: list[Record] = []
    for reservation in wanted:
        if sum(reservation["placed"]) and overloaded(centre, [*kept, reservation]) is None:
            kept.append(reservation)
    duration = draw(st.integers(1, 30)) / 10
    request = {
        "at": draw(st.integers(0, 2)), "vms": draw(st.integers(1, 6)),
        "bandwidth": draw(st.integers(1, 20)) / 10, "duration": duration,
        "deadline": round(duration + draw(st.integers(0, 40)) / 10, 1),
    }  # fmt: skip
    return centre, kept, request


def overloaded(centre: Record, reservations: list[Record]) -> str | None:
    """The first capacity that reservations exceed together, as a sentence; None: none."""
    flat = [server for rack in centre["racks"] for server in rack["servers"]]
    for at in instants(reservations, Fraction(-1), Fraction(10**6)):
        used = used_at(centre, reservations, at)
        for k, (server, slots, link) in enumerate(zip(flat, used.slots, used.links, strict=True)):
            if slots > server["slots"]:
                return f"{slots} VMs on server {k} at {float(at):g}, of {server['slots']} slots"
            if link > exact(server["link"]) + exact(NEAR):
                return f"{float(link):g} on server {k}'s link at {float(at):g}, of {server['link']}"
        for k, (rack, link) in enumerate(zip(centre["racks"], used.racks, strict=True)):
            if link > exact(rack["link"]) + exact(NEAR):
                return f"{float(link):g} on rack {k}'s link at {float(at):g}, of {rack['link']}"
    return None


# -- pure: shapes


def relaxed_is_bounded(submission: Submission) -> None:
    look = "README.md, 'Shapes of a request'"

    def holds(example: tuple[int, int, int]) -> None:
        duration, more, percent = example
        deadline, gamma = duration + more, percent / 100
        call = typed("relaxed", duration, deadline, gamma)
        got = number_of(submission.call(FILE, "relaxed", duration, deadline, gamma), call, look)
        expected = min(duration * (100 + percent) / 100, deadline)
        if not near(got, expected):
            raise Wrong(f"{call} returned {got:g}", f"{expected:g}", look)

    for_all(st.tuples(st.integers(1, 50), st.integers(0, 10), st.integers(0, 40)), holds)


def grid_is_algorithm_1(submission: Submission) -> None:
    look = "README.md, 'Shapes of a request'"

    def holds(example: tuple[int, int, int]) -> None:
        bandwidth, duration, deadline = (n / 10 for n in (*example[:2], example[1] + example[2]))
        call = typed("grid", bandwidth, duration, deadline)
        value = submission.call(FILE, "grid", bandwidth, duration, deadline)
        got = list_of(value, list, call, look)
        expected = points(exact(bandwidth), exact(duration), exact(deadline))
        if len(got) != len(expected):
            raise Wrong(f"{call} returned {len(got)} points", f"{len(expected)}", look)
        for k, (point, right) in enumerate(zip(got, expected, strict=True)):
            values = [number_of(value, f"point {k} of {call}", look) for value in point]
            if len(values) != len(right) or not all(map(near, values, map(float, right))):
                numbers = [float(f"{float(value):.6g}") for value in right]
                raise Wrong(f"point {k} of {call} is {shown(point)}", f"{numbers}", look)

    for_all(st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 30)), holds, number=80)


# -- pure: what is used


def free_is_the_worst_instant(submission: Submission) -> None:
    look = "README.md, 'What is free'"

    def holds(example: tuple[tuple[Record, list[Record]], int, int]) -> None:
        (centre, reservations), start, lasts = example
        arguments = centre, reservations, start, start + lasts
        call = typed("free", *arguments)
        got = submission.call(FILE, "free", *arguments)
        expected = left_in(centre, reservations, Fraction(start), Fraction(start + lasts))
        for path, name, value in _parts(expected):
            seen = _part(got, path)
            if not isinstance(seen, int | float) or not near(seen, float(value)):
                raise Wrong(f"{call} has {shown(seen)} for {name}", f"{float(value):g}", look)

    holds(((SMALL, TWO_JOBS), 0, 3))
    for_all(st.tuples(busy(), WHEN, st.integers(1, 4)), holds, number=100)


def _parts(centre: Record) -> list[tuple[tuple[str | int, ...], str, Fraction]]:
    """Path, name and value of each number of a data centre."""
    parts: list[tuple[tuple[str | int, ...], str, Fraction]] = []
    for r, rack in enumerate(centre["racks"]):
        parts.append((("racks", r, "link"), f"the link of rack {r}", rack["link"]))
        for s, server in enumerate(rack["servers"]):
            path = ("racks", r, "servers", s)
            for key in ("slots", "link"):
                name = f"the {key} of server {s} in rack {r}"
                parts.append(((*path, key), name, server[key]))
    return parts


def _part(value: Any, path: tuple[str | int, ...]) -> Any:
    """The part of a student's data centre at a path; None without one."""
    for key in path:
        if isinstance(key, int):
            value = value[key] if isinstance(value, list) and key < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def dru_of_an_instant(submission: Submission) -> None:
    look = "README.md, 'DRU'"

    def holds(example: tuple[tuple[Record, list[Record]], int]) -> None:
        (centre, reservations), at = example
        expected = shares(centre, used_at(centre, reservations, Fraction(at)))
        _same_pair(submission, "dru_at", (centre, reservations, at), expected, look)

    holds(((SMALL, TWO_JOBS), 0))
    for_all(st.tuples(busy(), WHEN), holds)


def dru_is_the_integral(submission: Submission) -> None:
    look = "README.md, 'DRU'"

    def holds(example: tuple[tuple[Record, list[Record]], int, int]) -> None:
        (centre, reservations), start, lasts = example
        end = start + lasts
        expected = integral(centre, reservations, Fraction(start), Fraction(end))
        _same_pair(submission, "dru", (centre, reservations, start, end), expected, look)

    holds(((SMALL, TWO_JOBS), 0, 3))
    for_all(st.tuples(busy(), WHEN, st.integers(1, 4)), holds, number=100)


def _same_pair(
    submission: Submission, function: str, arguments: tuple[Any, ...],
    expected: tuple[Fraction, Fraction], look: str,
) -> None:  # fmt: skip
    call = typed(function, *arguments).replace(repr(FIG_1), "FIG_1")
    got = list_of(submission.call(FILE, function, *arguments), (int, float), call, look)
    numbers = [float(value) for value in expected]
    if len(got) != len(numbers) or not all(map(near, got, numbers)):
        raise Wrong(f"{call} returned {shown(got)}", f"{numbers}", look)


FIG_1: Record = {"racks": [{"link": 1, "servers": [{"link": 1, "slots": 4}] * 6}]}
FIG_1_SHAPES: tuple[tuple[Record, tuple[Fraction, Fraction]], ...] = (
    ({"start": 0, "end": 1, "bandwidth": 1, "placed": [1] * 6}, (Fraction(1), Fraction(6))),
    (
        {"start": 0, "end": 2, "bandwidth": 0.5, "placed": [4, 2, 0, 0, 0, 0]},
        (Fraction(2, 3), Fraction(4)),
    ),
)
"""The paper's Fig. 1 with theta = 1: a shape of J' and its U."""


def fig_1_has_its_dru(submission: Submission) -> None:
    for shape, expected in FIG_1_SHAPES:
        look = "README.md, 'DRU'"
        _same_pair(submission, "dru", (FIG_1, [shape], 0, 2), expected, look)


# -- pure: the search


GAMMA = 0.12
LOOK = "README.md, 'The search'"
KEYS = ("start", "end", "bandwidth")


def found_by(
    submission: Submission, centre: Record, kept: list[Record], request: Record, gamma: float
) -> Record | None:
    """A student's reservation, or None, with its types checked. Raises Wrong."""
    call = typed("search", centre, kept, request, gamma)
    value = submission.call(FILE, "search", centre, kept, request, gamma)
    if value is None:
        return None
    if not isinstance(value, dict) or {*value} != {*KEYS, "placed"}:
        raise Wrong(f"{call} returned {shown(value)}", "a reservation or None", LOOK)
    numbers = {key: number_of(value[key], f"{key} of {call}", LOOK) for key in KEYS}
    placed = list_of(value["placed"], int, f"placed of {call}", LOOK)
    n_servers = sum(len(rack["servers"]) for rack in centre["racks"])
    if len(placed) != n_servers or min(placed) < 0 or sum(placed) != request["vms"]:
        expected = f"{request['vms']} VMs on {n_servers} servers"
        raise Wrong(f"{call} places {shown(placed)}", expected, LOOK)
    return {**numbers, "placed": placed}


def unsound(
    centre: Record, kept: list[Record], request: Record, gamma: float, chosen: Record
) -> str:
    """The first fault of a chosen reservation, or empty."""
    latest = request["at"] + request["deadline"]
    relaxed = min((1 + gamma) * request["duration"], request["deadline"])
    if not request["at"] - NEAR <= chosen["start"] < chosen["end"] <= latest + NEAR:
        return f"it holds [{chosen['start']:g}, {chosen['end']:g}) of {request['at']} to {latest:g}"
    if not 0 < chosen["bandwidth"] <= request["bandwidth"] + NEAR:
        return f"it grants {chosen['bandwidth']:g} of {request['bandwidth']:g}"
    lasts = relaxed * request["bandwidth"] / chosen["bandwidth"]
    if not near(chosen["end"] - chosen["start"], lasts):
        return f"it lasts {chosen['end'] - chosen['start']:g}, and p' is {lasts:g}"
    during = [
        held for held in kept if held["end"] > chosen["start"] and held["start"] < chosen["end"]
    ]
    return overloaded(centre, [*during, chosen]) or ""


def fig_1_is_scaled(submission: Submission) -> None:
    request = {"at": 0, "vms": 6, "bandwidth": 1, "duration": 1, "deadline": 2}
    chosen = found_by(submission, FIG_1, [], request, 0)
    expected: Record = FIG_1_SHAPES[1][0]
    if chosen is None or any(not near(chosen[key], expected[key]) for key in KEYS):
        raise Wrong(f"for Fig. 1's request search() returned {chosen}", f"{expected}", LOOK)


DAYS = 2, 4
DAY_CENTRE: Record = {
    "racks": [{"link": 1.5, "servers": [{"link": 1.0, "slots": 4}] * 3} for _ in range(2)]
}
"""The data centre of the day, in Gbit/s."""
MOST_REQUESTS = 60


@cache
def day(seed: int) -> tuple[Record, ...]:
    """Requests of a day as DCloud's evaluation has them: five times as many by day as by night."""
    source = random.Random(seed)  # noqa: S311 - the same day every time
    requests: list[Record] = []
    at = 0.0
    while len(requests) < MOST_REQUESTS:
        at += source.expovariate(8.0 if at < 12 else 8.0 / 5)
        duration = round(max(0.3, source.expovariate(1.0)), 2)
        ratio = max(1.0, source.gauss(10, 4.5))
        requests.append({
            "at": round(at, 2), "vms": max(2, round(source.gauss(5, 2.25))),
            "bandwidth": round(max(0.1, source.gauss(0.6, 0.1)), 2),
            "duration": duration, "deadline": round(duration * ratio, 2),
        })  # fmt: skip
        if at >= 24:
            break
    return tuple(requests)


Decision = Callable[[list[Record], Record], Record | None]


def accepted(requests: tuple[Record, ...], decide: Decision) -> list[Record]:
    """The requests that are accepted.

    A job that moves data all the time ends after p b / b', before its reservation does. The rest
    of the reservation is then free.
    """
    kept: list[Record] = []
    ends: dict[int, float] = {}
    taken = []
    for request in requests:
        kept = [held for held in kept if ends[id(held)] > request["at"]]
        if (chosen := decide(kept, request)) is not None:
            scaled = request["duration"] * request["bandwidth"] / chosen["bandwidth"]
            ends[id(chosen)] = chosen["start"] + scaled
            kept.append(chosen)
            taken.append(request)
    return taken


def revenue(requests: list[Record], *, discounts: bool) -> float:
    """Dollars: (0.288 b + 0.085) n p g(d/p), with DCloud's g or without (Eq. 5)."""
    total = 0.0
    for request in requests:
        dollars_per_vm_hour = 0.288 * request["bandwidth"] + 0.085
        g = 1.0
        if discounts:
            g = math.log10(9 + request["duration"] / request["deadline"])
        total += dollars_per_vm_hour * request["vms"] * request["duration"] * g
    return total


def vc(kept: list[Record], request: Record) -> Record | None:
    """Virtual clusters: at once and with the full bandwidth, or not at all."""
    start, end = exact(request["at"]), exact(request["at"]) + exact(request["duration"])
    free = left_in(DAY_CENTRE, kept, start, end)
    placed = allotted(free, request["vms"], exact(request["bandwidth"]))
    if placed is None:
        return None
    return {"start": start, "end": end, "bandwidth": request["bandwidth"], "placed": placed}


@cache
def of_vc() -> tuple[int, float]:
    """Requests that VC accepts on all the days, and its revenue."""
    taken = [request for seed in DAYS for request in accepted(day(seed), vc)]
    return len(taken), revenue(taken, discounts=False)


def more_than_vc(submission: Submission) -> list[Margin]:
    def decide(kept: list[Record], request: Record) -> Record | None:
        chosen = found_by(submission, DAY_CENTRE, kept, request, GAMMA)
        if chosen is not None and (broken := unsound(DAY_CENTRE, kept, request, GAMMA, chosen)):
            seen = f"search() answers {request} with a reservation that is none: {broken}"
            raise Wrong(seen, f"a sound reservation beside {len(kept)} others", LOOK)
        return chosen

    taken = [request for seed in DAYS for request in accepted(day(seed), decide)]
    jobs, dollars = of_vc()
    gain, more = len(taken) / jobs, revenue(taken, discounts=True) / dollars
    for ratio, bound, noun in ((gain, 1.4, "as many jobs as VC"), (more, 1.7, "VC's revenue")):
        if ratio < bound:
            seen = f"over {len(DAYS)} days search() comes to {ratio:.2f} times {noun}"
            raise Wrong(seen, f"at least {bound:g} times", LOOK)
    return [
        Margin("jobs accepted over VC's", gain, 1.4, 2.0),
        Margin("revenue over VC's", more, 1.7, 2.6),
    ]


def least_of(
    centre: Record, kept: list[Record], request: Record
) -> tuple[Fraction, Fraction, list[int]] | None:
    """Start, bandwidth and placement that Algorithm 1 chooses at gamma = 0."""
    bandwidth, duration = exact(request["bandwidth"]), exact(request["duration"])
    best: tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction, list[int]]] | None = None
    for delay, scaled, lasts in points(bandwidth, duration, exact(request["deadline"])):
        start = exact(request["at"]) + delay
        end = start + lasts
        placed = allotted(left_in(centre, kept, start, end), request["vms"], scaled)
        if placed is None:
            continue
        tried = {"start": start, "end": end, "bandwidth": scaled, "placed": placed}
        old, new = (integral(centre, held, start, end) for held in (kept, [*kept, tried]))
        rise = new[0] - old[0], new[1] - old[1]
        if best is None or rise < best[0]:
            best = rise, (start, scaled, placed)
    return best and best[1]


def first_of_the_least(submission: Submission) -> None:
    def holds(example: tuple[Record, list[Record], Record]) -> None:
        call = typed("search", *example, 0)
        chosen = found_by(submission, *example, 0)
        expected = least_of(*example)
        if chosen is None or expected is None:
            if chosen or expected:
                words = "None" if expected is None else _words(*expected)
                raise Wrong(f"{call} returned {chosen}", words, LOOK)
            return
        start, bandwidth, placed = expected
        same = near(chosen["start"], float(start)) and near(chosen["bandwidth"], float(bandwidth))
        if not same or chosen["placed"] != placed:
            raise Wrong(f"{call} returned {chosen}", _words(*expected), LOOK)

    for_all(feasible(), holds, number=SEARCHES)


SEARCHES = 25


def _words(start: Fraction, bandwidth: Fraction, placed: list[int]) -> str:
    return f"start {float(start):g}, bandwidth {float(bandwidth):g}, placed {placed}"


# -- on the wire


LIVE: Record = json.loads(Path(__file__).with_name("start").joinpath("day.json").read_text("utf-8"))
"""The day that goes live, in s and Mbit/s: a data centre, and requests of which VC takes two."""
ON_THE_WIRE = "README.md, 'On the wire'"
LIMITS = {
    "at": (0, 20), "vms": (1, 16), "bandwidth": (0.1, 100), "granted": (0.1, 100),
    "duration": (0.1, 20), "deadline": (0.1, 40),
}  # fmt: skip
"""Least and most of each number of a job: a live day has to end."""
STARTS_WITHIN_S = 0.3


# ``testbed run`` refuses a file in which the first exceeds the second, in units
# of the file: ms and bit/s.
REFUSED_ABOVE = (("duration", "deadline", 1e3), ("granted", "bandwidth", 1e6))


def job_of(submission: Submission, request: Record, chosen: Record) -> dict[str, float]:
    """A student's job with its types and limits checked. Raises Wrong."""
    call = typed("as_job", request, chosen)
    job = submission.call(FILE, "as_job", request, chosen)
    if not isinstance(job, dict) or {*job} != {*LIMITS}:
        raise Wrong(f"{call} returned {shown(job)}", f"a dict of {', '.join(LIMITS)}", ON_THE_WIRE)
    for key, (lowest, highest) in LIMITS.items():
        value = number_of(job[key], f"{key} of {call}", ON_THE_WIRE)
        if not lowest <= value <= highest:
            raise Wrong(f"{key} of {call} is {value:g}", f"{lowest} to {highest}", ON_THE_WIRE)
    for least, most, unit in REFUSED_ABOVE:
        if round(job[least] * unit) > round(job[most] * unit):
            seen = f"{call} has {least} {job[least]:g} and {most} {job[most]:g}"
            raise Wrong(seen, f"{least} at most {most}", ON_THE_WIRE)
    return job


def as_experiment(jobs: list[dict[str, float]]) -> str:
    rows = [
        f"    - {{id: j{k}, vms: {round(job['vms'])}, at: {round(job['at'] * 1e3)} ms, "
        f"bandwidth: {round(job['bandwidth'] * 1e6)} bit/s, "
        f"granted: {round(job['granted'] * 1e6)} bit/s, "
        f"duration: {round(job['duration'] * 1e3)} ms, "
        f"deadline: {round(job['deadline'] * 1e3)} ms}}"
        for k, job in enumerate(jobs)
    ]
    return "\n".join([
        "name: day", "seed: 1",
        "topology: {kind: tree, fanout: [2, 2], links: 20 Mbit/s, slots_per_server: 4}",
        "policies: [scripted]", "workload:", "  kind: jobs", "  jobs:", *rows, "",
    ])  # fmt: skip


def the_day_is_kept(submission: Submission, _: object) -> list[Margin]:
    """The student's starts and bandwidths on the live network: every job as long as p b / b'."""
    kept: list[Record] = []
    for request in LIVE["requests"]:
        chosen = found_by(submission, LIVE["centre"], kept, request, GAMMA)
        broken = chosen and unsound(LIVE["centre"], kept, request, GAMMA, chosen)
        if chosen is None or broken:
            seen = f"of day.json's requests search() answers {request} with {chosen} {broken or ''}"
            raise Wrong(seen, "a sound reservation", ON_THE_WIRE)
        kept.append(chosen)
    jobs = [job_of(submission, *pair) for pair in zip(LIVE["requests"], kept, strict=True)]
    with played(as_experiment(jobs)) as (run,):
        lasted = list(_lasted(run, kept))
    return [
        Margin("the slowest job takes of p b / b'", max(lasted), 0.94, 1.06),
        Margin("the fastest job takes of p b / b'", min(lasted), 0.94, 1.06),
    ]


def _lasted(run: RecordedRun, kept: list[Record]) -> Iterator[float]:
    """Times of the jobs over p b / b'. Raises Wrong for a job that differs from its decision."""
    rows = {row.job_id: row for row in run.rows}
    for k, (request, chosen) in enumerate(zip(LIVE["requests"], kept, strict=True)):
        row, latest = rows[f"j{k}"], request["at"] + request["deadline"]
        if row.outcome != "finished" or row.start_s is None or row.end_s is None:
            why = f": {row.reason}" if row.reason else ""
            raise Wrong(f"job j{k} was {row.outcome}{why}", "a job that finishes", ON_THE_WIRE)
        if abs(row.start_s - chosen["start"]) > STARTS_WITHIN_S:
            expected = f"{chosen['start']:.2f} s, as search() chose"
            raise Wrong(f"job j{k} started at {row.start_s:.2f} s", expected, ON_THE_WIRE)
        if row.deadline_s is None or abs(row.submit_s + row.deadline_s - latest) > STARTS_WITHIN_S:
            seen = f"the deadline of job j{k} is {row.deadline_s} s after its start"
            raise Wrong(seen, f"the instant {latest:g} s", ON_THE_WIRE)
        scaled = request["duration"] * request["bandwidth"] / chosen["bandwidth"]
        took = row.end_s - row.start_s
        if not 0.9 <= took / scaled <= 1.1 or row.end_s > latest:
            seen = f"job j{k} took {took:.2f} s and ended at {row.end_s:.2f} s"
            expected = f"p b / b' = {scaled:.2f} s, by its deadline at {latest:g} s"
            raise Wrong(seen, expected, ON_THE_WIRE)
        yield took / scaled


CHECKS = (
    Check("relaxed() is min((1 + gamma) p, d)", "pure", relaxed_is_bounded),
    Check("grid() is Algorithm 1's", "pure", grid_is_algorithm_1, 2),
    Check("free() is what the worst instant leaves", "pure", free_is_the_worst_instant, 2),
    Check("dru_at() is Eq. 2 and 3", "pure", dru_of_an_instant),
    Check("Fig. 1 has the paper's DRU", "pure", fig_1_has_its_dru),
    Check("dru() integrates it over time", "pure", dru_is_the_integral),
    Check("Fig. 1's request gets half its bandwidth", "pure", fig_1_is_scaled),
    Check("search() accepts and earns more than VC", "pure", more_than_vc, 2),
    Check("search() takes the first of the least", "pure", first_of_the_least, 2),
    Check("the live day keeps what search() has decided", "wire", the_day_is_kept, 3),
)
