"""Checks of lab 4: entries played by a small packet walker, then the application on the wire."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, NoReturn

from hypothesis import strategies as st

import testbed
from jobs.linux import inside_network_namespace
from jobs.python_child import python_command
from testbed.errors import BadInput, RunFailed
from testbed.labs.checking import Check, Margin, Wrong, for_all, list_of, shown
from testbed.labs.submission import CodeFailed, Submission
from testbed.standing.standing_network import StandingNetwork

FLOWS, APP = "flows.py", "app.py"
HERE = Path(__file__).parent
TRIED = 150
IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
Tenant = dict[str, Any]

# -- networks


@dataclass(frozen=True)
class Layout:
    """Racks of servers below one or two cores. ``slots``: by rack, server, slot the tenant there.

    Switches are numbered from 1: servers, racks, cores. Ports of a switch: VM slots, links to
    children, links to parents. Tenant t is pinned to core t modulo their number.
    """

    slots: tuple[tuple[tuple[int, ...], ...], ...]
    cores: int

    def __str__(self) -> str:
        racks = [[list(server) for server in rack] for rack in self.slots]
        return f"with the VMs of tenants {racks} (racks, servers, slots) below {self.cores} cores"

    @property
    def links(self) -> dict[tuple[int, int], tuple[int, int]]:
        """The other end of each end of a link, as (switch, port); lower ends come first."""
        servers = [server for rack in self.slots for server in rack]
        n, first = len(servers), 0
        ends = []
        for r, rack in enumerate(self.slots):
            for s, server in enumerate(rack):
                ends.append(((first + s + 1, len(server) + 1), (n + r + 1, s + 1)))
            first += len(rack)
            for c in range(self.cores):
                top = n + len(self.slots) + c + 1
                ends.append(((n + r + 1, len(rack) + c + 1), (top, r + 1)))
        return {a: b for low, high in ends for a, b in ((low, high), (high, low))}

    @property
    def tenants(self) -> list[Tenant]:
        """The tenants as flows.py gets them."""
        by_number: dict[int, Tenant] = {}
        switch = serial = 0
        for rack in self.slots:
            for server in rack:
                switch += 1
                for port, number in enumerate(server, 1):
                    serial += 1
                    if not number:
                        continue
                    new: Tenant = {"id": number, "prefix": f"10.0.{4 * number}.0/22", "vms": []}
                    vms = by_number.setdefault(number, new)["vms"]
                    ip, mac = f"10.0.{4 * number}.{len(vms) + 1}", f"02:00:00:00:00:{serial:02x}"
                    vms.append({"ip": ip, "mac": mac, "dpid": switch, "port": port})
        for tenant in by_number.values():
            tenant["tree"] = self._tree(tenant)
        return [by_number[number] for number in sorted(by_number)]

    def _tree(self, tenant: Tenant) -> list[dict[str, int]]:
        """Links of the tenant's core's tree that have VMs of it on both sides."""
        core = len([s for rack in self.slots for s in rack]) + len(self.slots) + 1
        core += tenant["id"] % self.cores
        above = {
            low[0]: (low, high) for low, high in self.links.items() if low[0] < high[0] <= core
        }
        below: dict[int, int] = {}
        for vm in tenant["vms"]:
            at = vm["dpid"]
            while at in above:
                below[at] = below.get(at, 0) + 1
                at = above[at][1][0]
        return [
            {
                "child_dpid": low[0],
                "child_port": low[1],
                "parent_dpid": high[0],
                "parent_port": high[1],
            }
            for at, (low, high) in sorted(above.items())
            if 0 < below.get(at, 0) < len(tenant["vms"])
        ]


SLOTS = st.lists(st.integers(0, 3), min_size=1, max_size=2).map(tuple)
RACKS = st.lists(SLOTS, min_size=1, max_size=3).map(tuple)
LAYOUTS = st.builds(Layout, st.lists(RACKS, min_size=1, max_size=3).map(tuple), st.integers(1, 2))

# -- entries, as OpenFlow 1.3 takes them


@dataclass(frozen=True)
class Frame:
    """A frame, as far as entries can match it; ``vlan``: as OpenFlow has it, 0 without a tag."""

    eth_src: str
    eth_dst: str
    eth_type: int
    vlan: int = 0
    ipv4_src: str = ""
    ipv4_dst: str = ""


@dataclass(frozen=True)
class Entry:
    """A checked entry; addresses are (network, mask) as numbers."""

    table: int
    priority: int
    cookie: int
    match: dict[str, Any]
    then: list[Any]

    def fits(self, frame: Frame, port: int) -> bool:
        for name, wanted in self.match.items():
            if name.startswith("ipv4"):
                address = getattr(frame, name)
                if not address or _number(address) & wanted[1] != wanted[0]:
                    return False
            elif self._value(frame, port, name) != wanted:
                return False
        return True

    @staticmethod
    def _value(frame: Frame, port: int, name: str) -> object:
        """A field that is compared as a whole."""
        if name == "in_port":
            return port
        return frame.vlan if name == "vlan_vid" else getattr(frame, name)


def _number(address: str) -> int:
    return int(struct.unpack("!I", socket.inet_aton(address))[0])


TAKEN = "README.md, 'An entry'"
FIELDS: dict[str, tuple[int, int] | None] = {
    "in_port": (1, 0xFFFF), "eth_type": (0, 0xFFFF), "vlan_vid": (0, 0x1FFF),
    "eth_src": None, "eth_dst": None, "ipv4_src": None, "ipv4_dst": None,
}  # fmt: skip


def entries(submission: Submission, dpid: int, tenants: list[Tenant]) -> list[Entry]:
    """The entries of rules() for a switch. Raises Wrong for one that a switch would refuse."""
    call = f"rules({dpid}, {shown(tenants)})"
    records = list_of(submission.call(FLOWS, "rules", dpid, tenants), dict, call, TAKEN)
    read = [_entry(record, f"rules({dpid}, …)") for record in records]
    seen: set[str] = set()
    for entry in read:
        key = json.dumps([entry.table, entry.priority, entry.match], sort_keys=True)
        if key in seen:
            twice = f"rules({dpid}, …) has two entries with {shown(entry.match)} and priority"
            expected = "one: the later takes the place of the former"
            raise Wrong(f"{twice} {entry.priority} in table {entry.table}", expected, TAKEN)
        seen.add(key)
    return read


def _entry(record: dict[str, Any], call: str) -> Entry:
    def refuse(why: str, expected: str) -> NoReturn:
        raise Wrong(f"{call} has {shown(record)}, {why}", expected, TAKEN)

    if set(record) != {"table", "priority", "cookie", "match", "then"}:
        refuse("with other keys", "table, priority, cookie, match, then")
    for key, highest in (("table", 253), ("priority", 0xFFFF), ("cookie", (1 << 64) - 1)):
        if type(record[key]) is not int or not 0 <= record[key] <= highest:
            refuse(f"whose {key} is none", f"a whole number from 0 to {highest}")
    match, then = record["match"], record["then"]
    if not isinstance(match, dict) or not set(match) <= set(FIELDS):
        refuse("whose match has unknown fields", f"some of {', '.join(FIELDS)}")
    read = {name: _field(name, value, refuse) for name, value in match.items()}
    if {"ipv4_src", "ipv4_dst"} & set(match) and match.get("eth_type") != IPV4:
        refuse("which a switch refuses (bad prerequisite)", f"eth_type {IPV4:#06x} with an address")
    if not (isinstance(then, list) and then and then[0] in ("goto", "output", "drop")):
        refuse("whose 'then' is none", '["goto", TABLE], ["output", PORT] or ["drop"]')
    numbers = [value for value in then[1:] if type(value) is int and 0 < value <= 0xFFFF]
    if len(then) != 1 + (then[0] != "drop") or len(numbers) != len(then) - 1:
        refuse("whose 'then' is none", '["goto", TABLE], ["output", PORT] or ["drop"]')
    if then[0] == "goto" and not record["table"] < then[1] <= 253:
        refuse("which a switch refuses", "a goto to a later table")
    return Entry(record["table"], record["priority"], record["cookie"], read, then)


def _field(name: str, value: object, refuse: Callable[[str, str], NoReturn]) -> object:
    bounds = FIELDS[name]
    if bounds:
        if type(value) is not int or not bounds[0] <= value <= bounds[1]:
            refuse(f"whose {name} is none", f"a whole number from {bounds[0]} to {bounds[1]}")
        if name == "vlan_vid" and 0 < value < 0x1000:
            refuse("whose vlan_vid a switch refuses", "0 for no tag, 0x1000 + VID for a tag")
        return value
    if name.startswith("eth"):
        parts = value.split(":") if isinstance(value, str) else []
        if len(parts) != 6 or any(len(p) != 2 or not _is_hex(p) for p in parts):
            refuse(f"whose {name} is none", "a MAC address")
        return str(value).lower()
    try:
        network = IPv4Network(str(value))
    except ValueError:
        refuse(f"whose {name} is none", "an address or a prefix without host bits")
    return [int(network.network_address), int(network.netmask)]


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdefABCDEF" for letter in text)


# -- the packet walker


@dataclass(frozen=True)
class Walk:
    """A frame's way through the network.

    ``arrived``: (switch, port) of the VM that gets it, None for nobody. ``links``: the links that
    it takes, by their (switch, port). ``end``: a sentence about its end.
    """

    arrived: tuple[int, int] | None
    links: tuple[tuple[int, int], ...]
    end: str


class Switches:
    """All switches of a layout with a student's entries."""

    def __init__(self, submission: Submission, layout: Layout) -> None:
        self.tenants, self.links = layout.tenants, layout.links
        switches = {dpid for dpid, _ in self.links}
        # Highest priorities first, as a switch looks for them.
        self.entries = {
            dpid: sorted(entries(submission, dpid, self.tenants), key=lambda entry: -entry.priority)
            for dpid in sorted(switches)
        }
        self.vms = {(vm["dpid"], vm["port"]): vm for t in self.tenants for vm in t["vms"]}

    def walk(self, frame: Frame, sender: Tenant) -> Walk:
        """The way of a frame that a VM sends. Raises Wrong for a loop."""
        at, links = (sender["dpid"], sender["port"]), list[tuple[int, int]]()
        while True:
            out, end = self._out(at, frame)
            if out is None or out == at[1]:
                back = f"sent back by switch {at[0]} to where it came from, which a switch drops"
                return Walk(None, tuple(links), end if out is None else back)
            leaves = (at[0], out)
            if leaves not in self.links:
                arrived = leaves if leaves in self.vms else None
                return Walk(arrived, tuple(links), f"sent out of port {out} of switch {at[0]}")
            if leaves in links:
                way = " - ".join(str(dpid) for dpid, _ in [*links, leaves])
                seen = f"a frame to {frame.ipv4_dst} circles for ever (switches {way})"
                raise Wrong(seen, "an end", "README.md, 'Forwarding'")
            links.append(leaves)
            at = self.links[leaves]

    def _out(self, at: tuple[int, int], frame: Frame) -> tuple[int | None, str]:
        """The port that a switch sends a frame out of, or where it is dropped."""
        table = 0
        while True:
            fitting = [e for e in self.entries[at[0]] if e.table == table and e.fits(frame, at[1])]
            if not fitting:
                return None, f"dropped in table {table} of switch {at[0]}, where nothing matches"
            first = fitting[0]
            for other in fitting[1:]:
                if other.priority == first.priority and other.then != first.then:
                    seen = f"two entries of priority {first.priority} in table {table} of switch"
                    seen = f"{seen} {at[0]} match a frame to {frame.ipv4_dst or 'another VM'}"
                    raise Wrong(seen, "one: OpenFlow leaves it open which is taken", TAKEN)
            if first.then[0] == "drop":
                return None, f"dropped in table {table} of switch {at[0]}"
            if first.then[0] == "output":
                return first.then[1], ""
            table = first.then[1]


