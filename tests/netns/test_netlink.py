"""Netlink and text are the same: what the kernel says afterwards, asked through other tools."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from operator import itemgetter
from typing import Any

import pytest

from jobs.linux import inside_network_namespace
from testbed.backends.emu.limiter_counters import CounterReader, Limiter
from testbed.backends.emu.netlink import DeviceEvents, RouteSocket
from testbed.backends.emu.traffic_control import (
    NETNS_DIR,
    Side,
    TrafficControl,
)
from testbed.errors import RunFailed
from testbed.plan.batch_lines import (
    IN_ORDER_BPS,
    Address,
    BatchLine,
    BatchSection,
    ByteFifo,
    HtbClass,
    HtbRoot,
    IpItem,
    LargestPacket,
    Neighbour,
    Netem,
    PrefixFilter,
    PrefixRoute,
    TcItem,
    batch_text,
)

# What tc before iproute2 6.15 drops of a bucket's time: less than a microsecond, then than a tick,
# where the rounding up adds less than one.
ROUNDED_DOWN_TICKS = 17
RATES_BPS = (
    64_000,
    1_000_001,
    5_000_000,
    33_333_333,
    100_000_000,
    950_000_000,
    40_000_000_000,
)


@dataclass(frozen=True)
class Bench:
    """A namespace with a veth pair ``eth0``-``peer``, both up, and a routing socket in it."""

    name: str
    vm: Side
    devices: dict[str, int]

    @property
    def control(self) -> TrafficControl:
        """The namespace in both roles: as the host's, by device name, and as a VM's."""
        return TrafficControl(
            [Side(self.vm.route, self.devices)], {self.name: self.vm}
        )

    def run(self, *command: str, text_in: str = "") -> str:
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, *command],
            input=text_in, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def asked(self, *command: str) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = json.loads(self.run(*command) or "[]")
        return [row for row in shown if row]

    def state(self) -> dict[str, Any]:
        """Disciplines and filters as tc shows them, classes raw, tick by tick, by pyroute2."""
        return {
            dev: self._state(dev, index)
            for dev, index in sorted(self.devices.items())
        }

    def _state(self, dev: str, index: int) -> tuple[list[Any], ...]:
        qdiscs = self.asked("tc", "-json", "qdisc", "show", "dev", dev)
        for qdisc in qdiscs:
            if qdisc["kind"] != "htb":
                qdisc["handle"] = ""  # the kernel's choice
            qdisc.get("options", {}).pop(
                "direct_packets_stat", None
            )  # a counter
        filters = self.asked(
            "tc", "-json", "filter", "show", "dev", dev, "parent", "1:"
        )
        return sorted(qdiscs, key=str), self.classes(index), filters

    def classes(self, index: int) -> list[tuple[tuple[int, int], str]]:
        """Each class's two buckets, in ticks, and the rest of it, in the classes' order."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pyroute2 import IPRoute

            with inside_network_namespace(NETNS_DIR / self.name):
                route = IPRoute()
            try:
                found = list(route.get_classes(index=index))
            finally:
                route.close()
        # netem's one class has nothing of its own.
        limits = [c for c in found if c.get_attr("TCA_KIND") == "htb"]
        return [
            _class_of(c) for c in sorted(limits, key=itemgetter("handle"))
        ]


def _class_of(found: Any) -> tuple[tuple[int, int], str]:
    parameters = dict(
        found.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")
    )
    buckets = parameters.pop("buffer"), parameters.pop("cbuffer")
    return buckets, str((found["handle"], found["parent"], parameters))


@pytest.fixture
def make_bench(prefix: str) -> Iterator[Callable[[str], Bench]]:
    made: list[Bench] = []

    def make(suffix: str) -> Bench:
        name = f"{prefix}-{suffix}"
        for command in (
            f"ip netns add {name}",
            f"ip netns exec {name} sysctl -qw net.ipv6.conf.default.disable_ipv6=1",
            f"ip -n {name} link add peer type veth peer name eth0",
            f"ip -n {name} link set peer up",
            f"ip -n {name} link set eth0 up",
        ):
            subprocess.run(command.split(), check=True, timeout=60)
        with inside_network_namespace(NETNS_DIR / name):
            devices = {
                dev: socket.if_nametoindex(dev) for dev in ("eth0", "peer")
            }
            bench = Bench(
                name,
                Side(RouteSocket(), {"eth0": devices["eth0"]}),
                devices,
            )
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.vm.route.close()
        subprocess.run(
            ["ip", "netns", "delete", bench.name], check=False, timeout=60
        )


