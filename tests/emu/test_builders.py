"""Mininet's own network against the batched builder's: the same things, and the same results."""

from __future__ import annotations

import csv
import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.backends.emu.cleanup import clean
from testbed.backends.emu.cleanup_journal import CleanupJournal, journals
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.emulation import network_kind
from testbed.backends.emu.open_vswitch import MACHINE
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.plan.network_plan import NetworkPlan, network_plan
from testbed.plan.switch_parts import MOST_WEIGHT
from tests.emu.test_kill import Run, foreign, settings, state, traces  # noqa: F401 - fixtures
from tests.emu.test_mininet_network import gone, shells
from tests.emu.test_network import a_tenant, asked, command, flood
from tests.emu.test_run import Testbed
from tests.support.interrupts import interrupt_at_start
from topologies.datacentre import DataCentre
from topologies.tree import tree

pytestmark = [
    pytest.mark.needs("mininet"),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*distutils:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

MBIT = 1_000_000
BUILDERS = ("batched", "plain")
CONTROLLER_PORT = 6699


@pytest.fixture
def datacentre() -> DataCentre:
    """Five bridges: a core, two racks, two servers with two VM slots each."""
    return tree([2, 1], [400 * MBIT, 1000 * MBIT], 2)


def built(
    builder: Any, plan: NetworkPlan, given: CleanupJournal
) -> EmulatedNetwork:
    return network_kind(builder, plan, lambda _: None)(
        plan, given, CONTROLLER_PORT
    )


# ----------------------------------------------------------------------------- the same network


def picture(network: EmulatedNetwork) -> dict[str, Any]:
    """Everything that other programs see of a network, but for numbers that are given anew."""
    plan = network.plan
    bridges = {b.name for b in plan.bridges}
    columns = [
        "name",
        "fail_mode",
        "datapath_id",
        "datapath_type",
        "protocols",
        "external_ids",
    ]
    found: dict[str, Any] = {
        str(name): rest
        for name, *rest in MACHINE.rows("Bridge", columns)
        if str(name) in bridges
    }
    targets = {
        name: command("ovs-vsctl", "get-controller", name)
        for name in bridges
    }
    ports = {port.name: port.bridge for port in plan.ports}
    owners = {
        port: command("ovs-vsctl", "port-to-br", port).strip()
        for port in ports
    }
    kept = command(
        "ovs-vsctl", "--columns=type", "--bare", "list", "QoS"
    ).split()
    queued = {
        str(n): bool(q[1:])
        for n, q in MACHINE.rows("Port", ["name", "qos"])
        if n in ports
    }
    numbers = {
        str(n): k
        for n, k in MACHINE.rows("Interface", ["name", "ofport"])
        if n in ports
    }
    return {
        "bridges": {name: row[:-1] for name, row in found.items()},
        "tags": {name: dict(row[-1][1]) for name, row in found.items()},
        "controllers": targets,
        "ports": owners,
        "numbers": numbers,
        "left alone by the switch": (queued, set(kept)),
        "devices": {
            row["ifname"]: (
                row["mtu"],
                row["group"],
                row["operstate"],
                row["txqlen"],
            )
            for row in asked("ip", "-json", "link", "show")
            if row["ifname"] in ports
        },
        "limits": {port: limits_of(port) for port in ports},
        "insides": {slot.netns: inside(slot.netns) for slot in plan.slots},
        "sockets": network.conditions.sockets.offload,
    }


def limits_of(port: str) -> str:
    """A device's classes, but for the handles that the kernel gives their queues."""
    return re.sub(
        r"leaf \w+:", "leaf", command("tc", "class", "show", "dev", port)
    )


def inside(netns: str) -> list[Any]:
    rows = asked("ip", "-json", "-netns", netns, "link", "show")
    shown = [
        (r["ifname"], r["mtu"], r["address"], r["operstate"]) for r in rows
    ]
    settled = (
        "net.ipv4.tcp_congestion_control",
        "net.ipv6.conf.all.disable_ipv6",
    )
    values = [
        command("ip", "netns", "exec", netns, "sysctl", "-n", key)
        for key in settled
    ]
    return [shown, values]


@pytest.mark.smoke
def test_mininet_builds_the_network_that_the_batches_build(
    datacentre: DataCentre,
    prefix: str,
    journal: CleanupJournal,
) -> None:
    """The same things; then limits and tenants are those of the object that built it."""
    plan = network_plan(datacentre, prefix, 0.1)
    pictures = {}
    for builder in BUILDERS:
        with built(builder, plan, journal) as network:
            assert network.builder == builder
            pictures[builder] = picture(network)
            object_with_a_tenant(network, datacentre)
        assert shells() == []
        assert journal.entries == ()
    assert pictures["plain"] == pictures["batched"]
    assert len(pictures["plain"]["devices"]) == len(plan.ports)


def object_with_a_tenant(
    network: EmulatedNetwork, datacentre: DataCentre
) -> None:
    plan = network.plan
    flood(plan)
    tenant = a_tenant(datacentre, plan)
    network.configure_tenant(tenant)
    net = network.mininet
    assert net is network.mininet
    # Slots and bridges are the plan's own values, by which the testbed names devices.
    assert [host.slot for host in net.hosts] == list(plan.slots)
    assert all(
        a.slot is b for a, b in zip(net.hosts, plan.slots, strict=True)
    )
    assert all(
        a.bridge is b
        for a, b in zip(net.switches, plan.bridges, strict=True)
    )
    for vm in tenant.vms:
        host = net[vm.slot.netns]
        named = (NETNS_DIR / vm.slot.netns).stat()
        assert (
            Path(f"/proc/{host.pid}/ns/net").stat().st_ino == named.st_ino
        )
        assert host.IP() == str(vm.ip)
        assert "ceil 20Mbit" in host.cmd("tc class show dev eth0")
        switch = net[vm.slot.port.bridge]
        assert "ceil 20Mbit" in switch.cmd(
            f"tc class show dev {vm.slot.port.name}"
        )
    assert net.pingAll() == 0
    net.start()  # it is up: nothing is made again
    assert net.ping() == 0
    assert network.unshaped_packets() == {}


# ----------------------------------------------------------------------------- the same results


JOBS = """
name: builders
seed: 3
topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 1}
scale: {rate: 0.1}
policies: [vc]
workload:
  kind: jobs
  jobs:
    - {id: ring, vms: 4, bandwidth: 75 Mbit/s, duration: 4 s, pattern: ring}
    - {id: all, vms: 3, bandwidth: 50 Mbit/s, duration: 4 s, pattern: all-to-all}
    - {id: pairs, vms: 6, bandwidth: 60 Mbit/s, duration: 4 s, pattern: permutation}
"""


def played(testbed: Testbed, builder: str, out: Path) -> dict[str, Any]:
    done = testbed.live("--out", str(out), "--builder", builder)
    assert done.returncode == 0, done.stderr
    (folder,) = out.iterdir()
    audited = testbed.run("audit", str(folder))
    assert audited.returncode == 0, audited.stdout
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    with (folder / "jobs.csv").open(encoding="utf-8") as file:
        ratios = {
            row["job_id"]: float(row["ratio"])
            for row in csv.DictReader(file)
        }
    provenance = json.loads((folder / "provenance.json").read_text("utf-8"))
    assert provenance["live"]["builder"] == builder
    events = [
        json.loads(each)
        for each in (folder / "events.jsonl").read_text().splitlines()
    ]
    places = {
        e["job_id"]: e["vms_on"]
        for e in events
        if e["event"] == "job_reserved"
    }
    assert journals(testbed.state) == []
    return {
        "ratios": ratios,
        "places": places,
        "fidelity": summary["fidelity"],
        "said": done.stderr,
    }


@pytest.mark.long
@pytest.mark.slow
def test_one_job_set_has_the_same_ratios_on_both_builders(
    prefix: str, tmp_path: Path
) -> None:
    """Bytes over a fat-tree: measured over estimated time within 1 %, job by job."""
    testbed = Testbed(prefix, tmp_path)
    testbed.file.write_text(JOBS, encoding="utf-8")
    for attempt in (
        "once",
        "again",
    ):  # only a machine that was disturbed is asked again
        runs = {
            each: played(testbed, each, tmp_path / attempt / each)
            for each in BUILDERS
        }
        if all(run["fidelity"]["verdict"] == "ok" for run in runs.values()):
            break
    plain, batched = runs["plain"], runs["batched"]
    assert "Mininet builds 64 links one by one" in plain["said"]
    assert plain["places"] == batched["places"]
    assert set(plain["ratios"]) == {"ring", "all", "pairs"}
    assert plain["ratios"] == pytest.approx(batched["ratios"], rel=0.01), (
        runs
    )


def test_a_network_in_parts_is_refused(prefix: str, tmp_path: Path) -> None:
    if Path("/sys/module/openvswitch").exists():
        pytest.skip("the kernel's datapath has no parts")
    testbed = Testbed(prefix, tmp_path)
    testbed.file.write_text(JOBS.replace("k: 4", "k: 6"), encoding="utf-8")
    done = testbed.live("--builder", "plain")
    assert done.returncode == 2
    assert "switch parts on the userspace datapath" in done.stderr
    assert not list((testbed.state / "runs").glob("*"))


# ------------------------------------------------------------------------------------- cleaning


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.long)])
def strikes(request: pytest.FixtureRequest) -> Iterator[float]:
    """Moments in the network's coming up, which takes Mininet a second or so."""
    stream = random.Random(time.time_ns())
    if request.param == 1:
        return iter([1.6 * stream.random()])
    return iter([0.1, *sorted(1.6 * stream.random() for _ in range(2))])