def plain(a: Tenant, b: Tenant) -> Frame:
    return Frame(a["mac"], b["mac"], IPV4, 0, a["ip"], b["ip"])


def every_pair_is_connected(submission: Submission) -> None:
    look = "README.md, 'Forwarding'"

    def holds(layout: Layout) -> None:
        switches = Switches(submission, layout)
        for tenant in switches.tenants:
            ends = {(e["child_dpid"], e["child_port"]) for e in tenant["tree"]}
            ends |= {(e["parent_dpid"], e["parent_port"]) for e in tenant["tree"]}
            for a in tenant["vms"]:
                for b in (vm for vm in tenant["vms"] if vm is not a):
                    way, what = switches.walk(plain(a, b), a), f"a frame of {a['ip']} to {b['ip']}"
                    if way.arrived != (b["dpid"], b["port"]):
                        raise Wrong(f"{layout}, {what} is {way.end}", f"it at {b['ip']}", look)
                    outside = [link for link in way.links if link not in ends]
                    if outside:
                        switch, port = outside[0]
                        seen = f"{what} leaves switch {switch} by port {port}"
                        raise Wrong(f"{layout}, {seen}", "only links of the tenant's tree", look)

    for_all(LAYOUTS, holds, number=TRIED)


def _nothing_arrives(
    submission: Submission, attacks: Any, look: str, *, number: int = TRIED
) -> None:
    """Sends every frame of ``attacks(tenants)``: (words, sender, frame); none may arrive."""

    def holds(layout: Layout) -> None:
        switches = Switches(submission, layout)
        for words, sender, frame in attacks(switches.tenants):
            way = switches.walk(frame, sender)
            if way.arrived is not None:
                at = switches.vms[way.arrived]["ip"]
                seen = f"{layout}, {words} of the VM {sender['ip']} arrives at {at}"
                raise Wrong(seen, "it nowhere", look)

    for_all(LAYOUTS, holds, number=number)


