"""``testbed up FILE``, ``status``, ``tenant …`` and ``down``: a network that
stays up.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, require_root
from testbed.errors import BadInput
from testbed.standing import keeper_protocol
from testbed.standing.keeper_protocol import ask
from testbed.standing.network_state import NetworkState, TenantState
from testbed.units import (
    UnitError,
    human_bandwidth,
    human_share,
    number_of,
    parse_bandwidth,
)


def status(as_json: Json = False) -> None:
    """Say what is up, since when and whose, its tenants and what they reserve.

    Of a run in progress it says which policy, and how far. Exit codes: 0 a
    network is up, 1 none is for tenants, 4 its keeper has ended without
    removing it.
    """
    require_root("testbed status")
    try:
        state = ask(keeper_protocol.ShowNetwork(), NetworkState)
    except keeper_protocol.NothingUp as error:
        _print_nothing_up(error, as_json=as_json)
        raise typer.Exit(1) from None
    if as_json:
        console.print_json({"up": True, **asdict(state)})
        return
    since = datetime.fromtimestamp(state.since_unix_s, UTC).astimezone()
    console.print_text(headline(state))
    console.print_text(
        f"since {since:%Y-%m-%d %H:%M:%S}, by {state.user}, process {state.pid}"
    )
    console.print_text(f"{state.file}\n{_reservations(state)}")
    if state.controller:
        console.print_text(
            f"flows: those of {state.controller}, none of the testbed's"
        )
    if state.pages:
        console.print_text(f"pages of the application: {state.pages}")
    if state.removed:
        console.print_text(f"removed: {state.removed}")
    if state.trouble:
        console.print_text(f"trouble: {state.trouble}")
    _print_tenants(state)


def _reservations(state: NetworkState) -> str:
    if state.open:
        # Of an open network all slots are the VMs of one tenant.
        vms = state.tenants[0].vms
        return (
            "open: no reservations, VM slots are hosts"
            f" {vms[0].name} to {vms[-1].name}"
        )
    slots = number_of(state.slots, "VM slot")
    reserved = f"reserved: {state.slots_taken} of {slots}"
    if state.busiest_link:
        share = human_share(state.busiest_share)
        reserved += f", {share} of the busiest link ({state.busiest_link})"
    return reserved


def _print_nothing_up(
    error: keeper_protocol.NothingUp, *, as_json: bool
) -> None:
    from testbed.record.running import how_far, sentences

    if as_json:
        record: dict[str, Any] = {"up": False}
        if error.run is not None:
            record["run"] = asdict(error.run) | asdict(how_far(error.run))
        console.print_json(record)
    elif error.run is None:
        console.print_text(f"{error.message}: {error.hint} makes one")
    else:
        console.print_text("\n".join(sentences(error.run)))


def down(as_json: Json = False) -> None:
    """Take the network down; ends when all is removed. Exit code 2 where none
    is up.
    """
    require_root("testbed down")
    ask(keeper_protocol.TakeDown(), type(None))
    console.print_result(
        {"up": False},
        "the network is down, and everything of it is removed",
        as_json=as_json,
    )


def headline(state: NetworkState) -> str:
    sizes = ", ".join(
        [
            number_of(state.slots, "VM slot"),
            number_of(state.bridges, "bridge"),
            number_of(state.cables, "link"),
        ]
    )
    return f"{state.name} is up ({state.topology}): {sizes}, rates times {state.scale_rate:g}"


# -- tenants


tenant = typer.Typer(no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A tenant's name.")
]
Vms = Annotated[
    int | None, typer.Option("--vms", min=1, help="How many VMs it has.")
]
RATE = "Bandwidth of each VM in the file's units, as '100 Mbit/s'."
Rate = Annotated[
    str, typer.Option("--bandwidth", metavar="RATE", help=RATE)
]
NewRate = Annotated[str, typer.Argument(metavar="RATE", help=RATE)]
Chosen = Annotated[
    str | None,
    typer.Option(
        "--embedder", metavar="NAME", help="In place of the file's."
    ),
]
AT = "Place so many VMs on a server, by its name or number. May be given several times."
MODE = "In place of the file's: strict, work-conserving or none."
Mode = Annotated[
    str | None, typer.Option("--enforcement", metavar="MODE", help=MODE)
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", metavar="NAME", help="Place by its embedder."),
]
At = Annotated[
    list[str] | None, typer.Option("--at", metavar="SERVER:VMS", help=AT)
]


@tenant.command()
def add(
    name: Name,
    bandwidth: Rate,
    vms: Vms = None,
    embedder: Chosen = None,
    policy: Policy = None,
    at: At = None,
    enforcement: Mode = None,
    as_json: Json = False,
) -> None:
    """Admit a tenant. Exit code 1, and nothing has changed, where it does not
    fit.
    """
    places = tuple(map(_place, at or ()))
    methods = [bool(places), embedder is not None, policy is not None]
    if sum(methods) > 1:
        raise BadInput(
            "--at places VMs by hand, --embedder and --policy by a method: choose one"
        )
    if vms is None and not places:
        raise BadInput("how many VMs? --vms N, or --at SERVER:VMS")
    n_vms = vms or sum(count for _, count in places)
    request = keeper_protocol.AddTenant(
        name=name,
        n_vms=n_vms,
        bandwidth_bps=_bandwidth(bandwidth),
        embedder=embedder,
        at=places,
        enforcement=enforcement,
        policy=policy,
    )
    _changed(request, "tenant add", as_json=as_json)


@tenant.command()
def rerate(name: Name, rate: NewRate, as_json: Json = False) -> None:
    """Change a tenant's bandwidth in place. Exit code 1, and nothing has
    changed, if no room.
    """
    _changed(
        keeper_protocol.RerateTenant(name, _bandwidth(rate)),
        "tenant rerate",
        as_json=as_json,
    )


@tenant.command()
def remove(name: Name, as_json: Json = False) -> None:
    """Remove a tenant, and end whatever runs in its VMs."""
    require_root("testbed tenant remove")
    ask(keeper_protocol.RemoveTenant(name), type(None))
    console.print_result(
        {"removed": name}, f"tenant {name} is removed", as_json=as_json
    )


@tenant.command("list")
def list_(as_json: Json = False) -> None:
    """List the tenants."""
    require_root("testbed tenant list")
    state = ask(keeper_protocol.ShowNetwork(), NetworkState)
    if as_json:
        console.print_json(state.tenants)
    else:
        _print_tenants(state)


@tenant.command()
def show(name: Name, as_json: Json = False) -> None:
    """Show a tenant's VMs, and what it reserves on which links."""
    state = shown_tenant(name, "tenant show")
    if as_json:
        console.print_json(state)
        return
    console.print_text(_sentence(state))
    if state.trouble:
        console.print_text(f"trouble: {state.trouble}")
    vms = Table("VM", "address", "server", "namespace")
    links = Table("link", "reserved")
    for vm in state.vms:
        vms.add_row(vm.name, vm.ip, vm.server, Path(vm.netns).name)
    for link, reserved_bps in state.links:
        links.add_row(link, human_bandwidth(reserved_bps))
    console.out().print(vms, *([links] if state.links else []))


