"""Available CPU time: idle, or used by SCHED_IDLE processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
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
from tests.unit.emu.test_sampling import watching

BURN = """
import os, sys, time
# Whatever the class of the tests themselves.
wanted = os.SCHED_OTHER if sys.argv[1] == "other" else os.SCHED_IDLE
if sys.argv[1] == "idle without children":
    wanted |= os.SCHED_RESET_ON_FORK
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


@pytest.fixture(params=["idle", "idle without children", "other"])
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
    assert (pid in sched_idle_s()) == (kind != "other")
    if kind != "other":
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
    # No other process: on a busy machine a look at all takes seconds, in which
    # they use more than this one.
    monkeypatch.setattr(sampling.psutil, "pids", lambda: [burner[1]])
    outside, but_for_it = Outside(), Outside()
    but_for_it.not_counted = [burner[1]]
    before_s = outside()
    assert but_for_it() == 0.0
    wait_until(
        lambda: outside() - before_s >= 0.1, "the burner's time to count"
    )
    assert but_for_it() == 0.0


def test_a_process_whose_name_was_cut_within_a_character_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel has it: 15 bytes of a longer name."""
    (tmp_path / "7").mkdir()
    name = "Gr\xf6\xdfenordnungen".encode()[:3]
    numbers = b" ".join(b"%d" % number for number in range(49))
    stat = b"7 (" + name + b") S " + numbers
    (tmp_path / "7" / "stat").write_bytes(stat)
    monkeypatch.setattr(sampling, "PROC", tmp_path)
    assert sampling.used_ticks(7) == Used(0, 18, 10 + 11, 12 + 13)


def test_a_switch_that_was_restarted_is_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's own, which is in no group of the run."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/hosenet-main/run\n")
    monkeypatch.setattr(sampling, "PROC", tmp_path)
    monkeypatch.setattr(sampling, "sched_idle_s", dict)

    def runs(pid: int, ticks: int) -> None:
        process = tmp_path / str(pid)
        process.mkdir(exist_ok=True)
        (process / "cgroup").write_text("0::/system.slice\n")
        fields = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, ticks, 0, 0, 0, 0, 0, 0, 0]
        numbers = " ".join(map(str, [*fields, pid]))
        (process / "stat").write_text(f"{pid} (switch) S {numbers}\n")
        monkeypatch.setattr(sampling.psutil, "pids", lambda: [pid])

    runs(10, 1000)
    watch = watching()
    network = watch._emulation.network
    network.switch_pids = [10]
    watch.follow_switches()
    runs(11, 0)
    network.switch_pids = [11]
    watch.follow_switches()
    watch._processors.sample()
    runs(11, 1000)
    assert watch._processors.sample().others == 0.0
    # Any other process is.
    network.switch_pids = [10]
    watch.follow_switches()
    runs(11, 2000)
    assert watch._processors.sample().others > 0.0


@pytest.mark.slow
def test_what_an_ended_child_used_stays_with_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_run(monkeypatch)
    outside = Outside()
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
        outside = Outside()
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
    assert isnan(Outside()())


def test_kernel_threads_are_no_others() -> None:
    used = set()
    for each in psutil.process_iter(["ppid"]):
        if each.info["ppid"] == 2:
            # Workers of the kernel come and go.
            with suppress(OSError, ValueError, IndexError):
                used.add(sampling.used_ticks(each.pid)[2:])
    assert sampling.used_ticks(os.getpid()).ticks > 0
    assert used <= {(0, 0)}


def test_shares_are_shares() -> None:
    processors = ProcessorSampler()
    time.sleep(0.05)
    use = processors.sample()
    assert 0.0 <= use.idle <= 1.0


def test_samplers_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The load test has one of its own beside that of its samples."""
    monkeypatch.setattr(sampling, "sched_idle_s", dict)
    fields = psutil.cpu_times()
    none = fields._make([0.0] * len(fields))

    def passed(user: float, idle: float) -> None:
        times = none._replace(user=user, idle=idle)
        monkeypatch.setattr(psutil, "cpu_times", lambda: times)

    passed(0.0, 0.0)
    load_test = ProcessorSampler()
    passed(9.0, 0.0)
    samples = ProcessorSampler()
    passed(9.0, 3.0)
    assert load_test.sample().idle == pytest.approx(0.25)
    passed(12.0, 6.0)
    assert samples.sample().idle == pytest.approx(2 / 3)


def test_who_came_or_went_counts_for_nothing() -> None:
    assert gained_s({1: 2.0, 2: 5.0}, {2: 5.5, 3: 9.0}) == pytest.approx(
        0.5
    )
    assert gained_s({1: 2.0}, {1: 1.0}) == 0.0
