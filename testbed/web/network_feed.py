"""The part of ``testbed watch up`` that stays root: it reads the counters of the
network that is up and writes them into a pipe, a line of JSON a second.

It reads nothing from the process that serves the page. The first line is the
layout, the last one says why there are no more.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any, NoReturn

from testbed.errors import TestbedError
from testbed.plan.installation import tenant_text
from testbed.plan.network_plan import NetworkPlan
from testbed.standing.keeper_protocol import (
    ShowLinks,
    ShowNetwork,
    ShowSwitches,
    ask,
)
from testbed.standing.network_layout import (
    NetworkLayout,
    ShowLayout,
    ShowPlans,
    TenantPlans,
)
from testbed.standing.network_state import (
    LinkState,
    NetworkState,
    SwitchState,
    TenantState,
)
from testbed.standing.traffic_rates import TrafficSample, samples

LONGEST_TEXT = 200_000
PARTS_EVERY = 5
"""Samples after which links and switches are asked for again: each reply has
all cables.
"""


def started_feed() -> int:
    """Forks the feed; the descriptor of its lines.

    Raises the keeper's errors where no network is up.
    """
    # Before the fork, so that its errors are the command's.
    first = _first_line()
    read_fd, write_fd = os.pipe()
    # A fork, and no new program: it needs nothing that is not loaded, and
    # nothing of the server's exists yet, no socket, thread or token's holder.
    if os.fork() == 0:
        os.close(read_fd)
        _write_lines(first, write_fd)
    os.close(write_fd)
    return read_fd


def _write_lines(first: dict[str, Any], write_fd: int) -> NoReturn:
    """Runs the feed's process, which ends when nobody reads any more."""
    # Ctrl-C ends the page, and with it the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with os.fdopen(write_fd, "w", encoding="utf-8") as pipe:
            for line in _lines(first):
                json.dump(line, pipe, separators=(",", ":"))
                pipe.write("\n")
                # A second is shown when it is over, not when 8 KiB are full.
                pipe.flush()
    except BaseException:  # noqa: BLE001 - there is nobody to report it to
        os._exit(1)
    # Not by sys.exit: the handlers of the command's end are the other
    # process's to run, once.
    os._exit(0)


