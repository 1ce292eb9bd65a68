"""The controller as a child process: started, known to be ready, ended."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from controller.api_client import ControllerClient
from controller.launch import API_PORT, OPENFLOW_PORT, TOKEN_VARIABLE

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 5.0
KILL_TIMEOUT_S = 60.0


class ControllerNotStarted(RuntimeError):
    """The controller ended, or answer nothing, instead of getting ready.

    `exit_code` is its own (None if it had to be killed) and `error` its word for the reason, such
    as "port-taken", with `port`.
    """

    def __init__(
        self, message: str, exit_code: int | None, error: str | None, port: int | None
    ) -> None:
        self.exit_code = exit_code
        self.error = error
        self.port = port
        super().__init__(message)


@dataclass(frozen=True)
class ControllerProcess:
    """A running controller. As a context manager it is stopped at the end."""

    process: subprocess.Popen[bytes]
    token: str
    openflow_port: int
    api_port: int
    library: str
    library_version: str
    user: str

    def client(self) -> ControllerClient:
        """A new client of this controller."""
        return ControllerClient(self.api_port, self.token)

    def stop(self) -> None:
        """End it, by force if it does not go by itself. May be called again."""
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


def launch_arguments(
    *,
    openflow_port: int = OPENFLOW_PORT,
    api_port: int = API_PORT,
    library: str | None = None,
    state_dir: Path | None = None,
    ready_fd: int = 1,
    parent_pid: int | None = None,
    verbose: bool = False,
    python: str = sys.executable,
) -> list[str]:
    """The argument list that starts a controller; the token goes by the environment."""
    arguments = [python, "-m", "controller.launch"]
    arguments += ["--openflow-port", str(openflow_port), "--api-port", str(api_port)]
    arguments += ["--ready-fd", str(ready_fd)]
    if library is not None:
        arguments += ["--library", library]
    if state_dir is not None:
        arguments += ["--state-dir", str(state_dir)]
    if parent_pid is not None:
        arguments += ["--exit-with-parent", str(parent_pid)]
    if verbose:
        arguments += ["--verbose"]
    return arguments


def start_controller(
    *,
    openflow_port: int = OPENFLOW_PORT,
    api_port: int = API_PORT,
    library: str | None = None,
    state_dir: Path | None = None,
    token: str | None = None,
    log: IO[bytes] | None = None,
    verbose: bool = False,
    environment: Mapping[str, str] | None = None,
) -> ControllerProcess:
    """Start a controller that ends with this process, and wait until it is ready.

    Port 0 means any free one. Without a token a new one is made. `log` gets its standard error;
    without it the last of that appears in the exception. Call it from a thread that stays (the
    main one): the kernel ends the child with the thread. Raises `ControllerNotStarted`.
    """
    token = token or secrets.token_urlsafe(32)
    # A file rather than a pipe: nobody reads along, and a full pipe would stop the controller.
    with nullcontext(log) if log is not None else tempfile.TemporaryFile() as log_file:
        reader, writer = os.pipe()
        try:
            process = subprocess.Popen(
                launch_arguments(
                    openflow_port=openflow_port,
                    api_port=api_port,
                    library=library,
                    state_dir=state_dir,
                    ready_fd=writer,
                    parent_pid=os.getpid(),
                    verbose=verbose,
                ),
                env={**(os.environ if environment is None else environment), TOKEN_VARIABLE: token},
                cwd=Path(__file__).parent.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log_file,
                pass_fds=[writer],
                start_new_session=True,
            )
        finally:
            os.close(writer)
        try:
            answer = _first_line(reader, START_TIMEOUT_S)
        finally:
            os.close(reader)
        if answer.get("ready") is not True:
            raise _not_started(process, answer, log_file)
    return ControllerProcess(
        process=process,
        token=token,
        openflow_port=_integer(answer, "openflow_port"),
        api_port=_integer(answer, "api_port"),
        library=str(answer["library"]),
        library_version=str(answer["library_version"]),
        user=str(answer["user"]),
    )


def _integer(answer: dict[str, object], key: str) -> int:
    value = answer[key]
    if not isinstance(value, int):
        raise TypeError(f"the controller says {key} is {value!r}")
    return value


def _first_line(reader: int, timeout_s: float) -> dict[str, object]:
    """The first line on the ready descriptor as JSON; empty if there is none in time."""
    deadline = time.monotonic() + timeout_s
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return {}
        part = os.read(reader, 4096)
        if not part:
            return {}
        text += part
    answer = json.loads(text)
    return answer if isinstance(answer, dict) else {}


def _not_started(
    process: subprocess.Popen[bytes], answer: dict[str, object], log: IO[bytes]
) -> ControllerNotStarted:
    """The error of a controller that did not get ready; makes sure that it is gone."""
    try:
        exit_code: int | None = process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(KILL_TIMEOUT_S)
        exit_code = None
    last = _last_lines(log)
    message = last or f"the controller ended with {exit_code} before it was ready"
    if exit_code is None:
        message = f"the controller was not ready within {START_TIMEOUT_S:g} s; {last}"
    error, port = answer.get("error"), answer.get("port")
    return ControllerNotStarted(
        message,
        exit_code,
        error if isinstance(error, str) else None,
        port if isinstance(port, int) else None,
    )


def _last_lines(log: IO[bytes]) -> str:
    """The end of what it wrote, where the log can be read back."""
    if not (log.readable() and log.seekable()):
        return ""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - 2000))
    return log.read().decode(errors="replace").strip()
