"""Control groups, version 1 or 2: one below ``hosenet/RUN`` for each node, in it one for each VM.

A node's group has quotas (processors, memory), a VM's a weight inside it; the freezer preempts. The
run's own process joins ``hosenet/RUN/main``, so that whatever it starts is found by the run's
group even if nobody wrote it down.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

TOP = "hosenet"
# The CFS period is 100 ms by default. Here it is short: a foreground VM that was throttled for what
# a background VM used waits for the next period.
PERIOD_US = 10_000
LEAST_QUOTA_US = 1_000
MAX_PERIOD_US = 1_000_000
MAX_WEIGHT = 10_000
# Version 1 counts shares from 2; twice the weight keeps all ratios up to 10,000 : 1.
SHARES_PER_WEIGHT = 2
MAX_SHARES = 262_144
WANTED_V1 = ("cpu", "cpuacct", "freezer")
# For the kernel to freeze, thaw or kill: long, as the machine may be busy.
TIMEOUT_S = 30.0
OPTIONAL = "memory"  # without it nodes have no memory quota


@dataclass(frozen=True)
class CgroupLayout:
    """Where this machine has its control groups. ``mounts``: controller -> mount point.

    Version 0: none that we could use, with the reason in ``lacking``.
    """

    version: Literal[0, 1, 2]
    mounts: tuple[tuple[str, Path], ...] = ()
    lacking: str = ""

    @property
    def roots(self) -> tuple[Path, ...]:
        """Every hierarchy once, in order."""
        return tuple(dict.fromkeys(path for _, path in self.mounts))

    def mount(self, controller: str) -> Path:
        """Raises KeyError."""
        return dict(self.mounts)[controller]

    @property
    def limits_memory(self) -> bool:
        return any(name == OPTIONAL for name, _ in self.mounts)


def read_layout(mountinfo: str, controllers_of: dict[Path, str] | None = None) -> CgroupLayout:
    """The layout from the text of ``/proc/self/mountinfo``.

    ``controllers_of`` stands in for the ``cgroup.controllers`` files of version 2 in tests.
    """
    first: dict[str, Path] = {}
    unified: Path | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fstype, _, options = right.split(" ")[:3]
        path = Path(left.split(" ")[4])
        if fstype == "cgroup2" and unified is None:
            unified = path
        elif fstype == "cgroup":
            for name in options.split(","):
                if name in (*WANTED_V1, OPTIONAL):
                    first.setdefault(name, path)
    offered = [] if unified is None else _controllers(unified, controllers_of).split()
    if unified is not None and "cpu" in offered:
        names = [*WANTED_V1, *([OPTIONAL] if OPTIONAL in offered else [])]
        return CgroupLayout(2, tuple((name, unified) for name in names))
    missing = [name for name in WANTED_V1 if name not in first]
    if missing:
        return CgroupLayout(0, (), f"no control group controller {', '.join(missing)} is mounted")
    names = [*WANTED_V1, *([OPTIONAL] if OPTIONAL in first else [])]
    return CgroupLayout(1, tuple((name, first[name]) for name in names))


def _controllers(path: Path, given: dict[Path, str] | None) -> str:
    if given is not None:
        return given.get(path, "")
    try:
        return (path / "cgroup.controllers").read_text(encoding="ascii")
    except OSError:
        return ""


def probe_layout() -> CgroupLayout:
    """This machine's layout."""
    return read_layout(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))


