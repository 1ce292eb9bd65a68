"""A live network for benchmarks: tenants placed by hand, transfers one way,
receiver-timed.
"""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import psutil

from jobs.live.agent_protocol import (
    AgentExited,
    AgentRefused,
    AgentReport,
    Plan,
    Ready,
)
from jobs.live.transfer_plan import Incoming, Outgoing, TransferPlan
from jobs.wire import ideal_transfer_s, payload_bytes
from testbed.backends.emu import emulation as emulation_module
from testbed.backends.emu.cgroups import RunCgroup, probe_layout
from testbed.backends.emu.cleanup import clean_leftovers, remove_run
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
    machine_lock,
)
from testbed.backends.emu.commands import run as run_command
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.part_switches import Part, switch_in_parts
from testbed.embedding.placement import Placement
from testbed.errors import RunFailed
from testbed.plan.network_plan import NetworkPlan, TenantPlan, tenant_plan
from testbed.plan.switch_parts import bridge_weights, switch_parts
from testbed.spec.experiment import Scale
from topologies.datacentre import DataCentre
from topologies.tree import tree

PORT = 5001
PINGS = 60
PING_EVERY_S = 0.1


def five_switches(link_bps: int, slots: int) -> DataCentre:
    """Two servers of ``slots`` VMs, five switches apart: server, rack, core,
    rack, server.
    """
    return tree([2, 1], [link_bps, link_bps], slots)


@contextmanager
def network(
    datacentre: DataCentre, prefix: str = "hb"
) -> Iterator[Emulation]:
    """The data centre live, at its real rates, taken down at the end."""
    with TemporaryDirectory(prefix="hosenet-bench-") as logs:
        options = LiveOptions(prefix=prefix)
        with emulate(
            datacentre=datacentre,
            scale=Scale(),
            options=options,
            log_dir=Path(logs),
            name="benchmark",
        ) as emulation:
            yield emulation


@contextmanager
def switch_of(n_parts: int | None) -> Iterator[None]:
    """Gives networks that come up in the block ``n_parts`` switch parts; None:
    as planned.
    """

    @contextmanager
    def in_parts(
        network: NetworkPlan, journal: CleanupJournal
    ) -> Iterator[tuple[Part, ...]]:
        with switch_in_parts(
            network, journal, weight_for(network, n_parts or 1)
        ) as parts:
            yield parts

    if n_parts is None:
        yield
        return
    with mock.patch.object(emulation_module, "switch_in_parts", in_parts):
        yield


def switch_memory_bytes(network: EmulatedNetwork) -> int:
    """Resident memory of the switch's processes."""
    total = 0
    for pid in network.switch_pids:
        if pid is not None:
            total += psutil.Process(pid).memory_info().rss
    return total


def weight_for(network: NetworkPlan, n_parts: int) -> int:
    """The least weight of a part at which a network has at most ``n_parts``."""
    # An equal share, rounded up; whole bridges may not fit into it.
    weight = math.ceil(sum(bridge_weights(network).values()) / n_parts)
    while len(switch_parts(network, weight)) > n_parts:
        weight += 1
    return weight


def pair(
    emulation: Emulation,
    tenant_id: int,
    slot: int,
    rate_bps: int,
    servers: tuple[int, int] = (0, 1),
) -> TenantPlan:
    """A tenant of two VMs, one on each of two servers, in the given slot of
    both.
    """
    by_server = emulation.plan.slots_of_server
    slots = tuple(by_server[server][slot] for server in servers)
    # By hand: an embedder would choose servers and slots itself.
    vms_on = tuple((server, 1) for server in servers)
    placement = Placement(emulation.datacentre.trees[0].root, vms_on)
    return tenant_plan(
        datacentre=emulation.datacentre,
        network=emulation.plan,
        placement=placement,
        slots=slots,
        tenant_id=tenant_id,
        job_id=f"pair{tenant_id}",
        rate_bps=rate_bps,
    )


