"""A student's files, and their functions called in a confined process."""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from testbed.errors import MachineCannot
from testbed.foreign_text import plain_text
from testbed.labs import sandbox
from testbed.labs.sandbox import Limits
from testbed.labs.submission_process import (
    MOST_MESSAGE,
    MOST_PRINTED,
    READY,
    check_levels,
)
from testbed.private_folders import private_folder
from testbed.record.stored_json import open_regular

MOST_FILE_BYTES = 256 << 10
MOST_REPLY_BYTES = 1 << 20
# Longest wait for one call. Good answers take milliseconds; a busy machine may
# take a second.
CALL_S = 5.0
# Longest wait for all calls to one process, which serves one check.
CALLS_S = 60.0
START_S = 20.0


class CodeFailed(Exception):
    """A student's code failed: raised, hung, died, or a file is not there.

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
        self.why = why
        self.ended = ended
        self.printed = printable(printed)
        place = file
        if line is not None:
            place = f"{file}:{line}"
        super().__init__(f"{place}: {printable(why)}")


def printable(text: str) -> str:
    """A student's text without control characters, cut where it is long."""
    if len(text) > MOST_PRINTED:
        text = f"{text[:MOST_PRINTED]} …"
    cleaned = ""
    for character in plain_text(text):
        if character.isprintable() or character == "\n":
            cleaned += character
        else:
            cleaned += "\ufffd"
    return cleaned


