"""Control groups of version 2 by their files, in a folder: what is written, and in which order."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from testbed.backends.emu import cgroups
from testbed.backends.emu.cgroups import CgroupLayout, RunCgroup
from testbed.plan.vm_limits import vm_limits

KILL = os.kill
NAMES = ("cpu", "cpuacct", "freezer", "memory", "pids")


class Kernel:
    """Files of version 2: what is written to them has the effect that it has in the kernel."""

    def __init__(self, folder: Path, *, can_kill: bool) -> None:
        self.folder = folder
        self.can_kill = can_kill
        self.written: list[tuple[str, str]] = []
        self.bomb: list[subprocess.Popen[bytes]] = []

    def write(self, path: Path, text: str) -> None:
        if not path.exists():
            raise FileNotFoundError(path)
        self.written.append((str(path.relative_to(self.folder)), text))
        if path.name == "cgroup.kill":
            self.end(path.parent)
        if path.name == "cgroup.freeze":
            (path.parent / "cgroup.events").write_text(f"frozen {text}")
        path.write_text(text)

    def group(self, path: Path) -> Path:
        """A VM's group whose only process leaves another one behind when it is killed alone."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.freeze").write_text("0")
        (path / "cgroup.events").write_text("frozen 0")
        if self.can_kill:
            (path / "cgroup.kill").write_text("")
        self.fork(path)
        return path

    def fork(self, path: Path) -> None:
        child = subprocess.Popen(["sleep", "600"])
        self.bomb.append(child)
        (path / "cgroup.procs").write_text(f"{child.pid}\n")

    def end(self, path: Path) -> None:
        for child in self.bomb:
            if child.poll() is None:
                KILL(child.pid, signal.SIGKILL)
                child.wait()
        (path / "cgroup.procs").write_text("")

    def kill(self, pid: int, _signal: int) -> None:
        """Of a group that is not frozen another process lives on."""
        (vm,) = self.folder.rglob("vm0")
        if "frozen 1" in (vm / "cgroup.events").read_text():
            self.end(vm)
        elif any(
            child.pid == pid and child.poll() is None for child in self.bomb
        ):
            self.fork(vm)


@pytest.fixture(params=[True, False], ids=["cgroup.kill", "freezer"])
def kernel(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path, can_kill=request.param)
    monkeypatch.setattr(cgroups, "_write", kernel.write)
    monkeypatch.setattr(cgroups, "TIMEOUT_S", 2.0)
    monkeypatch.setattr(os, "kill", kernel.kill)
    yield kernel
    monkeypatch.undo()
    for child in kernel.bomb:
        child.kill()
        child.wait()


def test_a_fork_bomb_is_stopped_before_it_is_killed(kernel: Kernel) -> None:
    run = RunCgroup(
        CgroupLayout(2, dict.fromkeys(NAMES, kernel.folder)), "r"
    )
    vm = kernel.group(run.paths[0] / "node0" / "vm0")
    run.end_vm(0, 0)
    assert (vm / "cgroup.procs").read_text() == ""
    first = "cgroup.kill" if kernel.can_kill else "cgroup.freeze"
    assert kernel.written[0] == (f"hosenet/r/node0/vm0/{first}", "1")


@pytest.fixture
def v2(tmp_path: Path) -> RunCgroup:
    """A run with one VM's group, and the files of version 2 in it."""
    run = RunCgroup(CgroupLayout(2, dict.fromkeys(NAMES, tmp_path)), "r")
    vm = run.paths[0] / "node0" / "vm0"
    vm.mkdir(parents=True)
    for group in (vm, vm.parent):
        (group / "cgroup.controllers").write_text("cpu memory pids")
        (group / "cgroup.subtree_control").write_text("")
        for name in ("memory.max", "pids.max"):
            (group / name).write_text("")
    return run


def test_a_vm_has_limits_of_memory_and_processes(v2: RunCgroup) -> None:
    vm = v2.paths[0] / "node0" / "vm0"
    assert v2.set_memory(0, 123, 0)
    assert v2.set_processes(0, 0, 45)
    assert (vm / "memory.max").read_text() == "123"
    assert (vm / "pids.max").read_text() == "45"
    assert (vm.parent / "memory.max").read_text() == ""


