"""Output of a program's processes in a VM, on its way to the VM's log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

OUTPUT_LIMIT_BYTES = 4 << 20
LINE_LIMIT_BYTES = 65536
_READ_BYTES = 65536
_CUT = b"[the rest of the output is not kept]\n"


class OutputLog:
    """The log of a VM, standard output, which keeps so many bytes.

    ``printed`` are the numbers of the ``expected`` texts that lines had so far.
    """

    def __init__(self, expected: Sequence[str]) -> None:
        self._expected = [text.encode() for text in expected]
        self._left_bytes = OUTPUT_LIMIT_BYTES
        self.printed: set[int] = set()

    def look(self, line: bytes) -> None:
        """Looks for the expected texts in a rank's line."""
        for number, text in enumerate(self._expected):
            if text in line:
                self.printed.add(number)

    def keep(self, line: bytes) -> None:
        """Writes a line while there is room for it."""
        if self._left_bytes <= 0:
            return
        self._left_bytes -= len(line)
        if self._left_bytes <= 0:
            line += _CUT
        # A full disk costs the log, not the job.
        with contextlib.suppress(OSError):
            os.write(1, line)


class ProgramOutput:
    """The lines of a pipe, each passed on with a label.

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

    def pass_on(self) -> bool:
        """Passes on what is there; False once all its writers have closed it."""
        while True:
            try:
                data = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                self.finish()
                return False
            self._take(data)

    def finish(self) -> None:
        """Passes on a last line without an end."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        # A program may print without a line's end for ever.
        if len(self._rest) > LINE_LIMIT_BYTES:
            self.finish()

    def _line(self, line: bytes) -> None:
        if line.strip():
            self.last = line.strip()
        # What launchers print may quote the ranks' own words.
        if self._is_rank:
            self._log.look(line)
        # By whole lines, so that ranks' outputs do not mix within one.
        self._log.keep(self._label + line + b"\n")
