"""The command ``testbed`` before its parts are imported, which takes 0.3 s:
Ctrl-C ends that without a word from Python.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: runs a verb and ends the process with its exit code."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from testbed.cli.command_line import main as run_verb

    signal.signal(signal.SIGINT, before)
    run_verb(arguments)


def run(arguments: Sequence[str]) -> int:
    """One command; its exit code, as :func:`testbed.cli.command_line.run`."""
    from testbed.cli.command_line import run as run_verb

    return run_verb(arguments)


def _end(_number: int, _frame: FrameType | None) -> None:
    # Nothing has been made yet. Libraries that are being imported would catch
    # an exception, and report it in their own words.
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
