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

from testbed.labs import sandbox
from testbed.labs.sandbox import Limits

MOST_FILE_BYTES = 256 << 10
MOST_REPLY_BYTES = 1 << 20
CALL_S = 5.0
"""Longest wait for one call. Good answers take milliseconds; a busy machine may take a second."""


class CodeFailed(Exception):
    """A student's code raised, hung, died or returned nonsense, or a file is not there.

    ``ended``: its process is gone. ``printed``: the end of what it had printed.
    """

    def __init__(
        self, file: str, why: str, line: int | None = None, *, ended: bool = False, printed: str = ""
    ) -> None:
        self.file, self.why, self.line, self.ended, self.printed = file, why, line, ended, printed
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {why}")


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
        path = self.folder / file
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise CodeFailed(file, "is not in the folder") from None
        except OSError as error:
            why = "is a symbolic link" if path.is_symlink() else f"cannot be read: {error.strerror}"
            raise CodeFailed(file, why) from None
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise CodeFailed(file, "is no regular file")
            content = opened.read(MOST_FILE_BYTES + 1)
        if len(content) > MOST_FILE_BYTES:
            raise CodeFailed(file, f"has more than {MOST_FILE_BYTES >> 10} KiB")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise CodeFailed(file, "is not UTF-8 text") from None

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
            copied = Path(name) / "submitted"
            copied.mkdir()
            missing: dict[str, CodeFailed] = {}
            for file in self.files:
                try:
                    (copied / file).write_text(self.text(file), encoding="utf-8")
                except CodeFailed as failed:
                    missing[file] = failed
            for path in (Path(name), copied):
                path.chmod(0o755)
            self._process = _Process(copied, self.limits, missing, confined=self.confined)
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

    def call(self, file: str, function: str, arguments: tuple[Any, ...]) -> Any:
        if file in self._missing:
            raise self._missing[file]
        if self._ended is not None:
            raise self._ended
        if self._child is None:
            self._child = sandbox.start(self._folder, self._limits, confined=self._confined)
        request = {"file": file, "function": function, "arguments": arguments}
        try:
            reply = self._exchanged(json.dumps(request).encode() + b"\n", function)
        except CodeFailed as failed:
            self.end()
            self._ended = CodeFailed(file, failed.why, ended=True)
            raise self._ended from None
        if "value" in reply:
            return reply["value"]
        raise CodeFailed(
            file, str(reply.get("failed")), reply.get("line"), printed=str(reply.get("printed", ""))
        )

    def _exchanged(self, request: bytes, function: str) -> dict[str, Any]:
        """Sends a request and reads its line, both within CALL_S."""
        assert self._child is not None and self._child.stdin and self._child.stdout  # noqa: S101, PT018
        until = time.monotonic() + CALL_S
        into, out = self._child.stdin.fileno(), self._child.stdout.fileno()
        os.set_blocking(into, False)
        left, reply = memoryview(request), bytearray()
        while not reply.endswith(b"\n"):
            patience = until - time.monotonic()
            readable, writable, _ = select.select(
                [out], [into] if left else [], [], max(0.0, patience)
            )
            if not readable and not writable:
                raise CodeFailed("", f"{function} had not ended after {CALL_S:g} s")
            if writable:
                with suppress(BlockingIOError, BrokenPipeError):
                    left = left[os.write(into, left) :]
            if readable:
                chunk = os.read(out, 1 << 16)
                if not chunk:
                    raise CodeFailed("", self._end_of(function))
                reply += chunk
                if len(reply) > MOST_REPLY_BYTES:
                    raise CodeFailed("", f"{function} returned more than 1 MiB")
        try:
            found = json.loads(reply)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise CodeFailed("", f"{function} wrote into the checker's pipe")
        return found

    def _end_of(self, function: str) -> str:
        assert self._child is not None  # noqa: S101
        code = self._child.wait(timeout=CALL_S)
        # A shell's way of naming a signal, by bubblewrap; or the signal itself.
        number = -code if code < 0 else code - 128
        if number == signal.SIGXCPU or number == signal.SIGKILL:
            return f"{function} took more than {self._limits.processor_s} s of processor time"
        return f"{function} ended the process (exit code {code})"

    def end(self) -> None:
        """Ends the process and all that it has started."""
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        child.wait()
