"""Checks of lab 8: another root, policers and shapers, and failures on the live network."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from hypothesis import strategies as st

from jobs.python_child import python_command
from testbed.errors import DoesNotFit, RunFailed
from testbed.labs.checking import Check, Margin, Wrong, as_call, for_all, list_of, number_of, shown
from testbed.labs.submission import Submission
from testbed.standing.keeper_protocol import RestartSwitch, SetLink, ShowLinks, ask
from testbed.standing.network_state import LinkState, SwitchState
from testbed.standing.standing_network import StandingNetwork

FILE = "failures.py"
TRIED = 300
ROOT = "README.md, 'Another root'"
BURSTS = "README.md, 'Policers and shapers'"
EVENTS = "README.md, 'What lasts'"

# -- fat-trees

Roots = dict[str, dict[str, list[str]]]


def roots_of(k: int) -> Roots:
    """Links on the way up, by root and server, in a fat-tree of k-port switches."""
    half = k // 2

    def path(server: int, core: int) -> list[str]:
        edge = server // half
        aggregation = edge // half * half + core // half
        up = [f"server {server}", f"edge {edge}", f"aggregation {aggregation}", f"core {core}"]
        return [f"{low} - {high}" for low, high in pairwise(up)]

    servers = range(half * half * k)
    return {f"core {c}": {f"server {s}": path(s, c) for s in servers} for c in range(half * half)}


@dataclass(frozen=True)
class Moved:
    """A tenant whose tree has lost a link; every link has ``free`` but those of ``less``."""

    k: int
    tenant: dict[str, Any]
    lost: list[str]
    free: int
    less: dict[str, int]

    def __str__(self) -> str:
        but = f", but {self.less}" if self.less else ""
        where = f"in a fat-tree with k = {self.k} and {self.free} free on every link{but}"
        return f"{where}, other_root({self.tenant}, roots, {self.lost}, residual)"

    @property
    def residual(self) -> dict[str, int]:
        paths = [path for servers in roots_of(self.k).values() for path in servers.values()]
        return {link: self.less.get(link, self.free) for path in paths for link in path}


@st.composite
def moves(draw: st.DrawFn) -> Moved:
    k = draw(st.sampled_from([2, 4]))
    roots = roots_of(k)
    servers = list(roots["core 0"])
    chosen = draw(st.lists(st.sampled_from(servers), min_size=2, max_size=4, unique=True))
    counts = draw(st.lists(st.integers(1, 3), min_size=len(chosen), max_size=len(chosen)))
    tenant: dict[str, Any] = {
        "root": draw(st.sampled_from(list(roots))),
        "bandwidth": draw(st.integers(1, 3)),
        "vms": dict(zip(chosen, counts, strict=True)),
    }
    held = sorted(reserved(tenant, roots[tenant["root"]]))
    # Mostly links above edge switches, whose loss another root may avoid.
    above = [link for link in held if "server" not in link] or held
    links = sorted(Moved(k, tenant, [], 0, {}).residual)
    more = draw(st.lists(st.sampled_from(links), max_size=2))
    lost = [draw(st.sampled_from(above)), *more]
    free = draw(st.integers(0, 6))
    less = draw(st.dictionaries(st.sampled_from(links), st.integers(0, 4), max_size=6))
    return Moved(k, tenant, lost, free, less)


def reserved(tenant: dict[str, Any], paths: dict[str, list[str]]) -> dict[str, int]:
    """The hose's reservation on each link, from the pairs of VMs that talk through the link.

    With X of N VMs on one side there are P = X (N - X) pairs: min(X, N - X) is the smaller root of
    that quadratic equation.
    """
    vms = [server for server, count in tenant["vms"].items() for _ in range(count)]
    pairs: dict[str, int] = {}
    for i, a in enumerate(vms):
        for b in vms[:i]:
            for link in set(paths[a]) ^ set(paths[b]):
                pairs[link] = pairs.get(link, 0) + 1
    n = len(vms)
    return {
        link: (n - math.isqrt(n * n - 4 * p)) // 2 * tenant["bandwidth"]
        for link, p in pairs.items()
    }


def expected_root(
    tenant: dict[str, Any], roots: Roots, lost: Sequence[str], residual: dict[str, int]
) -> list[Any] | None:
    """[root, links left, links needed], with the tenant's present reservation given back."""
    held = reserved(tenant, roots[tenant["root"]])
    free = {link: bps + held.get(link, 0) for link, bps in residual.items()}
    for root, paths in roots.items():
        new = reserved(tenant, paths)
        if root == tenant["root"] or set(new) & set(lost):
            continue
        if all(free[link] >= bps for link, bps in new.items()):
            needed = {link: bps for link, bps in new.items() if link not in held}
            return [root, sorted(set(held) - set(new)), needed]
    return None


