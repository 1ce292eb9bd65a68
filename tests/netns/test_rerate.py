"""A VM's cap: no more bytes than its rates allow, however often they change, nor more packets."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface

import pytest

from jobs.linux import inside_network_namespace
from testbed.backends.emu.netlink import RouteSocket
from testbed.backends.emu.traffic_control import (
    NETNS_DIR,
    Side,
    TrafficControl,
)
from testbed.embedding.placement import Placement
from testbed.plan.batch_lines import (
    BURST_S,
    Address,
    BatchLine,
    BatchSection,
    ByteFifo,
    HtbClass,
    HtbRoot,
    Neighbour,
)
from testbed.plan.limits import packets_per_s, tenant_limits
from testbed.plan.network_plan import network_plan, tenant_plan
from topologies.tree import tree

RATES_BPS = (40_000_000, 8_000_000, 20_000_000, 2_000_000)
CHANGES = 16
PACKET_BYTES = 1442
FLOOD = f"""
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    out.sendto(bytes({PACKET_BYTES} - 42), (sys.argv[1], 9))
"""


@pytest.fixture
def vm(prefix: str) -> Iterator[tuple[str, Side]]:
    name = f"{prefix}-a"
    for command in (
        f"ip netns add {name}",
        f"ip netns exec {name} sysctl -qw net.ipv6.conf.default.disable_ipv6=1",
        f"ip -n {name} link add peer type veth peer name eth0",
        f"ip -n {name} link set peer up",
        f"ip -n {name} link set eth0 up",
    ):
        subprocess.run(command.split(), check=True, timeout=60)
    with inside_network_namespace(NETNS_DIR / name):
        made = Side(RouteSocket(), {"eth0": socket.if_nametoindex("eth0")})
    yield name, made
    made.route.close()
    subprocess.run(["ip", "netns", "delete", name], check=True, timeout=60)


def cap(rate_bps: int) -> HtbClass:
    return HtbClass("eth0", 0, 1, rate_bps, rate_bps)


def sent_bytes(name: str) -> int:
    """By the device's own counter, which no change of limits sets back."""
    command = [
        "ip",
        "-n",
        name,
        "-statistics",
        "-json",
        "link",
        "show",
        "eth0",
    ]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    return int(json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"])


def test_a_flood_gets_no_more_than_its_rates_allow(
    vm: tuple[str, Side],
) -> None:
    name, side = vm
    control = TrafficControl([], {name: side})
    rate_bps = RATES_BPS[-1]
    there = Neighbour(IPv4Address("10.0.4.2"), "02:48:4e:00:00:02")
    address = Address(IPv4Interface("10.0.4.1/22"))
    limits = (
        HtbRoot("eth0", 1),
        cap(rate_bps),
        ByteFifo("eth0", 1, 150_000),
    )
    items = (*limits, address, there)
    control.apply(
        [
            BatchSection(
                name, tuple(BatchLine("add", item) for item in items)
            )
        ]
    )
    began = time.monotonic()
    before = sent_bytes(name)
    allowed = 0.0
    command = [
        "ip",
        "netns",
        "exec",
        name,
        sys.executable,
        "-c",
        FLOOD,
        str(there.ip),
    ]
    with subprocess.Popen(command) as flood:
        while sent_bytes(name) == before:
            assert flood.poll() is None
        for i in range(CHANGES):
            time.sleep(0.03)
            new_bps = RATES_BPS[i % len(RATES_BPS)]
            change = BatchLine("change", cap(new_bps), cap(rate_bps))
            now = time.monotonic()
            control.apply([BatchSection(name, (change,))])
            # Until the change is done either rate may be in force.
            done = time.monotonic()
            allowed += (now - began) * rate_bps / 8 + (done - now) * max(
                rate_bps, new_bps
            ) / 8
            began, rate_bps = done, new_bps
        time.sleep(0.05)
        sent = sent_bytes(name) - before
        allowed += (time.monotonic() - began) * rate_bps / 8
        flood.kill()
    largest_bucket = max(cap(rate).burst_bytes for rate in RATES_BPS)
    assert sent > 50_000  # it was a flood
    assert sent <= allowed + largest_bucket + 2 * PACKET_BYTES


# Datagrams of the size given until ended; with a segment size as one packet of offload each.
SENDER = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n_bytes, segment_bytes = int(sys.argv[2]), int(sys.argv[3])
if segment_bytes:
    out.setsockopt(socket.IPPROTO_UDP, 103, segment_bytes)  # UDP_SEGMENT
while True:
    out.sendto(bytes(n_bytes), (sys.argv[1], 9))
"""
UPLINK_BPS = 500_000_000


def send_cap(netns: str, rate_bps: int) -> BatchSection:
    """The lines of a VM's own cap, as planned for a VM below an uplink of 500 Mbit/s."""
    centre = tree([2], [UPLINK_BPS], 1)
    network = network_plan(centre)
    placement = Placement(centre.trees[0].root, ((0, 1), (1, 1)))
    slots = tuple(network.slots_of_server[server][0] for server in (0, 1))
    tenant = tenant_plan(
        centre, network, placement, slots, 1, "j", rate_bps
    )
    return replace(tenant_limits(network, tenant)[1], netns=netns)


def shown(name: str, what: str) -> dict[str, dict[str, int]]:
    """Counters of the root, or of the cap's classes, on the VM's ``eth0``, by handle."""
    command = [
        "ip",
        "netns",
        "exec",
        name,
        "tc",
        "-s",
        what,
        "show",
        "dev",
        "eth0",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    found = re.findall(
        r"htb (1:\d*) .*\n Sent (\d+) bytes (\d+) pkt .*overlimits (\d+)",
        done.stdout,
    )
    names = ("bytes", "packets", "overlimits")
    return {
        handle: dict(zip(names, map(int, row), strict=True))
        for handle, *row in found
    }


def held_up(name: str) -> dict[str, int]:
    """Times that each class of the cap had to wait: ``1:1`` for bytes, ``1:2`` for packets."""
    return {
        handle: row["overlimits"]
        for handle, row in shown(name, "class").items()
    }


@contextmanager
def flood(
    name: str, limited_by: str, n_bytes: int, segment_bytes: int = 0
) -> Iterator[float]:
    """Datagrams until left; entered when the given class has had to wait. Yields its beginning."""
    command = ["ip", "netns", "exec", name, sys.executable, "-c", SENDER]
    began = time.monotonic()
    with subprocess.Popen(
        [*command, "10.0.4.2", str(n_bytes), str(segment_bytes)]
    ) as process:
        try:
            while not held_up(name)[limited_by]:
                assert process.poll() is None
            yield began
        finally:
            process.kill()


def capped(vm: tuple[str, Side], rate_bps: int) -> str:
    name, side = vm
    there = Neighbour(IPv4Address("10.0.4.2"), "02:48:4e:00:00:02")
    hosts = (Address(IPv4Interface("10.0.4.1/22")), there)
    lines = tuple(BatchLine("add", item) for item in hosts)
    TrafficControl([], {name: side}).apply(
        [send_cap(name, rate_bps), BatchSection(name, lines)]
    )
    return name


@pytest.mark.parametrize("n_bytes", [1, 1448])
def test_small_packets_are_limited_in_number(
    vm: tuple[str, Side], n_bytes: int
) -> None:
    rate_bps = 150_000_000
    name = capped(vm, rate_bps)
    allowed = packets_per_s(rate_bps, UPLINK_BPS)
    with flood(name, "1:2", n_bytes) as began:
        time.sleep(0.5)
        packets = shown(name, "qdisc")["1:"]["packets"]
        seconds = time.monotonic() - began
        # The class of bytes asks nobody for its first bucket, 3,028 bytes, nor for 8 kbit/s.
        unasked = (3028 + 1000 * seconds) / (42 + n_bytes)
        assert packets <= allowed * (seconds + BURST_S) + unasked + 2


def test_large_packets_are_limited_in_bytes_alone(
    vm: tuple[str, Side],
) -> None:
    rate_bps = 20_000_000
    name = capped(vm, rate_bps)
    with flood(name, "1:1", 60_000, 1400) as began:
        time.sleep(0.5)
        sent_bytes = shown(name, "qdisc")["1:"]["bytes"]
        seconds = time.monotonic() - began
        assert (
            sent_bytes * 8
            <= rate_bps * (seconds + BURST_S) + 2 * 8 * 61_806
        )
        assert not held_up(name)["1:2"]


@pytest.mark.parametrize(
    "into", [[], ["unshare", "--user", "--map-root-user"]]
)
def test_a_program_in_the_vm_cannot_lift_the_cap(
    vm: tuple[str, Side], into: list[str]
) -> None:
    name = capped(vm, 150_000_000)
    nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        *into,
    ]
    for change in (
        "qdisc del dev eth0 root",
        "qdisc replace dev eth0 root pfifo limit 1000",
        "class change dev eth0 parent 1:2 classid 1:1 htb rate 1gbit",
    ):
        command = [
            "ip",
            "netns",
            "exec",
            name,
            *nobody,
            "tc",
            *change.split(),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60
        )
        assert "Operation not permitted" in done.stderr
