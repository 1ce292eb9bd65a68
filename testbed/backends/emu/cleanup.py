"""Removal of what a run has made, by its journal, even after a reboot.

A thing that the journal names is removed only if it also bears a mark of the
run; files go by name alone. The marks are a bridge's ``external_ids``, a veth's
device group, a namespace's inode, the name of a control group or of a switch
part's folder, and a process's start time. A thing that no longer exists is no
error. The journal itself is deleted last, so that a removal that was cut short
is repeated.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from controller.launch import unprivileged_user
from jobs.live.agent import AGENT_FOLDERS
from testbed.backends.emu import open_vswitch
from testbed.backends.emu.cgroups import lives, remove_groups
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
    Kind,
    boot_id,
    expedited_rcu,
    is_changed,
    journals,
    machine_lock,
    set_damaged_aside,
    start_ticks,
)
from testbed.backends.emu.commands import ip_remove, run
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.open_vswitch import MACHINE
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.errors import MachineCannot, RunFailed
from testbed.private_folders import ROOTS_BASE, remove_abandoned

PROCESS_TIMEOUT_S = 30.0
DOCTOR_PREFIX = "hn-doctor-"
"""Begins the names of the namespaces that ``testbed doctor`` makes."""


@dataclass(frozen=True)
class Removed:
    """A thing that was removed, or that a dry run would remove.

    ``what``: its kind, in words.
    """

    what: str
    name: str


def clean(
    *, state: Path | None = None, dry_run: bool = False
) -> list[Removed]:
    """Removes everything that dead runs and killed doctors left behind.

    Sets damaged journals aside, and removes what their readable entries name.
    ``state``: the folder with the journals; None for the machine's. Raises
    MachineCannot while a run is alive.
    """
    with machine_lock("testbed clean", state):
        removed = []
        for path, aside in set_damaged_aside(state, dry_run=dry_run):
            name = f"{path} (set aside as {aside.name})"
            removed.append(Removed("damaged journal", name))
        # Only a dry run leaves damaged journals in place.
        for journal in journals(state, damaged=dry_run):
            removed += remove_run(journal, dry_run=dry_run)
        return removed + _remove_doctor_namespaces(dry_run=dry_run)


def remove_temporary_folders(*, dry_run: bool) -> list[Removed]:
    """Removes temporary folders of killed processes: of root's commands, and of
    agents outside of VMs.
    """
    abandoned = []
    if ROOTS_BASE.is_dir():
        abandoned += remove_abandoned(ROOTS_BASE, dry_run=dry_run)
    # Python finds no shared folder if the disk is full.
    with suppress(FileNotFoundError):
        # Any user may make a folder with such a name there. Those of the
        # agents' user are the testbed's.
        abandoned += remove_abandoned(
            Path(tempfile.gettempdir()),
            pattern=f"{AGENT_FOLDERS}????????",
            users=(unprivileged_user({}).uid,),
            dry_run=dry_run,
        )
    return [Removed("temporary folder", str(path)) for path in abandoned]


def new_doctor_namespace() -> str:
    """A name for a namespace of this process, with its number and start time."""
    pid = os.getpid()
    return f"{DOCTOR_PREFIX}{pid}-{start_ticks(pid)}-{secrets.token_hex(3)}"


def _remove_doctor_namespaces(*, dry_run: bool) -> list[Removed]:
    """Removes the namespaces of doctors that were killed."""
    abandoned = []
    for path in sorted(NETNS_DIR.glob(f"{DOCTOR_PREFIX}*")):
        if not _is_in_use(path.name):
            abandoned.append(path.name)
    if abandoned and not dry_run:
        ip_remove([f"netns delete {name}" for name in abandoned])
    return [Removed("namespace", name) for name in abandoned]


def _is_in_use(namespace: str) -> bool:
    """True while the doctor that made this namespace lives."""
    parts = namespace.removeprefix(DOCTOR_PREFIX).split("-")
    if len(parts) != 3 or not parts[0].isdecimal():
        return False
    pid, started, _ = parts
    return str(start_ticks(int(pid))) == started


def clean_leftovers() -> list[Removed]:
    """Removes what dead runs left. For a new run, which holds the machine lock.

    Raises MachineCannot for a damaged journal.
    """
    removed = []
    try:
        on_disk = journals()
    except RunFailed as error:
        # Not RunFailed, as the new run has not begun.
        raise MachineCannot(
            error.message,
            "sudo testbed clean removes what it names and sets it aside",
        ) from None
    for journal in on_disk:
        removed += remove_run(journal)
    return removed


def remove_run(
    journal: CleanupJournal, *, dry_run: bool = False
) -> list[Removed]:
    """Removes everything that a journal names, then the journal itself."""
    with uninterrupted():
        removal = _Removal(journal, dry_run=dry_run)
        # Processes first: one of them may be a command that is still making
        # devices or namespaces.
        removal.processes()
        removal.network()
        removal.files_and_settings()
        if not dry_run:
            journal.delete()
        return removal.removed


def remove_network(journal: CleanupJournal) -> None:
    """Removes a journal's bridges, veths and namespaces."""
    _Removal(journal, dry_run=False).network()


