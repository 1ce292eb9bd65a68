"""Two tenants on one shared link, reserved 40 and 60 % of it; the second
attacks the first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, islice
from statistics import median
from unittest import mock

from bench.live_network import network, pair, start_in_namespace, transfer
from bench.samples import Result
from jobs.vm_names import HOSTS
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.limiter_counters import Limiter
from testbed.backends.emu.pseudo_terminal import ProgramStreams
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.backends.emu.vm_process import VmPlace, start_process
from testbed.embedding.placement import Placement
from testbed.errors import RunFailed
from testbed.plan import vm_limits
from testbed.plan.limits import packets_per_s
from testbed.plan.network_plan import TenantPlan, TenantVm, tenant_plan
from topologies.datacentre import up
from topologies.tree import tree

LINKS_MBPS = (50, 100, 200, 350, 500)
QUICK_LINKS_MBPS = (50, 200, 500)
DURATION_S = 4.0
KEEPS = 0.99
ATTACKER_SHARE = 0.6
ATTACKS_WITH = 0.9
WARM_UP_S = 1.5
PORT = 5201


@dataclass(frozen=True)
class Attack:
    """Options of iperf3, and the number of VMs that send, of four."""

    name: str
    options: tuple[str, ...]
    senders: int = 2


TCP = Attack("16 TCP flows", ("-P", "8"))
# Each sender alone would fill the link.
UDP = Attack(
    "UDP flood at line rate", ("-u", "-b", "{mbps}M", "-l", "1448")
)
# These cost the switch most: as many packets as its VMs may send, from all of
# them.
MANY_UDP = (
    UDP,
    Attack("UDP flood from four VMs", UDP.options, 4),
    Attack("64-byte UDP from four VMs", ("-u", "-b", "10M", "-l", "64"), 4),
)
MANY_AT_MBPS = 500
MANY = 10
HOGS_AT_MBPS = 200
LOOPS = 40
# Former weight of the whole run, VMs included, from before VMs had a group of
# their own.
ONCE_PER_CPU = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--loops",
        type=int,
        metavar="N",
        help="busy loops alone: N rounds with the weights of today and before",
    )


def run(quick: bool, args: argparse.Namespace) -> list[Result]:
    """Share of its guarantee that A keeps beside each attack, and alone, at
    each link capacity.

    Two servers below one switch; the link that the senders' server shares is
    its uplink. A: two VMs, one on each side. B: four VMs on A's sending server
    and two on the receiving one, so that its hose ⟨6, 30 %⟩ reserves 60 % of
    the link. Limits are as deployed: what B sends above its reservation is cut
    at its VMs' ends and, for what gets past them, in its classes. Floods of UDP
    at 500 Mbit/s, where packets are what the switch runs out of, are tried ten
    times. The last row's attack is on the processors.
    """
    if args.loops:
        return loop_rows(HOGS_AT_MBPS, args.loops)
    links_mbps: Sequence[int] = LINKS_MBPS
    repeats = 3
    many = MANY
    if quick:
        links_mbps = QUICK_LINKS_MBPS
        repeats = 1
        many = 1
    results = []
    for mbps in links_mbps:
        attacks = [(TCP, repeats)]
        if mbps == MANY_AT_MBPS:
            attacks += [(flood, many) for flood in MANY_UDP]
        else:
            attacks.append((UDP, repeats))
        results += rows(mbps, attacks, repeats)
    made = [beside_loops(HOGS_AT_MBPS, LOOPS) for _ in range(repeats)]
    results.append(alone_row(HOGS_AT_MBPS, made))
    results.append(loops_row(loops_name(HOGS_AT_MBPS), made))
    return results


def loops_name(mbps: int) -> str:
    return f"{mbps} Mbit/s, {LOOPS} busy loops in each of two VMs"


def rows(
    mbps: int, attacks: Sequence[tuple[Attack, int]], alone: int
) -> list[Result]:
    """The rows of one link capacity: undisturbed, then each attack with its
    number of tries.
    """
    link_bps = mbps * 1_000_000
    with network(tree([2], [link_bps], 5)) as emulation:
        victim = _victim(emulation, link_bps)
        attacker = _attacker(emulation, link_bps)
        emulation.admit(victim)
        emulation.admit(attacker)
        kept = _kept(emulation, victim, alone)
        results = [_row(f"{mbps} Mbit/s, alone", kept)]
        for attack, tries in attacks:
            with _attack(attacker, attack, mbps):
                before = _sent(emulation, attacker, attack)
                kept = _kept(emulation, victim, tries)
                sent = _sent(emulation, attacker, attack).since(before)
            row = _row(f"{mbps} Mbit/s, {attack.name}", kept)
            results.append(
                _attacked(
                    row=row,
                    sent=sent,
                    tenant=attacker,
                    attack=attack,
                    link_bps=link_bps,
                )
            )
    return results


def _victim(emulation: Emulation, link_bps: int) -> TenantPlan:
    """Tenant A, which reserves 40 % of the link."""
    return pair(
        emulation=emulation,
        tenant_id=1,
        slot=0,
        rate_bps=link_bps * 2 // 5,
    )


@dataclass(frozen=True)
class LoopRound:
    """Shares kept in one network within half a minute: alone, beside busy
    loops, and alone again.
    """

    before: float
    beside: float
    after: float

    @property
    def ratio(self) -> float:
        """Beside the loops, of what is kept alone; 0 where nothing is."""
        alone = (self.before + self.after) / 2
        if alone == 0.0:
            return 0.0
        return self.beside / alone

    @property
    def drift(self) -> float:
        """The smaller of the two shares alone, of the larger one."""
        larger = max(self.before, self.after)
        if larger == 0.0:
            return 0.0
        return min(self.before, self.after) / larger


def loop_rows(mbps: int, rounds: int) -> list[Result]:
    """The share kept alone, and beside busy loops with today's weights and with
    the former ones, in turns: what else the machine does is the same for all.
    """
    today: list[LoopRound] = []
    once: list[LoopRound] = []
    for number in range(rounds):
        turns = [
            (vm_limits.VM_PROCESSES_PER_CPU, today),
            (ONCE_PER_CPU, once),
        ]
        # In changing order: what the machine does meanwhile is not always
        # one side's.
        if number % 2:
            turns.reverse()
        for weight, made in turns:
            with mock.patch.object(
                vm_limits, "VM_PROCESSES_PER_CPU", weight
            ):
                made.append(beside_loops(mbps, LOOPS))
    name = loops_name(mbps)
    return [
        alone_row(mbps, [*today, *once]),
        loops_row(name, today),
        _former_weights_row(name, once),
    ]


def _former_weights_row(name: str, once: Sequence[LoopRound]) -> Result:
    """A row without a target: its verdict stands beside it."""
    weighs = f"; VMs weigh {ONCE_PER_CPU} processes a processor"
    row = loops_row(name + weighs, once)
    extra = {**row.extra, "by the same rule": _verdict(bool(row.meets))}
    return replace(row, target="", meets=None, extra=extra)


def _verdict(meets: bool) -> str:
    if meets:
        return "met"
    return "MISSED"


def alone_row(mbps: int, rounds: Sequence[LoopRound]) -> Result:
    """The reference: it has no target, as it is the machine's alone."""
    kept: list[float] = []
    for made in rounds:
        kept += (made.before, made.after)
    drifts = " ".join(f"{made.drift:.4f}" for made in rounds)
    return Result(
        f"{mbps} Mbit/s, alone",
        "share",
        tuple(kept),
        extra={"smaller of a round's two, of the larger": drifts}
        | former_rule(kept),
    )


