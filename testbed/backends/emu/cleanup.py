"""Removal of everything a run has made: exactly what its journal names, even after a reboot.

A thing is removed only if the journal names it *and* it bears the run's ownership tag: a bridge in
its ``external_ids``, a veth in its device group, a namespace in its inode, a control group in its
path, a process in its start time. Names that no longer exist are fine; the journal itself is
deleted last, so that a removal that was cut short is repeated by the next.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from testbed.backends.emu import open_vswitch
from testbed.backends.emu.cgroups import lives, remove_groups
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    Entry,
    Kind,
    boot_id,
    expedited_rcu,
    journals,
    machine_lock,
    start_ticks,
)
from testbed.backends.emu.commands import ip_remove, run
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.open_vswitch import MACHINE
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.errors import RunFailed

PROCESS_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Removed:
    """One thing that was removed (or would be): ``what`` is its kind in words."""

    what: str
    name: str


def clean(
    name: str = "testbed clean", *, state: Path | None = None, dry_run: bool = False
) -> list[Removed]:
    """Remove everything that dead runs have left. Raises MachineCannot while a run is alive."""
    with machine_lock(name, state):
        return clean_leftovers(state, dry_run=dry_run)


def clean_leftovers(state: Path | None = None, *, dry_run: bool = False) -> list[Removed]:
    """The same for a caller that holds the lock and has no journal of its own yet."""
    return [thing for each in journals(state) for thing in remove_run(each, dry_run=dry_run)]


def remove_run(journal: CleanupJournal, *, dry_run: bool = False) -> list[Removed]:
    """Remove everything that a journal names and then the journal."""
    with uninterrupted():
        removal = _Removal(journal, dry_run=dry_run)
        # Processes first: one of them might be a command that still makes things.
        removal.processes()
        removal.network()
        removal.files_and_settings()
        if not dry_run:
            journal.delete()
        return removal.removed


def remove_network(journal: CleanupJournal) -> None:
    """Remove a journal's bridges, veths and namespaces."""
    _Removal(journal, dry_run=False).network()