def _read_root(value: object, call: str) -> list[Any] | None:
    if value is None:
        return None
    parts = list_of(value, (str, list, dict), call, ROOT)
    if [type(part) for part in parts] != [str, list, dict]:
        raise Wrong(f"{call} returned {shown(value)}", "[root, [links], {link: bandwidth}]", ROOT)
    left = list_of(parts[1], str, call, ROOT)
    return [parts[0], sorted(left), parts[2]]


def it_moves_to_the_first_root(submission: Submission) -> None:
    def holds(move: Moved) -> None:
        roots, residual = roots_of(move.k), move.residual
        value = submission.call(FILE, "other_root", move.tenant, roots, move.lost, residual)
        got = _read_root(value, str(move))
        expected = expected_root(move.tenant, roots, move.lost, residual)
        if (got and got[0]) != (expected and expected[0]):
            seen = f"{move} returned {got and got[0]!r}"
            raise Wrong(seen, f"{expected and expected[0]!r}", ROOT)

    for_all(moves(), holds, number=TRIED)


def it_needs_what_the_old_tree_lacks(submission: Submission) -> None:
    def holds(move: Moved) -> None:
        roots, residual = roots_of(move.k), move.residual
        value = submission.call(FILE, "other_root", move.tenant, roots, move.lost, residual)
        got = _read_root(value, str(move))
        expected = expected_root(move.tenant, roots, move.lost, residual)
        if got and expected and got != expected:
            raise Wrong(f"{move} returned {got}", f"{expected}", ROOT)

    for_all(moves(), holds, number=TRIED)


# -- policers and shapers

Frames = list[list[int]]
GAPS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 1500)), min_size=1, max_size=12)
RATES = st.integers(1, 400)
HOLDS = st.integers(1, 6000)


def frames_of(gaps: list[tuple[int, int]]) -> Frames:
    """Frames from the times between them."""
    at, frames = 0, []
    for gap, size in gaps:
        at += gap
        frames.append([at, size])
    return frames


def conforming(frames: Frames, rate: int, bucket: int) -> list[bool]:
    """The frames that pass: a bucket as virtual scheduling has it (ITU-T I.371, GCRA)."""
    arrival = Fraction(0)
    passed = []
    for at, size in frames:
        after = max(Fraction(at), arrival) + Fraction(size, rate)
        passed.append(after - at <= Fraction(bucket, rate))
        if passed[-1]:
            arrival = after
    return passed


def departures(frames: Frames, rate: int, queue: int) -> list[Fraction | None]:
    """Times at which frames leave, None for dropped ones, by the bytes that wait."""
    waiting, last = 0, 0
    times: list[Fraction | None] = []
    for at, size in frames:
        waiting, last = max(0, waiting - rate * (at - last)), at
        if waiting + size > queue:
            times.append(None)
            continue
        waiting += size
        times.append(at + Fraction(waiting, rate))
    return times


def policers_drop(submission: Submission) -> None:
    def holds(example: tuple[list[tuple[int, int]], int, int]) -> None:
        frames, rate, bucket = frames_of(example[0]), example[1], example[2]
        call = as_call("policed", frames, rate, bucket)
        got = list_of(submission.call(FILE, "policed", frames, rate, bucket), bool, call, BURSTS)
        expected = conforming(frames, rate, bucket)
        if got != expected:
            raise Wrong(f"{call} returned {got}", f"{expected}", BURSTS)

    for_all(st.tuples(GAPS, RATES, HOLDS), holds, number=TRIED)


def shapers_delay(submission: Submission) -> None:
    def holds(example: tuple[list[tuple[int, int]], int, int]) -> None:
        frames, rate, queue = frames_of(example[0]), example[1], example[2]
        call = as_call("shaped", frames, rate, queue)
        kinds = (int, float, type(None))
        got = list_of(submission.call(FILE, "shaped", frames, rate, queue), kinds, call, BURSTS)
        expected = departures(frames, rate, queue)
        same = len(got) == len(expected) and all(
            (a is None) == (b is None) and (a is None or abs(a - float(b or 0)) < 1e-6)
            for a, b in zip(got, expected, strict=True)
        )
        if not same:
            listed = [None if time is None else round(float(time), 6) for time in expected]
            raise Wrong(f"{call} returned {got}", f"{listed}", BURSTS)

    for_all(st.tuples(GAPS, RATES, HOLDS), holds, number=TRIED)