def loops_row(name: str, rounds: Sequence[LoopRound]) -> Result:
    """Judged by pairs: what is kept beside the loops, of what is kept alone in
    the same network right before and after.

    On a machine in use a share falls under 99 % without any loop too. The
    median pair has to be good, and the worst one no worse than by what two
    shares alone differ in the same rounds.
    """
    ratios = [made.ratio for made in rounds]
    least = KEEPS * min(made.drift for made in rounds)
    beside = [made.beside for made in rounds]
    pairs = " ".join(f"{ratio:.4f}" for ratio in ratios)
    return Result(
        name,
        "share",
        samples=tuple(beside),
        target=f"of the share alone, in pairs: median {KEEPS:g}, each {least:.4f}",
        meets=median(ratios) >= KEEPS and min(ratios) >= least,
        extra={"pairs": pairs} | former_rule(beside),
    )


def former_rule(kept: Sequence[float]) -> dict[str, str]:
    """The verdict by the rule before pairs, which took no notice of the machine."""
    verdict = _verdict(min(kept) >= KEEPS)
    return {f"by the former rule, each at least {KEEPS:g}": verdict}


def beside_loops(mbps: int, loops: int) -> LoopRound:
    """The shares kept beside busy loops in two VMs, one on each server, and
    without them.

    The victim is as in :func:`rows`. What the loops take is processor time: the
    switch's, the controller's and the agents' must be left to them.
    """
    link_bps = mbps * 1_000_000
    with network(tree([2], [link_bps], 5)) as emulation:
        victim = _victim(emulation, link_bps)
        hogs = pair(
            emulation=emulation,
            tenant_id=2,
            slot=1,
            rate_bps=link_bps // 10,
        )
        emulation.admit(victim)
        emulation.admit(hogs)
        (before,) = _kept(emulation, victim, 1)
        # Alone before and after: the machine may change meanwhile.
        with ExitStack() as processes:
            for vm in hogs.vms:
                _start_loops(processes, emulation, vm, loops)
            time.sleep(WARM_UP_S)
            (beside,) = _kept(emulation, victim, 1)
        (after,) = _kept(emulation, victim, 1)
        return LoopRound(before, beside, after)


