"""The pace of a switch's passes: how often a main loop may poll, and what is left alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.linux import C_COMPILERS
from testbed.backends.emu.open_vswitch import switch_command
from testbed.backends.emu.switch_preload import (
    ALLOCATOR,
    BEGUN,
    is_paced,
    is_preloaded,
    preload,
)

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, C_COMPILERS)),
    reason="no C compiler (Debian: tcc)",
)

LOOP = """
import os, select, sys, time
n_fds, n_polls = map(int, sys.argv[1:])
poll = select.poll()
for _ in range(n_fds):
    poll.register(os.eventfd(1), select.POLLIN)
began_s = time.monotonic()
for _ in range(n_polls):
    assert len(poll.poll()) == n_fds
print(time.monotonic() - began_s)
"""
KERNEL = """
enum { LATE = %d };

static void put(char *text, long number)
{
    int at;

    for (at = 18; at >= 0; at--, number /= 10)
        text[at] = '0' + number %% 10;
}

/* Of each second that the thread has run, it waited for LATE nanoseconds. */
long pread(int file, char *text, unsigned long size, long offset)
{
    static long looked;

    looked++;
    put(text, looked * 1000000000l);
    text[19] = ' ';
    put(text + 20, looked * LATE);
    text[39] = ' ';
    return 40;
}
"""
"""In place of the kernel's count of a thread's waits, which would differ with
what else the machine does."""
ALWAYS_NS, NEVER_NS = 1_000_000_000, 0
AT_ONCE = 32
MANY_FDS, FEW_FDS = 64, 63


def looped_s(
    interval_s: float,
    n_fds: int,
    n_polls: int,
    folder: Path,
    waited_ns: int | None = None,
) -> float:
    """Seconds that a process with so many ready descriptors takes for its polls.

    ``waited_ns``: how long it waits for a processor, in ns between two looks; what
    the kernel counts if None.
    """
    with preload() as library:
        environment = {**os.environ, **library.paced(interval_s, folder)}
        if waited_ns is not None:
            kernel = str(kernel_that_counts(waited_ns, folder))
            preloaded = environment["LD_PRELOAD"]
            environment["LD_PRELOAD"] = f"{kernel}:{preloaded}"
        done = subprocess.run(
            [sys.executable, "-c", LOOP, str(n_fds), str(n_polls)],
            env=environment,
            pass_fds=library.files,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    assert not done.stderr
    return float(done.stdout)


def kernel_that_counts(waited_ns: int, folder: Path) -> Path:
    """A library whose pread() tells of such waits."""
    compiler = next(filter(shutil.which, C_COMPILERS))
    source = folder / "kernel.c"
    source.write_text(KERNEL % waited_ns)
    library = folder / "kernel.so"
    options = ["-nostdlib", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([compiler, *options, str(source)], check=True)
    return library


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    (tmp_path / BEGUN).touch()
    return tmp_path


def test_a_main_loop_that_has_much_to_do_keeps_to_the_pace(
    begun: Path,
) -> None:
    assert looped_s(0.01, MANY_FDS, AT_ONCE + 20, begun) >= 19 * 0.01


@pytest.mark.slow
def test_a_main_loop_for_which_nobody_waits_has_no_pace(
    begun: Path,
) -> None:
    # One pass waits for its turn; then the waits are looked at, and no other does.
    # At the pace all of them would take 200 s.
    assert looped_s(2.0, MANY_FDS, AT_ONCE + 100, begun, NEVER_NS) >= 0


@pytest.mark.slow
def test_a_main_loop_that_waits_for_a_processor_keeps_to_it(
    begun: Path,
) -> None:
    took_s = looped_s(0.01, MANY_FDS, AT_ONCE + 100, begun, ALWAYS_NS)
    assert took_s >= 99 * 0.01


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
    loaded = next(
        each for each in command if each.startswith("LD_PRELOAD=")
    )
    assert loaded.split("=")[1].split(":")[1] == ALLOCATOR["LD_PRELOAD"]
    assert "HOSENET_PASS_US=10000" in command
    assert f"HOSENET_PASS_FILE={tmp_path / BEGUN}" in command
    assert f"MALLOC_CONF={ALLOCATOR['MALLOC_CONF']}" in command


def test_without_a_compiler_a_daemon_goes_at_its_own_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "testbed.backends.emu.switch_preload.C_COMPILERS",
        ("no-such-compiler",),
    )
    with preload() as library:
        assert (
            library.paced(0.01, tmp_path)
            == library.environment
            == ALLOCATOR
        )
        assert library.files == ()


def test_where_files_in_memory_are_forbidden_it_has_the_allocator_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", forbidden)
    with preload() as library:
        assert not library.files
        assert library.paced(0.01, tmp_path) == ALLOCATOR


def test_a_process_without_the_library_is_not_paced() -> None:
    for pid in (os.getpid(), 0):
        assert not is_preloaded(pid)
        assert not is_paced(pid)


def test_who_has_no_pace_is_not_paced(tmp_path: Path) -> None:
    with preload() as library:
        for environment in (
            library.environment,
            library.paced(1.0, tmp_path),
        ):
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
