"""Programs that tasks run, as `testbed run`: they end with this process, and
when interrupted.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from jobs.linux import ended_with_parent

END_S = 120.0
"""Time that an interrupted program has to take down what it built, in seconds.
"""

_running: set[subprocess.Popen[str]] = set()
_interrupted: set[subprocess.Popen[str]] = set()
"""Running programs that were sent SIGINT: a second one may stop them from
cleaning up.
"""


def run_child(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end and returns its output and its exit code, which
    the caller judges.

    The program is sent SIGINT when the caller is interrupted or
    :func:`interrupt` is called, once in all; and by the kernel when this process
    ends, however that ends.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ended_with_parent(argv, signal.SIGINT),
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        # Not in the terminal's group: Ctrl-C there is passed on once, and so is
        # a SIGINT that somebody sent to this process alone.
        process_group=0,
    ) as process:
        _running.add(process)
        try:
            out, err = process.communicate()
        except BaseException:
            _end(process)
            raise
        finally:
            _running.discard(process)
            _interrupted.discard(process)
    return subprocess.CompletedProcess(
        tuple(argv), process.returncode, out, err
    )


def interrupt() -> None:
    """Sends SIGINT to the programs that tasks of this process run."""
    for process in tuple(_running):
        _interrupt(process)


def _interrupt(process: subprocess.Popen[str]) -> None:
    if process in _interrupted:
        return
    _interrupted.add(process)
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


def _end(process: subprocess.Popen[str]) -> None:
    _interrupt(process)
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.communicate(timeout=END_S)
    process.kill()
