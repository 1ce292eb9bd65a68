"""Output of a program's processes in a VM, on its way to the VM's log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

OUTPUT_LIMIT_BYTES = 4 << 20
LINE_LIMIT_BYTES = 65536
# The longest text that a job may wait for, in UTF-8.
SEARCHED_BEFORE_BYTES = 4 * 4096
_READ_BYTES = 65536
MOST_READS = 16
"""Reads that empty a pipe of 1 MiB, the largest that a user may have by default."""
_STANDARD_OUTPUT = 1
_CUT = b"[the rest of the output is not kept]\n"


class OutputLog:
    """The log of a VM, which is standard output; it ends at OUTPUT_LIMIT_BYTES.

    ``printed``: indexes of those ``expected`` texts that ranks have printed.
    """

    def __init__(self, expected: Sequence[str]) -> None:
        self._expected = [text.encode() for text in expected]
        self._left_bytes = OUTPUT_LIMIT_BYTES
        self.printed: set[int] = set()

    def search(self, line: bytes) -> None:
        """Looks for the expected texts in a rank's line."""
        for index, text in enumerate(self._expected):
            if text in line:
                self.printed.add(index)

    def write(self, line: bytes) -> None:
        """Writes a line, unless the limit has been reached."""
        if self._left_bytes <= 0:
            return
        self._left_bytes -= len(line)
        # The line that reaches the limit is the last, and kept whole.
        if self._left_bytes <= 0:
            line += _CUT
        # A full disk costs the log, not the job.
        with contextlib.suppress(OSError):
            os.write(_STANDARD_OUTPUT, line)


class ProgramOutput:
    """The lines of a pipe, passed on to a log, each after a label.

    ``last``: the last line that is not empty.
    """

    def __init__(
        self,
        descriptor: int,
        label: str,
        log: OutputLog,
        *,
        is_rank: bool,
    ) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.last = b""
        self._label = label.encode()
        self._log = log
        self._is_rank = is_rank
        self._rest = b""
        self._before = b""

    def pass_on(self) -> bool:
        """Passes on what the pipe holds, without waiting for more.

        Returns False once all its writers have closed it.
        """
        # Not until it is empty: a fast writer would hold up all else.
        for _ in range(MOST_READS):
            try:
                data = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                self.finish()
                return False
            self._pass_on_lines(data)
        return True

    def finish(self) -> None:
        """Passes on the rest, which does not end with a newline (yet)."""
        if self._rest:
            self._pass_on_line(self._rest)
            self._rest = b""

    def _pass_on_lines(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._pass_on_line(line)
            self._before = b""
        # A program may never print a newline.
        if len(self._rest) > LINE_LIMIT_BYTES:
            cut = self._rest
            self.finish()
            # What is looked for may go across the cut.
            self._before = cut[-SEARCHED_BEFORE_BYTES:]

    def _pass_on_line(self, line: bytes) -> None:
        if line.strip():
            self.last = line.strip()
        # Launchers do not count: what they print may quote their ranks.
        if self._is_rank:
            self._log.search(self._before + line)
        # By whole lines, so that ranks' outputs do not mix within one.
        self._log.write(self._label + line + b"\n")
