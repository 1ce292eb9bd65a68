"""Control groups of a run, version 1 or 2.

Below ``hosenet/RUN`` each node has a group with quotas of processors and
memory, and in it each VM a group with a weight and a freezer. The run's own
process is in ``hosenet-main/RUN``: there the cleanup finds all that it started,
and VMs, being in another group, cannot take its share of the processors.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from testbed.plan.vm_limits import processor_weights
from testbed.units import number_of

TOP, MAIN_TOP = "hosenet", "hosenet-main"
# The CFS period is 100 ms by default. Here it is short: a foreground VM that
# was throttled for what a background VM used waits for the next period.
PERIOD_US = 10_000
LEAST_QUOTA_US = 1_000
# The longest period that the kernel takes.
MAX_PERIOD_US = 1_000_000
SOCKETS_LIMIT = "memory.kmem.tcp.limit_in_bytes"
"""Limits all sockets of a group, not TCP's alone."""
SOCKETS_PART = 2
"""Divisor of a group's memory limit, for the limit of its sockets' memory."""
MAX_WEIGHT = 10_000
# Version 1's least number of shares is 2: doubled weights keep all ratios up to
# 10,000 : 1.
SHARES_PER_WEIGHT = 2
# Weight of a process outside all groups, and of a group by default.
USUAL_SHARES, USUAL_WEIGHT = 1024, 100
NEEDED = ("cpu", "cpuacct", "freezer")
# Time for the kernel to freeze, thaw or kill; long, as the machine may be busy.
TIMEOUT_S = 30.0
FREEZE_S = 5.0
POLL_S = 0.002
FREEZER_V1, FREEZER_V2 = "freezer.state", "cgroup.freeze"
OPTIONAL = ("memory", "pids")  # without them VMs have no such limits