Attacks = Iterator[tuple[str, Tenant, Frame]]


def tenants_are_apart(submission: Submission) -> None:
    def attacks(tenants: list[Tenant]) -> Attacks:
        for ours in tenants:
            for foreign in (tenant for tenant in tenants if tenant is not ours):
                for a in ours["vms"]:
                    for b in foreign["vms"]:
                        yield f"a frame to {b['ip']} of tenant {foreign['id']}", a, plain(a, b)

    _nothing_arrives(submission, attacks, "README.md, 'Forwarding'")


def forged_sources_go_nowhere(submission: Submission) -> None:
    def attacks(tenants: list[Tenant]) -> Attacks:
        vms = [vm for tenant in tenants for vm in tenant["vms"]]
        for a in vms:
            for b in vms:
                true = plain(a, b)
                nobody = a["ip"].rpartition(".")[0] + ".200"
                yield "a frame from an address that no VM has", a, replace(true, ipv4_src=nobody)
                mac = replace(true, eth_src="02:00:00:00:00:fe")
                yield "a frame with a false MAC", a, mac
                for c in (vm for vm in vms if vm is not a):
                    ip = replace(true, ipv4_src=c["ip"])
                    yield f"a frame with the address of {c['ip']}", a, ip
                    both = replace(ip, eth_src=c["mac"])
                    yield f"a frame with address and MAC of {c['ip']}", a, both

    _nothing_arrives(submission, attacks, "README.md, 'The source filter'")


