"""Removal of everything a run has made: exactly what its journal names, even after a reboot.

A thing is removed only if the journal names it *and* it bears the run's ownership tag: a bridge in
its ``external_ids``, a veth in its device group, a namespace in its inode, a control group in its
path, a process in its start time. Names that no longer exist are fine; the journal itself is
deleted last, so that a removal that was cut short is repeated by the next.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from testbed.backends.emu.cgroups import remove_groups
from testbed.backends.emu.cleanup_journal import (
    Bridge,
    Cgroup,
    CleanupJournal,
    Daemon,
    Entry,
    File,
    MachineLock,
    Netns,
    OwnershipTag,
    Process,
    Sysctl,
    Veth,
    boot_id,
    expedited_rcu,
    journals,
    start_ticks,
)
from testbed.backends.emu.commands import ip_remove, run
from testbed.backends.emu.namespaces import NETNS_DIR
from testbed.backends.emu.open_vswitch import (
    daemon_state,
    down_arguments,
    ovsdb_for_a_while,
    owned_by,
    qos_arguments,
    stop_if_idle,
    vsctl,
)
from testbed.errors import RunFailed

PROCESS_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Removed:
    """One thing that was removed (or would be): ``what`` is its kind in words."""

    what: str
    name: str


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defers SIGINT, SIGTERM and SIGHUP until the block is done: no removal is cut short."""
    held: list[int] = []

    def hold(signum: int, _: FrameType | None) -> None:
        held.append(signum)

    try:
        asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        old = {s: signal.signal(s, hold) for s in asking}
    except ValueError:  # not the main thread: signals do not come here
        yield
        return
    try:
        yield
    finally:
        for signum, handler in old.items():
            signal.signal(signum, handler)
        if held:
            signal.raise_signal(held[0])


def clean(
    name: str = "testbed clean", *, state: Path | None = None, dry_run: bool = False
) -> list[Removed]:
    """Remove everything that dead runs have left. Raises MachineCannot while a run is alive."""
    with MachineLock.take(name, state):
        return clean_leftovers(state, dry_run=dry_run)


def clean_leftovers(state: Path | None = None, *, dry_run: bool = False) -> list[Removed]:
    """The same for a caller that holds the lock and has no journal of its own yet."""
    removed = []
    for journal in journals(state):
        removed += remove_run(journal, dry_run=dry_run)
    return removed


def remove_run(journal: CleanupJournal, *, dry_run: bool = False) -> list[Removed]:
    """Remove everything that a journal names and then the journal."""
    with uninterrupted():
        same_boot = journal.tag.boot_id == boot_id()
        entries = journal.entries
        removed: list[Removed] = []
        if same_boot:
            # Processes first: one of them might be a command that still makes things.
            removed += _end_processes(entries, journal.tag, dry_run=dry_run)
        removed += remove_network(journal, dry_run=dry_run)
        for entry in reversed(entries):
            if isinstance(entry, File):
                removed += _remove_file(entry, dry_run=dry_run)
            elif isinstance(entry, Sysctl) and same_boot:
                removed += _put_back(entry, dry_run=dry_run)
            elif isinstance(entry, Daemon) and same_boot and not dry_run and stop_if_idle():
                removed.append(Removed("service", "Open vSwitch, started by this run"))
        if not dry_run:
            journal.delete()
        return removed


# ------------------------------------------------------------------------------------- network


def remove_network(journal: CleanupJournal, *, dry_run: bool = False) -> list[Removed]:
    """Remove a journal's bridges, veths and namespaces."""
    entries = [e for e in journal.entries if isinstance(e, Bridge | Veth | Netns)]
    if not entries:
        return []
    with nullcontext() if dry_run else expedited_rcu(journal):
        removed = _remove_listed(entries, journal.tag, dry_run=dry_run)
    if not dry_run:
        journal.remove(entries)
    return removed


def _remove_listed(
    entries: Sequence[Bridge | Veth | Netns], tag: OwnershipTag, *, dry_run: bool
) -> list[Removed]:
    """After a reboot only the switch's database remembers; a name found elsewhere is another's."""
    bridges = {e.name for e in entries if isinstance(e, Bridge)}
    removed = _remove_bridges(bridges, tag, dry_run=dry_run) if bridges else []
    if tag.boot_id == boot_id():
        devices = bridges | {e.name for e in entries if isinstance(e, Veth)}
        if dry_run:
            devices -= {thing.name for thing in removed}  # they go with their bridges
        removed += _remove_devices(devices, tag, dry_run=dry_run)
        spaces = [e for e in entries if isinstance(e, Netns)]
        removed += _remove_namespaces(spaces, tag, dry_run=dry_run)
    return removed