PERIODS = 400


def long_run(burst: int, period: int, rate: int, bucket: int) -> tuple[float, float]:
    """Bytes per ms of policer and shaper, over the later half of many periods."""
    tokens, waiting, passed, sent = bucket, 0, 0, 0
    for number in range(PERIODS):
        counts = number >= PERIODS // 2
        taken = min(tokens, burst)
        tokens = min(bucket, tokens - taken + rate * period)
        # The queue is long enough: what overflows it would never be sent in a period.
        waiting = min(waiting + burst, burst + rate * period)
        leaving = min(waiting, rate * period)
        waiting -= leaving
        passed, sent = passed + counts * taken, sent + counts * leaving
    return passed / (PERIODS // 2 * period), sent / (PERIODS // 2 * period)


def _throughput(submission: Submission, *arguments: int) -> tuple[str, list[float]]:
    call = as_call("throughput", *arguments)
    value = submission.call(FILE, "throughput", *arguments)
    parts = list_of(value, (int, float), call, BURSTS)
    if len(parts) != 2:
        raise Wrong(f"{call} returned {shown(parts)}", "[policer, shaper]", BURSTS)
    return call, [number_of(part, call, BURSTS) for part in parts]


def the_long_run_is_a_formula(submission: Submission) -> None:
    def holds(example: tuple[int, int, int, int]) -> None:
        call, got = _throughput(submission, *example)
        expected = long_run(*example)
        for kind, a, b in zip(("policer", "shaper"), got, expected, strict=True):
            if abs(a - b) > 1e-6 * max(1.0, b):
                raise Wrong(f"{call} has {a:g} for the {kind}", f"{b:g}", BURSTS)

    sizes, times = st.integers(1, 5000), st.integers(1, 100)
    for_all(st.tuples(sizes, times, RATES, HOLDS), holds, number=TRIED)


EVENT_NAMES = (
    "controller killed",
    "link lost, room elsewhere",
    "link lost, no room elsewhere",
    "server's link lost",
    "switch restarted",
)


def predictions(submission: Submission) -> dict[str, dict[str, Any]]:
    """The student's prediction for every event. Raises Wrong where it is no prediction."""
    by_event = {}
    for event in EVENT_NAMES:
        value = submission.call(FILE, "what_lasts", event)
        good = isinstance(value, dict) and set(value) == {"traffic", "guarantee", "add"}
        if not good or not (
            isinstance(value["traffic"], bool)
            and isinstance(value["guarantee"], bool)
            and value["add"] in ("admitted", "refused")
        ):
            expected = '{"traffic": True or False, "guarantee": …, "add": "admitted" or "refused"}'
            raise Wrong(f"what_lasts({event!r}) returned {shown(value)}", expected, EVENTS)
        by_event[event] = value
    return by_event


def every_event_has_a_prediction(submission: Submission) -> None:
    predictions(submission)


# -- on the wire

MBPS = 10
BYTES_PER_MS = MBPS * 125
BUCKET = 15_000
FRAME_BYTES = 1500
HEAD_BYTES = 14 + 20 + 8
PORT = 5100
PERIOD_MS, BURSTS_SENT = 100, 20
PLACES = {"0": 1, "4": 1}
LONGEST_S = 120

# Bytes of frames that have arrived since the last line, ten times a second or at each frame.
RECEIVER = f"""
import select, socket, sys, time
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
heard.bind(("", {PORT}))
until = time.monotonic() + {LONGEST_S}
print("ready", flush=True)
while time.monotonic() < until:
    due, total = time.monotonic() + 0.1, 0
    while (left := due - time.monotonic()) > 0:
        if select.select([heard], [], [], left)[0]:
            total += len(heard.recv(65536)) + {HEAD_BYTES}
    print(time.monotonic(), total, flush=True)
"""
STEADY = f"""
import socket, sys, time
sent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent.connect((sys.argv[1], {PORT}))
until = time.monotonic() + {LONGEST_S}
while time.monotonic() < until:
    try:
        sent.send(bytes({FRAME_BYTES - HEAD_BYTES}))
    except OSError:
        time.sleep(0.01)
"""
BURSTY = f"""
import socket, sys, time
sent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent.connect((sys.argv[1], {PORT}))
frames = int(sys.argv[2])
start = time.monotonic()
for number in range({BURSTS_SENT}):
    time.sleep(max(0.0, start + number * {PERIOD_MS / 1000} - time.monotonic()))
    for _ in range(frames):
        try:
            sent.send(bytes({FRAME_BYTES - HEAD_BYTES}), socket.MSG_DONTWAIT)
        except OSError:
            break
"""


def _inside(vm: str, program: str, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    command = python_command("testbed.cli.main", "exec", vm, "--")
    argv = [*command, "/usr/bin/python3", "-c", program, *arguments]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **streams)


class Arrivals:
    """Bytes that arrive at a VM, ten times a second."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[tuple[float, int]]:
        """Ends of intervals of 0.1 s in monotonic seconds, and bytes of frames."""
        read = [line.split() for line in self._path.read_text().splitlines()[1:]]
        return [(float(parts[0]), int(parts[1])) for parts in read if len(parts) == 2]

    def rate(self, begin_s: float, end_s: float) -> float:
        """Mean of the intervals within, in Mbit/s."""
        within = [count for at, count in self.lines() if begin_s + 0.1 <= at <= end_s]
        if not within:
            raise RunFailed(f"{self._path.name}: the receiver has seen no time pass")
        return sum(within) * 8 / (len(within) * 0.1) / 1e6

    def wait(self, seconds: float, least_mbps: float) -> None:
        """Wait until an interval has this rate. Raises RunFailed after ``seconds``."""
        until = time.monotonic() + seconds
        while not (lines := self.lines()) or lines[-1][1] * 80 / 1e6 < least_mbps:
            if time.monotonic() > until:
                raise RunFailed(f"less than {least_mbps:g} Mbit/s arrive after {seconds:g} s")
            time.sleep(0.1)


@contextmanager
def tenant_a(network: StandingNetwork) -> Iterator[tuple[Arrivals, str, ExitStack]]:
    """Tenant a, a receiver in a.1, and its address; what is started in the block ends with it."""
    state = network.tenants.add("a", bandwidth=MBPS * 1_000_000, at=PLACES)
    children = ExitStack()
    try:
        with tempfile.TemporaryDirectory(prefix="hosenet-lab-") as name:
            path = Path(name) / "arrivals"
            with path.open("wb") as file:
                child = _inside("a.1", RECEIVER, stdout=file)
            children.callback(child.wait)
            until = time.monotonic() + 20
            while not path.read_bytes() and time.monotonic() < until:
                time.sleep(0.05)
            try:
                yield Arrivals(path), state.vms[1].ip, children
            finally:
                network.tenants.remove("a")  # ends what runs in its VMs
                children.close()
    except BaseException:
        if any(tenant.name == "a" for tenant in network.tenants.list()):
            network.tenants.remove("a")
        raise


SOURCES = {"a source of 60 kB every 100 ms": 40, "one of 198 kB every 100 ms": 132}


def bursts_get_what_a_shaper_gives(
    submission: Submission, network: StandingNetwork
) -> list[Margin]:
    margins = []
    with tenant_a(network) as (arrivals, target, _):
        for source, frames in SOURCES.items():
            burst = frames * FRAME_BYTES
            _, (_, shaper) = _throughput(submission, burst, PERIOD_MS, BYTES_PER_MS, BUCKET)
            before = len(arrivals.lines())
            if _inside("a.0", BURSTY, target, str(frames)).wait(60):
                raise RunFailed("the source in a.0 has failed")
            time.sleep(0.3)
            # Without the first and the last bursts, which intervals may cut.
            came = [count for _, count in arrivals.lines()[before:]]
            first = next((i for i, count in enumerate(came) if count), 0)
            steady = came[first + 3 : first + BURSTS_SENT - 2]
            if not steady:
                raise RunFailed("nothing of the source's frames has arrived")
            mbps = sum(steady) * 8 / (len(steady) * 0.1) / 1e6
            wanted = shaper / 125
            bounds = 0.92 * wanted, 1.08 * wanted
            margins.append(Margin(f"{source} gets", mbps, *bounds, "Mbit/s"))
    return margins


# -- failures


@dataclass
class Seen:
    """Effects of an event: a's rate 2 s after it, and the answer to another tenant at once."""

    mbps: float
    add: str
    predicted_root: list[Any] | None = None
    root: str | None = None
    links: dict[str, int] = field(default_factory=dict)

    @property
    def lasts(self) -> dict[str, Any]:
        traffic, guarantee = self.mbps > 0.1 * MBPS, self.mbps > 0.9 * MBPS
        return {"traffic": traffic, "guarantee": guarantee, "add": self.add}


LOOK_S = 2.0, 3.2
"""Begin and end, after an event, of the interval in which a's rate is measured."""
_last: dict[tuple[object, ...], dict[str, Seen]] = {}


def observed(
    submission: Submission, network: StandingNetwork, *, anew: bool = False
) -> dict[str, Seen]:
    """Effects of all events on a submission's network; only its first check plays them."""
    key = network.pid, submission.folder, submission.text(FILE)
    if anew or key not in _last:
        _last.clear()
        _last[key] = _observe(submission, network)
    return _last[key]


def _observe(submission: Submission, network: StandingNetwork) -> dict[str, Seen]:
    with tenant_a(network) as (arrivals, target, children):
        children.callback(_inside("a.0", STEADY, target).wait)
        arrivals.wait(20, 0.9 * MBPS)
        played = Played(submission, network, arrivals)
        return dict(zip(EVENT_NAMES, played.all(), strict=True))


class Played:
    """The events of the page's table, each done and undone while a's traffic runs."""

    def __init__(
        self, submission: Submission, network: StandingNetwork, arrivals: Arrivals
    ) -> None:
        self._submission, self._network, self._arrivals = submission, network, arrivals

    def all(self) -> Iterator[Seen]:
        apart, beside = {"1": 1, "5": 1}, {"0": 1, "5": 1}
        yield self._event(self._kill_controller, lambda: None, apart)
        yield self._lost_link(apart)
        with self._others({"g": {"1": 1, "3": 1}, "f": {"2": 1, "8": 1}}):
            yield self._lost_link(beside)
        server = ("server 0", "edge 0")
        yield self._event(lambda: _link(server, up=False), lambda: _link(server, up=True), beside)
        yield self._event(self._restart, lambda: None, apart)

    def _event(self, do: Callable[[], None], undo: Callable[[], None], at: dict[str, int]) -> Seen:
        do()
        begin = time.monotonic()
        try:
            add = self._asked_for_c(at)
            time.sleep(max(0.0, begin + LOOK_S[1] + 0.1 - time.monotonic()))
            mbps = self._arrivals.rate(begin + LOOK_S[0], begin + LOOK_S[1])
        finally:
            undo()
        self._arrivals.wait(10, 0.8 * MBPS)
        return Seen(mbps, add)

    def _lost_link(self, at: dict[str, int]) -> Seen:
        """The loss of the link from a.0's pod to the root of a's tree."""
        before = self._links()
        ends = next(link for link in before if link.startswith("aggregation 0 - core")).split(" - ")
        predicted = self._predicted(before, " - ".join(ends))
        after: dict[str, int] = {}

        def do() -> None:
            _link(ends, up=False)
            after.update(self._links())

        seen = self._event(do, lambda: _link(ends, up=True), at)
        seen.predicted_root, seen.links = predicted, after
        seen.root = _root(after) if _root(after) != ends[1] else None
        return seen

    def _links(self) -> dict[str, int]:
        """Links that a reserves bandwidth on, in Mbit/s."""
        links = self._network.tenants.show("a").links
        return {
            name.replace(" -> ", " - "): bps // 10**6 for name, bps in links if _is_upward(name)
        }

    def _predicted(self, held: dict[str, int], lost: str) -> list[Any] | None:
        links = [link for link in ask(ShowLinks(), tuple[LinkState, ...]) if link.capacity_bps]
        residual = {k.name: (k.capacity_bps - k.reserved_bps) // 10**6 for k in links}
        vms = {f"server {server}": count for server, count in PLACES.items()}
        tenant = {"root": _root(held), "bandwidth": MBPS, "vms": vms}
        roots = roots_of(4)
        value = self._submission.call(FILE, "other_root", tenant, roots, [lost], residual)
        return _read_root(value, "other_root(…)")

    def _asked_for_c(self, at: dict[str, int]) -> str:
        try:
            self._network.tenants.add("c", bandwidth=MBPS * 1_000_000, at=at)
        except DoesNotFit:
            return "refused"
        self._network.tenants.remove("c")
        return "admitted"

    @contextmanager
    def _others(self, tenants: dict[str, dict[str, int]]) -> Iterator[None]:
        """Tenants that leave no other root enough for a."""
        with ExitStack() as stack:
            for name, at in tenants.items():
                self._network.tenants.add(name, bandwidth=15_000_000, at=at)
                stack.callback(self._network.tenants.remove, name)
            yield

    def _kill_controller(self) -> None:
        """Kill the keeper's controller, which the keeper starts again."""
        children = psutil.Process(self._network.state.pid).children()
        pids = [child.pid for child in children if "controller.launch" in child.cmdline()]
        if len(pids) != 1:
            raise RunFailed(f"the keeper has {len(pids)} controllers")
        os.kill(pids[0], signal.SIGKILL)

    def _restart(self) -> None:
        ask(RestartSwitch("edge 0"), tuple[SwitchState, ...])


def _link(ends: Sequence[str], *, up: bool) -> None:
    ask(SetLink(tuple(ends), up), LinkState)


ORDER = ("server", "edge", "aggregation", "core")


def _is_upward(directed: str) -> bool:
    low, _, high = directed.partition(" -> ")
    return ORDER.index(low.split()[0]) < ORDER.index(high.split()[0])


def _root(links: dict[str, int]) -> str:
    return next(link.partition(" - ")[2] for link in links if " - core" in link)


def _as_predicted(submission: Submission, network: StandingNetwork, event: str) -> list[Margin]:
    effects = observed(submission, network, anew=event == EVENT_NAMES[0])
    seen, predicted = effects[event], predictions(submission)[event]
    if predicted != seen.lasts:
        wrong = [key for key in predicted if predicted[key] != seen.lasts[key]]
        listed = ", ".join(f"{key} {predicted[key]}" for key in wrong)
        was = ", ".join(f"{key} {seen.lasts[key]}" for key in wrong)
        rate = f"a had {seen.mbps:.1f} of its {MBPS} Mbit/s 2 s after it"
        raise Wrong(f"what_lasts({event!r}) predicts {listed}, and {rate}", f"{was}", EVENTS)
    whole = (0.95, 1.05) if predicted["guarantee"] else (-0.05, 0.05)
    return [Margin("a has of its guarantee 2 s after it", seen.mbps / MBPS, *whole)]


def _checked(event: str) -> Callable[[Submission, StandingNetwork], list[Margin]]:
    def check(submission: Submission, network: StandingNetwork) -> list[Margin]:
        return _as_predicted(submission, network, event)

    return check


def a_moves_where_predicted(submission: Submission, network: StandingNetwork) -> None:
    effects = observed(submission, network)
    for event in EVENT_NAMES[1:3]:
        seen = effects[event]
        root = seen.predicted_root[0] if seen.predicted_root else None
        if root != seen.root:
            raise Wrong(f"{event}: other_root() has {root!r} for a", f"{seen.root!r}", ROOT)
        if seen.predicted_root:
            needed = seen.predicted_root[2]
            booked = {link: seen.links.get(link) for link in needed}
            if needed != booked:
                raise Wrong(f"{event}: other_root() needs {needed}", f"{booked}", ROOT)


MOVES = "the tenant moves to the first root with room"
CHECKS = (
    Check(MOVES, "pure", it_moves_to_the_first_root, 2),
    Check(
        "it needs only what its old tree lacks",
        "pure", it_needs_what_the_old_tree_lacks, after=MOVES,
    ),
    Check("a policer drops what finds no tokens", "pure", policers_drop, 2),
    Check("a shaper delays", "pure", shapers_delay, 2),
    Check("bursts in the long run", "pure", the_long_run_is_a_formula, 2),
    Check("every event has a prediction", "pure", every_event_has_a_prediction, after=MOVES),
    Check("bursts get what throughput() predicts", "wire", bursts_get_what_a_shaper_gives, 2),
    Check("the controller is killed", "resilience", _checked(EVENT_NAMES[0])),
    Check("a link is lost, and another root has room", "resilience", _checked(EVENT_NAMES[1])),
    Check("a link is lost, and no other root has room", "resilience", _checked(EVENT_NAMES[2])),
    Check("a moves where other_root() says", "resilience", a_moves_where_predicted, 2),
    Check("a server's link is lost", "resilience", _checked(EVENT_NAMES[3])),
    Check("a part of the switch is restarted", "resilience", _checked(EVENT_NAMES[4])),
)  # fmt: skip