def only_plain_ipv4_passes(submission: Submission) -> None:
    def attacks(tenants: list[Tenant]) -> Attacks:
        for tenant in tenants:
            for a in tenant["vms"]:
                for b in (vm for vm in tenant["vms"] if vm is not a):
                    tagged = replace(plain(a, b), vlan=0x1001)
                    yield f"a frame with VLAN tag 1 to {b['ip']}", a, tagged
                    yield f"an IPv6 frame to {b['mac']}", a, Frame(a["mac"], b["mac"], IPV6)
                yield "an ARP request", a, Frame(a["mac"], "ff:ff:ff:ff:ff:ff", ARP)

    _nothing_arrives(submission, attacks, "README.md, 'The source filter'")


# -- text


def every_table_ends_in_a_drop(submission: Submission) -> None:
    look = "README.md, 'An entry'"

    def holds(layout: Layout) -> None:
        for dpid, rules in Switches(submission, layout).entries.items():
            tables = {0} | {rule.then[1] for rule in rules if rule.then[0] == "goto"}
            for table in sorted(tables | {rule.table for rule in rules}):
                last = [rule for rule in rules if rule.table == table and rule.priority == 0]
                if [(rule.match, rule.then) for rule in last] != [({}, ["drop"])]:
                    ends = [[rule.match, rule.then] for rule in last]
                    seen = f"table {table} of switch {dpid} has at priority 0 {shown(ends)}"
                    expected = "one entry, [{}, ['drop']]: it counts what was refused"
                    raise Wrong(f"{layout}, {seen}", expected, look)

    for_all(LAYOUTS, holds, number=TRIED)