def spread(
    emulation: Emulation, tenant_id: int, rate_bps: int, n_vms: int
) -> TenantPlan:
    """A tenant with a VM on each of the first servers, in their first slots."""
    by_server = emulation.plan.slots_of_server
    servers = range(n_vms)
    vms_on = tuple((server, 1) for server in servers)
    placement = Placement(emulation.datacentre.trees[0].root, vms_on)
    return tenant_plan(
        datacentre=emulation.datacentre,
        network=emulation.plan,
        placement=placement,
        slots=tuple(by_server[server][0] for server in servers),
        tenant_id=tenant_id,
        job_id=f"spread{tenant_id}",
        rate_bps=rate_bps,
    )


def start_in_namespace(
    processes: ExitStack, netns: str, *command: str
) -> None:
    """Starts a program whose output nobody reads; it is killed when
    ``processes`` closes.
    """
    process = subprocess.Popen(
        ["ip", "netns", "exec", netns, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Callbacks run backwards: it is killed, then waited for.
    processes.callback(process.wait)
    processes.callback(process.kill)


def play(
    emulation: Emulation,
    tenant: TenantPlan,
    plans: Sequence[Plan],
    timeout_s: float,
) -> tuple[float, list[AgentReport]]:
    """Seconds from the start to the last byte that a VM receives, and the
    VMs' reports.
    """
    names = spawn_agents(emulation, tenant, plans)
    reports, begin_ns = collect(emulation, names, timeout_s)
    last_ns = begin_ns
    for name in names:
        report = reports[name]
        if report.error is not None:
            raise RunFailed(f"{name}: {report.error}")
        last_ns = max(last_ns, report.last_byte_ns or 0)
    return (last_ns - begin_ns) / 1e9, [reports[name] for name in names]


@dataclass(frozen=True)
class ClassCount:
    """Counters of an HTB class; ``drops``: packets that its queue refused."""

    sent_bytes: int
    packets: int
    drops: int


def class_count(
    device: str, minor: int, netns: str | None = None
) -> ClassCount:
    """The kernel's counters of a class; ``netns`` None: of a switch's port."""
    command = ["tc", "-s", "class", "show", "dev", device]
    if netns is not None:
        command = ["ip", "netns", "exec", netns, *command]
    shown = run_command(command).stdout
    match = re.search(
        rf"^class htb 1:{minor:x} .*?Sent (\d+) bytes (\d+) pkt \(dropped (\d+)",
        shown,
        re.MULTILINE | re.DOTALL,
    )
    if match is not None:
        return ClassCount(*map(int, match.groups()))
    raise RunFailed(f"{device} has no class 1:{minor:x}")


def ping_ms(netns: str, address: str) -> tuple[float, ...]:
    """Round trips from a namespace, in ms, without the first three, which find
    their way.
    """
    pings = ("-i", str(PING_EVERY_S), "-c", str(PINGS + 3))
    done = run_command(
        ["ip", "netns", "exec", netns, "ping", *pings, address]
    )
    times_ms = re.findall(r"time=([\d.]+) ms", done.stdout)
    return tuple(map(float, times_ms[3:]))


@dataclass(frozen=True)
class Transfer:
    """One way from the tenant's VM 0 to VM 1: measured over ideal time."""

    rate_bps: int
    ideal_s: float
    measured_s: float
    retransmits: int

    @property
    def ratio(self) -> float:
        return self.measured_s / self.ideal_s


def transfer(
    emulation: Emulation, tenants: Sequence[TenantPlan], duration_s: float
) -> list[Transfer]:
    """All tenants send for ``duration_s`` at their rates, starting at one
    instant.
    """
    names: list[str] = []
    for tenant in tenants:
        names += _spawn_pair(emulation, tenant, duration_s)
    reports, begin_ns = collect(emulation, names, 20 * duration_s + 30)
    transfers = []
    for tenant in tenants:
        received = reports[f"{tenant.job_id}.1"]
        last_ns = received.last_byte_ns
        if last_ns is None:
            raise RunFailed(f"{tenant.job_id}: {received.error}")
        size = payload_bytes(tenant.rate_bps * duration_s)
        sent = reports[f"{tenant.job_id}.0"].sent
        transfers.append(
            Transfer(
                rate_bps=tenant.rate_bps,
                ideal_s=ideal_transfer_s(size, tenant.rate_bps),
                measured_s=(last_ns - begin_ns) / 1e9,
                retransmits=sum(flow.retransmits for flow in sent),
            )
        )
    return transfers


def repeated_transfers(
    emulation: Emulation,
    tenants: Sequence[TenantPlan],
    duration_s: float,
    repeats: int,
) -> list[Transfer]:
    """Admits tenants, repeats their transfers, and dismisses them."""
    for tenant in tenants:
        emulation.admit(tenant)
    transfers = []
    for _ in range(repeats):
        transfers += transfer(emulation, tenants, duration_s)
    for tenant in tenants:
        emulation.dismiss(tenant)
    return transfers


def journalled_run(stack: ExitStack, name: str) -> CleanupJournal:
    """Prepares the machine for a benchmark that makes parts of a network
    itself: lock, journal and control group, until the stack closes.
    """
    stack.enter_context(machine_lock(name))
    clean_leftovers()
    journal = CleanupJournal.create(name)
    stack.callback(remove_run, journal)
    cgroup = RunCgroup(probe_layout(), journal.tag.run)
    # In the journal first: what is made is found after a crash, too.
    journal.add(
        [JournalEntry("cgroup", str(path)) for path in cgroup.paths]
    )
    cgroup.create()
    stack.callback(cgroup.leave)
    cgroup.enter()
    return journal


def _spawn_pair(
    emulation: Emulation, tenant: TenantPlan, duration_s: float
) -> list[str]:
    """Agents of a sender and a receiver; returns their names."""
    size = payload_bytes(tenant.rate_bps * duration_s)
    sender, receiver = tenant.vms
    plans = (
        TransferPlan(
            index=0,
            ip=str(sender.ip),
            port=PORT,
            sends=(Outgoing(1, str(receiver.ip), PORT, size),),
            receives=(),
        ),
        TransferPlan(
            index=1,
            ip=str(receiver.ip),
            port=PORT,
            sends=(),
            receives=(Incoming(0, size),),
        ),
    )
    return spawn_agents(emulation, tenant, plans)


def spawn_agents(
    emulation: Emulation, tenant: TenantPlan, plans: Sequence[Plan]
) -> list[str]:
    """An agent in each VM of a tenant; returns their names, in the VMs' order."""
    names = []
    for vm, plan in zip(tenant.vms, plans, strict=True):
        name = f"{tenant.job_id}.{vm.index}"
        emulation.spawn(name, vm.slot, plan)
        names.append(name)
    return names


def collect(
    emulation: Emulation, names: Sequence[str], timeout_s: float
) -> tuple[dict[str, AgentReport], int]:
    """Start all agents together once they are ready; their reports and the
    start instant.
    """
    unready = set(names)
    alive = set(names)
    reports: dict[str, AgentReport] = {}
    begin_ns = 0
    give_up = time.monotonic() + timeout_s
    while alive and time.monotonic() < give_up:
        for name, message in emulation.agents.poll(0.5):
            match message:
                case Ready():
                    unready.discard(name)
                case AgentReport():
                    reports[name] = message
                case AgentExited():
                    alive.discard(name)
                case AgentRefused(reason=reason):
                    raise RunFailed(f"an agent was refused: {reason}")
                case _:
                    pass
        if not unready and not begin_ns:
            # Ahead, so that all agents have heard of the instant when it
            # comes.
            begin_ns = time.monotonic_ns() + 3_000_000
            emulation.agents.begin(names, begin_ns)
    missing = sorted(set(names) - set(reports))
    if missing:
        raise RunFailed(f"no report from {', '.join(missing)}")
    return reports, begin_ns