def _start_loops(
    processes: ExitStack, emulation: Emulation, vm: TenantVm, n: int
) -> None:
    """Busy loops in a VM; none without a shell for them."""
    if not n:
        return
    loops = f"for i in $(seq {n}); do while :; do :; done & done; wait"
    nothing = subprocess.DEVNULL
    streams = ProgramStreams(nothing, nothing, nothing)
    place = _hog_place(emulation, vm)
    shell = start_process(place, ["sh", "-c", loops], streams)
    # Callbacks run backwards: the VM's processes are ended, then the shell
    # is waited for.
    processes.callback(shell.wait)
    # By its group: the shell's children are not known by their ids.
    cgroup = emulation.cgroup
    processes.callback(cgroup.end_vm, vm.slot.server, vm.slot.index)


def _hog_place(emulation: Emulation, vm: TenantVm) -> VmPlace:
    return VmPlace(
        name=f"hog.{vm.index}",
        server=emulation.datacentre.names[vm.slot.server],
        ip=str(vm.ip),
        netns=str(NETNS_DIR / vm.slot.netns),
        cgroups=tuple(map(str, emulation.open_vm(vm.slot))),
        hosts=str(HOSTS),
        user=emulation.users.of_program(vm.slot),
    )


def _attacker(emulation: Emulation, link_bps: int) -> TenantPlan:
    by_server = emulation.plan.slots_of_server
    # The first slot of each server is the victim's.
    slots = (*by_server[0][1:5], *by_server[1][1:3])
    placement = Placement(
        emulation.datacentre.trees[0].root, ((0, 4), (1, 2))
    )
    rate_bps = link_bps * 3 // 10
    return tenant_plan(
        datacentre=emulation.datacentre,
        network=emulation.plan,
        placement=placement,
        slots=slots,
        tenant_id=2,
        job_id="attacker",
        rate_bps=rate_bps,
    )


