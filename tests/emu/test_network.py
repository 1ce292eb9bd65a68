"""The live network: what is made is what was planned, it carries and limits, it goes whole."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.live.connections import VM_SYSCTLS
from testbed.backends.emu import emulated_network as network_module
from testbed.backends.emu import traffic_control
from testbed.backends.emu.cleanup import (
    Removed,
    clean_leftovers,
    devices_in_group,
    remove_run,
)
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    journals,
)
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.limiter_counters import Limiter
from testbed.backends.emu.open_vswitch import (
    MACHINE,
    RUN_KEY,
    SwitchDaemons,
    controller_socket,
)
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.embedding.placement import Placement
from testbed.errors import MachineCannot, RunFailed
from testbed.plan.limits import tenant_limits
from testbed.plan.network_plan import (
    NetworkPlan,
    TenantPlan,
    network_plan,
    tenant_plan,
)
from topologies.datacentre import DataCentre
from topologies.tree import tree

MBIT = 1_000_000
SETTINGS = (
    "/proc/sys/net/core/wmem_default",
    "/proc/sys/net/core/rmem_default",
    "/sys/kernel/rcu_expedited",
)
# Nobody listens there: these networks need no controller.
CONTROLLER_PORT = 6699


@pytest.fixture(scope="module")
def datacentre() -> DataCentre:
    """A core over two racks over one server each, two slots a server: five bridges."""
    return tree([2, 1], [400 * MBIT, 1000 * MBIT], 2)


@pytest.fixture
def plan(datacentre: DataCentre, prefix: str) -> NetworkPlan:
    """For a network of the test's own."""
    return network_plan(datacentre, prefix, 0.1)