@pytest.fixture
def rounds_up(make_bench: Callable[[str], Bench]) -> bool:
    """False where tc drops parts of a microsecond: 999 bytes, at this rate, then take no time."""
    bench = make_bench("probe")
    limit = "rate 8gbit burst 999 cburst 999"
    for command in (
        "tc qdisc add dev eth0 root handle 1: htb",
        f"tc class add dev eth0 parent 1: classid 1:1 htb {limit}",
    ):
        bench.run(*command.split())
    ((ticks, _), _) = bench.classes(bench.devices["eth0"])[0]
    assert ticks in (0, 16)
    return ticks == 16


def tree(
    dev: str, rate_bps: int, source: str = "10.0.20.0/22"
) -> tuple[TcItem, ...]:
    """A link's limit with a tenant on it: every kind of line there is."""
    return (
        HtbRoot(dev, 0xFFFE),
        HtbClass(dev, 0, 0xFFFF, rate_bps, rate_bps, 0.020),
        HtbClass(dev, 0xFFFF, 0xFFFE, 64_000, 64_000),
        ByteFifo(dev, 0xFFFE, 60_000),
        HtbClass(dev, 0xFFFF, 5, max(8, rate_bps // 3), rate_bps),
        ByteFifo(dev, 5, 150_001),
        PrefixFilter(dev, 5, IPv4Network(source), 5),
        HtbClass(
            dev,
            0xFFFF,
            0x3FFF,
            max(8, rate_bps // 7),
            rate_bps // 2,
            mpu_bytes=65_535,
        ),
        ByteFifo(dev, 0x3FFF, 1_000_000),
        PrefixFilter(dev, 0x3FFF, IPv4Network("10.255.252.0/22"), 0x3FFF),
    )


def adding(items: tuple[TcItem | IpItem, ...]) -> tuple[BatchLine, ...]:
    return tuple(BatchLine("add", item) for item in items)


def assert_same(netlink: Bench, text: Bench, *, rounds_up: bool) -> None:
    """As by tc here; one that rounds a bucket's time down makes it shorter by that and no more."""
    ours, theirs = netlink.state(), text.state()
    if rounds_up:
        assert ours == theirs
        return
    assert without_buckets(ours) == without_buckets(theirs)
    pairs = list(zip(buckets(ours), buckets(theirs), strict=True))
    assert all(
        0 <= our - their <= ROUNDED_DOWN_TICKS for our, their in pairs
    ), pairs


def buckets(state: dict[str, Any]) -> list[int]:
    return [
        ticks
        for _, classes, _ in state.values()
        for both, _ in classes
        for ticks in both
    ]


def without_buckets(state: dict[str, Any]) -> list[Any]:
    return [
        (device, qdiscs, [rest for _, rest in classes], filters)
        for device, (qdiscs, classes, filters) in state.items()
    ]


def by_text(bench: Bench, lines: tuple[BatchLine, ...]) -> None:
    bench.run(
        "tc",
        "-batch",
        "-",
        text_in="".join(f"{line.text()}\n" for line in lines),
    )


@pytest.mark.parametrize("rate_bps", RATES_BPS)
def test_adding_by_netlink_is_adding_by_tc(
    make_bench: Callable[[str], Bench], rounds_up: bool, rate_bps: int
) -> None:
    lines = adding(
        (*tree("eth0", rate_bps), *tree("peer", rate_bps // 2 + 8))
    )
    text, netlink = make_bench("text"), make_bench("nl")
    by_text(text, lines)
    netlink.control.apply([BatchSection(None, lines)])
    assert_same(netlink, text, rounds_up=rounds_up)
    state = netlink.state()
    assert len(state["eth0"][1]) == 4
    assert (
        len(state["eth0"][2]) == 6
    )  # for each filter its priority, its table and itself


@pytest.mark.parametrize("rate_bps", RATES_BPS)
def test_changing_by_netlink_is_changing_by_tc(
    make_bench: Callable[[str], Bench], rounds_up: bool, rate_bps: int
) -> None:
    before = (
        HtbRoot("eth0", 1),
        HtbClass("eth0", 0, 1, 10**7, 10**7),
        ByteFifo("eth0", 1, 5000),
    )
    after = (
        HtbClass("eth0", 0, 1, rate_bps, rate_bps + 8_000),
        ByteFifo("eth0", 1, 999_999),
    )
    changes = tuple(
        BatchLine("change", new, old)
        for old, new in zip(before[1:], after, strict=True)
    )
    text, netlink = make_bench("text"), make_bench("nl")
    for bench in (text, netlink):
        by_text(bench, adding(before))
    old_state = netlink.state()
    by_text(text, changes)
    netlink.control.apply([BatchSection(netlink.name, changes)])
    assert_same(netlink, text, rounds_up=rounds_up)
    assert netlink.state() != old_state


DELAY_LINES = {
    "delay": Netem("eth0", 1000, 20_000_000, 0, 0.0),
    "jitter": Netem("eth0", 517, 2_000_000, 750_000, 0.0),
    "loss": Netem("eth0", 10_000, 0, 0, 0.105),
    "little": Netem("eth0", 1, 1_000, 0, 0.0001),
    "much": Netem("eth0", 100_000, 10_000_000_000, 2_000_000_000, 0.99),
}


@pytest.mark.needs("netem")
@pytest.mark.parametrize("kind", DELAY_LINES)
def test_a_delay_line_by_netlink_is_that_by_tc(
    make_bench: Callable[[str], Bench], kind: str
) -> None:
    """And both are what ``tc -s qdisc`` reads back of the kernel, in figures."""
    asked = DELAY_LINES[kind]
    root = HtbRoot("eth0", 1, behind_netem=True)
    lines = adding((asked, root, HtbClass("eth0", 0, 1, 10**7, 10**7)))
    text, netlink = make_bench("text"), make_bench("nl")
    by_text(text, lines)
    netlink.control.apply([BatchSection(None, lines)])
    state = netlink.state()
    assert state["eth0"][0] == text.state()["eth0"][0]
    command = ("tc", "-s", "-json", "qdisc", "show", "dev", "eth0")
    for bench in (netlink, text):
        (line,) = [q for q in bench.asked(*command) if q["kind"] == "netem"]
        assert (line["root"], line["packets"], line["drops"]) == (
            True,
            0,
            0,
        )
        options = line["options"]
        assert options["limit"] == asked.limit_packets
        delay = options.get("delay", {"delay": 0, "jitter": 0})
        # tc shows whole microseconds; the kernel caps jitter at 2^31 ns.
        assert delay["delay"] == pytest.approx(
            asked.delay_ns / 1e9, abs=1.1e-6
        )
        assert delay["jitter"] == pytest.approx(
            asked.jitter_ns / 1e9, abs=1.1e-6
        )
        lost = options.get("loss-random", {"loss": 0})["loss"]
        # tc's text has six digits.
        assert lost == pytest.approx(asked.loss_share, rel=1e-4)
        rate = options.get("rate", {"rate": 0})["rate"]
        assert rate == (IN_ORDER_BPS // 8 if asked.jitter_ns else 0)


def test_removing_one_tenant_leaves_the_other(
    make_bench: Callable[[str], Bench],
) -> None:
    items = tree("eth0", 10**8)
    other = items[:4] + items[7:]
    bench, only_other = make_bench("both"), make_bench("one")
    by_text(bench, adding(items))
    by_text(only_other, adding(other))
    doomed = (items[6], items[4])
    bench.control.remove(
        [
            BatchSection(
                None, tuple(BatchLine("del", item) for item in doomed)
            )
        ]
    )
    handles = [
        f["options"]["fh"]
        for f in bench.state()["eth0"][2]
        if "options" in f
    ]
    # The numbers of filters' tables are the kernel's: the remaining filter keeps its own.
    assert handles == ["801:", "801::800"]
    assert bench.state()["eth0"][:2] == only_other.state()["eth0"][:2]


def test_removing_the_root_removes_everything(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    empty = bench.state()
    by_text(bench, adding(tree("eth0", 10**8)))
    root = BatchSection(
        bench.name, (BatchLine("del", HtbRoot("eth0", 0xFFFE)),)
    )
    bench.control.remove([root])
    assert bench.state() == empty
    bench.control.remove([root])  # gone already: no failure


def test_a_refused_line_is_named_and_nothing_stays(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    by_text(
        bench,
        adding((HtbRoot("eth0", 1), HtbClass("eth0", 0, 1, 10**7, 10**7))),
    )
    before = bench.state()
    lines = adding((
        *tree("peer", 10**8),
        HtbClass("eth0", 0, 7, 10**6, 10**6),
        HtbClass("eth0", 0, 1, 10**6, 10**6),  # there is one already
        HtbClass("eth0", 0, 8, 10**6, 10**6),
    ))  # fmt: skip
    with pytest.raises(
        RunFailed,
        match=r"tc refused 'class add dev eth0 parent 1: classid 1:1 ",
    ):
        bench.control.apply([BatchSection(None, lines)])
    assert bench.state() == before


def test_a_refused_change_puts_the_old_rates_back(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    items = tree("eth0", 10**8)
    bench.control.apply([BatchSection(None, adding(items))])
    before = bench.state()
    here, missing = items[4], HtbClass("eth0", 0xFFFF, 99, 10**6, 10**6)
    assert isinstance(here, HtbClass)
    faster = HtbClass("eth0", 0xFFFF, 5, here.rate_bps * 2, 10**8)
    changes = (
        BatchLine("change", faster, here),
        BatchLine("change", missing, missing),
    )
    with pytest.raises(RunFailed, match="classid 1:63"):
        bench.control.apply([BatchSection(None, changes)])
    assert bench.state() == before


def test_a_failure_in_one_namespace_undoes_the_others(
    make_bench: Callable[[str], Bench],
) -> None:
    first, second = make_bench("a"), make_bench("b")
    by_text(second, adding((HtbRoot("eth0", 9),)))
    empty, occupied = first.state(), second.state()
    lines = adding(
        (HtbRoot("eth0", 1), HtbClass("eth0", 0, 1, 10**7, 10**7))
    )
    vms = {bench.name: bench.vm for bench in (first, second)}
    control = TrafficControl([], vms)
    with pytest.raises(RunFailed, match=f"in {second.name}"):
        control.apply(
            [
                BatchSection(first.name, lines),
                BatchSection(second.name, lines),
            ]
        )
    assert (first.state(), second.state()) == (empty, occupied)


def test_thousands_of_requests_go_through_and_the_refused_one_is_found(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    classes = [
        HtbClass("eth0", 0, minor, 10**6, 10**6) for minor in range(1, 1501)
    ]
    lines = adding((HtbRoot("eth0", 1), *classes))
    bench.control.apply([BatchSection(None, lines)])
    assert len(bench.state()["eth0"][1]) == 1500
    more = adding(
        (
            *(
                HtbClass("eth0", 0, m, 10**6, 10**6)
                for m in range(2000, 3000)
            ),
            classes[3],
        )
    )
    with pytest.raises(RunFailed, match="classid 1:4 "):
        bench.control.apply([BatchSection(None, more)])
    assert len(bench.state()["eth0"][1]) == 1500


# ------------------------------------------------------------------------------------- counters


# Of a kilobyte: a fraction of them fills 15 kB of bucket and 30 kB of queue, and it takes 4 s to
# send them all at 1 Mbit/s. So some are dropped though their sender has to wait for a processor.
DATAGRAMS = 600


def test_counters_are_those_that_tc_shows(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    by_text(bench, adding((
        HtbRoot("eth0", 1), HtbClass("eth0", 0, 1, 10**6, 10**6), ByteFifo("eth0", 1, 30_000),
    )))  # fmt: skip
    bench.run("ip", "address", "add", "10.9.9.1/24", "dev", "eth0")
    neighbour = "ip neighbour add 10.9.9.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent"
    bench.run(*neighbour.split())
    with inside_network_namespace(NETNS_DIR / bench.name):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        for _ in range(DATAGRAMS):
            sender.sendto(bytes(1000), ("10.9.9.2", 9))
    limiters = [Limiter(bench.name, "eth0"), Limiter(bench.name, "eth0", 1)]
    # The second as on the switches' side, out of a dump of the namespace.
    alone = CounterReader([], {bench.name: bench.vm}, limiters[:1])
    dumped = CounterReader(
        [bench.vm], {}, [each._replace(netns=None) for each in limiters]
    )
    for _ in range(500):
        ours = [tuple(row)[1:] for row in dumped.read().tolist()]
        if not any(backlog for *_, backlog in ours):
            break
        time.sleep(0.02)
    shown = {
        q["kind"]: (q["bytes"], q["drops"], q["backlog"])
        for q in bench.asked(
            "tc", "-s", "-json", "qdisc", "show", "dev", "eth0"
        )
    }
    assert ours == [shown["htb"], shown["bfifo"]]
    (own,) = alone.read().tolist()
    assert tuple(own)[1:] == shown["htb"]
    sent, drops, _ = shown["htb"]
    assert sent > 15_000
    assert drops > 0
    assert bench.vm.unshaped() == {}


def test_what_finds_no_class_is_counted_as_unshaped(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    by_text(
        bench, adding((HtbRoot("eth0", 7),))
    )  # a default class that is not there
    bench.run("ip", "address", "add", "10.9.9.1/24", "dev", "eth0")
    neighbour = "ip neighbour add 10.9.9.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent"
    bench.run(*neighbour.split())
    with inside_network_namespace(NETNS_DIR / bench.name):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        sender.sendto(b"x", ("10.9.9.2", 9))
    assert bench.vm.unshaped()["eth0"] >= 1


# ---------------------------------------------------------------------------------------- hosts


WINDOW_SEGMENTS = 32


def host(
    netns: str, n_neighbours: int = 3
) -> tuple[BatchSection, BatchSection]:
    address = IPv4Interface("10.0.12.1/22")
    packet = BatchLine("change", LargestPacket(12_500))
    route = BatchLine("replace", PrefixRoute(address, WINDOW_SEGMENTS))
    neighbours = tuple(
        BatchLine(
            "replace",
            Neighbour(
                IPv4Address(f"10.0.12.{i + 2}"),
                f"02:48:4e:00:00:{i + 2:02x}",
            ),
        )
        for i in range(n_neighbours)
    )
    return (
        BatchSection(netns, (packet, *adding((Address(address),)))),
        BatchSection(netns, (route, *neighbours)),
    )


def host_removal(netns: str) -> list[BatchSection]:
    return [section.undo() for section in reversed(host(netns))]


def host_state(bench: Bench) -> tuple[Any, ...]:
    addresses = bench.asked(
        "ip", "-4", "-json", "address", "show", "dev", "eth0"
    )
    infos = [
        {key: info[key] for key in ("local", "prefixlen", "scope")}
        for row in addresses
        for info in row["addr_info"]
    ]
    (link,) = bench.asked(
        "ip", "-details", "-json", "link", "show", "dev", "eth0"
    )
    neighbours = bench.asked(
        "ip",
        "-json",
        "neighbour",
        "show",
        "dev",
        "eth0",
        "nud",
        "permanent",
    )
    routes = bench.asked("ip", "-json", "route", "show")
    return infos, link["gso_max_size"], sorted(neighbours, key=str), routes


def test_a_host_by_netlink_is_a_host_by_ip(
    make_bench: Callable[[str], Bench],
) -> None:
    text, netlink = make_bench("text"), make_bench("nl")
    text.run("ip", "-batch", "-", text_in=batch_text(host(text.name)))
    netlink.control.apply(host(netlink.name))
    infos, gso, neighbours, routes = host_state(netlink)
    assert (infos, gso, neighbours, routes) == host_state(text)
    assert infos == [
        {"local": "10.0.12.1", "prefixlen": 22, "scope": "global"}
    ]
    assert gso == 12_500
    assert [n["dst"] for n in neighbours] == [
        "10.0.12.2",
        "10.0.12.3",
        "10.0.12.4",
    ]
    assert [r["dst"] for r in routes] == ["10.0.12.0/22"]
    assert routes[0]["metrics"] == [
        {"initcwnd": WINDOW_SEGMENTS, "congestion": "cubic"}
    ]


def test_a_removed_host_leaves_nothing(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    bench.control.apply(host(bench.name))
    bench.control.remove(host_removal(bench.name))
    infos, _, neighbours, routes = host_state(bench)
    assert (infos, neighbours, routes) == ([], [], [])
    bench.control.remove(
        host_removal(bench.name)
    )  # gone already: no failure


def test_an_address_that_was_there_before_is_not_taken_away(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    bench.run("ip", "address", "add", "10.0.12.1/22", "dev", "eth0")
    with pytest.raises(
        RunFailed, match=r"'address add 10\.0\.12\.1/22 dev eth0' in"
    ):
        bench.control.apply(host(bench.name))
    infos, _, neighbours, _ = host_state(bench)
    assert [info["local"] for info in infos] == ["10.0.12.1"]
    assert neighbours == []


def test_a_neighbour_that_a_late_packet_has_left_is_replaced(
    make_bench: Callable[[str], Bench],
) -> None:
    bench, clean = make_bench("a"), make_bench("b")
    bench.run(
        *[
            "ip",
            "neighbour",
            "add",
            "10.0.12.3",
            "lladdr",
            "02:00:00:00:00:09",
            "dev",
            "eth0",
            "nud",
            "stale",
        ]
    )
    for each in (bench, clean):
        each.control.apply(host(each.name))
    assert host_state(bench) == host_state(clean)
    bench.control.remove(host_removal(bench.name))
    assert host_state(bench)[2] == []


def test_a_refused_address_is_named_and_no_host_is_left(
    make_bench: Callable[[str], Bench],
) -> None:
    first, second = make_bench("a"), make_bench("b")
    second.run("ip", "address", "add", "10.0.12.1/22", "dev", "eth0")
    vms = {bench.name: bench.vm for bench in (first, second)}
    control = TrafficControl([], vms)
    with pytest.raises(
        RunFailed,
        match=r"'address add 10\.0\.12\.1/22 .*' in " + second.name,
    ):
        control.apply((*host(first.name), *host(second.name)))
    infos, _, neighbours, routes = host_state(first)
    assert (infos, neighbours, routes) == ([], [], [])
    assert host_state(second)[2] == []


def test_a_new_rate_is_a_new_frame_size(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    change = BatchLine(
        "change", LargestPacket(12_500), LargestPacket(65_536)
    )
    bench.control.apply([BatchSection(bench.name, (change,))])
    assert host_state(bench)[1] == 12_500
    bench.control.apply([BatchSection(bench.name, (change,)).undo()])
    assert host_state(bench)[1] == 65_536


def test_a_thread_comes_back_from_a_namespace_even_after_an_error(
    make_bench: Callable[[str], Bench],
) -> None:
    bench = make_bench("a")
    home = sorted(name for _, name in socket.if_nameindex())
    seen: list[str] = []

    def fail_inside() -> None:
        with inside_network_namespace(NETNS_DIR / bench.name):
            seen.extend(sorted(name for _, name in socket.if_nameindex()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert seen == ["eth0", "lo", "peer"]
    assert sorted(name for _, name in socket.if_nameindex()) == home


# ---------------------------------------------------------------------------------- events


def test_whatever_happens_to_a_port_is_told(prefix: str) -> None:
    """A port in a namespace of its own, whose other end is in a second one."""
    near, far, own = f"{prefix}-near", f"{prefix}-far", f"{prefix}-p"

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, timeout=60)

    for name in (near, far):
        ip("netns", "add", name)
    try:
        ip(
            "link",
            "add",
            own,
            "netns",
            near,
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            far,
        )
        with inside_network_namespace(NETNS_DIR / near):
            events = DeviceEvents()
        with closing(events):
            for arguments in (
                ("-n", near, "link", "set", own, "up"),
                ("-n", far, "link", "set", "eth0", "up"),
                ("-n", near, "link", "set", own, "down"),
                ("-n", near, "link", "set", own, "up"),
                ("-n", far, "link", "set", "eth0", "down"),
                ("-n", far, "link", "delete", "eth0"),
            ):
                events.any()  # what is late of the one before
                ip(*arguments)
                assert select.select([events], [], [], 30)[0], arguments
                assert events.any(), arguments
    finally:
        for name in (near, far):
            ip("netns", "delete", name)
