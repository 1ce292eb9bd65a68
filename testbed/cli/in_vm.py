"""``testbed exec``, ``shell`` and ``measure``: in the VMs of the network that
is up.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from jobs.request import Enforcement
from testbed.backends.emu.vm_process import (
    VmPlace,
    run_in_each,
    run_program,
)
from testbed.cli import console
from testbed.cli.options import Json, require_root
from testbed.cli.standing import Name, shown_tenant
from testbed.errors import BadInput
from testbed.standing import vm_measurement
from testbed.standing.keeper_protocol import ShowNetwork, ask
from testbed.standing.network_state import NetworkState
from testbed.units import human_bandwidth, human_share

Vm = Annotated[
    str,
    typer.Argument(
        metavar="VM", help="A VM's name, as a.0, or h1 if open."
    ),
]
VmOrTenant = Annotated[
    str,
    typer.Argument(
        metavar="VM|TENANT", help="A VM's name, as a.0, or a tenant's."
    ),
]
Command = Annotated[
    list[str],
    typer.Argument(metavar="-- CMD…", help="The command and its words."),
]
Seconds = Annotated[
    int, typer.Option(min=1, max=600, help="How long iperf3 measures.")
]


def exec(target: VmOrTenant, command: Command) -> None:  # noqa: A001 - the verb's name
    """Run a command in a VM, unprivileged: as a user of the VM's own.

    Input, output and exit code are the command's; it has a terminal of its own.
    For a tenant it runs in every VM, without input; each line begins with the
    VM's name, and the exit code is the worst.
    """
    if (place := _vm(target, "exec")) is not None:
        raise typer.Exit(run_program(place, command))
    places = shown_tenant(target, "exec").vms
    raise typer.Exit(run_in_each(places, command, _say_line))


def shell(vm: Vm) -> None:
    """Open a shell in a VM, unprivileged; its prompt names the VM."""
    if (place := _vm(vm, "shell")) is None:
        raise BadInput(
            f"{vm} is no VM: a shell is in one of a tenant's, as {vm}.0"
        )
    bash = shutil.which("bash")
    argv = (
        [bash, "--noprofile", "--norc", "-i"] if bash else ["/bin/sh", "-i"]
    )
    prompt = f"[{place.name}] " + (r"\w \$ " if bash else "$ ")
    raise typer.Exit(run_program(place, argv, PS1=prompt))


def measure(
    name: Name, seconds: Seconds = 5, as_json: Json = False
) -> None:
    """Measure a tenant's bandwidth and round trips among its VMs, against its
    reservation.

    Exit code 1 where a VM's bandwidth is not within 1 % of what is reserved
    (below it, where bandwidth is lent; any will do where none is reserved), or
    pings are lost.
    """
    tenant = shown_tenant(name, "measure")
    with console.counted(
        f"measuring {name}", vm_measurement.expected_s(seconds)
    ) as advance:
        found = vm_measurement.measure(tenant, seconds, advance)
    if as_json:
        records = [asdict(one) | {"good": one.good} for one in found]
        console.print_json(
            {"tenant": name, "seconds": seconds, "pairs": records}
        )
    else:
        console.out().print(_table(name, found))
    if not all(one.good for one in found):
        raise typer.Exit(1)


UNRESERVED = (
    "; all send and receive at once: of a link with two capacities the faster "
    "direction measures low, since its acknowledgements wait behind the "
    "slower's data (iperf in testbed mininet measures one at a time)"
)
VERDICTS: dict[Enforcement, str] = {
    "strict": "within 1 %, and ", "work-conserving": "99 % or more, and ", "none": ""
}  # fmt: skip


def _table(name: str, found: list[vm_measurement.PairMeasurement]) -> Table:
    headings = (
        "reserved",
        "measured",
        "ratio",
        "round trip",
        "lost",
        "verdict",
    )
    table = Table(
        "from", "to", *headings, title=f"tenant {name}, all VMs at once"
    )
    what = VERDICTS[found[0].enforcement]
    table.caption = (
        f"bits of frames, in the file's units; ok: {what}no ping lost"
    )
    if found[0].enforcement == "none":
        table.caption += UNRESERVED
    for one in found:
        reserved = "–"
        if one.reserved_bps:
            reserved = human_bandwidth(one.reserved_bps)
        rates = reserved, human_bandwidth(one.measured_bps)
        rtt = "–" if one.rtt_ms is None else f"{one.rtt_ms:.2f} ms"
        verdict = (
            Text("ok", "green") if one.good else Text("OUTSIDE", "bold red")
        )
        shown = (
            f"{one.ratio:.4f}",
            rtt,
            human_share(one.lost_share),
            verdict,
        )
        table.add_row(one.sender, one.receiver, *rates, *shown)
    return table


def _vm(name: str, command: str) -> VmPlace | None:
    """A VM by its name; None for what can only be a tenant's. Raises BadInput."""
    tenant, dot, _ = name.rpartition(".")
    if dot:
        vms = shown_tenant(tenant, command).vms
    else:
        # A host of an open network or of a Topo, or a tenant.
        require_root(f"testbed {command}")
        state = ask(ShowNetwork(), NetworkState)
        vms = tuple(vm for tenant in state.tenants for vm in tenant.vms)
        named = [tenant.name for tenant in state.tenants]
        hosts = [vm.host for vm in vms]
        if name in named or not (state.open or name in hosts):
            return None
    found = next((vm for vm in vms if name in (vm.name, vm.host)), None)
    if found is None:
        raise BadInput(
            f"unknown VM {name!r}: known are {vms[0].name} to {vms[-1].name}"
        )
    return found


def _say_line(stream: str, line: bytes) -> None:
    out = getattr(sys, stream).buffer
    out.write(line)
    out.flush()