def _lines(first: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield first
    parts: dict[str, Any] = {}
    tenants: tuple[TenantState, ...] | None = None
    try:
        with closing(samples()) as taken:
            for number, (state, sample) in enumerate(taken):
                if number % PARTS_EVERY == 0:
                    parts = _parts(first["lower_ports"])
                # Hundreds of kilobytes for many tenants: sent with a change
                # of theirs alone, and ahead of the sample that shows it.
                if state.tenants != tenants:
                    tenants = state.tenants
                    yield {"texts": _texts()}
                yield {**sample_line(state, sample), **parts}
    except TestbedError as error:
        yield {"end": error.message}


def _first_line() -> dict[str, Any]:
    layout = ask(ShowLayout(), NetworkLayout)
    state = ask(ShowNetwork(), NetworkState)
    plans = ask(ShowPlans(), TenantPlans)
    topology = standing_topology(layout.plan, plans.names, state.scale_rate)
    return {
        "topology": topology,
        "lower_ports": [link.lower.name for link in layout.plan.links],
        "upper_ports": [link.upper.name for link in layout.plan.links],
        "bridges": {
            bridge.name: bridge.node for bridge in layout.plan.bridges
        },
        "name": state.name,
        "file": state.file,
        "since_unix_s": state.since_unix_s,
    }


def standing_topology(
    plan: NetworkPlan, names: dict[str, str], scale_rate: float
) -> dict[str, Any]:
    """A network as it was built, in the form of ``run_started``; capacities in
    the experiment's bit/s. ``names``: of its nodes, by bridge.
    """
    return {
        "names": _node_names(plan, names),
        "slots": _slots(plan),
        "links": _link_columns(plan, scale_rate),
    }


def _node_names(plan: NetworkPlan, names: dict[str, str]) -> list[str]:
    """Names by the number of the node."""
    n_nodes = 1 + max(bridge.node for bridge in plan.bridges)
    name_of = [""] * n_nodes
    for bridge in plan.bridges:
        name_of[bridge.node] = names[bridge.name]
    return name_of


def _slots(plan: NetworkPlan) -> list[int]:
    """Number of slots by server; the plan has no servers without slots."""
    n_servers = 1 + max(plan.slots_of_server, default=-1)
    slots = [0] * n_servers
    for server, of_server in plan.slots_of_server.items():
        slots[server] = len(of_server)
    return slots


def _link_columns(
    plan: NetworkPlan, scale_rate: float
) -> dict[str, list[int]]:
    """Ends and capacities of all links, by column as ``run_started`` has them."""
    node_of = {bridge.name: bridge.node for bridge in plan.bridges}
    links: dict[str, list[int]] = {
        "lower": [],
        "upper": [],
        "capacity_bps": [],
        "capacity_down_bps": [],
    }
    for link in plan.links:
        links["lower"].append(node_of[link.lower.bridge])
        links["upper"].append(node_of[link.upper.bridge])
        # The plan is in bit/s on the wire, the page in the file's units.
        links["capacity_bps"].append(round(link.up_bps / scale_rate))
        links["capacity_down_bps"].append(round(link.down_bps / scale_rate))
    return links


def sample_line(
    state: NetworkState, sample: TrafficSample
) -> dict[str, Any]:
    """A second of the network: rates by directed link, tenants, its trouble."""
    links = [asdict(link) for link in sample.links]
    line: dict[str, Any] = {"interval_s": sample.interval_s}
    for column in ("reserved_bps", "sent_bps", "queued_bytes", "dropped"):
        line[column] = [link[column] for link in links]
    return line | {
        "tenants": _tenants(state, sample),
        "slots": state.slots,
        "slots_taken": state.slots_taken,
        "trouble": state.trouble,
        "controller": state.controller,
    }


def _tenants(
    state: NetworkState, sample: TrafficSample
) -> list[dict[str, Any]]:
    """Each tenant with its rates; a tenant that has just come has none yet."""
    rates = {tenant.name: asdict(tenant) for tenant in sample.tenants}
    return [
        _tenant(tenant) | rates.get(tenant.name, {})
        for tenant in state.tenants
    ]


def _tenant(tenant: TenantState) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "bandwidth_bps": tenant.bandwidth_bps,
        "enforcement": tenant.enforcement,
        "trouble": tenant.trouble,
        "n_vms": len(tenant.vms),
        "placed": Counter(place.server for place in tenant.vms),
    }


def _texts() -> dict[str, str]:
    """The tc text and the flows of each tenant, as installed."""
    network = ask(ShowLayout(), NetworkLayout).plan
    plans = ask(ShowPlans(), TenantPlans)
    texts = {}
    for tenant in plans.tenants:
        text = tenant_text(network, tenant, plans.app or None)
        # A tenant of hundreds of VMs has megabytes, of which the page shows
        # the beginning; `testbed tenant show` has all.
        texts[tenant.job_id] = text[:LONGEST_TEXT]
    return texts


def _parts(lower_ports: list[str]) -> dict[str, Any]:
    """Links that are down, by number, and the Open vSwitches."""
    switches = [
        {"name": switch.name, "forwards": switch.pid is not None}
        for switch in ask(ShowSwitches(), tuple[SwitchState, ...])
    ]
    return {"down": _down(lower_ports), "switches": switches}


def _down(lower_ports: list[str]) -> list[int]:
    """Numbers of the links that are down."""
    number_of = {port: number for number, port in enumerate(lower_ports)}
    down = []
    for link in ask(ShowLinks(), tuple[LinkState, ...]):
        if not link.up:
            # A VM's cable is none of the data centre's links.
            ports = [port for port in link.ports if port in number_of]
            down += [number_of[port] for port in ports]
    return down
