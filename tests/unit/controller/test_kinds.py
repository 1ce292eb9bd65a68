"""Public kinds of applications on both libraries, many in one process, with fake switches.

Those that need packets to flow are in tests/emu/test_controller_kinds.py.
"""

from __future__ import annotations

import json
import re
import struct
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from controller.process import ControllerProcess, start_controller
from tests.support.own_addresses import free_port
from tests.support.wired_switches import (
    FLOOD,
    FLOW_MOD,
    GROUP_MOD,
    METER_MOD,
    PACKET_OUT,
    WiredSwitch,
    wire,
)

KINDS = Path(__file__).parents[2] / "support" / "kinds"
LIBRARIES = [
    pytest.param("ryu", marks=pytest.mark.needs("ryu")),
    pytest.param("os-ken", marks=pytest.mark.needs("os-ken")),
]
TOGETHER = (
    *("arp_proxy", "datapath_set", "flow_monitor", "group_tables"),
    *("load_balancer", "meters", "ofctl_service", "port_reaction"),
    *("shortest_path", "spanning_tree"),
)


@dataclass(frozen=True)
class Running:
    """Applications in a process with switches in a triangle, by number."""

    process: ControllerProcess
    log: Path
    switches: dict[int, WiredSwitch]

    def printed(self, pattern: str) -> re.Match[str]:
        until_s = time.monotonic() + 60
        while (match := re.search(pattern, self.log.read_text())) is None:
            assert time.monotonic() < until_s, self.log.read_text()
            time.sleep(0.05)
        return match


def adapted(name: str, library: str, folder: Path) -> str:
    """An application's file, for that library.

    They print a line at once: print writes its arguments one by one, and those
    of os-ken's threads would stand between another's.
    """
    text = (KINDS / f"{name}.py").read_text(encoding="utf-8")
    if library == "os-ken":
        text = text.replace("RyuApp", "OSKenApp")
        text = re.sub(r"\bryu\b", "os_ken", text)
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


@contextmanager
def running(folder: Path, library: str, *apps: str) -> Iterator[Running]:
    """Switches 1, 2 and 3, each with port 3 to a host, in a triangle."""
    options = ["--openflow-port", "0", "--library", library]
    for app in apps:
        options += ["--app", app]
    options += [f"--app-option=--wsapi-port={free_port()}"] * (
        library == "ryu"
    )
    options.append("--app-option=--observe-links")
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("a+b"))
        process = stack.enter_context(start_controller(log, *options))
        switches = {}
        for dpid in (1, 2, 3):
            switch = WiredSwitch(dpid, 3, process.openflow_port)
            switches[dpid] = switch
            stack.callback(switch.close)
        wire(switches[1], 1, switches[2], 2)
        wire(switches[2], 1, switches[3], 2)
        wire(switches[3], 1, switches[1], 2)
        found = Running(process, folder / "log", switches)
        for switch in switches.values():
            # Its handshake is done.
            switch.until(FLOW_MOD, b"")
        yield found


@pytest.fixture(scope="module", params=LIBRARIES)
def together(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("kinds")
    apps = [adapted(name, request.param, folder) for name in TOGETHER]
    with running(folder, request.param, *apps) as found:
        yield found


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kinds")]


def test_all_start_in_one_process_and_none_fails(together: Running) -> None:
    together.printed("set 3 in")
    assert together.process.process.poll() is None
    assert "Traceback" not in together.log.read_text()


def test_monitors_of_flows_and_ports_hear_answers(
    together: Running,
) -> None:
    for dpid in (1, 2, 3):
        together.printed(f"flows of {dpid} 0\n")
        together.printed(f"ports of {dpid} 0\n")


def test_groups_spread_over_ports(together: Running) -> None:
    # ADD, SELECT, group 7; two buckets of weight 1.
    body = together.switches[1].until(
        GROUP_MOD, struct.pack("!HBxI", 0, 1, 7)
    )
    assert body.count(struct.pack("!HHI", 48 - 16, 1, 0xFFFFFFFF)) == 2
    # A flow's only action: group 7.
    together.switches[1].until(FLOW_MOD, struct.pack("!HHI", 22, 8, 7))


def test_meters_police(together: Running) -> None:
    # ADD, kbit/s, meter 5; a band that drops above 1,000 kbit/s.
    body = together.switches[2].until(
        METER_MOD, struct.pack("!HHI", 0, 1, 5)
    )
    assert struct.pack("!HHII", 1, 16, 1000, 10) in body
    together.switches[2].until(FLOW_MOD, struct.pack("!HHI", 6, 8, 5))


def test_flows_out_of_a_port_that_goes_down_are_deleted(
    together: Running,
) -> None:
    switch = together.switches[3]
    switch.take_down(3)
    together.printed("port 3 of 3 is down\n")
    # DELETE of all priorities, out of port 3, to any group.
    switch.until(FLOW_MOD, struct.pack("!III", 0xFFFFFFFF, 3, 0xFFFFFFFF))


def arp_request(asked: str) -> bytes:
    source = bytes([2, 0, 0, 0, 0, 1])
    head = b"\xff" * 6 + source + b"\x08\x06"
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
    addresses = IPv4Address("10.0.0.1").packed, IPv4Address(asked).packed
    return head + body + source + addresses[0] + bytes(6) + addresses[1]


def test_an_arp_proxy_answers_and_floods_nothing(together: Running) -> None:
    switch = together.switches[1]
    switch.packet_in(3, arp_request("10.0.0.77"))
    switch.packet_in(3, arp_request("10.0.0.2"))
    reply = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2)
    reply += bytes([2, 0, 0, 0, 0, 2]) + IPv4Address("10.0.0.2").packed
    body = switch.until(PACKET_OUT, reply)
    assert struct.pack("!HHI", 0, 16, 3) in body
    outputs = switch.bodies(PACKET_OUT)
    assert not any(struct.pack("!HHI", 0, 16, FLOOD) in b for b in outputs)
    asked = IPv4Address("10.0.0.77").packed
    assert not any(asked in b for b in outputs)