class _Removal:
    """Removal of what a journal names; a dry run only lists it in ``removed``."""

    def __init__(self, journal: CleanupJournal, *, dry_run: bool) -> None:
        self._journal = journal
        self._tag = journal.tag
        self._dry_run = dry_run
        self._same_boot = journal.tag.boot_id == boot_id()
        self.removed: list[Removed] = []

    def _entries(self, *kinds: Kind) -> list[Entry]:
        return [entry for entry in self._journal.entries if entry.kind in kinds]

    def _names(self, *kinds: Kind) -> set[str]:
        return {entry.name for entry in self._entries(*kinds)}

    def _add(self, what: str, names: Iterable[str]) -> None:
        self.removed += [Removed(what, name) for name in names]

    # -- network ------------------------------------------------------------------------------

    def network(self) -> None:
        """After a reboot only the switch's database remembers; names elsewhere are another's."""
        entries = self._entries("part", "bridge", "veth", "netns")
        if not entries:
            return
        with nullcontext() if self._dry_run else expedited_rcu(self._journal):
            self._parts()
            gone = self._bridges() if self._names("bridge") else []
            if self._same_boot:
                # In a dry run: a bridge's own device goes with it.
                self._devices(self._names("bridge", "veth") - set(gone if self._dry_run else ()))
                self._namespaces()
        if not self._dry_run:
            self._journal.remove(entries)

    def _parts(self) -> None:
        """The daemons of the switch's parts, by their command lines, and their folders."""
        folders = [Path(name) for name in sorted(self._names("part"))]
        parts = (folder.name for folder in folders if (folder / "conf.db").is_file())
        self._add("switch part", parts)
        # All of a run's parts are in one folder, which is there a moment before theirs.
        of_run = {x.parent for x in folders if x.parent.is_dir() and x.parent.name == self._tag.run}
        if self._dry_run or not of_run:
            return
        ours = [process for process in psutil.process_iter() if _folder_of(process) in folders]
        for process in ours:
            process.kill()
        psutil.wait_procs(ours, PROCESS_TIMEOUT_S)
        for folder in of_run:
            shutil.rmtree(folder)

    def _bridges(self) -> list[str]:
        with open_vswitch.ovsdb_for_a_while() as there:
            if not there:
                return []
            bridges, qos_rows = open_vswitch.owned_by(self._tag.run)
            ours = [name for name in bridges if name in self._names("bridge")]
            if not self._dry_run:
                # QoS is waited for too: a run killed while the switch deleted the bridges has left
                # just this row, and the switch may still be at it.
                for command, names in ((["del-br"], ours), (["destroy", "QoS"], qos_rows)):
                    if names:
                        arguments = open_vswitch.deletion_arguments(command, names)
                        MACHINE.vsctl(arguments, wait=MACHINE.pid is not None)
        self._add("bridge", ours)
        return ours

    def _devices(self, named: set[str]) -> None:
        """Veth ends, and bridge devices left by a switch that died before the deletion."""
        group = self._tag.group
        in_group = devices_in_group(group)
        ours = sorted(in_group & named)
        if ours and not self._dry_run:
            if in_group <= named:
                run(["ip", "link", "delete", "group", str(group)], check=False)
            else:
                ip_remove([f"link delete dev {name}" for name in ours])
            if left := devices_in_group(group) & named:
                names = ", ".join(sorted(left))
                hint = "restart Open vSwitch, then: sudo testbed clean"
                raise RunFailed(f"devices {names} could not be deleted", hint)
        self._add("device", ours)

    def _namespaces(self) -> None:
        ours = [entry.name for entry in self._entries("netns") if self._is_ours(entry)]
        if not self._dry_run:
            ip_remove([f"netns delete {name}" for name in ours])
            if left := [name for name in ours if (NETNS_DIR / name).exists()]:
                raise RunFailed(f"namespaces {', '.join(left)} could not be deleted")
        self._add("namespace", ours)

    def _is_ours(self, entry: Entry) -> bool:
        """By inode. Killed before it could note the inode, a run has only just made the name."""
        try:
            found = (NETNS_DIR / entry.name).stat()
        except FileNotFoundError:
            return False
        if entry.inode:
            return found.st_ino == entry.inode
        return found.st_ctime >= self._tag.started_unix_s - 1.0

    # -- processes, files, settings -----------------------------------------------------------

    def processes(self) -> None:
        """Kill a dead run's named processes, and whatever else is in its control groups."""
        if not self._same_boot:
            return
        alive = [e for e in self._entries("process") if start_ticks(e.pid) == e.start_ticks]
        groups = [Path(e.name) for e in self._entries("cgroup") if Path(e.name).is_dir()]
        if not self._dry_run:
            for entry in alive:
                if entry.pid != os.getpid():
                    _kill(entry)
            remove_groups(group for group in groups if group.name == self._tag.run)
        self._add("process", (f"{e.name} ({e.pid})" for e in alive))
        self._add("control group", map(str, groups))

    def files_and_settings(self) -> None:
        """And the switch's daemons, where the run has started them and no bridge is left."""
        for entry in reversed(self._journal.entries):
            if entry.kind == "file":
                self._file(Path(entry.name))
            elif entry.kind == "sysctl" and self._same_boot:
                self._setting(entry)
            elif entry.kind == "daemon" and self._same_boot and self._stops_switch():
                self._add("service", ["Open vSwitch, started by this run"])

    def _stops_switch(self) -> bool:
        return not self._dry_run and open_vswitch.stop_if_idle()

    def _file(self, path: Path) -> None:
        if path.is_symlink() or path.is_file() or path.is_socket():
            if not self._dry_run:
                path.unlink(missing_ok=True)
            self._add("file", [str(path)])

    def _setting(self, entry: Entry) -> None:
        path = Path(entry.name)
        with suppress(OSError):
            if path.read_text(encoding="ascii").split() == entry.new.split() != entry.old.split():
                if not self._dry_run:
                    path.write_text(entry.old, encoding="ascii")
                self._add("setting", [f"{entry.name} (back to {entry.old})"])


def _folder_of(process: psutil.Process) -> Path | None:
    """The folder of a switch part's daemon: that of its socket to or from the database."""
    with suppress(psutil.Error):
        if process.name() in ("ovsdb-server", "ovs-vswitchd"):
            for argument in process.cmdline():
                if argument.endswith("/db.sock"):
                    return Path(argument.rpartition(":")[2]).parent
    return None


def devices_in_group(group: int) -> set[str]:
    """Names of the host's devices in a device group."""
    if not socket.if_nameindex():
        return set()
    shown = run(["ip", "-json", "link", "show", "group", str(group)]).stdout
    return {str(link["ifname"]) for link in json.loads(shown or "[]") if link}


def _kill(entry: Entry) -> None:
    """SIGKILL, and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.kill(entry.pid, signal.SIGKILL)
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while start_ticks(entry.pid) == entry.start_ticks and lives(entry.pid):
        if time.monotonic() > deadline:
            raise RunFailed(f"process {entry.pid} ({entry.name}) does not end")
        time.sleep(0.005)