class _Removal:
    """Removal of all that a journal names, listed in ``removed``.

    A dry run lists the same and removes nothing.
    """

    def __init__(self, journal: CleanupJournal, *, dry_run: bool) -> None:
        self._journal = journal
        self._tag = journal.tag
        self._dry_run = dry_run
        self._same_boot = journal.tag.boot_id == boot_id()
        self.removed: list[Removed] = []

    def _entries(self, *kinds: Kind) -> list[JournalEntry]:
        return [
            entry for entry in self._journal.entries if entry.kind in kinds
        ]

    def _names(self, *kinds: Kind) -> set[str]:
        return {entry.name for entry in self._entries(*kinds)}

    def _add(self, what: str, names: Iterable[str]) -> None:
        self.removed += [Removed(what, name) for name in names]

    # -- network ------------------------------------------------------------------------------

    def network(self) -> None:
        """Removes switch parts, bridges, devices and namespaces."""
        entries = self._entries("part", "bridge", "veth", "netns")
        if not entries:
            return
        with ExitStack() as stack:
            if not self._dry_run:
                stack.enter_context(expedited_rcu(self._journal))
            self._parts()
            bridges = self._bridges() if self._names("bridge") else []
            # Only bridges survive a reboot, in the switch's database. After one,
            # devices and namespaces with these names are somebody else's.
            if self._same_boot:
                named = self._names("bridge", "veth")
                # A bridge's device goes with it. A dry run has left it, and has
                # listed the bridge.
                if self._dry_run:
                    named -= set(bridges)
                self._devices(named)
                self._namespaces()
        if not self._dry_run:
            self._journal.remove(entries)

    def _parts(self) -> None:
        """Ends the daemons of the switch's parts and deletes their folders."""
        parts = [Path(name) for name in sorted(self._names("part"))]
        for part in parts:
            # One entry of this kind is the controller's state, which has no
            # database.
            if (part / "conf.db").is_file():
                self._add("switch part", [part.name])
        # Their folder is the run's, which exists without them if the run was
        # killed early.
        run_folders = set()
        for part in parts:
            folder = part.parent
            if folder.name == self._tag.run and folder.is_dir():
                run_folders.add(folder)
        if self._dry_run or not run_folders:
            return
        daemons = []
        for process in psutil.process_iter():
            if _part_folder(process) in parts:
                # It may have ended meanwhile.
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                daemons.append(process)
        _, left = psutil.wait_procs(daemons, timeout=PROCESS_TIMEOUT_S)
        for process in left:
            # A zombie has ended, and waits for its parent.
            if lives(process.pid):
                raise RunFailed(
                    f"process {process.pid} (switch part) does not end"
                )
        for folder in run_folders:
            shutil.rmtree(folder)

    def _bridges(self) -> list[str]:
        """Deletes the run's bridges, and their ports' QoS rows.

        Returns the names of the bridges.
        """
        with open_vswitch.ovsdb_for_a_while() as running:
            if not running:
                return []
            bridges, qos_rows = open_vswitch.owned_by(self._tag.run)
            ours = sorted(set(bridges) & self._names("bridge"))
            if not self._dry_run:
                self._delete_rows(["del-br"], ours)
                # Also without a bridge: a run that was killed at this point
                # leaves its QoS row. The deletion waits for the switch, which
                # may still be busy with the bridges.
                self._delete_rows(["destroy", "QoS"], qos_rows)
        self._add("bridge", ours)
        return ours

    def _delete_rows(
        self, command: Sequence[str], names: Sequence[str]
    ) -> None:
        if names:
            arguments = open_vswitch.deletion_arguments(command, names)
            # Only a running switch confirms a change.
            MACHINE.vsctl(arguments, wait=MACHINE.pid is not None)

    def _devices(self, named: set[str]) -> None:
        """Deletes veth ends, and bridges' devices that the switch left behind.

        ``named``: their names in the journal. Raises RunFailed for those left.
        """
        group = self._tag.group
        in_group = devices_in_group(group)
        ours = sorted(in_group & named)
        if ours and not self._dry_run:
            if in_group <= named:
                # Nothing else is in the group: one request for all is quicker.
                run(
                    ["ip", "link", "delete", "group", str(group)],
                    check=False,
                )
            else:
                ip_remove([f"link delete dev {name}" for name in ours])
            if left := devices_in_group(group) & named:
                names = ", ".join(sorted(left))
                raise RunFailed(
                    f"devices {names} could not be deleted",
                    "restart Open vSwitch, then: sudo testbed clean",
                )
        self._add("device", ours)

    def _namespaces(self) -> None:
        """Deletes the run's namespaces. Raises RunFailed if some are left."""
        entries = filter(self._is_own_namespace, self._entries("netns"))
        ours = [entry.name for entry in entries]
        if not self._dry_run:
            ip_remove([f"netns delete {name}" for name in ours])
            left = [name for name in ours if (NETNS_DIR / name).exists()]
            if left:
                raise RunFailed(
                    f"namespaces {', '.join(left)} could not be deleted"
                )
        self._add("namespace", ours)

    def _is_own_namespace(self, entry: JournalEntry) -> bool:
        """True if the namespace of that name is still the run's."""
        try:
            status = (NETNS_DIR / entry.name).stat()
        except FileNotFoundError:
            return False
        if entry.inode:
            return status.st_ino == entry.inode
        # The run was killed before it recorded the inode. Its namespace was
        # made after its start, which may be rounded.
        return status.st_ctime >= self._tag.started_unix_s - 1.0

    # -- processes, files, settings -----------------------------------------------------------

    def processes(self) -> None:
        """Kills a dead run's processes, and all in its control groups; removes
        the groups.
        """
        if not self._same_boot:
            return
        alive = []
        for entry in self._entries("process"):
            # Never this process, even if the journal names it.
            if entry.pid == os.getpid():
                continue
            # Process numbers are reused; start times tell the processes apart.
            if start_ticks(entry.pid) == entry.start_ticks:
                alive.append(entry)
        paths = [Path(entry.name) for entry in self._entries("cgroup")]
        # A group of another name is not this run's: somebody edited the journal.
        groups = [
            path
            for path in paths
            if path.is_dir() and path.name == self._tag.run
        ]
        if not self._dry_run:
            for entry in alive:
                _kill(entry)
            try:
                remove_groups(groups)
            except TimeoutError as error:
                raise RunFailed(
                    f"a control group could not be removed: {error}",
                    "end what runs in it, then: sudo testbed clean",
                ) from None
        self._add(
            "process", (f"{entry.name} ({entry.pid})" for entry in alive)
        )
        self._add("control group", map(str, groups))

    def files_and_settings(self) -> None:
        """Deletes files, restores settings and stops the switch.

        The switch stops only if the run has started it and no bridge is left.
        """
        # What was made last is removed first.
        for entry in reversed(self._journal.entries):
            if entry.kind == "file":
                self._file(Path(entry.name))
            # A reboot resets kernel settings and ends daemons.
            elif entry.kind == "sysctl" and self._same_boot:
                self._setting(entry)
            elif entry.kind == "daemon" and self._same_boot:
                self._switch()

    def _switch(self) -> None:
        """Stops the switch that this run has started, if no bridge is left."""
        # A dry run has not deleted the run's own bridges.
        bridges = self._names("bridge")
        if open_vswitch.stop_if_idle(bridges, dry_run=self._dry_run):
            self._add("service", ["Open vSwitch, started by this run"])

    def _file(self, path: Path) -> None:
        if path.is_symlink() or path.is_file() or path.is_socket():
            if not self._dry_run:
                path.unlink(missing_ok=True)
            self._add("file", [str(path)])

    def _setting(self, entry: JournalEntry) -> None:
        """Restores a kernel setting that still has the run's value."""
        # Its file may be gone with a kernel module, or be read-only.
        with suppress(OSError):
            if not is_changed(entry):
                return
            if not self._dry_run:
                Path(entry.name).write_text(entry.old, encoding="ascii")
            self._add("setting", [f"{entry.name} (back to {entry.old})"])