def cookies_are_the_tenants(submission: Submission) -> None:
    look = "README.md, 'An entry'"

    def holds(layout: Layout) -> None:
        switches = Switches(submission, layout)
        for dpid, rules in switches.entries.items():
            for tenant in switches.tenants:
                inside = IPv4Network(tenant["prefix"])
                bad = [
                    rule for rule in rules
                    if _first_address(rule) in inside and rule.cookie != tenant["id"]
                ]  # fmt: skip
                if bad:
                    seen = f"an entry of switch {dpid} for {inside} has the cookie {bad[0].cookie}"
                    raise Wrong(f"{layout}, {seen}", f"its tenant's id, {tenant['id']}", look)

    for_all(LAYOUTS, holds, number=TRIED)


def _first_address(entry: Entry) -> IPv4Address:
    numbers = [entry.match[name][0] for name in ("ipv4_src", "ipv4_dst") if name in entry.match]
    return IPv4Address(numbers[0] if numbers else 0)


def rules_grow_with_vms_not_pairs(submission: Submission) -> None:
    look = "README.md, 'Forwarding'"

    def holds(layout: Layout) -> None:
        switches = Switches(submission, layout)
        for dpid, rules in switches.entries.items():
            limit = 2
            for tenant in switches.tenants:
                tree = tenant["tree"]
                here = sum(vm["dpid"] == dpid for vm in tenant["vms"])
                ends = sum((e["child_dpid"] == dpid) + (e["parent_dpid"] == dpid) for e in tree)
                if here or ends:
                    limit += here + ends + _below(tenant, dpid) + 1
            if len(rules) > limit:
                seen = f"{layout}, switch {dpid} gets {len(rules)} entries"
                expected = f"at most {limit}: one for each port that a tenant comes in by, one for"
                raise Wrong(seen, f"{expected} each VM below, one upward, and the drops", look)

    for_all(LAYOUTS, holds, number=TRIED)


def _below(tenant: Tenant, dpid: int) -> int:
    """The tenant's VMs at or below a switch."""
    above = {edge["child_dpid"]: edge["parent_dpid"] for edge in tenant["tree"]}
    count = 0
    for vm in tenant["vms"]:
        at = vm["dpid"]
        while at != dpid and at in above:
            at = above[at]
        count += at == dpid
    return count


# -- on the wire: one network for all live checks


WIRE = "README.md, 'On the wire'"
PLACES = {"a": {"0": 1, "1": 1, "2": 1}, "b": {"0": 1, "3": 1}}
MBPS = 10
SECONDS = 3
LONGEST_START_S = 60


