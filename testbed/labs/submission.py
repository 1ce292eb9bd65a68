"""A student's files, and their functions called in a confined process."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import MachineCannot
from testbed.labs import sandbox
from testbed.labs.sandbox import Limits
from testbed.labs.submission_process import MOST_MESSAGE, MOST_PRINTED, READY, check_levels

MOST_FILE_BYTES = 256 << 10
MOST_REPLY_BYTES = 1 << 20
CALL_S = 5.0
"""Longest wait for one call. Good answers take milliseconds; a busy machine may take a second."""
CALLS_S = 60.0
"""Longest wait for all calls to one process, which serves one check."""
START_S = 20.0


class CodeFailed(Exception):
    """A student's code raised, hung, died or returned nonsense, or a file is not there.

    ``ended``: its process is gone. ``printed``: the end of what it had printed.
    """

    def __init__(
        self,
        file: str,
        why: str,
        line: int | None = None,
        *,
        ended: bool = False,
        printed: str = "",
    ) -> None:
        self.file, self.why, self.line, self.ended = file, why, line, ended
        self.printed = printable(printed)
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {printable(why)}")


def printable(text: str) -> str:
    """A student's text without what a terminal would obey, cut where it is long."""
    cut = text if len(text) <= MOST_PRINTED else f"{text[:MOST_PRINTED]} …"
    return "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in cut)