@contextmanager
def _attack(
    attacker: TenantPlan, attack: Attack, mbps: int
) -> Iterator[None]:
    """Senders to the two receivers, until left. Every process is ended by its
    own handle.
    """
    options = [text.format(mbps=mbps) for text in attack.options]
    senders = attacker.vms[: attack.senders]
    # The last two VMs, on the other server; each has every second sender.
    receivers = list(islice(cycle(attacker.vms[4:]), attack.senders))
    with ExitStack() as processes:
        for port, receiver in enumerate(receivers, PORT):
            server = ("iperf3", "-s", "-p", str(port))
            start_in_namespace(processes, receiver.slot.netns, *server)
        # iperf3's client does not wait for a server.
        time.sleep(0.3)
        for port, sender in enumerate(senders, PORT):
            to = str(receivers[port - PORT].ip)
            client = ("iperf3", "-c", to, "-p", str(port), "-t", "600")
            netns = sender.slot.netns
            start_in_namespace(processes, netns, *client, *options)
        time.sleep(WARM_UP_S)
        yield


def _kept(
    emulation: Emulation, victim: TenantPlan, repeats: int
) -> list[float]:
    """Ideal over measured time; 0 for a transfer that never came through."""
    kept = []
    for _ in range(repeats):
        try:
            (sent,) = transfer(emulation, [victim], DURATION_S)
        except RunFailed:
            kept.append(0.0)
        else:
            kept.append(1 / sent.ratio)
    return kept


@dataclass(frozen=True)
class Sent:
    """Bytes through the tenant's class on the shared link, packets that left
    its senders, when.
    """

    n_bytes: int
    packets: int
    at_s: float

    def since(self, before: Sent) -> Sent:
        """Bytes and packets a second, in the seconds since an earlier one."""
        passed_s = self.at_s - before.at_s
        return Sent(
            n_bytes=round((self.n_bytes - before.n_bytes) / passed_s),
            packets=round((self.packets - before.packets) / passed_s),
            at_s=passed_s,
        )


def _sent(emulation: Emulation, tenant: TenantPlan, attack: Attack) -> Sent:
    shared = up(int(emulation.datacentre.trees[0].uplink[0]))
    port = emulation.plan.sending_port(shared).name
    at = Limiter(None, port, tenant.tenant_id)
    (row,) = emulation.network.counter_reader([at]).read()
    packets = sum(_packets(vm) for vm in tenant.vms[: attack.senders])
    return Sent(int(row["sent_bytes"]), packets, time.monotonic())


def _packets(vm: TenantVm) -> int:
    """Packets that left a VM, by the counter of its own limit."""
    inside = ("ip", "netns", "exec", vm.slot.netns)
    shown = subprocess.run(
        [*inside, "tc", "-s", "-json", "qdisc", "show"],
        capture_output=True,
        check=True,
        timeout=10,
    )
    for row in json.loads(shown.stdout):
        if row["kind"] == "htb":
            return int(row["packets"])
    raise RunFailed(f"{vm.slot.netns} has no limit")


def _row(name: str, kept: list[float]) -> Result:
    meets = min(kept) >= KEEPS
    return Result(
        name,
        "share",
        samples=tuple(kept),
        target="at least 99 % of the guarantee",
        meets=meets,
    )


def _attacked(
    row: Result,
    sent: Sent,
    tenant: TenantPlan,
    attack: Attack,
    link_bps: int,
) -> Result:
    """A row counts only if the attacker meanwhile sent all that it may, in
    bytes or in packets.
    """
    filled = sent.n_bytes * 8 >= ATTACKS_WITH * ATTACKER_SHARE * link_bps
    n_kept = sum(share >= KEEPS for share in row.samples)
    extra = {
        "held": f"{n_kept} of {len(row.samples)}",
        "attacker_mbps": round(sent.n_bytes * 8 / 1e6, 1),
    }
    if "-u" in attack.options:  # tc counts the segments of TCP's packets
        allowed = packets_per_s(tenant.rate_bps, link_bps) * attack.senders
        filled |= sent.packets >= ATTACKS_WITH * allowed
        extra["attacker_packets_per_s"] = sent.packets
    return replace(row, meets=bool(row.meets) and filled, extra=extra)