def _part_folder(process: psutil.Process) -> Path | None:
    """Folder of the switch part that a process is a daemon of; None for others.

    Both daemons of a part have the path of its database's socket, which is in
    the folder, in their command lines.
    """
    with suppress(psutil.Error):
        if process.name() not in ("ovsdb-server", "ovs-vswitchd"):
            return None
        for argument in process.cmdline():
            # Such as ``--remote=punix:FOLDER/db.sock``.
            if argument.endswith("/db.sock"):
                return Path(argument.rpartition(":")[2]).parent
    return None


def devices_in_group(group: int) -> set[str]:
    """Names of the host's devices in a device group."""
    shown = run(["ip", "-json", "link", "show", "group", str(group)]).stdout
    # ip prints an empty object for each device of another group.
    return {
        str(link["ifname"]) for link in json.loads(shown or "[]") if link
    }


def _kill(entry: JournalEntry) -> None:
    """Kills a process and waits for its end. Raises RunFailed without one."""
    with suppress(ProcessLookupError):
        os.kill(entry.pid, signal.SIGKILL)
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    # A zombie has ended: its number stays until its parent reads its exit
    # status.
    while start_ticks(entry.pid) == entry.start_ticks and lives(entry.pid):
        if time.monotonic() > deadline:
            raise RunFailed(
                f"process {entry.pid} ({entry.name}) does not end"
            )
        time.sleep(0.005)
