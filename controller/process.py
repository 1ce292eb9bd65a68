"""The controller as a child process: started, known to be ready, ended."""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from controller.api_client import ControllerClient
from controller.confinement import confined
from controller.launch import TOKEN_VARIABLE
from controller.library import LIBRARY_VARIABLE
from controller.passes import Passes
from jobs.python_child import ISOLATED, python_command

PROJECT = Path(__file__).parent.parent
START_TIMEOUT_S = 180.0
# Between two lines of an application that starts. Its launcher writes each 10 s,
# unless code in C keeps it from that.
APP_SILENCE_S = 120.0
MOST_LINES = 100
STOP_TIMEOUT_S = 5.0
KILL_TIMEOUT_S = 60.0
LINE_MAX_BYTES = 65_536
LINE_SHOWN = 200
HANDED_DOWN = re.compile(
    f"PATH|LANG|LANGUAGE|LC_.*|TZ|SUDO_UID|SUDO_GID|{LIBRARY_VARIABLE}"
)
# The word for a person's application that does not load or start.
APP_ERROR = "app"
# The word for a controller of somebody else's that does not listen.
REMOTE_ERROR = "remote"


class ControllerNotStarted(RuntimeError):
    """A controller that ended, or was not ready in time.

    `exit_code` is its own (None if it had to be killed) and `error` its word
    for the reason, such as "port-taken", with `port`.
    """

    def __init__(
        self,
        message: str,
        exit_code: int | None,
        error: str | None,
        port: int | None,
    ) -> None:
        self.exit_code = exit_code
        self.error = error
        self.port = port
        super().__init__(message)


@dataclass(frozen=True)
class ControllerProcess:
    """A running controller. As a context manager it is stopped at the end.

    ``pages_port``: where a person's application says that its web pages are.
    """

    process: subprocess.Popen[bytes]
    passes: Passes
    token: str
    openflow_port: int
    api_port: int
    library: str
    library_version: str
    user: str
    pages_port: int | None = None

    @property
    def is_stopped(self) -> bool:
        """True while a signal, such as SIGSTOP, or a debugger holds it."""
        path = Path(f"/proc/{self.process.pid}/stat")
        with suppress(OSError):  # it has ended
            state = path.read_text("utf-8", "replace").rpartition(") ")[2]
            return state[0] in "Tt"
        return False

    def client(self) -> ControllerClient:
        """A new client of this controller."""
        return ControllerClient(self.api_port, self.token)

    def stop(self) -> None:
        """Ends it, by force if it has to be. May be called again."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(KILL_TIMEOUT_S)

    def __enter__(self) -> ControllerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_controller(
    log: IO[bytes],
    *options: str,
    listeners: Sequence[int] = (),
    held: Mapping[str, int] | None = None,
    confined_to: Iterable[Path] | None = None,
    narrate: Callable[[str], object] = str,
) -> ControllerProcess:
    """Starts a controller that ends with this process; returns when it is ready.

    ``options`` are those of `controller.launch`. ``listeners``: descriptors of
    sockets that listen for switches elsewhere. ``held``: descriptors of sockets
    that this process keeps open, by the option that passes them in place of a
    port (``--listen-fd``, ``--api-fd``). ``confined_to``: folders of
    applications that are to run in namespaces of their own. ``log`` gets the
    output.

    Call it from a thread that stays (the main one): the kernel ends the child
    with the thread. Raises `ControllerNotStarted` with the end of the output,
    where that can be read back; of a person's application with its error.
    """
    token = secrets.token_urlsafe(32)
    reader, writer = os.pipe()
    held = held or {}
    passes = Passes()
    command = _command(
        options,
        listeners=listeners,
        held=held,
        ready=writer,
        passes=passes.descriptor,
    )
    command = _exiting_with_parent(command, confined_to)
    descriptors = (writer, passes.descriptor, *listeners, *held.values())
    # Without a buffer, in which a second line would wait unseen.
    with os.fdopen(reader, "rb", buffering=0) as ready:
        try:
            process = _started(command, token, log, descriptors)
        finally:
            # The child's alone: its end ends the wait.
            os.close(writer)
        try:
            answer = _answer(ready, narrate)
        except BaseException:
            # Interrupted, for one: nobody else knows the process.
            process.kill()
            process.wait(KILL_TIMEOUT_S)
            raise
    error = answer.pop("error", None)
    message = answer.pop("message", "")
    if not answer.pop("ready", False):
        raise _not_started(
            process,
            log,
            error=error,
            message=message,
            port=answer.get("port"),
        )
    answer.pop("pid")
    return ControllerProcess(process, passes, token, **answer)


def _exiting_with_parent(
    command: list[str], confined_to: Iterable[Path] | None
) -> list[str]:
    """The command of a controller that ends with this process; in namespaces
    of its own if it is confined.
    """
    if confined_to is None:
        # In namespaces of its own it has another parent, which does this.
        return [*command, "--exit-with-parent", str(os.getpid())]
    needed = (Path(sys.prefix), PROJECT, *confined_to)
    return confined(command, needed)


def _started(
    command: Sequence[str],
    token: str,
    log: IO[bytes],
    descriptors: Sequence[int],
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        # By the environment: a command line is for all users to read.
        env=handed_down(os.environ) | {TOKEN_VARIABLE: token},
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=descriptors,
        # Ctrl-C in the terminal is the parent's to handle.
        start_new_session=True,
    )


def _answer(
    ready: IO[bytes], narrate: Callable[[str], object]
) -> dict[str, Any]:
    """The outcome of a controller's start; empty if there is none in time."""
    answer = _next_line(ready)
    if answer.pop("executes_app", False):
        answer |= _answer_of_app(ready, narrate)
    return answer


