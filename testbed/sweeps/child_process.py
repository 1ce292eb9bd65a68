"""Programs that tasks run, as `testbed run`: they end with this process, and
when interrupted.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

END_S = 120.0
"""Time that an interrupted program has to take down what it built, in seconds.
"""

_running: set[subprocess.Popen[str]] = set()


def run_child(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with its output; its exit code is the caller's
    to judge.

    It is sent SIGINT when this process ends, however that ends, and by
    :func:`interrupt`.
    """
    # By setpriv: between fork and exec a process with threads runs no Python.
    guarded = ("setpriv", "--pdeathsig", "INT", "--", *argv)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        guarded,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as process:
        _running.add(process)
        try:
            out, err = process.communicate()
        except BaseException:
            _end(process)
            raise
        finally:
            _running.discard(process)
    return subprocess.CompletedProcess(
        tuple(argv), process.returncode, out, err
    )


def interrupt() -> None:
    """Send SIGINT to the programs that tasks of this process run."""
    for process in tuple(_running):
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)


def _end(process: subprocess.Popen[str]) -> None:
    # A terminal has sent it SIGINT too: a second one may cut its cleaning
    # short.
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.communicate(timeout=END_S)
    process.kill()