def test_killed_at_any_moment_what_mininet_made_is_removed_and_nothing_else(
    prefix: str,
    state: Path,  # noqa: F811
    tmp_path: Path,
    foreign: list[str],  # noqa: F811
    strikes: Iterator[float],
) -> None:
    before = settings()
    for after_s in strikes:
        run = Run(prefix, tmp_path, MOST_WEIGHT, "plain")
        run.end(signal.SIGKILL, after_s)
        removed = clean()
        left = [
            trace
            for trace in traces(prefix, run.tag)
            if trace not in foreign
        ]
        assert left == [], (
            f"killed after {after_s:.3f} s, clean removed {len(removed)} things"
        )
        gone(*shells_of_mininet())
        assert journals() == []
        assert settings() == before
        assert clean() == []


def test_interrupted_mininets_network_goes_by_itself(
    prefix: str,
    state: Path,  # noqa: F811
    tmp_path: Path,
    strikes: Iterator[float],
) -> None:
    for after_s in strikes:
        run = Run(prefix, tmp_path, MOST_WEIGHT, "plain")
        run.end(signal.SIGINT, after_s)
        assert run.process.returncode == 130, (
            f"after {after_s:.3f} s: {run.output}"
        )
        assert traces(prefix, run.tag) == []
        gone(*shells_of_mininet())
        assert journals() == []


@pytest.mark.short("attach")
@pytest.mark.parametrize(
    "argument", ["mininet:h2", "attach", "mininet:{}-c0"]
)
def test_interrupted_as_a_process_starts_mininets_network_goes(
    datacentre: DataCentre,
    prefix: str,
    journal: CleanupJournal,
    monkeypatch: pytest.MonkeyPatch,
    argument: str,
) -> None:
    """The shell of a host, the name of its namespace, the shell of a switch that gets a cable."""
    plan = network_plan(datacentre, prefix, 0.1)
    network = built("plain", plan, journal)
    happened = interrupt_at_start(monkeypatch, argument.format(prefix))
    with pytest.raises(KeyboardInterrupt):
        network.up()
    assert len(happened) == 1
    assert traces(prefix, journal.tag.run) == []
    assert shells() == []
    assert journal.entries == ()


def shells_of_mininet() -> list[int]:
    """Every shell of a Mininet node on this machine; the live network is one test's at a time."""
    found = subprocess.run(
        ["pgrep", "-f", "^bash .*mininet:"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(pid) for pid in found.stdout.split()]
