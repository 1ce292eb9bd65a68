"""Available CPU time: idle, or used by SCHED_IDLE processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.backends.emu import sampling
from testbed.backends.emu.cgroups import group_of
from testbed.backends.emu.sampling import (
    Outside,
    ProcessorSampler,
    Used,
    gained_s,
    gained_ticks,
    sched_idle_s,
)
from tests.support.agent_watch import wait_until
from tests.support.scheduling import need_usual_class

BURN = """
import os, sys, time
# Whatever the class of the tests themselves.
wanted = os.SCHED_IDLE if sys.argv[1] == "idle" else os.SCHED_OTHER
os.sched_setscheduler(0, wanted, os.sched_param(0))
print("on", flush=True)
end = time.monotonic() + 100
while time.monotonic() < end and os.getppid() != 1:
    pass
"""

COMPUTE = "import time\nwhile time.process_time() < {}: pass"
# The kernel then gives the time of an ended child to nobody.
NOBODY_WAITS = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.stdin.write(b"end\\n")
child.stdin.flush()
child.wait()
print("ended", flush=True)
input()
"""


@pytest.fixture(params=["idle", "other"])
def burner(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A process that computes all the time, of either class."""
    if request.param == "other":
        need_usual_class()
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


@pytest.mark.slow
@pytest.mark.usefixtures("autogroup")
def test_only_idle_class_processes_are_counted(
    burner: tuple[str, int],
) -> None:
    kind, pid = burner
    assert (pid in sched_idle_s()) == (kind == "idle")
    if kind == "idle":
        first = sum(psutil.Process(pid).cpu_times()[:2])
        counted = sched_idle_s()[pid]
        last = sum(psutil.Process(pid).cpu_times()[:2])
        assert first <= counted <= last


@pytest.mark.slow
def test_between_sessions_no_process_counts_as_idle_class(
    burner: tuple[str, int], autogroup: Path
) -> None:
    autogroup.write_text("1\n")
    assert burner[1] not in sched_idle_s()


def test_in_another_control_group_no_process_counts_as_idle_class(
    tmp_path: Path,
) -> None:
    (tmp_path / "cgroup").write_text(
        "3:cpuset:/\n2:cpu,cpuacct:/somewhere\n0::/else\n"
    )
    assert group_of(tmp_path, "cpu") == "/somewhere"
    (tmp_path / "cgroup").write_text("0::/user.slice/a:b\n")
    assert group_of(tmp_path, "cpu") == "/user.slice/a:b"


@pytest.mark.parametrize(
    ("theirs", "counts"),
    [
        ("/hosenet-main/1", True),
        ("/hosenet-main", True),
        ("/", True),
        ("/hosenet/1/node0", False),
        ("/hosenet-main/1/below", False),
        ("/host", False),
        ("/user.slice", False),
    ],
)
def test_the_class_counts_in_our_group_and_above_it(
    theirs: str, counts: bool
) -> None:
    assert sampling.competes(theirs, "/hosenet-main/1") is counts


def in_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is in a run's group, all others where they are."""
    own = sampling.group_of

    def group_of(process: Path, controller: str) -> str:
        if process.name == "self":
            return "/hosenet-main/run"
        return own(process, controller)

    monkeypatch.setattr(sampling, "group_of", group_of)


@pytest.mark.slow
def test_processes_outside_the_run_are_others(
    burner: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_run(monkeypatch)
    everything, but_for_it = Outside(()), Outside((burner[1],))
    without_it_s = but_for_it()
    before_s = everything() - without_it_s
    # What others use between two sums makes this less, however busy the machine is.
    wait_until(
        lambda: everything() - but_for_it() - before_s >= 0.1,
        "the burner's time to count",
    )


@pytest.mark.slow
def test_what_an_ended_child_used_stays_with_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_run(monkeypatch)
    outside = Outside(())
    before_s = outside()
    subprocess.run(
        [sys.executable, "-S", "-c", COMPUTE.format(0.3)], check=True
    )
    assert outside() - before_s >= 0.28


@pytest.mark.slow
def test_what_nobody_waits_for_hides_nothing_that_others_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_run(monkeypatch)
    command = [
        sys.executable,
        "-S",
        "-c",
        NOBODY_WAITS,
        COMPUTE.format(1.0) + "\ninput()",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: sum(child.cpu_times()[:2]) >= 0.9, "it computes")
        outside = Outside(())
        before_s = outside()
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        parent.stdout.readline()
        subprocess.run(
            [sys.executable, "-S", "-c", COMPUTE.format(0.3)], check=True
        )
        assert outside() - before_s >= 0.28
        parent.stdin.write(b"\n")


@dataclass
class Running:
    """A process of :func:`test_ended_children_are_counted_once`: what it used and waited for."""

    parent: int
    own: int = 0
    children: int = 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["use", "fork", "end", "read"]),
        st.integers(0, 30),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS)
def test_ended_children_are_counted_once(
    steps: list[tuple[str, int, bool]],
) -> None:
    """Never more than was used; all of it where every child is waited for by its parent."""
    running, began = {1: Running(0)}, 0
    before, gained, used, all_waited = {1: Used(0, 1, 0, 0)}, 0, 0, True

    def read() -> dict[int, Used]:
        return {
            pid: Used(it.parent, pid, it.own, it.children)
            for pid, it in running.items()
        }

    for what, number, waits in [*steps, ("read", 0, True)]:
        pid = sorted(running)[number % len(running)]
        if what == "use":
            running[pid].own += number
            used += number
        elif what == "fork":
            began += 1
            running[1 + began] = Running(pid)
        elif what == "end" and pid != 1:
            gone = running.pop(pid)
            if waits:
                running[gone.parent].children += gone.own + gone.children
            orphans = [it for it in running.values() if it.parent == pid]
            all_waited &= waits and not orphans
            for it in orphans:
                it.parent = 1
        elif what == "read":
            after = read()
            step = gained_ticks(before, after, after)
            assert step >= 0
            gained, before = gained + step, after
            assert gained <= used
    assert gained == used or not all_waited


def test_an_orphan_of_the_run_is_not_counted_again_with_who_took_it_in() -> (
    None
):
    # The run's 10 has a child 11 and a grandchild 12. Both end; 1, outside, took in the second.
    before = {
        1: Used(0, 1, 0, 0),
        10: Used(1, 2, 5, 0),
        11: Used(10, 3, 7, 0),
        12: Used(11, 4, 400, 0),
    }
    after = {1: Used(0, 1, 0, 403), 10: Used(1, 2, 5, 300)}
    assert gained_ticks(before, after, {1}) == 3
    assert gained_ticks(before, after, {1, 10}) == 3 + 293


def test_without_a_run_nobody_is_outside() -> None:
    assert isnan(Outside(())())


def test_kernel_threads_are_no_others() -> None:
    threads = [
        each.pid
        for each in psutil.process_iter(["ppid"])
        if each.info["ppid"] == 2
    ]
    assert sampling.used_ticks(os.getpid()).own > 0
    assert {sampling.used_ticks(pid)[2:] for pid in threads} <= {(0, 0)}


def test_shares_are_shares() -> None:
    processors = ProcessorSampler()
    time.sleep(0.05)
    use = processors.sample()
    assert 0.0 <= use.idle <= 1.0
    assert use.busy == 1.0 - use.idle


def test_who_came_or_went_counts_for_nothing() -> None:
    assert gained_s({1: 2.0, 2: 5.0}, {2: 5.5, 3: 9.0}) == pytest.approx(
        0.5
    )
    assert gained_s({1: 2.0}, {1: 1.0}) == 0.0