def small_text(folder: Path, file: str) -> str:
    """The text of a file. Raises CodeFailed unless it is small and regular."""
    path = folder / file
    try:
        # Opening a device may already do something.
        if path.is_symlink():
            raise CodeFailed(file, "is a symbolic link")
        if not stat.S_ISREG(path.lstat().st_mode):
            raise CodeFailed(file, "is no regular file")
        # In between, a program of the student's may have exchanged the file.
        with open_regular(path, follow_link=False) as opened:
            # One byte above the limit: a larger file is noticed without
            # reading all of it.
            content = opened.read(MOST_FILE_BYTES + 1)
    except FileNotFoundError:
        raise CodeFailed(file, "is not in the folder") from None
    except OSError as error:
        raise CodeFailed(
            file, f"cannot be read: {error.strerror}"
        ) from None
    if len(content) > MOST_FILE_BYTES:
        raise CodeFailed(file, f"has more than {MOST_FILE_BYTES >> 10} KiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CodeFailed(file, "is not UTF-8 text") from None


@dataclass
class Submission:
    """The files of a student's answer, read once from ``folder``, and no other.

    ``confined``: their code runs in namespaces of its own, without which
    ``grade`` runs nothing.
    """

    folder: Path
    files: tuple[str, ...]
    confined: bool = True
    limits: Limits = field(default_factory=Limits)
    _process: _Process | None = None

    def text(self, file: str) -> str:
        """The text of a file. Raises CodeFailed unless small and regular."""
        return small_text(self.folder, file)

    def call(
        self,
        file: str,
        function: str,
        *arguments: Any,
    ) -> Any:
        """The value of ``function(*arguments)`` in a submitted file.

        JSON values both ways. Raises CodeFailed.
        """
        if self._process is None:
            with self.process():
                return self.call(file, function, *arguments)
        return self._process.call(file, function, arguments)

    @contextmanager
    def process(self) -> Generator[None]:
        """One process for all calls in the block; it is gone afterwards."""
        with private_folder("lab-", entered=True) as folder:
            missing = self._copy_files(sandbox.prepared(folder))
            self._process = _Process(
                folder, self.limits, missing, confined=self.confined
            )
            try:
                yield
            finally:
                self._process.end()
                self._process = None

    def _copy_files(self, folder: Path) -> dict[str, CodeFailed]:
        """Copies the files. Returns those that could not be copied, and why.

        Only calls that need these fail.
        """
        missing: dict[str, CodeFailed] = {}
        for file in self.files:
            try:
                text = self.text(file)
            except CodeFailed as error:
                missing[file] = error
                continue
            (folder / file).write_text(text, encoding="utf-8")
            (folder / file).chmod(0o644)
        return missing


class _Process:
    """The confined program, started with the first call."""

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        missing: dict[str, CodeFailed],
        *,
        confined: bool,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._missing = missing
        self._confined = confined
        self._child: subprocess.Popen[bytes] | None = None
        self._failure: CodeFailed | None = None
        self._number = 0
        self._left_s = CALLS_S

    def call(
        self,
        file: str,
        function: str,
        arguments: tuple[Any, ...],
    ) -> Any:
        if file in self._missing:
            raise self._missing[file]
        if self._failure is not None:
            raise self._failure
        if self._child is None:
            self._child = self._start()
        self._number += 1
        request = {
            "n": self._number,
            "file": file,
            "function": function,
            "arguments": arguments,
        }
        since_s = time.monotonic()
        try:
            reply = self._exchange(self._child, request)
        except CodeFailed as error:
            self.end()
            self._failure = CodeFailed(file, error.why, ended=True)
            raise self._failure from None
        self._left_s -= time.monotonic() - since_s
        if "value" in reply:
            return reply["value"]
        raise _failure_of(file, reply)

    def _start(self) -> subprocess.Popen[bytes]:
        """The program, before it has seen the student's code.

        Raises MachineCannot.
        """
        child = sandbox.start_program(
            self._folder, self._limits, confined=self._confined
        )
        output = _pipe(child.stdout)
        # The time to start counts for no call.
        readable, _, _ = select.select([output], [], [], START_S)
        if readable and os.read(output.fileno(), len(READY)) == READY:
            return child
        self._child = child
        # Before its errors are read: they end when the process does.
        _kill(child)
        errors = _pipe(child.stderr).read(MOST_MESSAGE)
        self.end()
        raise MachineCannot(
            "the confined process does not start: "
            f"{errors.decode(errors='replace').strip()}",
            "testbed doctor",
        )

    def _exchange(
        self,
        child: subprocess.Popen[bytes],
        request: dict[str, Any],
    ) -> dict[str, Any]:
        """Sends a request and reads its line.

        Both within CALL_S and what is left of CALLS_S. Raises CodeFailed.
        """
        function = request["function"]
        # Slow answers to many calls are as bad as one that hangs.
        until_s = time.monotonic() + min(CALL_S, self._left_s)
        requests_fd = _pipe(child.stdin).fileno()
        replies_fd = _pipe(child.stdout).fileno()
        # Never blocked in a write: the student's code may not read, and may
        # have written more than fits in its own pipe.
        os.set_blocking(requests_fd, False)
        unsent = memoryview(json.dumps(request).encode() + b"\n")
        reply = bytearray()
        while not reply.endswith(b"\n"):
            writing = []
            if unsent:
                writing.append(requests_fd)
            readable, writable = _ready([replies_fd], writing, until_s)
            if not readable and not writable:
                raise CodeFailed("", self._late_text(function))
            if writable:
                unsent = _sent(requests_fd, unsent)
            if readable:
                chunk = os.read(replies_fd, 1 << 16)
                if not chunk:
                    raise CodeFailed("", self._end_text(child, function))
                reply += chunk
                if len(reply) > MOST_REPLY_BYTES:
                    raise CodeFailed(
                        "", f"{function} returned more than 1 MiB"
                    )
        return self._parsed(reply, function)

    def _parsed(
        self,
        reply: bytearray,
        function: str,
    ) -> dict[str, Any]:
        try:
            record = json.loads(reply)
            # The program has checked it, but by now the process may be another
            # program, of the student's.
            check_levels(record)
        except RecursionError:
            why = f"{function} returned a value that is nested too deeply"
            raise CodeFailed("", why) from None
        except ValueError:
            record = None
        # The student's code may find the pipe: its lines have no number, or one
        # of another call.
        if not isinstance(record, dict) or record.get("n") != self._number:
            raise CodeFailed(
                "", f"{function} wrote into the checker's pipe"
            )
        return record

    def _late_text(self, function: str) -> str:
        if self._left_s < CALL_S:
            return f"all calls of one check took more than {CALLS_S:g} s"
        return f"{function} had not ended after {CALL_S:g} s"

    def _end_text(
        self,
        child: subprocess.Popen[bytes],
        function: str,
    ) -> str:
        try:
            code = child.wait(timeout=CALL_S)
        except subprocess.TimeoutExpired:
            return f"{function} closed the checker's pipe"
        # bubblewrap adds 128 to a signal's number, as a shell does; of a process
        # without bubblewrap the number is negative.
        number = code - 128
        if code < 0:
            number = -code
        if number == signal.SIGXCPU:
            return (
                f"{function} took more than {self._limits.processor_s} s "
                "of processor time"
            )
        if number in set(signal.Signals):
            name = signal.Signals(number).name
            return f"{function} ended the process ({name})"
        return f"{function} ended the process (exit code {code})"

    def end(self) -> None:
        """Ends the process and all that it has started."""
        child = self._child
        self._child = None
        if child is None:
            return
        _kill(child)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        child.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    """A pipe of a program that was started with three."""
    assert pipe is not None  # noqa: S101 - for the type checker
    return pipe


def _ready(
    reading: list[int],
    writing: list[int],
    until_s: float,
) -> tuple[list[int], list[int]]:
    """Descriptors that can be read and written; none if the time is over."""
    patience_s = until_s - time.monotonic()
    if patience_s <= 0:
        return [], []
    readable, writable, _ = select.select(reading, writing, [], patience_s)
    return readable, writable


def _sent(descriptor: int, unsent: memoryview) -> memoryview:
    """Writes what a pipe takes of a text now; returns the rest."""
    try:
        return unsent[os.write(descriptor, unsent) :]
    except BlockingIOError:
        return unsent
    except BrokenPipeError:
        # The end of its output says more.
        return memoryview(b"")


def _failure_of(file: str, reply: dict[str, Any]) -> CodeFailed:
    """The failure that a process reports; its values may be any JSON."""
    line = reply.get("line")
    if type(line) is not int:
        line = None
    why = str(reply.get("failed"))[: 2 * MOST_MESSAGE]
    printed = str(reply.get("printed", ""))[-MOST_PRINTED:]
    return CodeFailed(file, why, line, printed=printed)


def _kill(child: subprocess.Popen[bytes]) -> None:
    # The session that it leads, with all that it has started.
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
