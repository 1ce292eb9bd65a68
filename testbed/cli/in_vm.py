"""``testbed exec`` and ``shell``: in the VMs of the network that is up."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

import typer

from testbed.backends.emu.vm_process import (
    VmPlace,
    run_in_each,
    run_program,
)
from testbed.cli.options import require_root
from testbed.cli.standing import shown_tenant
from testbed.errors import BadInput
from testbed.standing.keeper_protocol import ShowNetwork, ask
from testbed.standing.network_state import NetworkState

Vm = Annotated[
    str,
    typer.Argument(
        metavar="VM", help="A VM's name, as a.0, or its host's, as h1."
    ),
]
VmOrTenant = Annotated[
    str,
    typer.Argument(
        metavar="VM|TENANT",
        help="A VM's name, as a.0, its host's, as h1, or a tenant's.",
    ),
]
Command = Annotated[
    list[str],
    typer.Argument(metavar="-- CMD…", help="The command and its words."),
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
    # Without bash's start-up files, which would set a prompt of their own.
    argv = (
        [bash, "--noprofile", "--norc", "-i"] if bash else ["/bin/sh", "-i"]
    )
    prompt = f"[{place.name}] " + (r"\w \$ " if bash else "$ ")
    raise typer.Exit(run_program(place, argv, PS1=prompt))


def _vm(name: str, command: str) -> VmPlace | None:
    """The VM of that name; None if it can only be a tenant's. Raises BadInput
    for an unknown VM.
    """
    require_root(f"testbed {command}")
    state = ask(ShowNetwork(), NetworkState)
    vms = tuple(vm for tenant in state.tenants for vm in tenant.vms)
    # A VM's name, or that of a host of an open network or of a Topo; there may
    # be a dot in both.
    place = next(
        (vm for vm in vms if name in (vm.name, vm.host or vm.name)), None
    )
    named = [tenant.name for tenant in state.tenants]
    owner, dot, _ = name.rpartition(".")
    if not dot and name in named:
        return None
    if place is not None:
        return place
    if dot:
        vms = shown_tenant(owner, command).vms
    elif not state.open:
        return None
    raise BadInput(
        f"unknown VM {name!r}: known are {vms[0].name} to {vms[-1].name}"
    )


def _say_line(stream: str, line: bytes) -> None:
    # As bytes: what a program writes need not be text.
    out = getattr(sys, stream).buffer
    out.write(line)
    out.flush()