@dataclass
class Observed:
    """Observations of the application on the wire; None where it was not tried."""

    failed: CodeFailed | None = None
    trouble: str = ""
    verified: dict[str, list[str]] = field(default_factory=dict)
    crafted: list[str] = field(default_factory=list)
    slowest: float | None = None
    again: dict[str, list[str]] | None = None


_last: dict[tuple[object, ...], Observed] = {}


def observed(submission: Submission, *, anew: bool = False) -> Observed:
    """The observations of a submission; only its first live check makes them."""
    key = submission.folder, *map(submission.text, submission.files)
    if anew or key not in _last:
        _last.clear()
        _last[key] = _observe(submission)
    seen = _last[key]
    if seen.failed is not None:
        raise seen.failed
    return seen


def _observe(submission: Submission) -> Observed:
    seen = Observed()
    try:
        with _up(submission) as network:
            for name, at in PLACES.items():
                network.tenants.add(name, bandwidth=MBPS * 1_000_000, at=at)
            _check_addresses(network)
            seen.verified = _verified()
            seen.crafted = _crafted(network)
            if not seen.verified["reachability"]:
                seen.slowest = min(pair.ratio for pair in network.measure("a", SECONDS))
                _testbed("switch", "restart", "all")
                seen.again = _verified()
            seen.trouble = network.state.trouble
    except CodeFailed as failed:
        seen.failed = failed
    return seen


@contextmanager
def _up(submission: Submission) -> Iterator[StandingNetwork]:
    """The lab's network under the submitted application, in a folder that its user may enter."""
    with tempfile.TemporaryDirectory(prefix="hosenet-lab-") as name:
        folder = Path(name)
        for file in ("network.yaml", "tenants.json"):
            (folder / file).write_bytes((HERE / file).read_bytes())
        for file in (FLOWS, APP):
            (folder / file).write_text(submission.text(file), "utf-8")
        folder.chmod(0o755)
        try:
            with _at_most(LONGEST_START_S):
                network = testbed.up(folder / "network.yaml")
        except BadInput as error:
            raise CodeFailed(
                APP, error.message.partition("does not start: ")[2] or error.message
            ) from None
        except RunFailed as error:
            raise CodeFailed(APP, error.message) from None
        with network:
            yield network


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Interrupts the block after some time, as an application may never get to serve."""

    def late(*_: object) -> NoReturn:
        raise CodeFailed(APP, f"the network was not up after {seconds} s")

    if threading.current_thread() is not threading.main_thread():
        # Signals come to the main thread alone.
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _check_addresses(network: StandingNetwork) -> None:
    """Raises RunFailed if the addresses of tenants.json are not those on the network."""
    listed = [
        vm["ip"]
        for tenant in json.loads((HERE / "tenants.json").read_text())
        for vm in tenant["vms"]
    ]
    actual = [vm.ip for tenant in network.tenants.list() for vm in tenant.vms]
    if listed != actual:
        raise RunFailed(f"the tenants of tenants.json have {listed}, on the network {actual}")


def _testbed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = python_command("testbed.cli.main", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _verified() -> dict[str, list[str]]:
    """The problems that ``testbed verify`` names, by its checks."""
    done = _testbed("verify", "--json")
    if done.returncode not in (0, 1):
        raise RunFailed(
            f"testbed verify ended with exit code {done.returncode}: {done.stderr[-400:]}"
        )
    return {check["name"]: check["problems"] for check in json.loads(done.stdout)}


# An adversary at the VMs' own devices.

SOL_PACKET, PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING = 263, 20, 23
ETH_P_ALL = 0x0003
WAIT_S = 0.4
TOKEN_BYTES = 8
MOST_HEAD_BYTES = 14 + 4 + 20
"""Ethernet's, a VLAN tag's and IPv4's head."""


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _ipv4(source: str, target: str, body: bytes) -> bytes:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, 253, 0,
                       socket.inet_aton(source), socket.inet_aton(target))  # fmt: skip
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return head[:10] + struct.pack("!H", total) + head[12:] + body


