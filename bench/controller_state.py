"""The controller alone, on a fat-tree k=8 of fake switches: 1,000 tenants'
rules after its end.

It is killed and started again with what it had saved; its 208 switches come
back with the rules they had, or some of them with none. From the first hello to
the last switch that has exactly what is wanted of it. Then one core is lost,
and the tenants below it move to the others, as many at once as the testbed
moves: from the first request to the last answer, when the old tree is empty.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median

from bench.fake_switches import FakeSwitches
from bench.samples import Result
from controller.api_client import ControllerClient, SwitchesMissing
from controller.flow_rules import Flow, desired_flows
from controller.process import ControllerProcess, start_controller
from controller.values import DesiredState, Tenant
from testbed.embedding.placement import Placement
from testbed.plan.network_plan import (
    NetworkPlan,
    Slot,
    controller_switches,
    controller_tenant,
    network_plan,
    tenant_plan,
)
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree

K = 8
SLOTS_PER_SERVER = 32
TENANTS = 1_000
VMS = 4
MOVED = 100
RATE_BPS = 1_000_000
RECONCILE_TARGET_S = 2.0
MOVE_TARGET_S = 1.0
MOVES_AT_ONCE = 32
"""As in ``testbed.backends.emu.emulation``."""
TIMEOUT_S = 60.0


def run(quick: bool) -> list[Result]:
    """Three cases of what the switches still have, and two of a lost core."""
    repeats = 10
    if quick:
        repeats = 3
    datacentre = fat_tree(K, 1_000_000_000, SLOTS_PER_SERVER)
    network = network_plan(datacentre)
    tenants, moved = spread_tenants(datacentre, network)
    state = DesiredState(controller_switches(network), tenants)
    with tempfile.TemporaryDirectory(prefix="bench-controller-") as folder:
        place = Path(folder) / "state"
        # The controller is another user's by then, and has to get in.
        Path(folder).chmod(0o755)
        saved_by_the_api(place, state)
        rows = _reconciling(place, state, repeats)
        rows += _moving(place, state, moved, repeats)
    sys.stderr.write("\n")
    return rows


def _reconciling(
    place: Path, state: DesiredState, repeats: int
) -> list[Result]:
    switches = FakeSwitches(desired_flows(state))
    # In order, so that a tenth is the same switches each time.
    dpids = sorted(switches.rules)
    cases: dict[str, list[int]] = {
        "all switches have their rules": [],
        "a tenth have lost all": dpids[::10],
        "all have lost all": dpids,
    }
    rows = []
    for name, lost in cases.items():
        took_s = []
        ready_s = []
        for number in range(repeats):
            sys.stderr.write(f"\r{name}: {number + 1} of {repeats}   ")
            ready, took = _reconciled_after(name, place, switches, lost)
            ready_s.append(ready)
            took_s.append(took)
        extra = {
            "rules_sent": _rules_of(switches, lost),
            "started_median_s": round(median(ready_s), 3),
        }
        rows.append(_row(name, took_s, RECONCILE_TARGET_S, extra))
    return rows


def _reconciled_after(
    name: str, place: Path, switches: FakeSwitches, lost: Sequence[int]
) -> tuple[float, float]:
    """Seconds of a controller's start, and until all switches are right.

    Raises RuntimeError where other rules were sent than those that were lost.
    """
    wanted = switches.rules
    due = _rules_of(switches, lost)
    switches.forget(lost)
    begin_s = time.perf_counter()
    with controller(place) as process:
        ready_s = time.perf_counter() - begin_s
        took_s = reconciled(process, switches)
        process.process.send_signal(signal.SIGKILL)
        switches.disconnect()
    sent = switches.settle()
    # That the rules are right shows little: those that were there are not to
    # be sent again.
    if switches.rules != wanted or sent != due:
        raise RuntimeError(f"{name}: {sent} changes were sent, not {due}")
    return ready_s, took_s


def _rules_of(switches: FakeSwitches, dpids: Sequence[int]) -> int:
    rules = switches.rules
    return sum(len(rules[dpid]) for dpid in dpids)


def _moving(
    place: Path, state: DesiredState, moved: Sequence[Tenant], repeats: int
) -> list[Result]:
    after = {tenant.id: tenant for tenant in (*state.tenants, *moved)}
    wanted = desired_flows(
        DesiredState(state.switches, tuple(after.values()))
    )
    cases = {
        "its links are lost": [],
        "it is lost itself": [_first_core(state)],
    }
    rows = []
    for name, gone in cases.items():
        took_s = []
        for number in range(repeats):
            sys.stderr.write(f"\r{name}: {number + 1} of {repeats}   ")
            switches = FakeSwitches(desired_flows(state))
            took_s.append(_moved_s(place, switches, gone, moved))
            if (dpid := _wrong_switch(switches, wanted, gone)) is not None:
                raise RuntimeError(
                    f"{name}: switch {dpid} has not what it is to have"
                )
        extra = {"moved": len(moved), "at_once": MOVES_AT_ONCE}
        rows.append(_row(f"core: {name}", took_s, MOVE_TARGET_S, extra))
    return rows


def _first_core(state: DesiredState) -> int:
    for switch in state.switches:
        if switch.role == "core":
            return switch.dpid
    raise RuntimeError("the network has no core switch")


def _moved_s(
    place: Path,
    switches: FakeSwitches,
    gone: Sequence[int],
    moved: Sequence[Tenant],
) -> float:
    """Seconds until a fresh controller has moved all these tenants."""
    again = place.with_name("again")
    # A copy: a move is saved, and each repetition begins from the same state.
    shutil.copytree(place, again)
    with controller(again) as process:
        reconciled(process, switches, gone)
        begin_s = time.perf_counter()
        with ThreadPoolExecutor(MOVES_AT_ONCE) as pool:
            list(pool.map(partial(_move, process), moved))
        took_s = time.perf_counter() - begin_s
        process.process.send_signal(signal.SIGKILL)
        switches.disconnect()
    shutil.rmtree(again)
    switches.settle()
    return took_s


def _wrong_switch(
    switches: FakeSwitches,
    wanted: Mapping[int, Iterable[Flow]],
    gone: Sequence[int],
) -> int | None:
    """The first switch, of those that are not gone, with other rules."""
    for dpid, rules in switches.rules.items():
        if dpid not in gone and rules != frozenset(wanted[dpid]):
            return dpid
    return None


def _move(process: ControllerProcess, tenant: Tenant) -> None:
    with ControllerClient(process.api_port, process.token) as client:
        client.move_tenant(tenant, TIMEOUT_S)


def spread_tenants(
    datacentre: DataCentre, network: NetworkPlan
) -> tuple[tuple[Tenant, ...], tuple[Tenant, ...]]:
    """Tenants with a VM on each of four servers; and of a tenth of them, which
    are below the first core, their places below other cores.
    """
    draw = random.Random(1)  # noqa: S311 - which servers, not a secret
    free = {
        server: list(slots)
        for server, slots in network.slots_of_server.items()
    }
    first, *others = (tree.root for tree in datacentre.trees)
    tenants = []
    moved = []
    for number in range(1, TENANTS + 1):
        slots = _drawn_slots(draw, free)
        below = partial(
            _tenant,
            datacentre=datacentre,
            network=network,
            number=number,
            slots=slots,
        )
        root = others[number % len(others)]
        if number % (TENANTS // MOVED) == 0:
            tenants.append(below(root=first))
            moved.append(below(root=root))
        else:
            tenants.append(below(root=root))
    return tuple(tenants), tuple(moved)


def _drawn_slots(
    draw: random.Random, free: dict[int, list[Slot]]
) -> dict[int, Slot]:
    """Draws servers with a free slot; takes one of each."""
    open_servers = [server for server, slots in free.items() if slots]
    servers = sorted(draw.sample(open_servers, VMS))
    return {server: free[server].pop() for server in servers}


def _tenant(
    datacentre: DataCentre,
    network: NetworkPlan,
    number: int,
    slots: dict[int, Slot],
    root: int,
) -> Tenant:
    vms_on = tuple((server, 1) for server in slots)
    plan = tenant_plan(
        datacentre=datacentre,
        network=network,
        placement=Placement(root, vms_on),
        slots=tuple(slots.values()),
        tenant_id=number,
        job_id=f"t{number}",
        rate_bps=RATE_BPS,
    )
    return controller_tenant(network, plan)


@contextmanager
def controller(place: Path) -> Iterator[ControllerProcess]:
    """A controller with the state saved in ``place``."""
    ports = ("--openflow-port", "0", "--api-port", "0")
    with (
        tempfile.TemporaryFile() as log,
        start_controller(log, *ports, "--state-dir", str(place)) as process,
    ):
        yield process


def saved_by_the_api(place: Path, state: DesiredState) -> None:
    """Saves a state as a controller does that receives it by its API."""
    with controller(place) as process, process.client() as client:
        client.put_network(state.switches)
        for tenant in state.tenants:
            # No switch is connected yet; the controller saves it anyway.
            with suppress(SwitchesMissing):
                client.add_tenant(tenant, timeout_s=0)
        process.process.send_signal(signal.SIGKILL)


def reconciled(
    process: ControllerProcess,
    switches: FakeSwitches,
    without: Sequence[int] = (),
) -> float:
    """Seconds from the first hello until all switches, ``without`` some, have
    confirmed.
    """
    present = [dpid for dpid in switches.rules if dpid not in without]
    with ControllerClient(process.api_port, process.token) as client:
        begin_s = time.perf_counter()
        switches.connect(process.openflow_port, present)
        client.wait_connected(present, timeout_s=TIMEOUT_S)
        return time.perf_counter() - begin_s


def _row(
    name: str,
    took_s: list[float],
    target_s: float,
    extra: Mapping[str, object],
) -> Result:
    return Result(
        name,
        "s",
        samples=tuple(took_s),
        target=f"median at most {target_s:g} s",
        meets=median(took_s) <= target_s,
        extra={"tenants": TENANTS, **extra},
    )