def test_limits_that_stopped_a_vm_are_told(v2: RunCgroup) -> None:
    vm = v2.paths[0] / "node0" / "vm0"
    assert v2.limits_reached(0, 0) == ()
    (vm / "pids.events").write_text("max 0\n")
    (vm / "memory.events").write_text("max 7\noom 0\noom_kill 0\n")
    assert v2.limits_reached(0, 0) == ()
    (vm / "pids.events").write_text("max 3\n")
    assert v2.limits_reached(0, 0) == ("processes",)
    (vm / "memory.events").write_text("max 7\noom 1\noom_kill 2\n")
    assert v2.limits_reached(0, 0) == ("processes", "memory")


def test_version_1_limits_sockets_apart(tmp_path: Path) -> None:
    run = RunCgroup(CgroupLayout(1, dict.fromkeys(NAMES, tmp_path)), "r")
    vm = run.paths[0] / "node0" / "vm0"
    vm.mkdir(parents=True)
    for name in ("memory.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"):
        (vm / name).write_text("")
    assert run.set_memory(0, 1000, 0)
    assert (vm / "memory.limit_in_bytes").read_text() == "1000"
    sockets = vm / "memory.kmem.tcp.limit_in_bytes"
    assert sockets.read_text() == "500"
    sockets.unlink()
    assert run.set_memory(0, 2000, 0)
    assert not sockets.exists()


def test_version_1_says_so_in_another_file(tmp_path: Path) -> None:
    run = RunCgroup(CgroupLayout(1, dict.fromkeys(NAMES, tmp_path)), "r")
    vm = run.paths[0] / "node0" / "vm0"
    vm.mkdir(parents=True)
    (vm / "memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
    assert run.limits_reached(0, 0) == ("memory",)


def test_without_the_controllers_there_are_no_limits(
    tmp_path: Path,
) -> None:
    run = RunCgroup(
        CgroupLayout(1, dict.fromkeys(NAMES[:3], tmp_path)), "r"
    )
    assert not run.set_memory(0, 1, 0)
    assert not run.set_processes(0, 0, 1)
    assert run.limits_reached(0, 0) == ()


@pytest.mark.parametrize(
    ("version", "file", "of_a_process"),
    [(1, "cpu.shares", 1024), (2, "cpu.weight", 100)],
)
def test_vms_are_in_no_group_of_the_testbeds_own_processes(
    version: Literal[1, 2],
    file: str,
    of_a_process: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights of one level are what the kernel compares."""
    written: dict[Path, str] = {}
    monkeypatch.setattr(cgroups, "_write", written.__setitem__)
    monkeypatch.setattr(cgroups, "_delegate", lambda _: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    run = RunCgroup(
        CgroupLayout(version, dict.fromkeys(NAMES, tmp_path)), "r"
    )
    run.create()
    (procs,) = run.add_vm(0, 0)
    run.enter()
    (joined,) = [path for path in written if path.name == "cgroup.procs"]
    main, vms = joined.relative_to(tmp_path), procs.relative_to(tmp_path)
    assert main.parts[0] != vms.parts[0]
    weight_of = {
        path.parent.name: int(text) / of_a_process
        for path, text in written.items()
        if path.name == file
    }
    assert weight_of == {main.parts[0]: 16, vms.parts[0]: 12}
    assert all((tmp_path / top).is_dir() for top in weight_of)


def test_all_vms_together_leave_the_machine_its_share() -> None:
    gib = 1 << 30
    found = vm_limits([2] * 16, 16 * gib, 32_768)
    assert 32 * found.memory_bytes <= 0.8 * 16 * gib
    assert 16 * found.node_memory_bytes <= 0.8 * 16 * gib
    assert found.processes == 512
    assert str(found) == "512 processes and 409 MiB of memory"
    many = vm_limits([2] * 128, 64 * gib, 32_768)
    assert 256 * many.processes <= 32_768 / 2
    # However small the machine: an interpreter and its children.
    least = vm_limits([4] * 1000, gib, 4096)
    assert (least.processes, least.memory_bytes) == (64, 64 << 20)
