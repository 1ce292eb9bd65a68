"""The live network as a Mininet object: commands, pings, iperf, the prompt, links, examples."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.backends.emu import emulation as emulation_module
from testbed.backends.emu.cgroups import lives
from testbed.backends.emu.cleanup_journal import STATE_VARIABLE
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.part_switches import switch_in_parts
from testbed.embedding.placement import Placement
from testbed.plan.network_plan import (
    NetworkPlan,
    TenantPlan,
    network_plan,
    tenant_plan,
)
from testbed.spec.experiment import Scale
from tests.emu.test_network import flood
from tests.emu.test_run import REPOSITORY
from tests.support.own_addresses import free_port
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

pytestmark = [
    pytest.mark.needs("mininet"),
    pytest.mark.filterwarnings("ignore:.*distutils:DeprecationWarning"),
    # Mininet's examples leave their processes and pipes for Python to reap.
    pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

MBIT = 1_000_000
RATE_BPS = 20 * MBIT
# A fat-tree of this size is 260 ports' worth of work: three parts.
PART_WEIGHT = 100
SPREAD = ((0, 2), (1, 1), (5, 1))


def mininet_network(*arguments: Any) -> Any:
    from testbed.backends.emu import mininet_network as module

    return module.mininet_network(*arguments)


@pytest.fixture
def transcript(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The text that Mininet prints."""
    from mininet.log import lg, setLogLevel

    written = io.StringIO()
    monkeypatch.setattr(lg.handlers[0], "stream", written)
    yield written
    setLogLevel("output")


@contextmanager
def fat_tree_up(prefix: str, folder: Path) -> Iterator[Emulation]:
    """16 servers of two slots under 20 switches, links of 100 Mbit/s, and the controller."""
    options = LiveOptions(prefix, free_port(), free_port())
    datacentre = fat_tree(4, 1000 * MBIT, 2)
    with emulate(
        datacentre, Scale(rate=0.1), options, folder / "logs", "mininet"
    ) as made:
        yield made


@pytest.fixture(params=["whole", "parts"])
def emulation(
    request: pytest.FixtureRequest,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Emulation]:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    if request.param == "parts":
        if Path("/sys/module/openvswitch").exists():
            pytest.skip("the kernel's datapath has no parts")
        in_parts = partial(switch_in_parts, most_weight=PART_WEIGHT)
        monkeypatch.setattr(emulation_module, "switch_in_parts", in_parts)
    with fat_tree_up(prefix, tmp_path) as made:
        assert (len(made.network.switch_pids) > 1) == (
            request.param == "parts"
        )
        yield made


whole = pytest.mark.parametrize("emulation", ["whole"], indirect=True)


def a_tenant(
    datacentre: DataCentre,
    plan: NetworkPlan,
    vms_on: Sequence[tuple[int, int]],
    tenant_id: int = 7,
    rate_bps: int = RATE_BPS,
) -> TenantPlan:
    """VMs in the last slots of these servers."""
    slots = tuple(
        s for server, n in vms_on for s in plan.slots_of_server[server][-n:]
    )
    placement = Placement(datacentre.trees[0].root, tuple(vms_on))
    return tenant_plan(
        datacentre, plan, placement, slots, tenant_id, "j", rate_bps
    )


@pytest.fixture
def net(emulation: Emulation) -> Iterator[Any]:
    """The object, in a network with a tenant of four VMs, also found as a.0 to a.3."""
    tenant = a_tenant(emulation.datacentre, emulation.plan, SPREAD)
    emulation.admit(tenant)
    network = emulation.network
    port = emulation.controller.openflow_port
    made = mininet_network(emulation.plan, network.switch_of_bridge, port)
    for vm in tenant.vms:
        made.alias(f"a.{vm.index}", made[vm.slot.netns])
    made.tenant = tenant
    yield made
    made.stop()
    assert network.unshaped_packets() == {}


def vms(net: Any) -> list[Any]:
    return [net[f"a.{vm.index}"] for vm in net.tenant.vms]


def shells() -> list[int]:
    """Shells of nodes that this process has started."""
    children = psutil.Process().children(recursive=True)
    return [child.pid for child in children if child.name() == "bash"]


# -------------------------------------------------------------------------------------- commands