def syn(source_port: int) -> bytes:
    ethernet = bytes([2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]) + b"\x08\x00"
    addresses = IPv4Address("10.0.0.1").packed
    addresses += IPv4Address("10.0.0.100").packed
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 40, 1, 0, 64, 6, 0) + addresses
    tcp = struct.pack(
        "!HHIIBBHHH", source_port, 80, 1, 0, 0x50, 2, 99, 0, 0
    )
    return ethernet + ip + tcp


def test_a_load_balancer_takes_servers_in_turn(together: Running) -> None:
    switch = together.switches[2]
    for source_port in (5001, 5002):
        switch.packet_in(3, syn(source_port))
    together.printed("connection from port 5001 to 10.0.0.2\n")
    together.printed("connection from port 5002 to 10.0.0.3\n")
    for last in (2, 3):
        body = switch.until(FLOW_MOD, IPv4Address(f"10.0.0.{last}").packed)
        assert bytes([2, 0, 0, 0, 0, last]) in body
        assert struct.pack("!HHI", 0, 16, last) in body


def test_the_service_of_ofctl_brings_answers(together: Running) -> None:
    for dpid in (1, 2, 3):
        together.printed(rf"answered {dpid} \[1, 2, 3\]\n")


def test_contexts_are_made_and_hear_of_switches(together: Running) -> None:
    together.printed(r"set \d in \[1, 2, 3\] 3 ports\n")


def test_shortest_paths_over_discovered_links(together: Running) -> None:
    """All six directed links of the triangle are found; of two ways, the short."""
    together.printed(r"path \[1, 3\] of 6 links\n")
    # To 10.0.0.9 out of port 2, the way to switch 3.
    body = together.switches[1].until(
        FLOW_MOD, IPv4Address("10.0.0.9").packed
    )
    del body
    ways = [
        body
        for body in together.switches[1].bodies(FLOW_MOD)
        if IPv4Address("10.0.0.9").packed in body
    ]
    assert struct.pack("!HHI", 0, 16, 2) in ways[-1]


@pytest.mark.needs("ryu")
def test_the_spanning_tree_blocks_one_port_of_a_triangle(
    together: Running,
) -> None:
    """Switch 1 is the root: between 2 and 3 one end is blocked, the larger's."""
    if together.process.library != "ryu":
        pytest.skip(
            "os-ken's waits for a timeout that its threads never raise"
        )
    until_s = time.monotonic() + 60
    blocked: set[tuple[str, str]] = set()
    while blocked != {("3", "2")}:
        assert time.monotonic() < until_s, blocked
        time.sleep(0.2)
        blocked = set()
        states = re.findall(
            r"^port (\d) (\d) blocked: (\w+)$",
            together.log.read_text(),
            re.MULTILINE,
        )
        for dpid, port, now in states:
            blocked.discard((dpid, port))
            if now == "True":
                blocked.add((dpid, port))


def asked(port: int | None, path: str, posted: object = None) -> str:
    data = None if posted is None else json.dumps(posted).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data)
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return str(answer.read().decode())


def answered(
    port: int | None, path: str, posted: object, headers: dict[str, str]
) -> tuple[int, str]:
    """Status and text of an answer, whatever it is."""
    assert port is not None
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        if posted is None:
            connection.request("GET", path, headers=headers)
        else:
            body = json.dumps(posted)
            connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two applications of ours beside four of the library's, at one port."""
    folder = tmp_path_factory.mktemp("pages")
    apps = [
        adapted(f"rest_{n}", "ryu", folder) for n in ("firewall", "router")
    ]
    apps += ["ryu.app.ofctl_rest", "ryu.app.rest_topology"]
    apps += ["ryu.app.simple_switch_13", "ryu.app.rest_conf_switch"]
    with running(folder, "ryu", *apps) as found:
        port, until_s = found.process.pages_port, time.monotonic() + 60
        while sorted(json.loads(asked(port, "/stats/switches"))) != [
            1,
            2,
            3,
        ]:
            assert time.monotonic() < until_s
            time.sleep(0.1)
        yield found


