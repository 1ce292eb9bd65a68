"""One testbed a machine: the second is recorded the first one's name."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.backends.emu import cleanup_journal
from testbed.backends.emu.cleanup_journal import machine_lock
from testbed.errors import MachineCannot

HOLDER = """
import sys, time
from pathlib import Path
from testbed.backends.emu.cleanup_journal import machine_lock
lock = machine_lock("evening run", Path(sys.argv[1]))
lock.__enter__()
print("held", flush=True)
time.sleep(60)
"""


def holder(state: Path, program: str = HOLDER) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(state)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_refused_with_the_firsts_name(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        try:
            with (
                pytest.raises(
                    MachineCannot,
                    match=rf"'evening run' \(process {first.pid}\)",
                ),
                machine_lock("mine", tmp_path),
            ):
                pass
        finally:
            first.kill()


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        first.send_signal(signal.SIGKILL)
    with machine_lock("mine", tmp_path):
        pass


FORKING = """
import os, sys, time
from pathlib import Path
from testbed.backends.emu.cleanup_journal import machine_lock
lock = machine_lock("dying run", Path(sys.argv[1]))
lock.__enter__()
if os.fork() == 0:  # a child with the lock's descriptor that has not become another program yet
    time.sleep(1)
    os._exit(0)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_dead_holders_unborn_child_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine it may end late.
    monkeypatch.setattr(cleanup_journal, "GRACE_S", 60.0)
    with holder(tmp_path, FORKING) as first:
        first.kill()
        first.wait()
        with machine_lock("mine", tmp_path):
            pass


def test_given_back_it_can_be_taken_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with machine_lock(name, tmp_path):
            pass


def test_no_child_keeps_it(tmp_path: Path) -> None:
    """A daemon that outlives the run must not keep the machine locked."""
    with machine_lock("parent", tmp_path):
        child = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        with machine_lock("next", tmp_path):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_the_lock_file_is_roots_alone(tmp_path: Path) -> None:
    with machine_lock("mine", tmp_path):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "lock").stat().st_size > 0
    assert (tmp_path / "lock").stat().st_size == 0