@whole
@pytest.mark.smoke
def test_commands_run_where_mininet_says_they_do(
    net: Any, emulation: Emulation
) -> None:
    a, b, c, d = vms(net)
    assert shells() == []
    vm, ip = net.tenant.vms[0], str(net.tenant.vms[0].ip)
    assert (a.IP(), a.MAC(), a.defaultIntf().isUp()) == (
        ip,
        vm.slot.mac,
        True,
    )
    assert (a.intf().updateIP(), a.intf().updateMAC()) == (ip, vm.slot.mac)
    assert f"inet {ip}/22" in a.cmd("ip", "address", "show", "eth0")
    assert shells() == [a.pid]
    assert a.cmd("echo $((6*7))").strip() == "42"
    a.cmd("sleep 300 &")
    assert lives(a.lastPid)
    b.sendCmd("sleep 300")
    while not [
        child
        for child in psutil.Process(b.pid).children()
        if child.name() == "sleep"
    ]:
        time.sleep(0.01)
    b.sendInt()
    b.waitOutput()
    assert not b.waiting
    process = b.popen(["ip", "-o", "link"])
    out, _ = process.communicate(timeout=60)
    assert re.findall(rb"^\d+: (\w+)", out, re.MULTILINE) == [
        b"lo",
        b"eth0",
    ]
    assert b.pexec("false") == ("", "", 1)
    free = net.hosts[-1]
    assert free.slot not in [vm.slot for vm in net.tenant.vms]
    assert (free.IP(), free.MAC()) == (None, free.slot.mac)
    for host, word in ((c, "one"), (d, "two")):
        host.sendCmd(f"echo {word}")
    said = {}
    for host, line in net.monitor([c, d]):
        said[host] = line.strip()
        if len(said) == 2:
            break
    assert said == {c: "one", d: "two"}
    net.stop()
    assert shells() == []


def test_switches_are_asked_in_their_own_open_vswitch(
    net: Any, emulation: Emulation
) -> None:
    plan, of_bridge = emulation.plan, emulation.network.switch_of_bridge
    validate = import_module("mininet.examples.numberedports").validatePort
    rack = next(bridge for bridge in plan.bridges if bridge.role == "rack")
    for bridge in (plan.bridges[0], plan.bridges[-1], rack):
        switch = net[bridge.name]
        mine = {
            name
            for name, each in of_bridge.items()
            if each is of_bridge[bridge.name]
        }
        assert set(switch.vsctl("list-br").split()) >= mine
        # The switch writes into its database every five seconds who is connected.
        while not switch.connected():
            time.sleep(0.2)
        assert "cookie=" in switch.dpctl("dump-flows")
        assert (
            f"({plan.ports_of_bridge[bridge.name][0].name}):"
            in switch.dpctl("show")
        )
        ports = [intf for intf in switch.intfList() if intf.name != "lo"]
        assert [validate(switch, intf) for intf in ports] == [1] * len(
            ports
        )
        assert all(
            intf.isUp() and intf.MAC() and intf.IP() is None
            for intf in ports
        )
    inside = net[plan.bridges[0].name]
    assert f"{plan.bridges[0].name}-u0" in inside.cmd("ip link")


# ---------------------------------------------------------------------------------- ping and iperf


@whole
def test_ping_reaches_the_own_tenant_and_no_other(
    net: Any, emulation: Emulation, transcript: io.StringIO
) -> None:
    assert net.pingAll() == 0
    assert (
        f"{len(net.hosts) - 4} hosts without a tenant's VM"
        in transcript.getvalue()
    )
    other = a_tenant(
        emulation.datacentre, emulation.plan, ((3, 1), (9, 1)), tenant_id=8
    )
    emulation.admit(other)
    # 30 pairs, of which 12 are within the one tenant and 2 within the other.
    assert net.pingAll() == pytest.approx(100 * 16 / 30)
    others = [net[vm.slot.netns] for vm in other.vms]
    assert net.ping(others) == 0
    assert net.ping([others[0], vms(net)[0]]) == 100
    rows = net.pingFull(vms(net))
    assert len(rows) == 12
    assert all(
        (sent, received) == (1, 1) for _, _, (sent, received, *_) in rows
    )
    with pytest.raises(Exception, match="are not VMs of one tenant"):
        net.iperf([others[0], vms(net)[0]])


def bps(text: str) -> float:
    number, unit = text.split()
    return (
        float(number)
        * {"Kbits/sec": 1e3, "Mbits/sec": 1e6, "Gbits/sec": 1e9}[unit]
    )


