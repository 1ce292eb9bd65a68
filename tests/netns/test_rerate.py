"""Re-rating in place: never a byte more than the rates allow, however often they change."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface

import pytest

from jobs.linux import inside_network_namespace
from testbed.backends.emu.netlink import RouteSocket
from testbed.backends.emu.traffic_control import NETNS_DIR, Side, TrafficControl
from testbed.plan.batch_lines import (
    Address,
    BatchLine,
    ByteFifo,
    HtbClass,
    HtbRoot,
    Neighbour,
    Section,
)

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
    command = ["ip", "-n", name, "-statistics", "-json", "link", "show", "eth0"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return int(json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"])


def test_a_flood_gets_no_more_than_its_rates_allow(vm: tuple[str, Side]) -> None:
    name, side = vm
    control = TrafficControl([], {name: side})
    rate_bps = RATES_BPS[-1]
    there = Neighbour(IPv4Address("10.0.4.2"), "02:48:4e:00:00:02")
    address = Address(IPv4Interface("10.0.4.1/22"))
    limits = (HtbRoot("eth0", 1), cap(rate_bps), ByteFifo("eth0", 1, 150_000))
    items = (*limits, address, there)
    control.apply([Section(name, tuple(BatchLine("add", item) for item in items))])
    began = time.monotonic()
    before = sent_bytes(name)
    allowed = 0.0
    command = ["ip", "netns", "exec", name, sys.executable, "-c", FLOOD, str(there.ip)]
    with subprocess.Popen(command) as flood:
        while sent_bytes(name) == before:
            assert flood.poll() is None
        for i in range(CHANGES):
            time.sleep(0.03)
            new_bps = RATES_BPS[i % len(RATES_BPS)]
            change = BatchLine("change", cap(new_bps), cap(rate_bps))
            now = time.monotonic()
            control.apply([Section(name, (change,))])
            # Until the change is done either rate may be in force.
            done = time.monotonic()
            allowed += (now - began) * rate_bps / 8 + (done - now) * max(rate_bps, new_bps) / 8
            began, rate_bps = done, new_bps
        time.sleep(0.05)
        sent = sent_bytes(name) - before
        allowed += (time.monotonic() - began) * rate_bps / 8
        flood.kill()
    largest_bucket = max(cap(rate).burst_bytes for rate in RATES_BPS)
    assert sent > 50_000  # it was a flood
    assert sent <= allowed + largest_bucket + 2 * PACKET_BYTES