class RunCgroup:
    """The control groups of one run. Nothing exists before :meth:`create`."""

    def __init__(self, layout: CgroupLayout, run_tag: str) -> None:
        self.layout = layout
        self.paths = tuple(root / TOP / run_tag for root in layout.roots)
        self._home: dict[Path, Path] = {}

    def create(self) -> None:
        """Make the run's groups in every hierarchy."""
        for root, path in zip(self.layout.roots, self.paths, strict=True):
            if self.layout.version == 2:
                _delegate(root)
            # Both at once: another run's end may take the common folder away in between.
            path.mkdir(parents=True, exist_ok=True)
            self._make(path.parent)
            self._make(path)
            self._make(path / "main", leaf=True)
        self._raise_weight()

    def _raise_weight(self) -> None:
        """The greatest weight for the run as a whole: its VMs are all in one group beside every
        other process of the machine, and would together get what one of those gets.
        """
        top = self._path("cpu")
        for group in (top.parent, top):
            if self.layout.version == 2:
                _write(group / "cpu.weight", str(MAX_WEIGHT))
            else:
                _write(group / "cpu.shares", str(MAX_SHARES))

    def enter(self) -> None:
        """Move this process, and so all its children to come, into the run's group."""
        controller_of = {path: name for name, path in reversed(self.layout.mounts)}
        for root, path in zip(self.layout.roots, self.paths, strict=True):
            name = "unified" if self.layout.version == 2 else controller_of[root]
            self._home[root] = _own_group(root, name)
            _write(path / "main" / "cgroup.procs", "0")

    def leave(self) -> None:
        """Move this process back to where it came from."""
        for root, home in self._home.items():
            try:
                _write(home / "cgroup.procs", "0")
            except OSError:
                # Version 2 takes no process in a group that has begun to hand out controllers.
                _write(root / "cgroup.procs", "0")
        self._home = {}

    def add_vm(self, server: int, vm: int) -> tuple[Path, ...]:
        """Make a VM's groups; returns the ``cgroup.procs`` files its processes write to to join."""
        files = []
        for path in self.paths:
            self._make(path / _node(server))
            group = path / _node(server) / f"vm{vm}"
            self._make(group, leaf=True)
            files.append(group / "cgroup.procs")
        return tuple(files)

    def remove_vm(self, server: int, vm: int) -> None:
        """Remove a VM's groups; its processes have ended."""
        for path in self.paths:
            _remove_group(path / _node(server) / f"vm{vm}", time.monotonic() + TIMEOUT_S)

    def set_quota(self, server: int, cpus: float | None, vm: int | None = None) -> None:
        """Limit the processors of a node, or of one VM on it; None: no limit."""
        share = 1.0 if cpus is None else cpus
        period = min(MAX_PERIOD_US, max(PERIOD_US, round(LEAST_QUOTA_US / share)))
        quota = None if cpus is None else max(LEAST_QUOTA_US, round(cpus * period))
        for path in self.paths:
            self._make(path / _node(server))
        group = self._path("cpu") / _node(server)
        if vm is not None:
            group /= f"vm{vm}"
        if self.layout.version == 2:
            _write(group / "cpu.max", f"{'max' if quota is None else quota} {period}")
        else:
            # One at a time, and a group may never have more than the one above it.
            _write(group / "cpu.cfs_quota_us", "-1")
            _write(group / "cpu.cfs_period_us", str(period))
            _write(group / "cpu.cfs_quota_us", str(-1 if quota is None else quota))

    def set_memory(self, server: int, size_bytes: int) -> bool:
        """Limit the memory of a node's VMs together; False where the machine has no such quotas.

        What goes beyond it is ended by the kernel, and its job with it.
        """
        if not self.layout.limits_memory:
            return False
        group = self._path("memory") / _node(server)
        self._make(group)
        name = "memory.max" if self.layout.version == 2 else "memory.limit_in_bytes"
        _write(group / name, str(size_bytes))
        return True

    def set_weight(self, server: int, vm: int, weight: int) -> None:
        """A VM's share of its node, 1 .. 10,000."""
        if not 1 <= weight <= MAX_WEIGHT:
            raise ValueError(f"weight {weight} outside 1 .. {MAX_WEIGHT}")
        group = self._vm("cpu", server, vm)
        if self.layout.version == 2:
            _write(group / "cpu.weight", str(weight))
        else:
            _write(group / "cpu.shares", str(SHARES_PER_WEIGHT * weight))

    def end_vm(self, server: int, vm: int, timeout_s: float = TIMEOUT_S) -> int:
        """Kill every process of a VM, frozen or not; returns how many. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        groups = [path / _node(server) / f"vm{vm}" for path in self.paths]
        for group in groups:
            _thaw(group)
        way_out = self._path("cpu") / "main" / "cgroup.procs"
        killed = set[int]().union(*(_empty(group, deadline, way_out) for group in groups))
        while left := sorted(pid for pid in killed if lives(pid)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {', '.join(map(str, left))} do not end")
            time.sleep(0.002)
        return len(killed)

    def raise_priority(self, server: int, vm: int) -> None:
        """Let a VM's processes end with the priority of the run itself.

        Raising the weight is not enough: before Linux 6.6 (EEVDF) a process that had run with a
        low weight keeps a virtual runtime far ahead of the others and waits long after the change.
        """
        way_out = self._path("cpu") / "main" / "cgroup.procs"
        for pid in (self._vm("cpu", server, vm) / "cgroup.procs").read_text("ascii").split():
            with suppress(OSError):  # it has ended meanwhile
                _write(way_out, pid)

    def freeze(self, server: int, vm: int, *, frozen: bool, timeout_s: float = TIMEOUT_S) -> None:
        """Stop or resume all of a VM's processes; returns when it is so."""
        group = self._vm("freezer", server, vm)
        if self.layout.version == 2:
            _write(group / "cgroup.freeze", "1" if frozen else "0")
        else:
            _write(group / "freezer.state", "FROZEN" if frozen else "THAWED")
        deadline = time.monotonic() + timeout_s
        while self.is_frozen(server, vm) is not frozen:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{group} did not {'freeze' if frozen else 'thaw'}")
            time.sleep(0.001)

    def is_frozen(self, server: int, vm: int) -> bool:
        group = self._vm("freezer", server, vm)
        if self.layout.version == 2:
            return "frozen 1" in (group / "cgroup.events").read_text(encoding="ascii")
        return (group / "freezer.state").read_text(encoding="ascii").strip() == "FROZEN"

    def cpu_s(self, server: int, vm: int) -> float:
        """Processor time a VM's processes have used so far, in seconds."""
        group = self._vm("cpuacct", server, vm)
        if self.layout.version == 2:
            for line in (group / "cpu.stat").read_text(encoding="ascii").splitlines():
                key, _, value = line.partition(" ")
                if key == "usage_usec":
                    return int(value) / 1e6
            raise OSError(errno.ENODATA, f"{group}/cpu.stat names no usage")
        return int((group / "cpuacct.usage").read_text(encoding="ascii")) / 1e9

    def _path(self, controller: str) -> Path:
        mount = self.layout.mount(controller)
        return next(p for r, p in zip(self.layout.roots, self.paths, strict=True) if r == mount)

    def _vm(self, controller: str, server: int, vm: int) -> Path:
        return self._path(controller) / _node(server) / f"vm{vm}"

    def _make(self, path: Path, *, leaf: bool = False) -> None:
        path.mkdir(exist_ok=True)
        if self.layout.version == 2 and not leaf:
            _delegate(path)


