"""The feed of ``testbed watch up``: the process of this verb that stays root.

Once a second it reads the counters of the network that is up and writes them
into a pipe as a line of JSON. It reads nothing from the process that serves the
page. The first line is the layout; the last line is the reason for which the
feed ends.
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
"""Characters of a tenant's tc text and flows that the page gets."""
SAMPLES_PER_QUERY = 5
"""Samples for each query of links and switches: the replies are long, as they
list all cables.
"""


def started_feed() -> int:
    """Forks the feed; returns the descriptor to read its lines from.

    Raises the keeper's errors, such as that no network is up.
    """
    # Before the fork, so that this process reports the errors.
    first = _first_line()
    read_fd, write_fd = os.pipe()
    # A fork without a new program: the feed needs no module that is not loaded,
    # and the server has no socket or thread yet that the feed would inherit.
    if os.fork() == 0:
        os.close(read_fd)
        _write_lines(first, write_fd)
    os.close(write_fd)
    return read_fd


def _write_lines(first: dict[str, Any], write_fd: int) -> NoReturn:
    """Writes all lines and ends this process.

    It also ends when it writes and the pipe has no reader any more.
    """
    # Ctrl-C ends the page's process, and with it the reader of the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with os.fdopen(write_fd, "w", encoding="utf-8") as pipe:
            for line in _lines(first):
                json.dump(line, pipe, separators=(",", ":"))
                pipe.write("\n")
                # A line is passed on at once, not when 8 KiB are full.
                pipe.flush()
    except BaseException:  # noqa: BLE001 - there is nobody to report it to
        os._exit(1)
    # sys.exit would run the command's exit handlers, which the parent process
    # has to run, once.
    os._exit(0)


def _lines(first: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The first line, then a line per sample, then the reason of the end.

    Whenever the tenants have changed, a line with their texts is before that of
    the sample.
    """
    yield first
    states: dict[str, Any] = {}
    tenants: tuple[TenantState, ...] | None = None
    try:
        with closing(samples()) as network_samples:
            for number, (state, sample) in enumerate(network_samples):
                if number % SAMPLES_PER_QUERY == 0:
                    states = _link_and_switch_states(first["lower_ports"])
                # Not in each line: texts of many tenants have hundreds of
                # kilobytes.
                if state.tenants != tenants:
                    tenants = state.tenants
                    yield {"texts": _texts()}
                yield {**sample_line(state, sample), **states}
    except TestbedError as error:
        yield {"end": error.message}
    # Such as too many open sockets, or a namespace that was just removed.
    except OSError as error:
        reason = f"the network's counters cannot be read: {error}"
        yield {"end": f"{reason}: run testbed watch up again"}


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
    """The topology of a built network, in the form of ``run_started``.

    Capacities are in bit/s of the experiment. ``names`` has the nodes' names by
    their bridges; ``scale_rate`` is bit/s on the wire per bit/s of the
    experiment.
    """
    return {
        "names": _node_names(plan, names),
        "slots": _slots(plan),
        "links": _link_columns(plan, scale_rate),
    }


def _node_names(plan: NetworkPlan, names: dict[str, str]) -> list[str]:
    """Names in the order of the nodes' numbers."""
    n_nodes = 1 + max(bridge.node for bridge in plan.bridges)
    ordered = [""] * n_nodes
    for bridge in plan.bridges:
        ordered[bridge.node] = names[bridge.name]
    return ordered


def _slots(plan: NetworkPlan) -> list[int]:
    """Numbers of slots in the order of the servers."""
    servers = [
        bridge.node for bridge in plan.bridges if bridge.role == "server"
    ]
    # A server without slots is not among the keys of slots_of_server.
    return [len(plan.slots_of_server.get(node, ())) for node in servers]


def _link_columns(
    plan: NetworkPlan, scale_rate: float
) -> dict[str, list[int]]:
    """Ends and capacities of all links, in the columns of ``run_started``."""
    node_of = {bridge.name: bridge.node for bridge in plan.bridges}
    links = plan.links
    # The plan is in bit/s on the wire, the page in bit/s of the experiment.
    return {
        "lower": [node_of[link.lower.bridge] for link in links],
        "upper": [node_of[link.upper.bridge] for link in links],
        "capacity_bps": [round(link.up_bps / scale_rate) for link in links],
        "capacity_down_bps": [
            round(link.down_bps / scale_rate) for link in links
        ],
    }


def sample_line(
    state: NetworkState, sample: TrafficSample
) -> dict[str, Any]:
    """The line of a sample: columns by directed link, tenants, slots, trouble."""
    line: dict[str, Any] = {"interval_s": sample.interval_s}
    for column in ("reserved_bps", "sent_bps", "queued_bytes", "dropped"):
        line[column] = [getattr(link, column) for link in sample.links]
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
    """Each tenant with its rates; a tenant that was just added has none."""
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
        # The text of hundreds of VMs has megabytes: the page shows its
        # beginning, and `testbed tenant show` all of it.
        texts[tenant.job_id] = text[:LONGEST_TEXT]
    return texts


def _link_and_switch_states(lower_ports: list[str]) -> dict[str, Any]:
    """Numbers of the links that are down, and all Open vSwitches."""
    switches = [
        {"name": switch.name, "forwards": switch.pid is not None}
        for switch in ask(ShowSwitches(), tuple[SwitchState, ...])
    ]
    return {"down": _down(lower_ports), "switches": switches}


def _down(lower_ports: list[str]) -> list[int]:
    """Numbers of the links that are down, each found by its lower port."""
    number_of = {port: number for number, port in enumerate(lower_ports)}
    down = []
    for link in ask(ShowLinks(), tuple[LinkState, ...]):
        if link.up:
            continue
        for port in link.ports:
            # Upper ports have no number, nor have the cables of VMs.
            if port in number_of:
                down.append(number_of[port])
    return down