@pytest.fixture(scope="module")
def shared_journal(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[CleanupJournal]:
    made = CleanupJournal.create("test", tmp_path_factory.mktemp("state"))
    yield made
    remove_run(made)


@pytest.fixture(scope="module")
def network(
    datacentre: DataCentre,
    make_prefix: Callable[[], str],
    shared_journal: CleanupJournal,
) -> Iterator[EmulatedNetwork]:
    """For all tests that leave it as they find it."""
    plan = network_plan(datacentre, make_prefix(), 0.1)
    with EmulatedNetwork(plan, shared_journal, CONTROLLER_PORT) as live:
        yield live


@pytest.fixture
def tenant(
    network: EmulatedNetwork, datacentre: DataCentre
) -> Iterator[TenantPlan]:
    """In the network for the test."""
    placed = a_tenant(datacentre, network.plan)
    network.configure_tenant(placed)
    yield placed
    network.remove_tenant(placed)


def command(*arguments: str) -> str:
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def asked(*arguments: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(command(*arguments) or "[]")
    return [row for row in shown if row]


def devices(prefix: str) -> list[str]:
    return sorted(
        name
        for _, name in socket.if_nameindex()
        if name.startswith(f"{prefix}-")
    )


def namespaces(prefix: str) -> list[str]:
    return sorted(p.name for p in NETNS_DIR.glob(f"{prefix}-*"))


def settings() -> dict[str, str]:
    return {
        name: Path(name).read_text().strip()
        for name in SETTINGS
        if Path(name).exists()
    }


def a_tenant(
    datacentre: DataCentre,
    plan: NetworkPlan,
    rate_bps: int = 20 * MBIT,
    tenant_id: int = 7,
) -> TenantPlan:
    """Three VMs: two on the first server, one on the second."""
    vms_on = ((0, 2), (1, 1))
    slots = tuple(
        s for server, n in vms_on for s in plan.slots_of_server[server][:n]
    )
    placement = Placement(datacentre.trees[0].root, vms_on)
    return tenant_plan(
        datacentre, plan, placement, slots, tenant_id, "j", rate_bps
    )


def flood(plan: NetworkPlan) -> None:
    """Let the bridges forward like plain switches: a tree has no loops, and no controller here."""
    for bridge in plan.bridges:
        command(
            "ovs-ofctl",
            "-O",
            "OpenFlow13",
            "add-flow",
            bridge.name,
            "actions=NORMAL",
        )


# ------------------------------------------------------------------------------------ up and down


@pytest.mark.smoke
def test_what_is_up_is_what_was_planned(
    network: EmulatedNetwork, shared_journal: CleanupJournal
) -> None:
    plan, journal = network.plan, shared_journal
    prefix = plan.prefix
    bridges = {
        str(name): (
            fail_mode,
            dict(other[1])["datapath-id"],
            dict(ids[1])[RUN_KEY],
            datapath,
        )
        for name, fail_mode, other, ids, datapath in MACHINE.rows(
            "Bridge",
            [
                "name",
                "fail_mode",
                "other_config",
                "external_ids",
                "datapath_type",
            ],
        )
        if str(name).startswith(f"{prefix}-")
    }
    assert bridges == {
        b.name: (
            "secure",
            f"{b.dpid:016x}",
            journal.tag.run,
            network.conditions.datapath,
        )
        for b in plan.bridges
    }
    for bridge in plan.bridges:
        assert command("ovs-vsctl", "get-controller", bridge.name) == (
            f"unix:{controller_socket(journal.tag.run)}\n"
        )
    interfaces = MACHINE.rows("Interface", ["name", "ofport"])
    number_of = {str(name): number for name, number in interfaces}
    ports = [s.port for s in plan.slots] + [
        p for k in plan.links for p in (k.lower, k.upper)
    ]
    assert {p.name: number_of[p.name] for p in ports} == {
        p.name: p.number for p in ports
    }
    for port in ports:
        assert (
            command("ovs-vsctl", "port-to-br", port.name).strip()
            == port.bridge
        )
    links = {
        row["ifname"]: row for row in asked("ip", "-json", "link", "show")
    }
    # The switch may raise its ends' MTU; the VM's end is what TCP goes by.
    assert all(
        "UP" in links[p.name]["flags"] and links[p.name]["mtu"] >= 1500
        for p in ports
    )
    assert namespaces(prefix) == sorted(s.netns for s in plan.slots)


def test_a_vms_inside_is_as_it_should_be(
    network: EmulatedNetwork,
) -> None:
    plan = network.plan
    for slot in plan.slots:
        inside = ("ip", "netns", "exec", slot.netns)
        by_name = {
            row["ifname"]: row
            for row in asked("ip", "-n", slot.netns, "-json", "address")
        }
        assert sorted(by_name) == ["eth0", "lo"]
        assert by_name["eth0"]["address"] == slot.mac
        assert by_name["eth0"]["mtu"] == 1500
        assert "UP" in by_name["eth0"]["flags"]
        assert "UP" in by_name["lo"]["flags"]
        assert (
            by_name["eth0"]["addr_info"] == []
        )  # not even an IPv6 address of its own
        for key, value in VM_SYSCTLS:
            assert (
                command(*inside, "sysctl", "-n", key).split()
                == value.split()
            )


def test_every_cable_joins_the_two_bridges_it_should(
    network: EmulatedNetwork,
) -> None:
    plan = network.plan
    index_of = {name: index for index, name in socket.if_nameindex()}
    links = {
        row["ifname"]: row
        for row in asked("ip", "-json", "link", "show", "type", "veth")
    }
    for link in plan.links:
        assert links[link.lower.name]["link"] == link.upper.name
        assert links[link.upper.name]["link"] == link.lower.name
    for slot in plan.slots:
        (inner,) = asked(
            "ip", "-n", slot.netns, "-json", "link", "show", "eth0"
        )
        assert inner["link_index"] == index_of[slot.port.name]


def test_the_switch_left_the_limits_alone(
    network: EmulatedNetwork,
) -> None:
    plan = network.plan
    for link in plan.links:
        for port in (link.lower, link.upper):
            classes = command("tc", "class", "show", "dev", port.name)
            rate = f"{plan.capacity_of_port[port.name] // MBIT}Mbit"
            assert (
                f"class htb 1:ffff root rate {rate} ceil {rate}" in classes
            )
            assert "class htb 1:fffe parent 1:ffff" in classes


@pytest.mark.needs("userspace-datapath")
def test_the_userspace_switch_sends_by_a_large_buffer(
    network: EmulatedNetwork,
) -> None:
    assert network.conditions.sockets.send_buffer_bytes > 0
    if network.conditions.sockets.offload is False:
        (slot, *_) = network.plan.slots
        shown = command(
            "ip", "netns", "exec", slot.netns, "ethtool", "-k", "eth0"
        )
        assert "tx-checksumming: off" in shown


def test_down_leaves_nothing_and_may_be_said_twice(
    plan: NetworkPlan, journal: CleanupJournal, prefix: str
) -> None:
    before = settings()
    live = EmulatedNetwork(plan, journal, CONTROLLER_PORT)
    live.up()
    assert len(devices(prefix)) > len(plan.links)
    live.down()
    live.down()
    assert devices(prefix) == []
    assert namespaces(prefix) == []
    assert devices_in_group(journal.tag.group) == set()
    assert not [
        r
        for r in MACHINE.rows("Port", ["name"])
        if str(r[0]).startswith(f"{prefix}-")
    ]
    assert not MACHINE.rows(
        "QoS", ["_uuid"], f"external_ids:{RUN_KEY}={journal.tag.run}"
    )
    assert journal.entries == ()
    assert settings() == before


def test_up_again_after_down(
    plan: NetworkPlan, journal: CleanupJournal, prefix: str
) -> None:
    for _ in range(2):
        with EmulatedNetwork(plan, journal, CONTROLLER_PORT):
            assert namespaces(prefix) == sorted(s.netns for s in plan.slots)


@pytest.mark.parametrize(
    "stage", ["check_ports", "open_namespaces", "ip_batch"]
)
def test_a_failure_on_the_way_up_leaves_nothing(
    plan: NetworkPlan,
    journal: CleanupJournal,
    prefix: str,
    stage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RunFailed(f"{stage} failed")

    owners = {
        "check_ports": SwitchDaemons,
        "open_namespaces": traffic_control,
    }
    monkeypatch.setattr(owners.get(stage, network_module), stage, fail)
    with pytest.raises(RunFailed, match=f"{stage} failed"):
        EmulatedNetwork(plan, journal, CONTROLLER_PORT).up()
    assert devices(prefix) == []
    assert namespaces(prefix) == []
    assert journal.entries == ()


# ------------------------------------------------------------------------------------ taken names


def make_namespace(plan: NetworkPlan) -> tuple[str, Callable[[], object]]:
    name = plan.slots[1].netns
    command("ip", "netns", "add", name)
    return f"network namespace {name}", lambda: command(
        "ip", "netns", "delete", name
    )


def make_device(plan: NetworkPlan) -> tuple[str, Callable[[], object]]:
    name = plan.links[0].upper.name
    command(
        "ip",
        "link",
        "add",
        name,
        "type",
        "veth",
        "peer",
        "name",
        f"{name[:10]}-far",
    )
    return f"network device {name}", lambda: command(
        "ip", "link", "delete", name
    )


def make_bridge(plan: NetworkPlan) -> tuple[str, Callable[[], object]]:
    name = plan.bridges[-1].name
    command(
        "ovs-vsctl",
        "add-br",
        name,
        "--",
        "set",
        "bridge",
        name,
        "datapath_type=netdev",
    )
    return f"bridge {name}", lambda: command("ovs-vsctl", "del-br", name)


@pytest.mark.parametrize("make", [make_namespace, make_device, make_bridge])
def test_a_taken_name_is_refused_and_left_alone(
    plan: NetworkPlan,
    journal: CleanupJournal,
    prefix: str,
    make: Callable[[NetworkPlan], tuple[str, Callable[[], object]]],
) -> None:
    taken, remove = make(plan)
    before = (devices(prefix), namespaces(prefix))
    try:
        with pytest.raises(
            MachineCannot, match=f"^{taken} exists"
        ) as caught:
            EmulatedNetwork(plan, journal, CONTROLLER_PORT).up()
        assert caught.value.exit_code == 3
        assert taken.split()[-1] in str(caught.value.hint)
        assert (devices(prefix), namespaces(prefix)) == before
        assert journal.entries == ()
        assert clean_leftovers() == []
        assert (devices(prefix), namespaces(prefix)) == before
    finally:
        remove()


# --------------------------------------------------------------------------------------- tenants


@pytest.mark.smoke
def test_a_tenants_packets_are_carried_and_counted_where_they_go(
    network: EmulatedNetwork, tenant: TenantPlan
) -> None:
    plan = network.plan
    flood(plan)
    ends = [
        plan.sending_port(directed).name
        for directed in range(2 * len(plan.links))
    ]
    reader = network.counter_reader([Limiter(None, name) for name in ends])
    before = reader.read()["sent_bytes"]
    here, _, there = tenant.vms
    ping = (
        "ping",
        "-c",
        "5",
        "-i",
        "0.05",
        "-s",
        "1000",
        "-W",
        "5",
        "-q",
        str(there.ip),
    )
    assert " 0% packet loss" in command(
        "ip", "netns", "exec", here.slot.netns, *ping
    )
    sent = dict(
        zip(
            ends,
            (reader.read()["sent_bytes"] - before).tolist(),
            strict=True,
        )
    )
    # Five packets of 1042 bytes each way, over every link: the tree has but one path.
    assert all(5 * 1042 <= sent[d] < 5 * 1042 + 2000 for d in sent), sent
    classes = [
        Limiter(None, ends[directed], 7) for directed, _ in tenant.link_bps
    ]
    caps = [Limiter(vm.slot.netns, "eth0") for vm in (here, tenant.vms[2])]
    counted = network.counter_reader([*classes, *caps]).read()
    assert (counted["sent_bytes"] >= 5 * 1042).all()
    assert not counted["drops"].any()
    assert network.vm_sent_bytes(tenant)[0] == counted["sent_bytes"][-2]
    assert network.unshaped_packets() == {}


def test_a_tenants_limits_are_in_the_kernel_and_follow_its_rate(
    network: EmulatedNetwork, tenant: TenantPlan
) -> None:
    plan = network.plan
    halved = tuple((d, bps // 2) for d, bps in tenant.link_bps)
    slower = replace(tenant, rate_bps=tenant.rate_bps // 2, link_bps=halved)

    def rates() -> tuple[set[str], set[str]]:
        on_links = {
            line.partition(" rate ")[2].split()[0]
            for directed, _ in tenant.link_bps
            for line in command(
                "tc",
                "class",
                "show",
                "dev",
                plan.sending_port(directed).name,
            ).splitlines()
            if "class htb 1:7 " in line
        }
        at_vms = {
            line.partition(" ceil ")[2].split()[0]
            for vm in tenant.vms
            for where, dev in (
                (("ip", "netns", "exec", vm.slot.netns), "eth0"),
                ((), vm.slot.port.name),
            )
            for line in command(
                *where, "tc", "class", "show", "dev", dev
            ).splitlines()
            if "class htb 1:1 " in line
        }
        return on_links, at_vms

    assert rates() == ({"20Mbit"}, {"20Mbit"})
    network.rerate_tenant(tenant, slower)
    assert rates() == ({"10Mbit"}, {"10Mbit"})
    network.rerate_tenant(slower, tenant)
    assert rates() == ({"20Mbit"}, {"20Mbit"})


def kernel_state(plan: NetworkPlan) -> str:
    """Limits, addresses and neighbours, everywhere."""
    out = []
    for port in (
        port for link in plan.links for port in (link.lower, link.upper)
    ):
        out += [
            command("tc", what, "show", "dev", port.name)
            for what in ("class", "qdisc")
        ]
        out.append(
            command(
                "tc", "filter", "show", "dev", port.name, "parent", "1:"
            )
        )
    for slot in plan.slots:
        out.append(command("tc", "qdisc", "show", "dev", slot.port.name))
        inside = ("ip", "netns", "exec", slot.netns)
        out.append(command(*inside, "tc", "qdisc", "show", "dev", "eth0"))
        out.append(
            command(
                "ip",
                "-n",
                slot.netns,
                "-4",
                "address",
                "show",
                "dev",
                "eth0",
            )
        )
        out.append(command("ip", "-n", slot.netns, "neighbour", "show"))
        out.append(command("ip", "-n", slot.netns, "route", "show"))
    return "\n".join(out)


def test_a_tenant_that_left_has_left_nothing(
    network: EmulatedNetwork, datacentre: DataCentre
) -> None:
    plan = network.plan
    before = kernel_state(plan)
    tenant = a_tenant(datacentre, plan)
    network.configure_tenant(tenant)
    assert kernel_state(plan) != before
    network.remove_tenant(tenant)
    assert kernel_state(plan) == before
    network.remove_tenant(tenant)
    assert kernel_state(plan) == before


def test_a_tenant_that_cannot_come_in_leaves_nothing(
    network: EmulatedNetwork, datacentre: DataCentre
) -> None:
    plan = network.plan
    untouched = kernel_state(plan)
    tenant = a_tenant(datacentre, plan)
    last = tenant.vms[-1]
    command(
        "ip",
        "-n",
        last.slot.netns,
        "address",
        "add",
        f"{last.ip}/22",
        "dev",
        "eth0",
    )
    before = kernel_state(plan)
    with pytest.raises(
        RunFailed, match=rf"'address add {last.ip}/22 dev eth0' in"
    ):
        network.configure_tenant(tenant)
    assert kernel_state(plan) == before
    network.remove_tenant(tenant)
    assert kernel_state(plan) == untouched


def test_what_was_planned_as_text_is_what_is_there(
    network: EmulatedNetwork, tenant: TenantPlan
) -> None:
    """The plan's text through tc itself, in an unused place, gives the same classes."""
    plan = network.plan
    section = next(
        s
        for s in tenant_limits(plan, tenant)
        if s.netns == tenant.vms[0].slot.netns
    )
    free = plan.slots[-1]
    text = "".join(f"{line.text()}\n" for line in section.lines)
    subprocess.run(
        ["ip", "netns", "exec", free.netns, "tc", "-batch", "-"],
        input=text, text=True, check=True, timeout=60,
    )  # fmt: skip

    def shown(netns: str) -> str:
        lines = command(
            "ip",
            "netns",
            "exec",
            netns,
            "tc",
            "-d",
            "class",
            "show",
            "dev",
            "eth0",
        )
        return re.sub(
            r" leaf \w+:", "", lines
        )  # the queue's handle is the kernel's choice

    by_text = shown(free.netns)
    command(
        *("ip", "netns", "exec", free.netns),
        *("tc", "qdisc", "delete", "dev", "eth0", "root"),
    )
    assert "mpu 64Kb" in by_text
    assert by_text == shown(tenant.vms[0].slot.netns)


# ------------------------------------------------------------------------------------- next runs


def test_the_next_run_takes_away_what_a_dead_one_left(
    plan: NetworkPlan, journal: CleanupJournal, prefix: str
) -> None:
    live = EmulatedNetwork(plan, journal, CONTROLLER_PORT)
    live.up()
    live._live_tc().close()  # as if the process had died: nothing was taken down
    removed = clean_leftovers()
    assert Removed("bridge", plan.bridges[0].name) in removed
    assert Removed("namespace", plan.slots[0].netns) in removed
    assert Removed("device", plan.links[0].lower.name) in removed
    assert devices(prefix) == []
    assert namespaces(prefix) == []
    assert journals() == []