def small_text(folder: Path, file: str) -> str:
    """The text of a file. Raises CodeFailed for anything but a small regular file."""
    path = folder / file
    try:
        # Opening a device may already do something.
        regular = stat.S_ISREG(path.lstat().st_mode)
        if not regular:
            why = "is a symbolic link" if path.is_symlink() else "is no regular file"
            raise CodeFailed(file, why)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            content = opened.read(MOST_FILE_BYTES + 1)
    except FileNotFoundError:
        raise CodeFailed(file, "is not in the folder") from None
    except OSError as error:
        raise CodeFailed(file, f"cannot be read: {error.strerror}") from None
    if len(content) > MOST_FILE_BYTES:
        raise CodeFailed(file, f"has more than {MOST_FILE_BYTES >> 10} KiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CodeFailed(file, "is not UTF-8 text") from None


@dataclass
class Submission:
    """The files of a student's answer, read once from ``folder``; no other file is looked at.

    ``confined``: in namespaces of its own, which ``grade`` insists on.
    """

    folder: Path
    files: tuple[str, ...]
    confined: bool = True
    limits: Limits = field(default_factory=Limits)
    _process: _Process | None = None

    def text(self, file: str) -> str:
        """The text of a file. Raises CodeFailed for anything but a small regular file."""
        return small_text(self.folder, file)

    def call(self, file: str, function: str, *arguments: Any) -> Any:
        """The value of ``function(*arguments)`` in a submitted file: JSON values both ways.

        Raises CodeFailed.
        """
        if self._process is None:
            with self.process():
                return self.call(file, function, *arguments)
        return self._process.call(file, function, arguments)

    @contextmanager
    def process(self) -> Generator[None]:
        """One process for all calls in the block; it is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="hosenet-lab-") as name:
            copied = sandbox.prepared(Path(name))
            missing: dict[str, CodeFailed] = {}
            for file in self.files:
                try:
                    (copied / file).write_text(self.text(file), encoding="utf-8")
                    (copied / file).chmod(0o644)
                except CodeFailed as failed:
                    missing[file] = failed
            self._process = _Process(Path(name), self.limits, missing, confined=self.confined)
            try:
                yield
            finally:
                self._process.end()
                self._process = None


class _Process:
    """The confined program, started with the first call."""

    def __init__(
        self, folder: Path, limits: Limits, missing: dict[str, CodeFailed], *, confined: bool
    ) -> None:
        self._folder, self._limits, self._missing = folder, limits, missing
        self._confined = confined
        self._child: subprocess.Popen[bytes] | None = None
        self._ended: CodeFailed | None = None
        self._number = 0
        self._left_s = CALLS_S

    def call(self, file: str, function: str, arguments: tuple[Any, ...]) -> Any:
        if file in self._missing:
            raise self._missing[file]
        if self._ended is not None:
            raise self._ended
        if self._child is None:
            self._child = self._started()
        self._number += 1
        request = {"n": self._number, "file": file, "function": function, "arguments": arguments}
        since = time.monotonic()
        try:
            reply = self._exchanged(json.dumps(request).encode() + b"\n", function)
        except CodeFailed as failed:
            self.end()
            self._ended = CodeFailed(file, failed.why, ended=True)
            raise self._ended from None
        self._left_s -= time.monotonic() - since
        if "value" in reply:
            return reply["value"]
        # What the process says of itself may be anything.
        line, why = reply.get("line"), str(reply.get("failed"))[: 2 * MOST_MESSAGE]
        printed = str(reply.get("printed", ""))[-MOST_PRINTED:]
        raise CodeFailed(file, why, line if type(line) is int else None, printed=printed)

    def _started(self) -> subprocess.Popen[bytes]:
        """The program, before it has seen the student's code. Raises MachineCannot."""
        child = sandbox.start(self._folder, self._limits, confined=self._confined)
        assert child.stdout and child.stderr  # noqa: S101, PT018
        readable, _, _ = select.select([child.stdout], [], [], START_S)
        if not readable or os.read(child.stdout.fileno(), len(READY)) != READY:
            self._child = child
            _kill(child)
            why = child.stderr.read(MOST_MESSAGE).decode(errors="replace").strip()
            self.end()
            raise MachineCannot(f"the confined process does not start: {why}", "testbed doctor")
        return child

    def _exchanged(self, request: bytes, function: str) -> dict[str, Any]:
        """Sends a request and reads its line, both within CALL_S and what is left of CALLS_S."""
        assert self._child is not None and self._child.stdin and self._child.stdout  # noqa: S101, PT018
        until = time.monotonic() + min(CALL_S, self._left_s)
        into, out = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(into, False)
        left, reply = memoryview(request), bytearray()
        while not reply.endswith(b"\n"):
            patience = max(0.0, until - time.monotonic())
            readable, writable, _ = select.select([out], [into] if left else [], [], patience)
            if not patience or not (readable or writable):
                raise CodeFailed("", self._too_long(function))
            if writable:
                try:
                    left = left[os.write(into, left) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    left = memoryview(b"")
            if readable:
                chunk = os.read(out, 1 << 16)
                if not chunk:
                    raise CodeFailed("", self._end_of(function))
                reply += chunk
                if len(reply) > MOST_REPLY_BYTES:
                    raise CodeFailed("", f"{function} returned more than 1 MiB")
        return self._parsed(reply, function)

    def _parsed(self, reply: bytes | bytearray, function: str) -> dict[str, Any]:
        try:
            found = json.loads(reply)
            check_levels(found)
        except RecursionError:
            why = f"{function} returned a value that is nested too deeply"
            raise CodeFailed("", why) from None
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("n") != self._number:
            raise CodeFailed("", f"{function} wrote into the checker's pipe")
        return found

    def _too_long(self, function: str) -> str:
        if self._left_s < CALL_S:
            return f"all calls of one check took more than {CALLS_S:g} s"
        return f"{function} had not ended after {CALL_S:g} s"

    def _end_of(self, function: str) -> str:
        assert self._child is not None  # noqa: S101
        try:
            code = self._child.wait(timeout=CALL_S)
        except subprocess.TimeoutExpired:
            return f"{function} closed the checker's pipe"
        # A shell's way of naming a signal, by bubblewrap; or the signal itself.
        number = -code if code < 0 else code - 128
        if number == signal.SIGXCPU:
            return f"{function} took more than {self._limits.processor_s} s of processor time"
        if number in set(signal.Signals):
            return f"{function} ended the process ({signal.Signals(number).name})"
        return f"{function} ended the process (exit code {code})"

    def end(self) -> None:
        """Ends the process and all that it has started."""
        child, self._child = self._child, None
        if child is None:
            return
        _kill(child)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        child.wait()


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
