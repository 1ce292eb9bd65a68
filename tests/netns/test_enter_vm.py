"""A program in a VM: what it has of the machine, entered for real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.launch import User
from testbed.backends.emu.pseudo_terminal import ProgramStreams
from testbed.backends.emu.vm_process import VmPlace, start_process


@pytest.fixture
def place(prefix: str, tmp_path: Path) -> Iterator[VmPlace]:
    """A namespace without a network, control groups or a tenant."""
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.7 a.0\n")
    tmp_path.chmod(0o755)
    name = f"{prefix}-vm"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield VmPlace("a.0", "s", "10.0.0.7", f"/run/netns/{name}", (), str(hosts))
    subprocess.run(["ip", "netns", "delete", name], check=True)


def said(place: VmPlace, script: str) -> str:
    pipe = subprocess.PIPE
    streams = ProgramStreams(subprocess.DEVNULL, pipe, subprocess.STDOUT)
    with start_process(place, ["sh", "-c", script], streams) as child:
        assert child.stdout is not None
        return child.stdout.read().decode()


def test_a_program_has_no_capability_and_gains_none(place: VmPlace) -> None:
    status = dict(
        line.split(":\t")
        for line in said(place, "cat /proc/self/status").splitlines()
        if line.startswith(("Cap", "NoNew", "Seccomp:"))
    )
    assert {
        status[f"Cap{which}"] for which in ("Inh", "Prm", "Eff", "Amb")
    } == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_a_program_whose_file_has_capabilities_runs(place: VmPlace) -> None:
    assert "ping from" in said(place, "ping -V")


def test_shared_memory_is_not_the_machines(place: VmPlace) -> None:
    mark = Path("/dev/shm") / f"hosenet-{os.getpid()}"  # noqa: S108
    mark.write_text("of the machine")
    try:
        fill = "head -c 128M /dev/zero > /dev/shm/big; wc -c < /dev/shm/big"
        text = said(place, f"ls {mark}; {fill}; readlink /proc/self/ns/ipc")
    finally:
        mark.unlink()
    assert "No such file" in text
    assert f"{64 << 20}\n" in text
    assert str(Path("/proc/self/ns/ipc").readlink()) not in text
    assert not Path("/dev/shm/big").exists()  # noqa: S108


def test_names_of_vms_are_found(place: VmPlace) -> None:
    assert "10.0.0.7" in said(place, "getent hosts a.0")


def test_programs_of_two_vms_cannot_reach_each_other(place: VmPlace) -> None:
    first, second = (
        replace(place, user=User(f"vm{number}", number, number))
        for number in (1_900_000_000, 1_900_000_001)
    )
    pipe = subprocess.PIPE
    streams = ProgramStreams(subprocess.DEVNULL, pipe, subprocess.STDOUT)
    waiting = ["sh", "-c", "id -u; exec sleep 600"]
    with start_process(first, waiting, streams) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1900000000\n"
        for attempt in (
            "kill",
            "ls -l /proc/$PID/fd #",
            "cat /proc/$PID/environ #",
        ):
            script = f"PID={child.pid}; {attempt} $PID"
            text = said(second, script).lower()
            assert "not permitted" in text or "denied" in text, text
        assert child.poll() is None
        child.kill()
