"""Control groups of version 2 by their files, in a folder: what is written, and in which order."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.backends.emu import cgroups
from testbed.backends.emu.cgroups import CgroupLayout, RunCgroup

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
    run = RunCgroup(CgroupLayout(2, dict.fromkeys(NAMES, kernel.folder)), "r")
    vm = kernel.group(run.paths[0] / "node0" / "vm0")
    run.end_vm(0, 0)
    assert (vm / "cgroup.procs").read_text() == ""
    first = "cgroup.kill" if kernel.can_kill else "cgroup.freeze"
    assert kernel.written[0] == (f"hosenet/r/node0/vm0/{first}", "1")