def until_reached(net: Any, hosts: Sequence[Any]) -> None:
    """The switch sees a moment later that a port is up."""
    give_up_s = time.monotonic() + 60
    while net.ping(hosts, timeout=1):
        assert time.monotonic() < give_up_s


@pytest.mark.short("whole")
def test_iperf_moves_bytes_within_the_reservation(
    net: Any, emulation: Emulation, transcript: io.StringIO
) -> None:
    client, server = vms(net)[0], vms(net)[3]
    stranger = vms(net)[1].popen("iperf -s -p 5099")
    before = emulation.network.vm_sent_bytes(net.tenant)
    received, _ = net.iperf((client, server), seconds=4, fmt="k")
    sent = [
        b - a
        for a, b in zip(
            before, emulation.network.vm_sent_bytes(net.tenant), strict=True
        )
    ]
    # At most the rate for four seconds, and a bucket: what arrives later counts in more time.
    assert 0 < bps(received) <= RATE_BPS * 1.02
    assert 8 * sent[0] >= 0.9 * 4 * bps(received)
    assert sent[2] == 0
    assert stranger.poll() is None, "another VM's iperf has been ended"
    stranger.kill()
    stranger.communicate()
    _, received, _ = net.iperf(
        (client, server), l4Type="UDP", udpBw="100M", seconds=2, fmt="k"
    )
    assert 0 < bps(received) <= RATE_BPS * 1.1


# ------------------------------------------------------------------------------------------- links


def limits_of(net: Any, host: Any, bridge: Any) -> str:
    """Disciplines, classes and filters at both ends of a VM's cable and of its server's uplink."""
    ((inner, port),) = host.connectionsTo(bridge)
    uplink = next(
        intf for intf in bridge.intfList() if intf.name.endswith("-u0")
    )
    found = [
        host.cmd(f"tc {what} show dev {inner}")
        for what in ("qdisc", "class")
    ]
    found += [host.cmd("ip neighbour"), host.cmd("ip route")]
    for intf in (port, uplink):
        found += [
            bridge.cmd(f"tc {what} show dev {intf}")
            for what in ("qdisc", "class")
        ]
        found.append(bridge.cmd(f"tc filter show dev {intf} parent 1:"))
    return "\n".join(found)


@pytest.mark.short("whole")
def test_a_link_that_was_down_has_its_limits_again(
    net: Any, emulation: Emulation
) -> None:
    a, other = vms(net)[0], vms(net)[2]
    bridge = net[a.slot.port.bridge]
    rack = next(x.intf2.node for x in net.links if x.intf1.node is bridge)
    before = limits_of(net, a, bridge)
    assert "htb" in before
    assert "PERMANENT" in before
    for ends in ((a.name, bridge.name), (bridge.name, rack.name)):
        assert net.ping([a, other]) == 0
        net.configLinkStatus(*ends, "down")
        (link,) = net.linksBetween(net[ends[0]], net[ends[1]])
        assert not link.intf1.isUp()
        assert not link.intf2.isUp()
        assert net.ping([a, other], timeout=1) == 100
        net.configLinkStatus(*ends, "up")
        assert link.intf1.isUp()
        assert link.intf2.isUp()
        until_reached(net, [a, other])
        assert limits_of(net, a, bridge) == before
    received, _ = net.iperf((a, other), seconds=2, fmt="k")
    assert 0 < bps(received) <= RATE_BPS * 1.04


# ------------------------------------------------------------------------------------- the prompt


def prompt(
    net: Any, kind: Callable[..., Any], lines: Sequence[str], folder: Path
) -> None:
    """Run a script; nobody types."""
    script = folder / "script"
    script.write_text(
        "".join(f"{line}\n" for line in lines), encoding="utf-8"
    )
    reading, writing = os.pipe()
    with os.fdopen(reading) as nothing, os.fdopen(writing, "w"):
        kind(net, stdin=nothing, script=str(script))


