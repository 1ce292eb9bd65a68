"""The pace of a switch's passes: how often a main loop may poll, and what is left alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.backends.emu.open_vswitch import switch_command
from testbed.backends.emu.switch_preload import (
    ALLOCATOR,
    BEGUN,
    COMPILERS,
    is_paced,
    is_preloaded,
    preload,
)

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)), reason="no C compiler (Debian: tcc)"
)

LOOP = """
import os, select, sys, time
n_fds, n_polls, alone = map(int, sys.argv[1:])
if alone >= 0:  # idle-class: that it wakes never takes the processor from another
    os.sched_setaffinity(0, [alone])
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
poll = select.poll()
for _ in range(n_fds):
    poll.register(os.eventfd(1), select.POLLIN)
began_s = time.monotonic()
for _ in range(n_polls):
    assert len(poll.poll()) == n_fds
print(time.monotonic() - began_s)
"""
BURN = """
import os
os.write(1, b".")
while True:
    pass
"""
AT_ONCE = 32
MANY_FDS, FEW_FDS = 64, 63


def looped_s(
    interval_s: float, n_fds: int, n_polls: int, folder: Path, alone: int = -1
) -> float:
    """Seconds that a process with so many ready descriptors takes for its polls.

    ``alone``: the processor that it gets when nobody else wants it.
    """
    with preload() as library:
        done = subprocess.run(
            [sys.executable, "-c", LOOP, str(n_fds), str(n_polls), str(alone)],
            env={**os.environ, **library.paced(interval_s, folder)},
            pass_fds=library.files,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert not done.stderr
    return float(done.stdout)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    (tmp_path / BEGUN).touch()
    return tmp_path


def test_a_main_loop_that_has_much_to_do_keeps_to_the_pace(begun: Path) -> None:
    assert looped_s(0.01, MANY_FDS, AT_ONCE + 20, begun) >= 19 * 0.01


@pytest.mark.slow
def test_a_main_loop_for_which_nobody_waits_has_no_pace(begun: Path) -> None:
    # At the pace it would take 200 s. Who sleeps does not wait for a processor.
    assert looped_s(2.0, MANY_FDS, AT_ONCE + 100, begun) >= 0


@pytest.mark.slow
def test_one_that_waits_for_a_processor_keeps_to_it(begun: Path) -> None:
    alone = min(os.sched_getaffinity(0))
    burn = ["taskset", "-c", str(alone), sys.executable, "-c", BURN]
    with subprocess.Popen(burn, stdout=subprocess.PIPE) as burner:
        try:
            assert burner.stdout is not None
            assert (
                burner.stdout.read(1) == b"."
            )  # from now on the processor is taken
            took_s = looped_s(0.01, MANY_FDS, AT_ONCE + 100, begun, alone)
        finally:
            burner.kill()
    assert took_s >= 0.9 * 99 * 0.01


def test_some_passes_may_begin_at_once(begun: Path) -> None:
    # One more would wait for a quarter of an hour.
    assert looped_s(1000.0, MANY_FDS, AT_ONCE, begun) >= 0


def test_threads_that_wait_for_little_are_left_alone(begun: Path) -> None:
    assert looped_s(1000.0, FEW_FDS, 1000, begun) >= 0


def test_there_is_no_pace_before_it_has_begun(tmp_path: Path) -> None:
    assert looped_s(1000.0, MANY_FDS, 1000, tmp_path) >= 0


def test_the_daemon_keeps_its_allocator(tmp_path: Path) -> None:
    with preload() as library:
        command = switch_command(tmp_path, library.paced(0.01, tmp_path))
    loaded = next(each for each in command if each.startswith("LD_PRELOAD="))
    assert loaded.split("=")[1].split(":")[1] == ALLOCATOR["LD_PRELOAD"]
    assert "HOSENET_PASS_US=10000" in command
    assert f"HOSENET_PASS_FILE={tmp_path / BEGUN}" in command
    assert f"MALLOC_CONF={ALLOCATOR['MALLOC_CONF']}" in command


def test_without_a_compiler_a_daemon_goes_at_its_own_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "testbed.backends.emu.switch_preload.COMPILERS", ("no-such-compiler",)
    )
    with preload() as library:
        assert library.paced(0.01, tmp_path) == library.environment == ALLOCATOR
        assert library.files == ()


def test_a_process_without_the_library_is_not_paced() -> None:
    for pid in (os.getpid(), 0):
        assert not is_preloaded(pid)
        assert not is_paced(pid)


def test_who_has_no_pace_is_not_paced(tmp_path: Path) -> None:
    with preload() as library:
        for environment in (library.environment, library.paced(1.0, tmp_path)):
            with subprocess.Popen(
                ["cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **environment},
                pass_fds=library.files,
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(b".")
                process.stdin.flush()
                process.stdout.read(1)
                assert is_preloaded(process.pid)
                assert is_paced(process.pid) is (
                    environment != library.environment
                )
                process.stdin.close()