@dataclass(frozen=True)
class CgroupLayout:
    """Mount points of this machine's control groups, by controller.

    Version 0: none is usable, for the reason in ``lacking``.
    """

    version: Literal[0, 1, 2]
    mounts: dict[str, Path] = field(default_factory=dict)
    lacking: str = ""

    @property
    def roots(self) -> tuple[Path, ...]:
        """Mount points of all hierarchies, each once, in order."""
        return tuple(dict.fromkeys(self.mounts.values()))

    @property
    def memory_limit(self) -> str:
        """Name of the file that limits the memory of a group."""
        return (
            "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        )


def read_layout(mountinfo: str) -> CgroupLayout:
    """The layout from the text of ``/proc/self/mountinfo``."""
    first: dict[str, Path] = {}
    unified: Path | None = None
    for line in mountinfo.splitlines():
        # Before the dash stands a varying number of optional fields.
        left, _, right = line.partition(" - ")
        fstype, _, options = right.split(" ")[:3]
        path = Path(left.split(" ")[4])
        if fstype == "cgroup2":
            unified = unified or path
        elif fstype == "cgroup":
            # Version 1 names a hierarchy's controllers among its mount
            # options.
            for name in options.split(","):
                first.setdefault(name, path)
    if unified is not None:
        offered: list[str] = []
        with suppress(OSError):
            controllers = unified / "cgroup.controllers"
            offered = controllers.read_text(encoding="ascii").split()
        # Beside version 1's hierarchies that of version 2 may be mounted without
        # controllers, as systemd's own.
        if "cpu" in offered:
            # Every group of version 2 has the files of cpuacct and freezer.
            names = [*NEEDED]
            names += [name for name in OPTIONAL if name in offered]
            return CgroupLayout(2, dict.fromkeys(names, unified))
    missing = [name for name in NEEDED if name not in first]
    if missing:
        why = f"no control group controller {', '.join(missing)} is mounted"
        return CgroupLayout(0, {}, why)
    mounts = {}
    for name in (*NEEDED, *OPTIONAL):
        if name in first:
            mounts[name] = first[name]
    return CgroupLayout(1, mounts)


def probe_layout() -> CgroupLayout:
    """This machine's layout."""
    return read_layout(
        Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    )


class RunCgroup:
    """The control groups of one run. Nothing exists before :meth:`create`."""

    def __init__(self, layout: CgroupLayout, run_tag: str) -> None:
        self.layout = layout
        self._vm_paths = tuple(
            root / TOP / run_tag for root in layout.roots
        )
        self._main_paths = tuple(
            root / MAIN_TOP / run_tag for root in layout.roots
        )
        self.paths = (*self._vm_paths, *self._main_paths)
        self._home: dict[Path, Path] = {}
        self._run_tag = run_tag

    def create(self) -> None:
        """Makes the run's groups in every hierarchy."""
        if self.layout.version == 2:
            for root in self.layout.roots:
                _delegate(root)
        for path in self.paths:
            # Parents included: another run that ends may remove the common
            # folder at any moment.
            path.mkdir(parents=True, exist_ok=True)
            self._make(path.parent)
            # A leaf: version 2 has no processes in a group that hands
            # controllers to groups below it.
            self._make(path, leaf=path in self._main_paths)
        root = self.layout.mounts["cpu"]
        weights = processor_weights(os.cpu_count() or 1)
        self._set_processes_weight(root / MAIN_TOP, weights.main)
        self._set_processes_weight(root / TOP, weights.vms)

    def _set_processes_weight(self, group: Path, n: int) -> None:
        """Gives a group the weight of ``n`` processes outside of all groups."""
        self._write_weight(
            group, shares=n * USUAL_SHARES, weight=n * USUAL_WEIGHT
        )

    def enter(self) -> None:
        """Moves this process, and with it its later children, into the run's
        group.
        """
        # The first of controllers that are mounted together: cpu in version 2,
        # where freezer may be version 1's.
        controller_of = {
            path: name
            for name, path in reversed(self.layout.mounts.items())
        }
        for root, path in zip(
            self.layout.roots, self._main_paths, strict=True
        ):
            group = group_of(Path("/proc/self"), controller_of[root])
            home = root / group.lstrip("/")
            # In a container the mount may not show this process's group.
            if not (home / "cgroup.procs").exists():
                home = root
            self._home[root] = home
            # 0 stands for the process that writes.
            _write(path / "cgroup.procs", "0")

    def leave(self) -> None:
        """Moves this process back to where it came from."""
        for root, home in self._home.items():
            try:
                _write(home / "cgroup.procs", "0")
            except OSError:
                # In version 2 a group that hands controllers to its children
                # may have no processes itself.
                _write(root / "cgroup.procs", "0")
        self._home = {}

    def add_vm(self, server: int, vm: int) -> tuple[Path, ...]:
        """Makes a VM's groups; returns the files by which processes join them."""
        groups = self._vm_groups(server, vm)
        for group in groups:
            self._make(group.parent)
            self._make(group, leaf=True)
        return tuple(group / "cgroup.procs" for group in groups)

    def prepare_moves(self) -> None:
        """Waits until processes can join groups at once.

        The first move after a pause waits for an RCU grace period, some 15 ms;
        others within some more milliseconds do not. Here this process, once it
        has entered the run's group, moves into it again.
        """
        if self._home:
            _write(self._main_processes, "0")

    def remove_vm(self, server: int, vm: int) -> None:
        """Removes a VM's groups, whose processes have ended."""
        for group in self._vm_groups(server, vm):
            _remove_group(group)

    def set_quota(
        self,
        server: int,
        cpus: float,
        vm: int | None = None,
    ) -> None:
        """Limits the processors of a node, or of one VM on it."""
        # The kernel takes no quota below a millisecond: of a small share the
        # period is longer.
        needed = round(LEAST_QUOTA_US / cpus)
        period = min(MAX_PERIOD_US, max(PERIOD_US, needed))
        quota = max(LEAST_QUOTA_US, round(cpus * period))
        self._make(self._path("cpu", server))
        group = self._path("cpu", server, vm)
        if self.layout.version == 2:
            _write(group / "cpu.max", f"{quota} {period}")
        else:
            # The kernel refuses a group a larger share than its parent's, even
            # between these writes: the quota goes first.
            _write(group / "cpu.cfs_quota_us", "-1")
            _write(group / "cpu.cfs_period_us", str(period))
            _write(group / "cpu.cfs_quota_us", str(quota))

    def set_memory(
        self,
        server: int,
        size_bytes: int,
        vm: int | None = None,
    ) -> bool:
        """Limits the memory of a node, or of one VM on it.

        The kernel kills processes beyond the limit, which fails their job.
        Version 1 counts memory of sockets apart, and only if it has a limit of
        its own. False where the machine has no such limits.
        """
        group = self._limitable("memory", server, vm)
        if group is None:
            return False
        _write(group / self.layout.memory_limit, str(size_bytes))
        sockets = group / SOCKETS_LIMIT
        # Kernels without CONFIG_MEMCG_V1's part for sockets have no file.
        if self.layout.version == 1 and sockets.exists():
            _write(sockets, str(size_bytes // SOCKETS_PART))
        return True

    def set_processes(
        self,
        server: int,
        vm: int,
        most: int,
    ) -> bool:
        """Limits a VM's number of processes and threads.

        False where the machine has no such limits.
        """
        group = self._limitable("pids", server, vm)
        if group is None:
            return False
        _write(group / "pids.max", str(most))
        return True

    def limits_reached(self, server: int, vm: int) -> tuple[str, ...]:
        """Limits that a VM has reached: ``processes``, ``memory``."""
        kills = {1: "memory.oom_control", 2: "memory.events"}
        watched = (
            ("pids", "processes", "pids.events", "max"),
            ("memory", "memory", kills[self.layout.version], "oom_kill"),
        )
        reached = []
        for controller, limit, file, event in watched:
            if controller in self.layout.mounts:
                path = self._path(controller, server, vm) / file
                if counts(path).get(event):
                    reached.append(limit)
        return tuple(reached)

    def _limitable(
        self,
        controller: str,
        server: int,
        vm: int | None,
    ) -> Path | None:
        """The group to limit, its node's made if missing; None where the machine
        has no such limits.
        """
        if controller not in self.layout.mounts:
            return None
        self._make(self._path(controller, server))
        return self._path(controller, server, vm)

    def set_weight(
        self,
        server: int,
        vm: int,
        weight: int,
    ) -> None:
        """Sets a VM's weight in its node, 1 .. 10,000."""
        if not 1 <= weight <= MAX_WEIGHT:
            raise ValueError(f"weight {weight} outside 1 .. {MAX_WEIGHT}")
        self._write_weight(
            self._path("cpu", server, vm),
            shares=SHARES_PER_WEIGHT * weight,
            weight=weight,
        )

    def end_vm(self, server: int, vm: int) -> None:
        """Kills every process of a VM, frozen or not. Raises TimeoutError."""
        killed: set[int] = set()
        for group in _freezers_first(self._vm_groups(server, vm)):
            killed |= _empty(group, self._main_processes)

        # They were moved out of the group: that it is empty does not mean that
        # they have ended.
        def unended() -> str:
            killed.difference_update(
                [pid for pid in killed if not lives(pid)]
            )
            if not killed:
                return ""
            subject = number_of(len(killed), "process does", "processes do")
            return f"{subject} not end"

        _wait_while(unended)

    def raise_priority(self, server: int, vm: int) -> None:
        """Moves a VM's processes, which are to end, into the run's own group.

        Raising the weight is not enough: before Linux 6.6 (EEVDF) a process
        that has run with a low weight keeps a virtual runtime far ahead of the
        others, and waits long after the change.
        """
        processes = self._path("cpu", server, vm) / "cgroup.procs"
        for pid in processes.read_text("ascii").split():
            # A process that has ended meanwhile cannot be moved.
            with suppress(OSError):
                _write(self._main_processes, pid)

    def freeze(
        self,
        server: int,
        vm: int,
        *,
        frozen: bool,
    ) -> None:
        """Freezes or thaws all of a VM's processes; returns when done.

        Raises TimeoutError.
        """
        group = self._path("freezer", server, vm)
        if self.layout.version == 2:
            _write(group / FREEZER_V2, str(int(frozen)))
        else:
            state = "FROZEN" if frozen else "THAWED"
            _write(group / FREEZER_V1, state)
        trouble = f"{group} did not {'freeze' if frozen else 'thaw'}"
        # The write only begins it: a process in a system call freezes when that
        # ends.
        _wait_while(
            lambda: "" if self.is_frozen(server, vm) is frozen else trouble
        )

    def is_frozen(self, server: int, vm: int) -> bool:
        return _is_frozen(self._path("freezer", server, vm))

    @property
    def _main_processes(self) -> Path:
        """File that moves a process to the run's own group: a killed one needs
        processor time to exit, too.
        """
        main = self.layout.mounts["cpu"] / MAIN_TOP / self._run_tag
        return main / "cgroup.procs"

    def _path(
        self,
        controller: str,
        server: int,
        vm: int | None = None,
    ) -> Path:
        """The group of a node, or of a VM on it."""
        run = self.layout.mounts[controller] / TOP / self._run_tag
        node = run / f"node{server}"
        if vm is None:
            return node
        return node / f"vm{vm}"

    def group(self, server: int, vm: int) -> Path:
        """A VM's group in the hierarchy of processor time."""
        return self._path("cpu", server, vm)

    def account(self, server: int, vm: int | None = None) -> Path:
        """The group that counts the processor time of a node, or of one VM."""
        return self._path("cpuacct", server, vm)

    def _vm_groups(self, server: int, vm: int) -> list[Path]:
        """A VM's group in every hierarchy."""
        return [
            path / f"node{server}" / f"vm{vm}" for path in self._vm_paths
        ]

    def _make(self, path: Path, *, leaf: bool = False) -> None:
        path.mkdir(exist_ok=True)
        if self.layout.version == 2 and not leaf:
            _delegate(path)

    def _write_weight(
        self,
        group: Path,
        *,
        shares: int,
        weight: int,
    ) -> None:
        """Sets a group's ``shares`` in version 1, its ``weight`` in version 2."""
        if self.layout.version == 2:
            _write(group / "cpu.weight", str(weight))
        else:
            _write(group / "cpu.shares", str(shares))


def _delegate(group: Path) -> None:
    """Enables controllers in the groups below this one (version 2)."""
    control = group / "cgroup.subtree_control"
    enabled = control.read_text(encoding="ascii").split()
    controllers = group / "cgroup.controllers"
    offered = controllers.read_text(encoding="ascii").split()
    # One at a time: the kernel takes a line as a whole or not at all.
    for name in ("cpu", *OPTIONAL):
        if name in offered and name not in enabled:
            _write(control, f"+{name}")


def group_of(process: Path, controller: str) -> str:
    """The control group of a process (its folder in /proc) for a controller."""
    unified = ""
    text = (process / "cgroup").read_text(encoding="utf-8")
    for line in text.splitlines():
        _, controllers, place = line.split(":", 2)
        if controller in controllers.split(","):
            return place
        # Version 2's line has no controllers; it counts where no line of version
        # 1 has this one.
        if not controllers:
            unified = place
    return unified


def groups_of_run(main: str) -> tuple[str, ...]:
    """A run's group of its own processes, ``main``, and that of its VMs. Empty
    if ``main`` is no run's.
    """
    top, _, run = main.rpartition(f"/{MAIN_TOP}/")
    if not run or "/" in run:
        return ()
    return main, f"{top}/{TOP}/{run}"


def counts(file: Path) -> dict[str, int]:
    """Numbers in a control group's file, such as ``cpu.stat``, by name.

    Empty for a group that is gone. Raises ValueError for a line of another form.
    """
    numbers = {}
    with suppress(OSError):
        for line in file.read_text(encoding="ascii").splitlines():
            name, _, number = line.partition(" ")
            numbers[name] = int(number)
    return numbers


def members(group: Path) -> set[int]:
    """Processes of a control group; none if it does not exist."""
    with suppress(OSError):
        text = (group / "cgroup.procs").read_text(encoding="ascii")
        return set(map(int, text.split()))
    return set()


def _write(path: Path, text: str) -> None:
    # Unbuffered: a control file takes one write, and reports an error by it.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def release(pid: int) -> None:
    """Moves a process that outlives the run from its groups to the root ones."""
    file = Path(f"/proc/{pid}/cgroup")
    with suppress(FileNotFoundError, ProcessLookupError):
        groups = file.read_text(encoding="utf-8")
        if f"/{TOP}/" in groups or f"/{MAIN_TOP}/" in groups:
            for root in probe_layout().roots:
                _write_outside(root, pid)


def _write_outside(root: Path, pid: int) -> None:
    """Moves a process to the root group, or to that of process 1.

    In a container the root group may hand out controllers, and then has no
    processes of its own (version 2).
    """
    try:
        _write(root / "cgroup.procs", str(pid))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # The line of version 2 names no controller.
        first = group_of(Path("/proc/1"), controller="").lstrip("/")
        _write(root / first / "cgroup.procs", str(pid))


# ------------------------------------------------------------------------------------- removal


def remove_groups(paths: Sequence[Path]) -> None:
    """Kills everything in these groups, and removes them.

    This process must not be in them. The common folder is removed after the
    last run's group.
    """
    # From the leaves up: a group that has groups in it cannot be removed.
    groups = [
        Path(folder)
        for path in paths
        for folder, _, _ in os.walk(path, topdown=False)
    ]
    # All of them empty before the first is removed: a process is in a group of
    # each hierarchy.
    for group in _freezers_first(groups):
        _empty(group)
    for group in _freezers_first(groups):
        _remove_group(group)
    for path in paths:
        with suppress(OSError):
            path.parent.rmdir()


def _freezers_first(groups: Sequence[Path]) -> list[Path]:
    """Groups with a freezer first.

    The groups of other hierarchies hold the same processes, which can fork
    there while they are killed.
    """
    return sorted(
        groups, key=lambda group: not (group / FREEZER_V1).exists()
    )


def _empty(group: Path, way_out: Path | None = None) -> set[int]:
    """Kills a group's processes until there are none; returns their numbers.

    Forking is stopped meanwhile, as a program that forks faster than its
    processes are listed would never end. ``way_out``: file that moves killed
    processes to another group. Raises TimeoutError.
    """
    killed: set[int] = set()

    def kill_members() -> str:
        listed = _other_members(group)
        if not listed:
            return ""
        _stop_forking(group)
        # Listed once more: some were forked before the freeze.
        for pid in listed | _other_members(group):
            _kill(pid, way_out)
            killed.add(pid)
        # In version 1 a frozen process dies only after it is thawed.
        _set_freezer(group, "THAWED", "0")
        return f"processes of {group} do not end: {len(listed)}"

    _wait_while(kill_members)
    return killed


def _other_members(group: Path) -> set[int]:
    """Processes of a group. Raises RuntimeError if this process is among them."""
    listed = members(group)
    if os.getpid() in listed:
        raise RuntimeError(f"this process is itself in {group}")
    return listed


def _kill(pid: int, way_out: Path | None) -> None:
    with suppress(ProcessLookupError):
        # Killed first: outside of its VM's group it would have the weight
        # and the freedom of the testbed's own.
        os.kill(pid, signal.SIGKILL)
        if way_out is not None:
            with suppress(OSError):
                _write(way_out, str(pid))


def _stop_forking(group: Path) -> None:
    """Kills a group's processes at once (Linux 5.14, version 2), or freezes them."""
    if (group / "cgroup.kill").exists():
        _write(group / "cgroup.kill", "1")
        return
    _set_freezer(group, "FROZEN", "1")
    # A process that sleeps in the kernel may freeze late; killing the others
    # need not wait for it.
    give_up = time.monotonic() + FREEZE_S
    while not _is_frozen(group) and time.monotonic() < give_up:
        time.sleep(POLL_S)


def _is_frozen(group: Path) -> bool:
    """True if a group is frozen, or has no freezer."""
    with suppress(FileNotFoundError):
        text = (group / FREEZER_V1).read_text(encoding="ascii")
        return text.strip() == "FROZEN"
    with suppress(FileNotFoundError):
        text = (group / "cgroup.events").read_text(encoding="ascii")
        return "frozen 1" in text
    return True


def _set_freezer(group: Path, state_v1: str, state_v2: str) -> None:
    """Begins to freeze or thaw a group, if it has a freezer."""
    for file, state in ((FREEZER_V1, state_v1), (FREEZER_V2, state_v2)):
        with suppress(FileNotFoundError):
            _write(group / file, state)


def lives(pid: int) -> bool:
    """True unless the process has ended; a zombie has."""
    ended = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    try:
        return psutil.Process(pid).status() not in ended
    except psutil.NoSuchProcess:
        return False


def _remove_group(group: Path) -> None:
    """Removes a group that has been emptied.

    Waits while the kernel is busy with the last of its processes. Raises
    TimeoutError.
    """

    def remove() -> str:
        try:
            group.rmdir()
        except FileNotFoundError:
            return ""
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # A program may have entered since the group was emptied.
            _empty(group)
            return str(error)
        return ""

    _wait_while(remove)


def _wait_while(trouble: Callable[[], str]) -> None:
    """Calls ``trouble`` again and again until it returns an empty text. Raises
    TimeoutError with the text that it returned last.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while left := trouble():
        if time.monotonic() > deadline:
            raise TimeoutError(left)
        time.sleep(POLL_S)