def _attacks(a: list[Tenant], b: list[Tenant]) -> Iterator[tuple[str, Tenant, Frame]]:
    """Frames that must not arrive, other than those of ``testbed verify``."""
    all_ones = "ff:ff:ff:ff:ff:ff"
    yield "of a.1 with address and MAC of a.0", a[1], plain(a[0], a[2])
    yield "of b.0 with address and MAC of a.0, beside it", b[0], plain(a[0], a[2])
    yield (
        "of a.1 from an address that no VM has",
        a[1],
        replace(plain(a[1], a[2]), ipv4_src="10.0.4.200"),
    )
    yield "of b.1 from a's prefix", b[1], replace(plain(b[1], a[0]), ipv4_src="10.0.4.200")
    yield "of a.0 to b.0, on the same server", a[0], plain(a[0], b[0])
    yield "of a.0 with a priority tag", a[0], replace(plain(a[0], a[2]), vlan=0x1000)
    yield "of a.2 with VLAN tag 7", a[2], replace(plain(a[2], a[0]), vlan=0x1007)
    yield "of a.0, an ARP request", a[0], Frame(a[0]["mac"], all_ones, ARP)
    yield "of a.0, IPv6", a[0], Frame(a[0]["mac"], a[2]["mac"], IPV6)
    yield (
        "of a.0 to everybody",
        a[0],
        replace(plain(a[0], a[2]), eth_dst=all_ones, ipv4_dst="255.255.255.255"),
    )


def _bytes(frame: Frame, body: bytes) -> bytes:
    tag = struct.pack("!HH", 0x8100, frame.vlan & 0xFFF) if frame.vlan else b""
    inside = _ipv4(frame.ipv4_src, frame.ipv4_dst, body) if frame.ipv4_src else body
    ends = _mac(frame.eth_dst) + _mac(frame.eth_src)
    return ends + tag + frame.eth_type.to_bytes(2, "big") + inside


def _crafted(network: StandingNetwork) -> list[str]:
    """Faults in the arrival of crafted frames: each must arrive once or nowhere."""
    tenants = json.loads((HERE / "tenants.json").read_text())
    a, b = (tenant["vms"] for tenant in tenants)
    good = [("", x, plain(x, y)) for vms in (a, b) for x in vms for y in vms if x is not y]
    places = [vm for tenant in network.tenants.list() for vm in tenant.vms]
    names = {vm.ip: vm.name for vm in places}
    faults = []
    with ExitStack() as stack:
        sockets = {vm.ip: stack.enter_context(_listening(Path(vm.netns))) for vm in places}
        for words, sender, frame in [*good, *_attacks(a, b)]:
            arrived: list[str] = []
            for _ in range(2 if words else 5):
                token = os.urandom(TOKEN_BYTES)
                with suppress(OSError):
                    sockets[sender["ip"]].send(_bytes(frame, token.ljust(64, b"\0")))
                arrived = _arrivals(sockets, token, 0.1 if words else WAIT_S)
                if arrived:
                    break
            at = [names[ip] for ip in arrived]
            if words and at:
                faults.append(f"a frame {words} arrives at {' '.join(at)}")
            elif not words and arrived != [frame.ipv4_dst]:
                good_frame = f"a frame of {names[frame.ipv4_src]} to {names[frame.ipv4_dst]}"
                faults.append(f"{good_frame} arrives at {' '.join(at) or 'nobody'}")
    return faults


def _arrivals(sockets: dict[str, socket.socket], token: bytes, wait_s: float) -> list[str]:
    """Addresses of the VMs that a frame arrives at, once for each time."""
    addresses = []
    until = time.monotonic() + wait_s
    by_descriptor = {device.fileno(): ip for ip, device in sockets.items()}
    while ready := select.select(
        list(sockets.values()), [], [], max(0.0, until - time.monotonic())
    )[0]:
        for device in ready:
            # Farther behind, the frame is quoted in the ICMP error of a receiver whose kernel does
            # not know the protocol.
            if 0 <= device.recv(4096).find(token) <= MOST_HEAD_BYTES:
                addresses.append(by_descriptor[device.fileno()])
                # A second copy would come at once.
                until = min(until, time.monotonic() + 0.05)
    return sorted(addresses)