def shown_tenant(name: str, command: str) -> TenantState:
    """A tenant as the keeper knows it. Raises TestbedError."""
    require_root(f"testbed {command}")
    return ask(keeper_protocol.ShowTenant(name), TenantState)


def _changed(
    request: keeper_protocol.KeeperRequest, command: str, *, as_json: bool
) -> None:
    require_root(f"testbed {command}")
    state = ask(request, TenantState)
    console.print_result(state, _sentence(state), as_json=as_json)


def _bandwidth(text: str) -> int:
    try:
        return parse_bandwidth(text)
    except UnitError as error:
        raise BadInput(str(error)) from None


def _place(text: str) -> tuple[str, int]:
    """A server and how many VMs, from ``server 0:2`` or ``0:2``."""
    server, _, count = text.rpartition(":")
    if not (server and count.isascii() and count.isdecimal()):
        raise BadInput(
            f"--at {text}: write it as SERVER:VMS, as 'server 0:2' or 0:2"
        )
    return server, int(count)


ENFORCED = {"work-conserving": "work-conserving", "none": "not enforced"}


def _sentence(state: TenantState) -> str:
    names_on: dict[str, list[str]] = {}
    for vm in state.vms:
        names_on.setdefault(vm.server, []).append(vm.name)
    where = "; ".join(
        f"{' '.join(names)} on {server}"
        for server, names in names_on.items()
    )
    rate = human_bandwidth(state.bandwidth_bps)
    wire = human_bandwidth(state.wire_bps)
    mode = ""
    if state.enforcement != "strict":
        mode = f", {ENFORCED[state.enforcement]}"
    return f"tenant {state.name}: {len(state.vms)} × {rate} ({wire} on the wire{mode}): {where}"


def _print_tenants(state: NetworkState) -> None:
    if not state.tenants:
        console.print_text("no tenants")
        return
    table = Table(
        "tenant", "VMs", "bandwidth of each", "enforcement", "on servers"
    )
    for placed in state.tenants:
        # Each server once, in the order of the VMs.
        servers = dict.fromkeys(vm.server for vm in placed.vms)
        table.add_row(
            placed.name,
            str(len(placed.vms)),
            human_bandwidth(placed.bandwidth_bps),
            placed.enforcement,
            Text(", ".join(servers)),
        )
    console.out().print(table)
