"""The controller alone, on a fat-tree k=8 of fake switches: 1,000 tenants' rules after its end.

It is killed and started again with what it had saved; its 208 switches come back with the rules
they had, or some of them with none. From the first hello to the last switch that has exactly what
is wanted of it.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.fake_switches import FakeSwitches
from bench.samples import Result
from controller.api_client import ControllerClient, SwitchesMissing
from controller.flow_rules import desired_flows
from controller.process import ControllerProcess, start_controller
from controller.values import DesiredState, Tenant
from testbed.embedding.placement import Placement
from testbed.plan.network_plan import (
    NetworkPlan,
    controller_switches,
    controller_tenant,
    network_plan,
    tenant_plan,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree

K = 8
SLOTS_PER_SERVER = 32
TENANTS, VMS = 1_000, 4
RATE_BPS = 1_000_000
RECONCILE_TARGET_S = 2.0
TIMEOUT_S = 60.0


def run(quick: bool) -> list[Result]:
    """Three cases of what the switches still have."""
    repeats = 3 if quick else 10
    datacentre = fat_tree(K, 1_000_000_000, SLOTS_PER_SERVER)
    network = network_plan(datacentre)
    tenants = spread_tenants(datacentre, network)
    state = DesiredState(controller_switches(network), tenants)
    wanted = {dpid: frozenset(flows) for dpid, flows in desired_flows(state).items()}
    cases = {
        "all switches have their rules": [],
        "a tenth have lost all": sorted(wanted)[::10],
        "all have lost all": sorted(wanted),
    }
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-controller-") as folder:
        place = Path(folder) / "state"
        Path(folder).chmod(0o755)
        saved_by_the_api(place, state)
        switches = FakeSwitches(desired_flows(state))
        for name, lost in cases.items():
            took_s, ready_s = [], []
            for number in range(repeats):
                sys.stderr.write(f"\r{name}: {number + 1} of {repeats}   ")
                switches.forget(lost)
                begin_s = time.perf_counter()
                with controller(place) as process:
                    ready_s.append(time.perf_counter() - begin_s)
                    took_s.append(reconciled(process, switches))
                    process.process.send_signal(signal.SIGKILL)
                    switches.disconnect()
                sent = switches.settle()
                due = sum(len(wanted[dpid]) for dpid in lost)
                if switches.rules != wanted or sent != due:
                    raise RuntimeError(f"{name}: {sent} changes were sent, not {due}")
            rows.append(_row(name, took_s, ready_s, due))
    sys.stderr.write("\n")
    return rows


def spread_tenants(datacentre: DataCentre, network: NetworkPlan) -> tuple[Tenant, ...]:
    """Tenants of a VM on each of four servers, below each root in turn."""
    draw = random.Random(1)  # noqa: S311 - which servers, not a secret
    free = {server: list(slots) for server, slots in network.slots_of_server.items()}
    tenants = []
    for number in range(1, TENANTS + 1):
        open_servers = [server for server, slots in free.items() if slots]
        servers = sorted(draw.sample(open_servers, VMS))
        root = datacentre.trees[number % len(datacentre.trees)].root
        placement = Placement(root, tuple((server, 1) for server in servers))
        slots = tuple(free[server].pop() for server in servers)
        plan = tenant_plan(datacentre, network, placement, slots, number, f"t{number}", RATE_BPS)
        tenants.append(controller_tenant(network, plan))
    return tuple(tenants)


@contextmanager
def controller(place: Path) -> Iterator[ControllerProcess]:
    """A controller with the state saved in ``place``."""
    with tempfile.TemporaryFile() as log:
        options = ("--openflow-port", "0", "--api-port", "0", "--state-dir", str(place))
        with start_controller(log, *options) as process:
            yield process


def saved_by_the_api(place: Path, state: DesiredState) -> None:
    """The state as a controller saves it that is told, and then killed."""
    with controller(place) as process, process.client() as client:
        client.put_network(state.switches)
        for tenant in state.tenants:
            with suppress(SwitchesMissing):  # no switch is there yet
                client.add_tenant(tenant, timeout_s=0)
        process.process.send_signal(signal.SIGKILL)


def reconciled(process: ControllerProcess, switches: FakeSwitches) -> float:
    """Seconds from the first hello until all switches have confirmed."""
    with ControllerClient(process.api_port, process.token) as client:
        begin_s = time.perf_counter()
        switches.connect(process.openflow_port)
        client.wait_connected(timeout_s=TIMEOUT_S)
        return time.perf_counter() - begin_s


def _row(name: str, took_s: list[float], ready_s: list[float], changes: int) -> Result:
    target = f"median under {RECONCILE_TARGET_S:g} s"
    extra = {
        "tenants": TENANTS,
        "rules_sent": changes,
        "started_median_s": round(sorted(ready_s)[len(ready_s) // 2], 3),
    }
    meets = sorted(took_s)[len(took_s) // 2] <= RECONCILE_TARGET_S
    return Result(name, "s", tuple(took_s), target, meets, extra)
