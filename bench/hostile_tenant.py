"""Two tenants on one shared link, reserved 40 and 60 % of it; the second attacks the first."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from bench.live_network import network, pair, transfer
from bench.samples import Result
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.limiter_counters import Limiter
from testbed.embedding.placement import Placement
from testbed.errors import RunFailed
from testbed.plan.network_plan import TenantPlan, TenantVm, tenant_plan
from topologies.datacentre import up
from topologies.tree import tree

LINKS_MBPS = (50, 100, 200, 350, 500)
DURATION_S = 4.0
KEEPS = 0.99
ATTACKER_SHARE = 0.6
ATTACKS_WITH = 0.9
WARM_UP_S = 1.5
ATTACKS = {
    "16 TCP flows": ("-P", "8"),
    # Each of the two senders alone would fill the link.
    "UDP flood at line rate": ("-u", "-b", "{mbps}M", "-l", "1448"),
}


def run(quick: bool) -> list[Result]:
    """Share of its guarantee that A keeps beside each attack, and alone, at each link capacity.

    Two servers below one switch; the link that the senders' server shares is its uplink.
    A: two VMs, one on each side. B: four VMs on A's sending server and two on the receiving one,
    so that its hose ⟨6, 30 %⟩ reserves 60 % of the link. Limits are as deployed: what B sends above
    its reservation is cut at its VMs' ends and, for what gets past them, in its classes.
    """
    repeats = 1 if quick else 3
    results = []
    for mbps in LINKS_MBPS if not quick else LINKS_MBPS[::2]:
        link_bps = mbps * 1_000_000
        with network(tree([2], [link_bps], 5)) as emulation:
            victim = pair(emulation, 1, 0, link_bps * 2 // 5)
            attacker = _attacker(emulation, link_bps)
            emulation.admit(victim)
            emulation.admit(attacker)
            results.append(_row(f"{mbps} Mbit/s, alone", _kept(emulation, victim, repeats)))
            for name, templates in ATTACKS.items():
                options = tuple(text.format(mbps=mbps) for text in templates)
                with _attack(attacker, options):
                    before, began_s = _sent_bytes(emulation, attacker), time.monotonic()
                    kept = _kept(emulation, victim, repeats)
                    sent = _sent_bytes(emulation, attacker) - before
                    attack_bps = sent * 8 / (time.monotonic() - began_s)
                results.append(_attacked(f"{mbps} Mbit/s, {name}", kept, attack_bps, link_bps))
    return results


def _attacker(emulation: Emulation, link_bps: int) -> TenantPlan:
    by_server = emulation.plan.slots_of_server
    slots = (*by_server[0][1:5], *by_server[1][1:3])
    placement = Placement(emulation.datacentre.trees[0].root, ((0, 4), (1, 2)))
    rate_bps = link_bps * 3 // 10
    return tenant_plan(
        emulation.datacentre, emulation.plan, placement, slots, 2, "attacker", rate_bps
    )


@contextmanager
def _attack(attacker: TenantPlan, options: tuple[str, ...]) -> Iterator[None]:
    """Two senders to two receivers, until left. Every process is ended by its own handle."""
    with ExitStack() as processes:
        for receiver in attacker.vms[4:]:
            _started(processes, receiver, "-s")
        time.sleep(0.3)
        for sender, receiver in zip(attacker.vms[:2], attacker.vms[4:], strict=True):
            _started(processes, sender, "-c", str(receiver.ip), "-t", "120", *options)
        time.sleep(WARM_UP_S)
        yield


def _started(processes: ExitStack, vm: TenantVm, *arguments: str) -> None:
    process = subprocess.Popen(
        ["ip", "netns", "exec", vm.slot.netns, "iperf3", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    processes.callback(process.wait)
    processes.callback(process.kill)


def _kept(emulation: Emulation, victim: TenantPlan, repeats: int) -> list[float]:
    """Ideal over measured time; 0 for a transfer that never came through."""
    kept = []
    for _ in range(repeats):
        try:
            kept.append(1 / transfer(emulation, [victim], DURATION_S)[0].ratio)
        except RunFailed:
            kept.append(0.0)
    return kept


def _sent_bytes(emulation: Emulation, tenant: TenantPlan) -> int:
    """Bytes through the tenant's class on the shared link, the first server's uplink."""
    shared = up(int(emulation.datacentre.trees[0].uplink[0]))
    at = Limiter(None, emulation.plan.sending_port(shared).name, tenant.tenant_id)
    return int(emulation.network.counter_reader([at]).read()["sent_bytes"][0])


def _row(name: str, kept: list[float]) -> Result:
    meets = min(kept) >= KEEPS
    return Result(name, "share", tuple(kept), "at least 99 % of the guarantee", meets)


def _attacked(name: str, kept: list[float], attack_bps: float, link_bps: int) -> Result:
    """A row counts only if the attacker really filled its own reservation meanwhile."""
    row = _row(name, kept)
    filled = attack_bps >= ATTACKS_WITH * ATTACKER_SHARE * link_bps
    extra = {"attacker_mbps": round(attack_bps / 1e6, 1)}
    return replace(row, meets=bool(row.meets) and filled, extra=extra)