@pytest.mark.needs("ryu")
def test_a_firewall_by_rest(pages: Running) -> None:
    port = pages.process.pages_port
    answer = asked(port, "/rules", {"block": "10.0.0.66"})
    assert json.loads(answer) == {"switches": [1, 2, 3]}
    for switch in pages.switches.values():
        switch.until(FLOW_MOD, IPv4Address("10.0.0.66").packed)


@pytest.mark.needs("ryu")
def test_a_router_by_rest(pages: Running) -> None:
    port = pages.process.pages_port
    answer = asked(port, "/router/2/3", {"address": "10.7.0.1/16"})
    assert answer == "10.7.0.0/16 is behind port 3"
    network = (
        IPv4Address("10.7.0.0").packed + IPv4Address("255.255.0.0").packed
    )
    pages.switches[2].until(FLOW_MOD, network)


@pytest.mark.needs("ryu")
def test_the_librarys_own_pages(pages: Running) -> None:
    port = pages.process.pages_port
    flows = {
        "dpid": 1,
        "match": {"in_port": 3},
        "actions": [],
        "cookie": 77,
    }
    asked(port, "/stats/flowentry/add", flows)
    pages.switches[1].until(FLOW_MOD, struct.pack("!Q", 77))
    until_s = time.monotonic() + 60
    while len(json.loads(asked(port, "/v1.0/topology/links"))) != 6:
        assert time.monotonic() < until_s
        time.sleep(0.1)
    switches = json.loads(asked(port, "/v1.0/topology/switches"))
    assert len(switches) == 3


FLOWS = "/stats/flowentry/add"
REFUSED = [
    {"Host": "hostile.example"},
    {"Host": "hostile.example:8080"},
    {"Host": "127.0.0.1.hostile.example"},
    {"Host": "hostile.example@127.0.0.1"},
    {"Host": ""},
    {"Origin": "http://hostile.example"},
    {"Origin": "null"},
    # Another program's page on this machine.
    {"Origin": "http://127.0.0.1:1"},
    {"Host": "hostile.example", "Origin": "http://hostile.example"},
]


@pytest.mark.needs("ryu")
@pytest.mark.parametrize("headers", REFUSED, ids=str)
def test_requests_of_other_sites_reach_no_page(
    pages: Running, headers: dict[str, str]
) -> None:
    """As a browser sends them for a site: its script's, or to its own name."""
    cookie = 6_000 + 2 * REFUSED.index(headers)
    flow = {"dpid": 2, "match": {}, "actions": [], "cookie": cookie}
    port = pages.process.pages_port
    sent = {"Content-Type": "text/plain", **headers}
    for path, posted in (("/stats/switches", None), (FLOWS, flow)):
        status, text = answered(port, path, posted, sent)
        assert status == 403, text
        assert "127.0.0.1 and localhost alone" in text
    # Switches read in order: this one would come after the other.
    allowed = {**flow, "cookie": cookie + 1}
    assert answered(port, FLOWS, allowed, {})[0] == 200
    switch = pages.switches[2]
    switch.until(FLOW_MOD, struct.pack("!Q", cookie + 1))
    refused = struct.pack("!Q", cookie)
    assert not any(refused in body for body in switch.bodies(FLOW_MOD))


@pytest.mark.needs("ryu")
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost:8080"},
        {"Host": "LOCALHOST"},
        # Through a tunnel whose port is another.
        {"Host": "127.0.0.1:9", "Origin": "http://127.0.0.1:9"},
    ],
    ids=str,
)
def test_the_pages_own_requests_are_served(
    pages: Running, headers: dict[str, str]
) -> None:
    port = pages.process.pages_port
    status, text = answered(port, "/stats/switches", None, headers)
    assert status == 200
    assert sorted(json.loads(text)) == [1, 2, 3]


@pytest.mark.needs("ryu")
def test_the_librarys_learning_switch(pages: Running) -> None:
    """It asks for all that it does not know, and learns who sent it.

    No frame is flooded: around the triangle it would come back by another port,
    and be learnt there.
    """
    switch = pages.switches[1]
    to_controller = struct.pack("!HHI", 0, 16, 0xFFFFFFFD)
    switch.until(FLOW_MOD, to_controller)
    first, second = (bytes([2, 0, 0, 0, 0, n]) for n in (0x21, 0x22))
    switch.packet_in(3, first + first + b"\x08\x00" + bytes(46))
    switch.packet_in(2, first + second + b"\x08\x00" + bytes(46))
    body = switch.until(FLOW_MOD, second)
    assert struct.pack("!HHI", 0, 16, 3) in body