def _node(server: int) -> str:
    """A node's folder below its run's, the same in every hierarchy."""
    return f"node{server}"


def _delegate(group: Path) -> None:
    """Version 2: let the groups below this one have quotas of their own."""
    control = group / "cgroup.subtree_control"
    given = control.read_text(encoding="ascii").split()
    offered = (group / "cgroup.controllers").read_text(encoding="ascii").split()
    for name in ("cpu", OPTIONAL):
        if name in offered and name not in given:
            _write(control, f"+{name}")


def _thaw(group: Path) -> None:
    """A frozen process of version 1 does not die before it is thawed."""
    with suppress(FileNotFoundError):
        _write(group / "freezer.state", "THAWED")


def _own_group(root: Path, controller: str) -> Path:
    """Where this process is in the hierarchy mounted at ``root``; the root where that is hidden."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, names, place = line.split(":", 2)
        if names == "" if controller == "unified" else controller in names.split(","):
            group = root / place.lstrip("/")
            return group if (group / "cgroup.procs").exists() else root
    return root


def _write(path: Path, text: str) -> None:
    # Unbuffered: a control file takes one write and answers it with an error or not at all.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def release(pid: int) -> None:
    """Move a process that outlives the run out of the run's groups, to the top ones."""
    place = Path(f"/proc/{pid}/cgroup")
    with suppress(FileNotFoundError, ProcessLookupError):
        if f"/{TOP}/" in place.read_text(encoding="utf-8"):
            for root in probe_layout().roots:
                _write(root / "cgroup.procs", str(pid))


# ------------------------------------------------------------------------------------- removal


def remove_groups(paths: Iterable[Path], timeout_s: float = TIMEOUT_S) -> int:
    """Kill everything in these groups and remove them; returns how many processes were killed.

    This process must not be in them. The common folder goes when it was the last run's.
    """
    deadline = time.monotonic() + timeout_s
    roots = list(paths)
    groups = [Path(folder) for path in roots for folder, _, _ in os.walk(path, topdown=False)]
    for group in groups:
        _thaw(group)
    killed: set[int] = set()
    for group in groups:
        killed |= _empty(group, deadline)
    for group in groups:
        _remove_group(group, deadline)
    for path in roots:
        with suppress(OSError):
            path.parent.rmdir()
    return len(killed)


def _empty(group: Path, deadline: float, way_out: Path | None = None) -> set[int]:
    """Kill a group's processes until there are none. Raises TimeoutError.

    ``way_out``: the group they are moved to when they have been killed: exiting takes CPU time too.
    """
    killed: set[int] = set()
    while True:
        try:
            members = (group / "cgroup.procs").read_text(encoding="ascii").split()
        except OSError:
            return killed
        if not members:
            return killed
        for pid in map(int, members):
            if pid == os.getpid():
                raise RuntimeError(f"this process is itself in {group}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
                if way_out is not None:
                    with suppress(OSError):
                        _write(way_out, str(pid))
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {', '.join(members)} in {group} do not end")
        time.sleep(0.002)


def lives(pid: int) -> bool:
    """True unless the process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _remove_group(group: Path, deadline: float) -> None:
    """Remove an empty group; the kernel may still be busy with the last of its processes."""
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.002)
        else:
            return
