"""Available CPU time: idle, or used by SCHED_IDLE processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from math import isnan
from pathlib import Path

import psutil
import pytest

from testbed.backends.emu import sampling
from testbed.backends.emu.cgroups import group_of
from testbed.backends.emu.sampling import Outside, Processors, gained_s, sched_idle_s

BURN = """
import os, sys, time
# Whatever the class of the tests themselves.
wanted = os.SCHED_IDLE if sys.argv[1] == "idle" else os.SCHED_OTHER
os.sched_setscheduler(0, wanted, os.sched_param(0))
print("on", flush=True)
end = time.monotonic() + 20
while time.monotonic() < end and os.getppid() != 1:
    pass
"""


@pytest.fixture(params=["idle", "other"])
def burner(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A process that computes all the time, of either class."""
    command = [sys.executable, "-S", "-c", BURN, request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield request.param, process.pid
        process.kill()


@pytest.fixture
def autogroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's switch, off."""
    switch = tmp_path / "sched_autogroup_enabled"
    switch.write_text("0\n")
    monkeypatch.setattr(sampling, "AUTOGROUP", switch)
    return switch


@pytest.mark.usefixtures("autogroup")
def test_only_idle_class_processes_are_counted(burner: tuple[str, int]) -> None:
    kind, pid = burner
    assert (pid in sched_idle_s()) == (kind == "idle")
    if kind == "idle":
        first = sum(psutil.Process(pid).cpu_times()[:2])
        counted = sched_idle_s()[pid]
        last = sum(psutil.Process(pid).cpu_times()[:2])
        assert first <= counted <= last


def test_between_sessions_no_process_counts_as_idle_class(
    burner: tuple[str, int], autogroup: Path
) -> None:
    autogroup.write_text("1\n")
    assert burner[1] not in sched_idle_s()


def test_in_another_control_group_no_process_counts_as_idle_class(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("3:cpuset:/\n2:cpu,cpuacct:/somewhere\n0::/else\n")
    assert group_of(tmp_path, "cpu") == "/somewhere"
    (tmp_path / "cgroup").write_text("0::/user.slice/a:b\n")
    assert group_of(tmp_path, "cpu") == "/user.slice/a:b"


@pytest.mark.parametrize(
    ("theirs", "counts"),
    [
        ("/hosenet/1/main", True),
        ("/hosenet", True),
        ("/", True),
        ("/hosenet/1/node0", False),
        ("/hosenet/1/main/below", False),
        ("/host", False),
        ("/user.slice", False),
    ],
)
def test_the_class_counts_in_our_group_and_above_it(theirs: str, counts: bool) -> None:
    assert sampling.competes(theirs, "/hosenet/1/main") is counts


def in_group(monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    """This process is in the group's ``main``, all others where they are."""
    own = sampling.group_of

    def group_of(process: Path, controller: str) -> str:
        return f"{group}/main" if process.name == "self" else own(process, controller)

    monkeypatch.setattr(sampling, "group_of", group_of)


def test_processes_outside_the_run_are_others(
    burner: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_group(monkeypatch, "/hosenet/run")
    everything, but_for_it = Outside(()), Outside((burner[1],))
    process = psutil.Process(burner[1])
    before_s, had_s = everything() - but_for_it(), process.cpu_times().user
    while process.cpu_times().user < had_s + 0.3:
        time.sleep(0.05)
    # Between the two sums this process itself computes, for milliseconds.
    assert everything() - but_for_it() - before_s >= 0.2


def test_what_an_ended_child_used_stays_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    in_group(monkeypatch, "/hosenet/run")
    outside = Outside(())
    before_s = outside()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-S", "-c", burn], check=True)
    assert outside() - before_s >= 0.28


def test_without_a_run_nobody_is_outside() -> None:
    assert isnan(Outside(())())


def test_kernel_threads_are_no_others() -> None:
    threads = [each.pid for each in psutil.process_iter(["ppid"]) if each.info["ppid"] == 2]
    assert sampling.family_s(os.getpid()) > 0.0
    assert {sampling.family_s(pid) for pid in threads} <= {0.0}


def test_shares_are_shares() -> None:
    processors = Processors()
    time.sleep(0.05)
    use = processors.sample()
    assert 0.0 <= use.idle <= 1.0
    assert use.busy == 1.0 - use.idle


def test_who_came_or_went_counts_for_nothing() -> None:
    assert gained_s({1: 2.0, 2: 5.0}, {2: 5.5, 3: 9.0}) == pytest.approx(0.5)
    assert gained_s({1: 2.0}, {1: 1.0}) == 0.0
