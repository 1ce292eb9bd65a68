"""Names in a job's VM: its own, those of the job's other VMs, its user's.

Programs look for them in ``/etc/hosts``, ``/etc/passwd`` and the host name, of
which each VM has its own.
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
    """The host name of a job's VM, by which all VMs of the job find it."""
    return f"vm{index}"


def machines_hosts() -> str:
    """The machine's ``/etc/hosts``; empty where it has none, as a small
    container.
    """
    if not HOSTS.exists():
        return ""
    return HOSTS.read_text("utf-8", "replace")


def hosts_text(
    machines_text: str,
    job: str,
    ips: Sequence[str],
) -> str:
    """The machine's ``/etc/hosts``, continued by the names of a job's VMs:
    ``vm0`` and ``JOB.0`` for the first of the addresses, and so on.
    """
    lines = [machines_text.rstrip("\n")]
    for index, ip in enumerate(ips):
        lines.append(f"{ip}\t{vm_name(index)} {job}.{index}")
    return "\n".join(lines) + "\n"


def accounts_text(
    machines_accounts: str,
    uid: int,
    gid: int,
    home: str,
) -> str:
    """The machine's ``/etc/passwd``, continued by an account of the VM's user:
    some programs do not work for a user without one.
    """
    account = f"vm-user:x:{uid}:{gid}::{home}:{SHELL}"
    return machines_accounts.rstrip("\n") + f"\n{account}\n"


def name_vm(
    folder: str,
    index: int,
    hosts: str,
    accounts: str,
) -> None:
    """Gives this process, which has mounts of its own, the names of a VM.

    ``hosts`` and ``accounts``: the texts of its ``/etc/hosts`` and
    ``/etc/passwd``. ``folder``: the VM's (:mod:`jobs.vm_folders`), where only
    root writes. Raises OSError.
    """
    _replace(HOSTS, folder, hosts)
    _replace(ACCOUNTS, folder, accounts)
    # Open MPI tells nodes apart by host names alone: if all VMs had the
    # machine's, it would take them for one node.
    linux.own_host_name(vm_name(index))


def _replace(
    path: Path,
    folder: str,
    text: str,
) -> None:
    """Mounts a file with this text over a file of the machine's."""
    vms_file = f"{folder}/{path.name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(vms_file, flags, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # The VM's user is to read it, whatever the umask.
        os.fchmod(descriptor, 0o644)
        file.write(text)
    # A small container may have no /etc/hosts, and nothing to mount over.
    if path.exists():
        linux.bind(vms_file, str(path))
