"""Checks of lab 2: the hose's reservations, and lines of tc that enforce them.

Lines are read by a strict reader; the kernel gets nothing but what it has understood, written
anew, in network namespaces that this process alone has.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from testbed.errors import MachineCannot, RunFailed
from testbed.labs.checking import Check, Margin, Wrong, as_call, for_all, number_of, shown
from testbed.labs.submission import Submission

FILE = "hose.py"
MBIT = 1_000_000

# -- pure


def _paired(below: int, vms: int, bandwidth: int) -> int:
    """The reservation as the worst traffic: VMs below send to VMs above, one to one."""
    return sum(bandwidth for _ in zip(range(below), range(below, vms), strict=False))


def the_smaller_side_bounds(submission: Submission) -> None:
    look = "README.md, 'The hose'"

    def holds(example: tuple[int, int, int]) -> None:
        vms, below, bandwidth = example[0], min(example[1], example[0]), example[2]
        call = as_call("reservation", below, vms, bandwidth)
        got = number_of(submission.call(FILE, "reservation", below, vms, bandwidth), call, look)
        if got != (expected := _paired(below, vms, bandwidth)):
            raise Wrong(f"{call} returned {got:g}", f"{expected}", look)

    for_all(st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(1, 100)), holds)


Tree = tuple[dict[str, str], dict[str, int], int]


@st.composite
def _trees(draw: st.DrawFn) -> Tree:
    """Servers below racks below an optional layer of pods; VMs on some servers."""
    parents: dict[str, str] = {}
    places: dict[str, int] = {}
    pods = draw(st.integers(0, 2))
    for rack in range(draw(st.integers(1, 3))):
        parents[f"rack {rack}"] = f"pod {rack % pods}" if pods else "core"
        for _ in range(draw(st.integers(1, 3))):
            server = f"server {len(places)}"
            parents[server], places[server] = f"rack {rack}", draw(st.integers(0, 4))
    parents |= {f"pod {pod}": "core" for pod in range(pods)}
    used = {server: count for server, count in places.items() if count}
    return parents, used, draw(st.integers(1, 9))


def _on_way_up(parents: dict[str, str], server: str, node: str) -> bool:
    while server != node and server in parents:
        server = parents[server]
    return server == node


def every_link_between_vms_is_reserved(submission: Submission) -> None:
    look = "README.md, 'The hose'"

    def holds(example: Tree) -> None:
        parents, places, bandwidth = example
        vms = [server for server, count in places.items() for _ in range(count)]
        expected = {}
        for node in parents:
            below = sum(_on_way_up(parents, server, node) for server in vms)
            if need := _paired(below, len(vms), bandwidth):
                expected[node] = need
        got = submission.call(FILE, "reserved_links", parents, places, bandwidth)
        if got != expected:
            call = as_call("reserved_links", *example)
            raise Wrong(f"{call} returned {shown(got)}", shown(expected), look)

    for_all(_trees(), holds, number=200)


def caps_say_what_arrives(submission: Submission) -> None:
    look = "README.md, 'Senders alone'"

    def holds(example: tuple[int, int, bool]) -> None:
        vms, bandwidth, caps = example
        call = as_call("arrives", *example)
        got = number_of(submission.call(FILE, "arrives", *example), call, look)
        senders = [bandwidth] * (vms - 1)
        expected = sum(senders[:1] if caps else senders)
        if got != expected:
            raise Wrong(f"{call} returned {got:g}", f"{expected}", look)

    for_all(st.tuples(st.integers(1, 30), st.integers(1, 100), st.booleans()), holds)


# -- the reader of tc's lines


@dataclass(frozen=True)
class Item:
    """A line that was understood. ``where``: the call and the line, as the student finds it."""

    where: str
    device: str


@dataclass(frozen=True)
class Root(Item):
    default: int

    def line(self) -> str:
        return f"qdisc add dev {self.device} root handle 1: htb default {self.default:x}"


@dataclass(frozen=True)
class Class(Item):
    """A class ``1:minor`` below ``1:parent``, 0 the root; rates in bit/s, buckets in bytes."""

    parent: int
    minor: int
    values: dict[str, int]

    def line(self) -> str:
        parent = f"{self.parent:x}" if self.parent else ""
        units = {"rate": "bit", "ceil": "bit"}
        words = " ".join(f"{key} {value}{units.get(key, '')}" for key, value in self.values.items())
        return f"class add dev {self.device} parent 1:{parent} classid 1:{self.minor:x} htb {words}"


@dataclass(frozen=True)
class Queue(Item):
    parent: int
    limit_bytes: int

    def line(self) -> str:
        return (
            f"qdisc add dev {self.device} parent 1:{self.parent:x} bfifo limit {self.limit_bytes}"
        )


@dataclass(frozen=True)
class Filter(Item):
    preference: int
    source: IPv4Network
    minor: int

    def line(self) -> str:
        match = f"u32 match ip src {self.source} flowid 1:{self.minor:x}"
        return f"filter add dev {self.device} parent 1: protocol ip pref {self.preference} {match}"


LOOK_LINES = "README.md, 'Lines of tc'"
MOST_LINES, MOST_CHARACTERS = 40, 300
DEVICE, MINOR = r"(?P<device>[a-z0-9-]{1,15})", r"[0-9a-f]{1,4}"
FORMS = {
    "root": rf"qdisc add dev {DEVICE} root handle 1: htb default (?:0x)?(?P<minor>{MINOR})",
    "class": rf"class add dev {DEVICE} parent 1:(?P<parent>{MINOR})? classid 1:(?P<minor>{MINOR})"
    r" htb (?P<values>[a-z0-9 ]+)",
    "queue": rf"qdisc add dev {DEVICE} parent 1:(?P<parent>{MINOR})"
    r" bfifo limit (?P<size>[a-z0-9]+)",
    "filter": rf"filter add dev {DEVICE} parent 1: protocol ip pref (?P<pref>\d{{1,4}})"
    rf" u32 match ip src (?P<source>[0-9./]{{1,18}}) flowid 1:(?P<minor>{MINOR})",
}
RATES = {"bit": 1, "kbit": 1_000, "mbit": MBIT, "gbit": 1_000 * MBIT}
SIZES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20}
NEEDED, ALLOWED = ("rate", "ceil", "burst", "cburst"), ("quantum",)


def read(submission: Submission, function: str, *arguments: Any) -> list[Item]:
    """The lines that a function returns, each understood. Raises Wrong, CodeFailed."""
    call, device = as_call(function, *arguments), arguments[0]
    if function == "send_cap":
        device = "eth0"
    text = submission.call(FILE, function, *arguments)
    if not isinstance(text, str):
        raise Wrong(f"{call} returned {shown(text)}", "a text with lines for tc", LOOK_LINES)
    lines = [(n, line.split()) for n, line in enumerate(text.split("\n"), 1)]
    lines = [(n, words) for n, words in lines if words and not words[0].startswith("#")]
    if not 1 <= len(lines) <= MOST_LINES:
        raise Wrong(f"{call} returned {len(lines)} lines", f"1 to {MOST_LINES}", LOOK_LINES)
    items = [_item(f"line {n} of {call}", " ".join(words)) for n, words in lines]
    for item in items:
        if item.device != device:
            raise Wrong(f"{item.where} is for {item.device}", f"the device {device}", LOOK_LINES)
    return items


def _item(where: str, line: str) -> Item:
    if len(line) > MOST_CHARACTERS:
        raise Wrong(f"{where} has {len(line)} characters", f"at most {MOST_CHARACTERS}", LOOK_LINES)
    found = ((form, re.fullmatch(pattern, line, re.ASCII)) for form, pattern in FORMS.items())
    form, match = next(((form, match) for form, match in found if match), ("", None))
    if match is None:
        raise Wrong(f"{where} is {line!r}", "one of the four forms of the page", LOOK_LINES)
    device = match["device"]
    if form == "queue":
        return Queue(where, device, int(match["parent"], 16), _size(where, match["size"]))
    minor = int(match["minor"], 16)
    if form == "root":
        return Root(where, device, minor)
    if form == "class":
        values = _values(where, match["values"])
        return Class(where, device, int(match["parent"] or "0", 16), minor, values)
    return Filter(
        where, device, _preference(where, match["pref"]), _prefix(where, match["source"]), minor
    )


def _values(where: str, text: str) -> dict[str, int]:
    words = text.split()
    keys, values = words[::2], words[1::2]
    for key in keys:
        if key not in NEEDED + ALLOWED or keys.count(key) > 1:
            raise Wrong(f"{where} has {key!r}", f"{', '.join(NEEDED)} once each", LOOK_LINES)
    if len(keys) != len(values):
        raise Wrong(f"{where} has no value of {keys[-1]!r}", "one for each", LOOK_LINES)
    if missing := [key for key in NEEDED if key not in keys]:
        raise Wrong(
            f"{where} has no {missing[0]}", f"{', '.join(NEEDED)} in every class", LOOK_LINES
        )
    pairs = zip(keys, values, strict=True)
    return {k: _rate(where, v) if k in ("rate", "ceil") else _size(where, v) for k, v in pairs}


def _rate(where: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,11})([a-z]+)", text, re.ASCII)
    if match is None or match[2] not in RATES or not 8 <= int(match[1]) * RATES[match[2]] < 10**11:
        raise Wrong(f"{where} has the rate {text!r}", "a number with bit, kbit, mbit", LOOK_LINES)
    return int(match[1]) * RATES[match[2]]


def _size(where: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,9})([a-z]*)", text, re.ASCII)
    if match is None or match[2] not in SIZES or not 1 <= int(match[1]) * SIZES[match[2]] < 1 << 30:
        raise Wrong(f"{where} has the size {text!r}", "a number of bytes", LOOK_LINES)
    return int(match[1]) * SIZES[match[2]]


def _preference(where: str, text: str) -> int:
    if not int(text):
        raise Wrong(f"{where} has the preference 0", "1 or more", LOOK_LINES)
    return int(text)


def _prefix(where: str, text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError:
        raise Wrong(
            f"{where} has the source {text}", "a prefix, as 10.0.1.0/24", LOOK_LINES
        ) from None


# -- text: what the lines make together


LOOK_TREE = "README.md, 'Classes, queues, filters'"
RATE = st.integers(1, 100).map(lambda mbit: mbit * MBIT)
NUMBER = st.integers(1, 999)
A, B = "10.0.1.0/24", "10.0.2.0/24"


def _linked(submission: Submission, number: int, rate: int) -> list[Item]:
    """A link of 100 Mbit/s with two tenants on it."""
    return [
        *read(submission, "link", "trunk", 100 * MBIT),
        *read(submission, "tenant_class", "trunk", number, A, rate),
        *read(submission, "tenant_class", "trunk", _other(number), B, rate),
    ]


def _other(number: int) -> int:
    return number % 999 + 1


def every_line_is_understood(submission: Submission) -> None:
    def holds(example: tuple[int, int]) -> None:
        number, rate = example
        read(submission, "send_cap", rate)
        read(submission, "receive_cap", f"a{number}", rate)
        _linked(submission, number, rate)

    for_all(st.tuples(NUMBER, RATE), holds, number=40)


def the_lines_hang_together(submission: Submission) -> None:
    def holds(example: tuple[int, int]) -> None:
        number, rate = example
        _hang_together(read(submission, "send_cap", rate))
        _hang_together(read(submission, "receive_cap", "a0", rate))
        _hang_together(read(submission, "link", "trunk", rate))
        _hang_together(_linked(submission, number, rate))

    for_all(st.tuples(NUMBER, RATE), holds, number=40)


def _hang_together(items: Sequence[Item]) -> None:
    """A root first, parents before children, a queue for each leaf, a default class that is one."""
    root, classes, queues = items[0], dict[int, Class](), dict[int, Queue]()
    if not isinstance(root, Root):
        raise Wrong(f"{root.where} comes first", "the line with `root` before it", LOOK_TREE)
    for item in items[1:]:
        if isinstance(item, Root):
            raise Wrong(f"{item.where} is a second root", "one root a device", LOOK_TREE)
        if isinstance(item, Class):
            if item.minor in classes or not item.minor:
                raise Wrong(
                    f"{item.where} makes 1:{item.minor:x} again", "another number", LOOK_TREE
                )
            if item.parent and item.parent not in classes:
                seen = (
                    f"{item.where} has the parent 1:{item.parent:x}, which no line before it makes"
                )
                raise Wrong(seen, "1: or a class that is there", LOOK_TREE)
            classes[item.minor] = item
        elif isinstance(item, Queue):
            if item.parent not in classes or item.parent in queues:
                seen = f"{item.where} is a queue of 1:{item.parent:x}"
                raise Wrong(seen, "a class that is there, and one queue each", LOOK_TREE)
            queues[item.parent] = item
    _leaves(root, items, classes, queues)


def _leaves(
    root: Root, items: Sequence[Item], classes: dict[int, Class], queues: dict[int, Queue]
) -> None:
    leaves = classes.keys() - {each.parent for each in classes.values()}
    if root.default not in leaves:
        seen = (
            f"{root.where} has the default class 1:{root.default:x}, which is no class with a queue"
        )
        raise Wrong(seen, "one: packets without a class pass unshaped", LOOK_TREE)
    for minor, each in classes.items():
        if minor in leaves and minor not in queues:
            raise Wrong(
                f"{each.where} makes 1:{minor:x}, and no line its queue", "a bfifo", LOOK_TREE
            )
        if minor not in leaves and minor in queues:
            raise Wrong(f"{queues[minor].where} is below a class with classes", "a leaf", LOOK_TREE)
    for item in items:
        if isinstance(item, Filter) and item.minor not in leaves:
            raise Wrong(
                f"{item.where} sends to 1:{item.minor:x}", "a class with a queue", LOOK_TREE
            )


LOOK_RATES = "README.md, 'Rates'"


def rates_are_those_asked_for(submission: Submission) -> None:
    def holds(example: tuple[int, int]) -> None:
        number, rate = example
        for items in (
            read(submission, "send_cap", rate),
            read(submission, "receive_cap", "a0", rate),
        ):
            _hang_together(items)
            _rated(items, next(x.default for x in items if isinstance(x, Root)), rate)
        items = read(submission, "link", "trunk", rate)
        if not any(isinstance(x, Class) and _ends(x) == (rate, rate) for x in items):
            seen = f"link('trunk', {rate}) makes no class with rate and ceil {rate}"
            raise Wrong(seen, "the link's class", LOOK_RATES)
        linked = _linked(submission, number, rate)
        _hang_together(linked)
        for tenant, prefix in ((number, A), (_other(number), B)):
            items = read(submission, "tenant_class", "trunk", tenant, prefix, rate)
            _rated(linked, _class_of(items, prefix), rate)

    for_all(st.tuples(NUMBER, RATE), holds, number=40)


def _ends(of: Class) -> tuple[int, int]:
    return of.values["rate"], of.values["ceil"]


def _rated(items: Sequence[Item], minor: int, rate: int) -> None:
    found = next(x for x in items if isinstance(x, Class) and x.minor == minor)
    if _ends(found) != (rate, rate):
        seen = f"{found.where} has rate and ceil {found.values['rate']} and {found.values['ceil']}"
        raise Wrong(seen, f"{rate} bit/s both", LOOK_RATES)


def _class_of(items: Sequence[Item], prefix: str) -> int:
    """The class to which a tenant's packets go: its own filter's. Raises Wrong."""
    filters = [item for item in items if isinstance(item, Filter)]
    if len(filters) != 1 or filters[0].source != IPv4Network(prefix):
        seen = f"{items[0].where} and the lines after it have {len(filters)} filters"
        if filters:
            seen = f"{filters[0].where} matches {filters[0].source}"
        raise Wrong(seen, f"one filter, of the source {prefix}", LOOK_RATES)
    return filters[0].minor


FRAME_BYTES = 1514
LOOK_BYTES = "README.md, 'Buckets and queues in bytes'"


def buckets_and_queues_fit_packets(submission: Submission) -> None:
    def holds(example: tuple[int, int]) -> None:
        number, rate = example
        for items in (
            read(submission, "send_cap", rate),
            read(submission, "receive_cap", "a0", rate),
            _linked(submission, number, rate),
        ):
            _hang_together(items)
            ceil_bps = {}
            for item in items:
                if isinstance(item, Class):
                    ceil_bps[item.minor] = item.values["ceil"]
                    _within(item, "burst", "rate")
                    _within(item, "cburst", "ceil")
                if isinstance(item, Queue):
                    _queue_within(item, ceil_bps[item.parent])

    for_all(st.tuples(NUMBER, RATE), holds, number=40)


def _bytes_in(rate_bps: int, milliseconds: int) -> int:
    return rate_bps * milliseconds // 8000


def _within(of: Class, bucket: str, rate: str) -> None:
    got, bps = of.values[bucket], of.values[rate]
    least, most = max(2 * FRAME_BYTES, _bytes_in(bps, 10)), max(15_000, _bytes_in(bps, 60))
    if not least <= got <= most:
        seen = f"{of.where} has {bucket} {got} at {rate} {bps}"
        raise Wrong(seen, f"{least} to {most} bytes", LOOK_BYTES)


def _queue_within(queue: Queue, ceil_bps: int) -> None:
    least = max(60_000, _bytes_in(ceil_bps, 20))
    most = max(150_000, _bytes_in(ceil_bps, 100))
    if not least <= queue.limit_bytes <= most:
        seen = f"{queue.where} holds {queue.limit_bytes} bytes below a ceil of {ceil_bps}"
        raise Wrong(seen, f"{least} to {most} bytes", LOOK_BYTES)


# -- on the wire


PROGRAM = Path(__file__).parent / "start" / "network.py"
PATIENCE_S = 40


@dataclass(frozen=True)
class OwnNetwork:
    """The lab's network in namespaces that end with this process; ``pid`` is inside of them."""

    pid: int

    def run(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--"]
        return subprocess.run(
            [*inside, *command], input=text, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def limit(self, name: str, items: Sequence[Item]) -> None:
        """Applies lines that were understood, as the reader writes them. Raises Wrong."""
        text = "".join(f"{item.line()}\n" for item in items)  # type: ignore[attr-defined]
        done = self.run("tc", "-n", f"lab2-{name}", "-batch", "-", text=text)
        if done.returncode != 0:
            seen = f"tc refuses {items[0].where} or a line after it: {done.stderr.strip()[:200]}"
            raise Wrong(seen, "lines that the kernel takes", LOOK_TREE)

    def measure(self, *flows: str) -> list[float]:
        """Mbit/s of frames that arrived of each flow."""
        done = self.run(sys.executable, "-I", "-S", str(PROGRAM), "measure", "--json", *flows)
        if done.returncode != 0:
            raise RunFailed(f"the measurement failed: {done.stderr.strip()[-300:]}")
        rates: list[float] = json.loads(done.stdout)
        return rates


@contextmanager
def own_network() -> Iterator[OwnNetwork]:
    """Makes the network, out of anybody's reach; it is gone at the end, or with this process."""
    make = (
        "mount -t tmpfs tmpfs /run && mkdir /run/netns && read pid rest < /proc/self/stat"
        ' && "$0" -I -S "$1" up > /dev/null && echo "$pid" && read end'
    )
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", make]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*command, sys.executable, str(PROGRAM)], text=True, **pipes) as child:
        assert child.stdout is not None  # noqa: S101
        assert child.stderr is not None  # noqa: S101
        try:
            line = child.stdout.readline().strip()
            if not line.isdigit():
                why = f"the lab's network cannot be made: {child.stderr.read().strip()[-300:]}"
                raise MachineCannot(why, "testbed doctor")
            yield OwnNetwork(int(line))
        finally:
            child.kill()


TENANT_VMS = ("a0", "a1", "a2", "a3", "a4")
SENDERS = ("a1", "a2", "a3", "a4")
BANDWIDTH, CAPACITY = 10 * MBIT, 40 * MBIT


def _sent_to_a0(submission: Submission, *, receive_caps: bool) -> list[float]:
    """Mbit/s at a0 of each of the others; its own cable is limited or not."""
    with own_network() as network:
        for vm in TENANT_VMS:
            network.limit(vm, read(submission, "send_cap", BANDWIDTH))
        if receive_caps:
            network.limit("rack0", read(submission, "receive_cap", "a0", BANDWIDTH))
        return network.measure(*(f"{sender}-a0" for sender in SENDERS))


def _arrival(submission: Submission, rates: list[float], *, receive_caps: bool) -> Margin:
    """Mbit/s at a0 in all, around the student's own prediction."""
    arguments = len(TENANT_VMS), BANDWIDTH, receive_caps
    call, look = as_call("arrives", *arguments), "README.md, 'Senders alone'"
    predicted = number_of(submission.call(FILE, "arrives", *arguments), call, look) / MBIT
    return Margin("at a0 arrive", sum(rates), 0.9 * predicted, 1.1 * predicted, "Mbit/s")


def send_caps_alone_flood_a_receiver(submission: Submission, _: object) -> list[Margin]:
    rates = _sent_to_a0(submission, receive_caps=False)
    mbps = BANDWIDTH / MBIT
    slowest = Margin("the slowest sender", min(rates), 0.9 * mbps, 1.1 * mbps, "Mbit/s")
    fastest = Margin("the fastest", max(rates), 0.9 * mbps, 1.1 * mbps, "Mbit/s")
    return [slowest, fastest, _arrival(submission, rates, receive_caps=False)]


def receive_caps_hold_the_hose(submission: Submission, _: object) -> list[Margin]:
    return [_arrival(submission, _sent_to_a0(submission, receive_caps=True), receive_caps=True)]


def a_tenant_keeps_its_class(submission: Submission, _: object) -> list[Margin]:
    call = as_call("reservation", 4, 5, BANDWIDTH)
    found = submission.call(FILE, "reservation", 4, 5, BANDWIDTH)
    reserved = round(number_of(found, call, "README.md, 'The hose'"))
    with own_network() as network:
        network.limit("a1", read(submission, "send_cap", BANDWIDTH))
        items = read(submission, "link", "trunk", CAPACITY)
        items += read(submission, "tenant_class", "trunk", 27, A, reserved)
        _hang_together(items)
        network.limit("rack0", items)
        kept, rest = network.measure("a1-a4", "b0-b1@80")
    predicted, all_bps = reserved / MBIT, CAPACITY / MBIT
    return [
        Margin("the tenant has", kept, 0.9 * predicted, 1.1 * predicted, "Mbit/s"),
        Margin("the link carries", kept + rest, 0.9 * all_bps, 1.1 * all_bps, "Mbit/s"),
    ]


CHECKS = (
    Check("a link needs min(X, N-X) B", "pure", the_smaller_side_bounds),
    Check("every link between a tenant's VMs is reserved, and no other", "pure",
          every_link_between_vms_is_reserved),
    Check("what arrives with and without receive caps", "pure", caps_say_what_arrives),
    Check("every line is one of the four, for its device", "text", every_line_is_understood),
    Check("classes, queues and filters hang together", "text", the_lines_hang_together, 2),
    Check("rates are those asked for, of the tenant's prefix", "text", rates_are_those_asked_for),
    Check("buckets and queues fit packets", "text", buckets_and_queues_fit_packets),
    Check("with send caps alone a receiver is flooded", "wire", send_caps_alone_flood_a_receiver),
    Check("with receive caps each hose holds", "wire", receive_caps_hold_the_hose, 2),
    Check("a tenant keeps its class beside a greedy one", "wire", a_tenant_keeps_its_class, 2),
)  # fmt: skip