def _remove_bridges(named: set[str], tag: OwnershipTag, *, dry_run: bool) -> list[Removed]:
    with ovsdb_for_a_while() as there:
        if not there:
            return []
        owned = owned_by(tag.run)
        ours = [name for name in owned.bridges if name in named]
        if not dry_run:
            wait = daemon_state().switch
            if ours:
                vsctl(down_arguments(ours), wait=wait)
            if owned.qos_rows:
                # Waited for too: a run killed while the switch deleted the bridges has left
                # just this row, and the switch may still be at it.
                vsctl(qos_arguments(owned.qos_rows), wait=wait)
    return [Removed("bridge", name) for name in ours]


def _remove_devices(named: set[str], tag: OwnershipTag, *, dry_run: bool) -> list[Removed]:
    """Veth ends, and internal bridge devices left by a switch that died before the deletion."""
    in_group = devices_in_group(tag.group)
    ours = sorted(in_group & named)
    if ours and not dry_run:
        if in_group <= named:
            run(["ip", "link", "delete", "group", str(tag.group)], check=False)
        else:
            ip_remove([f"link delete dev {name}" for name in ours])
        left = devices_in_group(tag.group) & named
        if left:
            names = ", ".join(sorted(left))
            hint = "restart Open vSwitch, then: sudo testbed clean"
            raise RunFailed(f"devices {names} could not be deleted", hint)
    return [Removed("device", name) for name in ours]


def devices_in_group(group: int) -> set[str]:
    """Names of the host's devices in a device group."""
    if not socket.if_nameindex():
        return set()
    shown = run(["ip", "-json", "link", "show", "group", str(group)]).stdout
    return {str(link["ifname"]) for link in json.loads(shown or "[]") if link}


def _remove_namespaces(
    named: Sequence[Netns], tag: OwnershipTag, *, dry_run: bool
) -> list[Removed]:
    ours = [entry.name for entry in named if _is_ours(entry, tag)]
    if not dry_run:
        ip_remove([f"netns delete {name}" for name in ours])
        left = [name for name in ours if (NETNS_DIR / name).exists()]
        if left:
            raise RunFailed(f"namespaces {', '.join(left)} could not be deleted")
    return [Removed("namespace", name) for name in ours]


def _is_ours(entry: Netns, tag: OwnershipTag) -> bool:
    """By inode. Killed before it could note the inode, a run has only just made the name."""
    try:
        found = (NETNS_DIR / entry.name).stat()
    except FileNotFoundError:
        return False
    if entry.inode:
        return found.st_ino == entry.inode
    return found.st_ctime >= tag.started_unix_s - 1.0


# -------------------------------------------------------------------------- processes and files


def _end_processes(entries: Sequence[Entry], tag: OwnershipTag, *, dry_run: bool) -> list[Removed]:
    """Kill a dead run's named processes, and whatever else is in its control groups."""
    alive = [e for e in entries if isinstance(e, Process) and start_ticks(e.pid) == e.start_ticks]
    groups = [Path(e.name) for e in entries if isinstance(e, Cgroup) and Path(e.name).is_dir()]
    if not dry_run:
        for entry in alive:
            if entry.pid != os.getpid():
                _kill(entry)
        remove_groups(group for group in groups if group.name == tag.run)
    return [
        *(Removed("process", f"{e.name} ({e.pid})") for e in alive),
        *(Removed("control group", str(group)) for group in groups),
    ]


def _kill(entry: Process) -> None:
    """SIGKILL, and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.kill(entry.pid, signal.SIGKILL)
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while start_ticks(entry.pid) == entry.start_ticks and not _is_zombie(entry.pid):
        if time.monotonic() > deadline:
            raise RunFailed(f"process {entry.pid} ({entry.name}) does not end")
        time.sleep(0.005)


def _is_zombie(pid: int) -> bool:
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] == "Z"
    return True


def _remove_file(entry: File, *, dry_run: bool) -> list[Removed]:
    path = Path(entry.name)
    if not (path.is_symlink() or path.is_file() or path.is_socket()):
        return []
    if not dry_run:
        path.unlink(missing_ok=True)
    return [Removed("file", entry.name)]


def _put_back(entry: Sysctl, *, dry_run: bool) -> list[Removed]:
    path = Path(entry.name)
    with suppress(OSError):
        if path.read_text(encoding="ascii").split() == entry.new.split() != entry.old.split():
            if not dry_run:
                path.write_text(entry.old, encoding="ascii")
            return [Removed("setting", f"{entry.name} (back to {entry.old})")]
    return []