@pytest.mark.short("whole")
def test_a_script_at_mininets_prompt(
    net: Any,
    transcript: io.StringIO,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mininet.cli import CLI

    monkeypatch.delenv("DISPLAY", raising=False)
    a, b, *_ = vms(net)
    bridge = a.slot.port.bridge

    def said(line: str, kind: Any = CLI) -> str:
        transcript.seek(0)
        transcript.truncate()
        prompt(net, kind, [line], tmp_path)
        return transcript.getvalue()

    known = said("nodes").splitlines()[1].split()
    assert known == sorted(
        [
            *(h.name for h in net.hosts),
            *(s.name for s in net.switches),
            "c0",
        ]
    )
    assert f"{a} eth0:{a.slot.netns}\n" in said("net")
    assert f"{bridge} lo:  " in said("net")
    dump = said("dump")
    assert f"<AttachedHost {a}: eth0:{a.IP()} pid=None> \n" in dump
    assert f"<AttachedHost {net.hosts[-1]}: eth0:None pid=None> \n" in dump
    assert (
        f"{bridge} lo:0 {bridge}v0:1 {bridge}v1:2 {bridge}-u0:3 \n"
        in said("ports")
    )
    assert f"{a}: eth0\n" in said("intfs")
    assert said("links").count(" (OK OK) \n") == len(net.links)
    assert a.IP() in said(f"{a} ifconfig eth0")
    assert "1 packets transmitted, 1 received" in said(f"{a} ping -c1 {b}")
    assert said("pingall").endswith(
        "*** Results: 0% dropped (12/12 received)\n"
    )
    assert "0% dropped (2/2 received)" in said("pingpair")
    assert re.search(
        r"\*\*\* Results: \['[\d.]+ \w+/sec', '[\d.]+ \w+/sec'\]",
        said("iperf"),
    )
    assert said(f"link {a} {bridge} down") == ""
    assert " 0 received" in said(f"{a} ping -c1 -W1 {b}")
    assert said(f"link {a} {bridge} up") == ""
    # Until an answer has come.
    assert "1 received" in said(f"{a} ping -c1 -w30 {b}")
    assert said(f"py {a}.IP()") == f"{a.IP()}\n"
    assert said("py net['a.0'].name") == f"{a}\n"
    assert said(f"px print({a}.MAC())") == ""
    assert said("sh echo by a shell") == ""
    out, _ = capfd.readouterr()
    assert out.splitlines() == [a.MAC(), "by a shell"]
    assert "Cannot connect to display" in said(f"x {a} xterm")
    assert said(f"switch {bridge} stop") == ""
    assert " 0 received" in said(f"{a} ping -c1 -W1 {b}")
    assert said(f"switch {bridge} start") == ""
    until_reached(net, [a, b])
    from testbed.backends.emu.mininet_network import Prompt

    assert "1 received" in said("a.0 ping -c1 a.3", Prompt)
    assert f"Bridge {bridge}" in said(f"{bridge} ovs-vsctl show", Prompt)


# ------------------------------------------------------------------- a small network, no controller


@pytest.fixture
def small(
    prefix: str,
    journal: Any,
) -> Iterator[Callable[[], Any]]:
    """Makes the object of a tree of two servers with two slots; a tenant has all four VMs."""
    datacentre = tree([2, 1], [400 * MBIT, 1000 * MBIT], 2)
    plan = network_plan(datacentre, prefix, 0.1)
    with EmulatedNetwork(plan, journal, free_port()) as network:
        flood(plan)
        network.configure_tenant(
            a_tenant(datacentre, plan, ((0, 2), (1, 2)))
        )
        yield lambda: mininet_network(plan, network.switch_of_bridge)
        assert network.unshaped_packets() == {}


def test_stop_leaves_the_network_and_ends_what_ran_in_the_shells(
    small: Callable[[], Any],
) -> None:
    first, second = small(), small()
    first["h1"].cmd("sleep 300 &")
    sleeping = first["h1"].lastPid
    second["h1"].cmd("true")
    first.stop()
    assert shells() == [second["h1"].pid]
    gone(sleeping)
    assert second.pingAll() == 0
    second.run(second.pingAll)
    assert shells() == []
    third = small()
    assert third.ping() == 0
    third.stop()


def test_a_program_cannot_type_into_its_hosts_shell(
    small: Callable[[], Any],
) -> None:
    net = small()
    push = "import fcntl; fcntl.ioctl(0, 0x5412, b'x')"
    assert "PermissionError" in net["h1"].cmd(f'python3 -c "{push}"')
    net.stop()


# Of the shell's terminal, by calls that type; the last says what came of each.
TYPED_OTHERWISE = """
import ctypes, os, platform, sys
libc = ctypes.CDLL(None, use_errno=True)
number = 16 if platform.machine() == 'x86_64' else 29
terminal = os.open(sys.argv[1], os.O_RDWR) if sys.argv[1:] else 0
for request in (0x5412, 0x541c, 0x5412 | 1 << 32, 0x5412 | 0xffffffff << 32):
    code = libc.syscall(number, terminal, ctypes.c_ulong(request), b'x')
    print(code, ctypes.get_errno())
"""
REFUSED = ["-1 1"] * 4


def test_no_call_types_into_a_hosts_shell(
    small: Callable[[], Any], tmp_path: Path
) -> None:
    """Neither in the foreground, nor by its name, nor in the background."""
    program = tmp_path / "types.py"
    program.write_text(TYPED_OTHERWISE)
    net = small()
    host = net["h1"]
    assert host.cmd(f"python3 {program}").split("\r\n")[:4] == REFUSED
    by_name = host.cmd(f"python3 {program} /dev/tty").split("\r\n")
    assert by_name[:4] == REFUSED
    said = tmp_path / "said"
    host.cmd(f"python3 {program} >{said} 2>&1 &")
    gone(host.lastPid)
    assert said.read_text().splitlines() == REFUSED
    assert "good" in host.cmd("echo good")
    net.stop()


def gone(*pids: int) -> None:
    """Wait until these processes have ended."""
    give_up_s = time.monotonic() + 60
    while any(map(lives, pids)):
        assert time.monotonic() < give_up_s, f"{pids} live"
        time.sleep(0.05)


KILLED = """
import sys, warnings
warnings.simplefilter("ignore")
from testbed.backends.emu.mininet_network import mininet_network
from testbed.plan.network_plan import network_plan
from topologies.tree import tree
net = mininet_network(network_plan(tree([2, 1], [4 * 10**8, 10**9], 2), sys.argv[1], 0.1))
net["h1"].sendCmd("sleep 300")
print(net["h1"].pid, net["h2"].pid, net[net.switches[0].name].pid, flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_the_network_and_no_shell(
    small: Callable[[], Any], prefix: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, prefix],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(lives, pids))
        os.kill(process.pid, signal.SIGKILL)
    gone(*pids)
    net = small()
    assert net.pingAll() == 0
    net.stop()


def test_a_stopped_switch_forwards_nothing_until_it_is_started(
    small: Callable[[], Any],
) -> None:
    net = small()
    vm = net["h1"]
    switch = vm.defaultIntf().link.intf2.node
    switch.stop()
    assert not vm.defaultIntf().isUp()
    # A lost packet is waited for: ten seconds, unless said otherwise.
    assert net.ping([vm, net["h3"]], timeout=1) == 100
    assert net.ping([net["h3"], net["h4"]]) == 0
    switch.start([])
    assert vm.defaultIntf().isUp()
    until_reached(net, net.hosts)
    # Another process knows nothing of what this one has stopped.
    switch.stop()
    other = small()
    other[switch.name].start_again()
    until_reached(other, other.hosts)
    other.stop()
    net.stop()


@pytest.mark.long
def test_debians_examples_of_mininet_run_on_it(
    small: Callable[[], Any],
    transcript: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mininet.log import setLogLevel

    def example(name: str, network: str = "Mininet") -> Any:
        """The module; the network that it makes is ours."""
        module = import_module(f"mininet.examples.{name}")
        monkeypatch.setattr(module, network, lambda *_, **__: small())
        transcript.seek(0)
        transcript.truncate()
        return module

    setLogLevel("info")
    example("popen").monitorhosts(hosts=4)
    assert (
        transcript.getvalue().count("5 packets transmitted, 5 received")
        == 4
    )
    example("treeping64", "TreeNet").treePing64()
    assert transcript.getvalue().count(": 0% packet loss") == 2
    example("simpleperf").perfTest(lossy=False)
    assert "h4 eth0:" in transcript.getvalue()
    assert "*** Results: ['10M', '" in transcript.getvalue()
    example("multiping").multiping(netsize=4, chunksize=2, seconds=1)
    assert transcript.getvalue().count("will be pinging ips") == 4
    example("popenpoll").pmonitorTest(N=4, seconds=1)
    assert "Monitoring output for 1 seconds" in transcript.getvalue()
    setLogLevel("info")
    net = small()
    example("multitest").ifconfigTest(net)
    assert all(host.IP() in transcript.getvalue() for host in net.hosts)
    example("limit").testLinkLimit(net, bw=10)
    assert "*** Results: ['" in transcript.getvalue()
    example("mobility").printConnections(net.switches)
    net.stop()
    assert shells() == []
