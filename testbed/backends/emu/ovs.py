"""Open vSwitch as the live network needs it: bridges, ports and controllers in one transaction.

What to ask of ``ovs-vsctl`` is pure (argument lists); asking is at the end of the file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from testbed.backends.emu.commands import run
from testbed.errors import RunFailed
from testbed.plan.network import Bridge, NetworkPlan, Port

Datapath = Literal["netdev", "system"]
RUN_KEY = "hosenet-run"
CONTROLLER_MAX_BACKOFF_MS = 1000
OVS_TIMEOUT_S = 120
NUMBERS_TIMEOUT_S = 60
NO_VALUE: object = ["set", []]  # an empty column, as OVSDB writes it in JSON


def datapath_type(module: Path = Path("/sys/module/openvswitch")) -> Datapath:
    """The kernel's datapath where its module is loaded, else the userspace one."""
    return "system" if module.exists() else "netdev"


def up_arguments(
    network: NetworkPlan, run_mark: str, datapath: Datapath, controller_port: int
) -> list[str]:
    """One transaction that makes every bridge with its ports, numbers and controller.

    Ports get the ``linux-noop`` discipline: with any other, or none, the switch wipes the limits
    that tc has set on them. Everything carries the run's mark.
    """
    mark = f"external_ids:{RUN_KEY}={run_mark}"
    ports_of: dict[str, list[Port]] = {bridge.name: [] for bridge in network.bridges}
    for port in _ports(network):
        ports_of[port.bridge].append(port)
    # Rows, not add-br and add-port: those look the whole database through every time.
    commands = [["--id=@noop", "create", "QoS", "type=linux-noop", mark]]
    for bridge in network.bridges:
        local = _port_rows(f"{bridge.node}.local", bridge.name, "type=internal")
        commands += local
        ids = [f"@p{bridge.node}.local"]
        for port in ports_of[bridge.name]:
            ids.append(f"@p{bridge.node}.{port.number}")
            request = f"ofport_request={port.number}"
            commands += _port_rows(ids[-1][2:], port.name, request, "qos=@noop", mark)
        commands += _bridge_rows(bridge, ids, datapath, controller_port, mark)
    bridges = [f"@b{bridge.node}" for bridge in network.bridges]
    commands.append(["add", "Open_vSwitch", ".", "bridges", *bridges])
    return _joined(commands)


def _port_rows(row: str, name: str, interface: str, *port: str) -> list[list[str]]:
    return [
        [f"--id=@i{row}", "create", "Interface", f"name={name}", interface],
        [f"--id=@p{row}", "create", "Port", f"name={name}", f"interfaces=@i{row}", *port],
    ]


def _bridge_rows(
    bridge: Bridge, ports: Sequence[str], datapath: Datapath, controller_port: int, mark: str
) -> list[list[str]]:
    controller = [
        f"--id=@c{bridge.node}", "create", "Controller",
        f'target="tcp:127.0.0.1:{controller_port}"', "connection_mode=out-of-band",
        f"max_backoff={CONTROLLER_MAX_BACKOFF_MS}",
    ]  # fmt: skip
    row = [
        f"--id=@b{bridge.node}", "create", "Bridge", f"name={bridge.name}",
        f"ports={','.join(ports)}", f"datapath_type={datapath}", "fail_mode=secure",
        "protocols=OpenFlow13", f"other_config:datapath-id={bridge.dpid:016x}",
        "other_config:disable-in-band=true", f"controller=@c{bridge.node}", mark,
    ]  # fmt: skip
    return [controller, row]


def down_arguments(bridges: Iterable[str]) -> list[str]:
    """One transaction that deletes bridges with all their ports."""
    return _joined([["--if-exists", "del-br", name] for name in bridges])


def qos_arguments(qos_rows: Iterable[str]) -> list[str]:
    """One transaction that deletes rows of the QoS table, once no port points to them."""
    return _joined([["--if-exists", "destroy", "QoS", row] for row in qos_rows])


def _joined(commands: Sequence[Sequence[str]]) -> list[str]:
    out: list[str] = []
    for command in commands:
        out += ["--", *command]
    return out


def _ports(network: NetworkPlan) -> Iterable[Port]:
    for slot in network.slots:
        yield slot.port
    for link in network.links:
        yield link.lower
        yield link.upper


# ------------------------------------------------------------------------------------- asking


@dataclass(frozen=True)
class Owned:
    """What in the switch's database bears a run's mark."""

    bridges: tuple[str, ...]
    qos_rows: tuple[str, ...]


def vsctl(arguments: Sequence[str], *, wait: bool = True, timeout_s: int = OVS_TIMEOUT_S) -> str:
    """One ``ovs-vsctl`` call; ``wait`` until the switch has done it, not only written it down."""
    flags = [f"--timeout={timeout_s}"] + ([] if wait else ["--no-wait"])
    return run(["ovs-vsctl", *flags, *arguments], timeout_s=timeout_s + 5).stdout


def rows(table: str, columns: Sequence[str], *conditions: str) -> list[list[Any]]:
    """Rows of a table of the switch's database; sets and maps come as OVSDB's JSON has them."""
    verb = "find" if conditions else "list"
    out = vsctl(
        ["--format=json", f"--columns={','.join(columns)}", verb, table, *conditions], wait=False
    )
    return list(json.loads(out)["data"]) if out.strip() else []


def owned_by(run_mark: str) -> Owned:
    """Bridges and QoS rows of a run."""
    condition = f"external_ids:{RUN_KEY}={run_mark}"
    bridges = [str(row[0]) for row in rows("Bridge", ["name"], condition)]
    qos = [str(row[0][1]) for row in rows("QoS", ["_uuid"], condition)]
    return Owned(tuple(sorted(bridges)), tuple(sorted(qos)))


def check_ports(network: NetworkPlan) -> None:
    """Every port is there under its number. Raises RunFailed naming the first that is not.

    ``ovs-vsctl`` succeeds even if the switch could not open a device. A switch that has only just
    started may write its numbers down a moment after it has said that it is done.
    """
    give_up_s = time.monotonic() + NUMBERS_TIMEOUT_S
    while True:
        found = {
            str(name): (number, error)
            for name, number, error in rows("Interface", ["name", "ofport", "error"])
        }
        wrong = [port for port in _ports(network) if not _as_planned(port, found)]
        if not wrong:
            return
        port = wrong[0]
        number, error = found.get(port.name, (NO_VALUE, "it is not in the switch's database"))
        if isinstance(error, str) or number != NO_VALUE or time.monotonic() > give_up_s:
            reason = error if isinstance(error, str) else f"it has number {number}"
            raise RunFailed(
                f"port {port.name} of {port.bridge} should be number {port.number}: {reason}"
            )
        time.sleep(0.05)


def _as_planned(port: Port, found: Mapping[str, tuple[object, object]]) -> bool:
    return found.get(port.name, (NO_VALUE, ""))[0] == port.number
