"""Names in a job's VM: its own, those of the job's other VMs, its user's.

They are found where programs look for them: in ``/etc/hosts``, in
``/etc/passwd`` and as the host's name, each of them the VM's alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from jobs import linux

HOSTS = Path("/etc/hosts")
ACCOUNTS = Path("/etc/passwd")
SHELL = "/bin/sh"


def vm_name(index: int) -> str:
    """The host name of a job's VM, in all of its VMs."""
    return f"vm{index}"


def hosts_text(
    machines: str,
    job: str,
    ips: Sequence[str],
) -> str:
    """The machine's ``/etc/hosts`` and the names of a job's VMs, whose
    addresses are ``ips``: ``vm0`` and ``JOB.0``, and so on.
    """
    lines = [machines.rstrip("\n")]
    for index, ip in enumerate(ips):
        lines.append(f"{ip}\t{vm_name(index)} {job}.{index}")
    return "\n".join(lines) + "\n"


def accounts_text(
    machines: str,
    uid: int,
    gid: int,
    home: str,
) -> str:
    """The machine's ``/etc/passwd`` and an account of the VM's user: programs
    refuse to work for a user without one.
    """
    account = f"vm-user:x:{uid}:{gid}::{home}:{SHELL}"
    return machines.rstrip("\n") + f"\n{account}\n"


def name_vm(
    folder: str,
    index: int,
    hosts: str,
    accounts: str,
) -> None:
    """Has this process, with mounts of its own, find a VM's names.

    ``folder``: the VM's own (:mod:`jobs.vm_folders`), where only root writes.
    Raises OSError.
    """
    _replace(HOSTS, folder, hosts)
    _replace(ACCOUNTS, folder, accounts)
    # Open MPI tells nodes apart by host names alone: with the machine's it
    # would take all VMs for one.
    linux.own_host_name(vm_name(index))


def _replace(
    path: Path,
    folder: str,
    text: str,
) -> None:
    """Puts the VM's text in the place of a file of the machine's."""
    vms_file = f"{folder}/{path.name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(vms_file, flags, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # Whatever the umask: the VM's user is to read it.
        os.fchmod(descriptor, 0o644)
        file.write(text)
    # A small container may have no /etc/hosts, and nothing to mount over.
    if path.exists():
        linux.bind(vms_file, str(path))