def _listening(netns: Path) -> socket.socket:
    with inside_network_namespace(netns):
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    for option in (PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING):
        opened.setsockopt(SOL_PACKET, option, 1)
    opened.bind(("eth0", ETH_P_ALL))
    return opened


def it_starts_and_serves(submission: Submission, _: object) -> None:
    trouble = observed(submission, anew=True).trouble
    if trouble:
        raise Wrong(f"app.py runs with errors: {shown(trouble)}", "none", WIRE)


def _no_problem(problems: list[str], expected: str, look: str) -> None:
    if problems:
        more = f", and {len(problems) - 1} more" if problems[1:] else ""
        raise Wrong(f"{problems[0]}{more}", expected, look)


def tenants_reach_their_own(submission: Submission, _: object) -> None:
    expected = "every VM of a tenant to answer the others"
    _no_problem(observed(submission).verified["reachability"], expected, WIRE)


def verify_finds_no_way_in(submission: Submission, _: object) -> None:
    verified = observed(submission).verified
    problems = verified["isolation"] + verified["anti-spoofing"]
    _no_problem(problems, "it nowhere (testbed verify)", WIRE)


def the_adversary_finds_no_way_in(submission: Submission, _: object) -> None:
    expected = "good frames once at their receiver, the others nowhere"
    _no_problem(observed(submission).crafted, expected, "README.md, 'The source filter'")


def the_guarantee_holds(submission: Submission, _: object) -> list[Margin]:
    slowest = observed(submission).slowest
    if slowest is None:
        raise Wrong("a's bandwidth was not measured, as its VMs do not reach each other",
                    "them to", WIRE)  # fmt: skip
    return [Margin("the slowest VM has of its guarantee", slowest, 0.95, 1.03)]


def a_restarted_switch_is_served_again(submission: Submission, _: object) -> None:
    again = observed(submission).again
    if again is None:
        raise Wrong("no switch was restarted, as VMs do not reach each other", "them to", WIRE)
    problems = [
        text for name in ("reachability", "isolation", "anti-spoofing") for text in again[name]
    ]
    if problems:
        problems[0] = f"after a restart of all switches: {problems[0]}"
    _no_problem(problems, "all as before", "README.md, 'A switch comes back'")


REACH = "every VM reaches its tenant's others"
"""Before the checks that a network which carries nothing would pass."""
CHECKS = (
    Check(REACH, "pure", every_pair_is_connected, 2),
    Check("no frame reaches another tenant", "pure", tenants_are_apart, 2, after=REACH),
    Check(
        "no frame with a forged source arrives", "pure", forged_sources_go_nowhere, 2, after=REACH
    ),
    Check("nothing but untagged IPv4 arrives", "pure", only_plain_ipv4_passes, after=REACH),
    Check("every table ends in a drop", "text", every_table_ends_in_a_drop),
    Check("entries bear their tenant's cookie", "text", cookies_are_the_tenants),
    Check("entries grow with VMs, not with pairs", "text", rules_grow_with_vms_not_pairs),
    Check("app.py starts and serves the switches", "wire", it_starts_and_serves),
    Check("VMs of a tenant reach each other", "wire", tenants_reach_their_own, 2),
    Check("testbed verify finds no way in", "wire", verify_finds_no_way_in, 2),
    Check("an adversary finds no way in", "wire", the_adversary_finds_no_way_in, 2),
    Check("a tenant has its guarantee", "wire", the_guarantee_holds),
    Check(
        "a switch that restarts is served again", "resilience", a_restarted_switch_is_served_again
    ),
)