def _answer_of_app(
    ready: IO[bytes], narrate: Callable[[str], object]
) -> dict[str, Any]:
    """The outcome of an application's start.

    A person's code can write there, and end with any exit code: of what follows
    only readiness, the message and the port of the pages are taken.
    """
    last = _last_line_of_app(ready, narrate)
    return {
        "ready": last.get("ready") is True,
        "error": APP_ERROR,
        "message": last.get("message", ""),
        "pages_port": _port(last.get("pages_port")),
    }


def handed_down(variables: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables that a controller gets: none that may be a secret,
    as the controller may run a person's application.
    """
    return {
        name: value
        for name, value in variables.items()
        if HANDED_DOWN.fullmatch(name)
    }


def _command(
    options: Sequence[str],
    *,
    listeners: Sequence[int],
    held: Mapping[str, int],
    ready: int,
    passes: int,
) -> list[str]:
    # Unbuffered: what an application prints is in its log at once.
    flags = (*ISOLATED, "-u")
    command = python_command("controller.launch", *options, flags=flags)
    for descriptor in listeners:
        command += ["--openflow-fd", str(descriptor)]
    for option, descriptor in held.items():
        command += [option, str(descriptor)]
    command += ["--ready-fd", str(ready), "--passes-fd", str(passes)]
    return command


def _last_line_of_app(
    ready: IO[bytes], narrate: Callable[[str], object]
) -> dict[str, Any]:
    """The line in which an application's start ends; those before it are
    narrated.
    """
    # Its code can write there too, but not without end.
    for _ in range(MOST_LINES):
        line = _next_line(ready, APP_SILENCE_S)
        if "starting" not in line:
            return line
        narrate(f"the controller: {str(line['starting'])[:LINE_SHOWN]}")
    return {}


def _next_line(
    ready: IO[bytes], timeout_s: float = START_TIMEOUT_S
) -> dict[str, Any]:
    """A line on the ready descriptor; empty if there is none in time."""
    until_s = time.monotonic() + timeout_s
    line = bytearray()
    # Byte by byte: the rest of a line may never come, and the bytes after it
    # are the next line's.
    while not line.endswith(b"\n") and len(line) < LINE_MAX_BYTES:
        left_s = max(0.0, until_s - time.monotonic())
        readable, _, _ = select.select([ready], [], [], left_s)
        byte = ready.read(1) if readable else b""
        if not byte:
            break
        line += byte
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(answer, dict):
        return {}
    return answer


def _port(claim: object) -> int | None:
    if isinstance(claim, int) and 0 < claim < 65536:
        return claim
    return None


def _not_started(
    process: subprocess.Popen[bytes],
    log: IO[bytes],
    *,
    error: str | None,
    message: object,
    port: int | None,
) -> ControllerNotStarted:
    """The error of a controller that did not get ready, and its end."""
    exit_code = _end(process)
    ended = f"the controller ended with {exit_code} before it was ready"
    if exit_code is None:
        limit_s = START_TIMEOUT_S
        if error == APP_ERROR:
            limit_s = APP_SILENCE_S
        ended = f"the controller was not ready within {limit_s:g} s"
    if error == REMOTE_ERROR:
        text = str(message)
    elif error == APP_ERROR:
        # It may have begun threads, which do not end: then there is an error
        # and no exit code.
        text = str(message)[:LINE_MAX_BYTES] or ended
    else:
        text = _last_lines(log) or ended
        if exit_code is None:
            text = f"{ended}; {text}"
    return ControllerNotStarted(text, exit_code, error, port)


def _end(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a process; None if it had to be killed."""
    try:
        return process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(KILL_TIMEOUT_S)
        return None


def _last_lines(log: IO[bytes]) -> str:
    """The end of its output, where the log can be read back."""
    if not (log.readable() and log.seekable()):
        return ""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - 2000))
    return log.read().decode(errors="replace").strip()
