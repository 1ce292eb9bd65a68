"""The caller's side: a pool of agents that one fork server starts, and one stream of messages."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jobs
from jobs.live.agent_protocol import (
    PACKET_LIMIT_BYTES,
    AgentExited,
    AgentRefused,
    AgentReport,
    AgentStarted,
    Answer,
    Begin,
    CloseRequest,
    Plan,
    Progress,
    Ready,
    Request,
    SignalRequest,
    SpawnRequest,
    decode_answer,
    decode_message,
)
from jobs.live.json_decoding import ProtocolError, encode

_START_TIMEOUT_S = 60.0


class AgentPoolError(Exception):
    """The fork server cannot be started or has ended; no agent of the pool lives on."""


@dataclass(frozen=True)
class AgentReady:
    """All connections of the agent stand; it waits for its start."""

    agent_id: str
    ready: Ready


@dataclass(frozen=True)
class AgentProgress:
    """A progress sample of the agent."""

    agent_id: str
    progress: Progress


@dataclass(frozen=True)
class AgentDone:
    """The agent's report, good or bad; its exit follows."""

    agent_id: str
    report: AgentReport


Message = AgentStarted | AgentReady | AgentProgress | AgentDone | AgentExited | AgentRefused


@dataclass
class _Line:
    """The caller's end of one agent's channel."""

    agent_id: str
    sock: socket.socket
    rest: bytes = b""
    started: bool = False
    held: list[Message] = field(default_factory=list)  # sent before its AgentStarted was read


class AgentPool:
    """Agents and their fork server. No threads; use from the thread that called :meth:`start`.

    (The server ends with the thread that started it.) A context manager: leaving it ends every
    agent. ``log`` is where the server's own complaints go, None for nowhere.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._server: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._epoll: select.epoll | None = None
        self._lines: dict[str, _Line] = {}
        self._ids: dict[int, str] = {}  # by file descriptor
        self._messages: list[Message] = []

    def __enter__(self) -> AgentPool:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process number of the fork server."""
        if self._server is None:
            raise AgentPoolError("the pool of agents has not been started")
        return self._server.pid

    def start(self) -> None:
        """Start the fork server; it inherits one socket and nothing else of this process."""
        if self._server is not None:
            raise AgentPoolError("the pool of agents has been started already")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * PACKET_LIMIT_BYTES)
        with theirs, contextlib.ExitStack() as files:
            output: int | object = subprocess.DEVNULL
            if self._log is not None:
                output = files.enter_context(self._log.open("ab"))
            self._server = subprocess.Popen(
                [
                    sys.executable,
                    "-S",
                    "-m",
                    "jobs.live.forkserver",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,  # type: ignore[arg-type]  # a number or an open file
                stderr=output,  # type: ignore[arg-type]
                close_fds=True,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env={
                    "PATH": os.defpath,
                    "PYTHONPATH": str(Path(jobs.__file__).resolve().parent.parent),
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
            )
        self._socket = ours
        self._epoll = select.epoll()
        self._epoll.register(ours.fileno(), select.EPOLLIN)

    def spawn(
        self,
        agent_id: str,
        plan: Plan,
        *,
        uid: int,
        gid: int,
        netns: str | None = None,
        cgroups: Sequence[str] = (),
        log: Path | None = None,
        log_owner: tuple[int, int] | None = None,
        cpus: Sequence[int] = (),
    ) -> None:
        """Ask for an agent; AgentStarted or AgentRefused follows in :meth:`poll`.

        ``netns`` is a path such as ``/run/netns/NAME``, ``cgroups`` are ``cgroup.procs`` files,
        ``log`` is created with mode 0600 and belongs to ``log_owner`` (default: this process').
        ``cpus`` are the processors that it keeps to, none for any.
        """
        if agent_id in self._lines:
            raise ValueError(f"an agent named {agent_id!r} is in the pool already")
        owner = log_owner if log_owner is not None else (os.getuid(), os.getgid())
        request = SpawnRequest(
            id=agent_id,
            plan=plan,
            netns=netns,
            cgroups=tuple(cgroups),
            uid=uid,
            gid=gid,
            log=None if log is None else str(log.absolute()),
            log_uid=owner[0],
            log_gid=owner[1],
            cpus=tuple(cpus),
        )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            ours.settimeout(0)
            self._lines[agent_id] = _Line(agent_id, ours)
            self._ids[ours.fileno()] = agent_id
            self._polled().register(ours.fileno(), select.EPOLLIN)
            self._request(request, theirs.fileno())

    def begin(self, agent_ids: Iterable[str], at_ns: int) -> None:
        """Tell agents whose plan names no start to start at ``at_ns`` (CLOCK_MONOTONIC)."""
        line = encode(Begin(at_ns))
        for agent_id in agent_ids:
            known = self._lines.get(agent_id)
            if known is None:
                raise ValueError(f"no agent named {agent_id!r} is in the pool")
            # One that has just ended says so itself, by its report and its exit.
            with contextlib.suppress(ConnectionError):
                known.sock.send(line)

    def signal(self, agent_id: str, signum: int) -> None:
        """Have the server send a signal to one of its agents."""
        self._request(SignalRequest(agent_id, int(signum)))

    def fileno(self) -> int:
        """Readable when :meth:`poll` has something to read; for the caller's selector."""
        return self._polled().fileno()

    def poll(self, timeout_s: float = 0.0) -> list[Message]:
        """Messages since the last call, waiting up to ``timeout_s`` for the first.

        Per agent the order is AgentStarted, AgentReady, AgentProgress ..., AgentDone,
        AgentExited. Raises AgentPoolError when the server has ended.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            left_s = 0.0 if self._messages else max(0.0, end_s - time.monotonic())
            ready = sorted(fd for fd, _ in self._polled().poll(left_s))
            server_fd = self._control().fileno()
            for fd in ready:
                if fd != server_fd and fd in self._ids:
                    self._read_line(self._lines[self._ids[fd]])
            if server_fd in ready:
                self._read_answers()
            if self._messages or time.monotonic() >= end_s:
                messages, self._messages = self._messages, []
                return messages

    def close(self, timeout_s: float = 10.0) -> None:
        """End all agents and the server; safe to call twice and after a failure."""
        server, self._server = self._server, None
        if server is None:
            return
        with contextlib.suppress(OSError, AgentPoolError):
            self._request(CloseRequest())
        self._control().close()
        try:
            server.wait(timeout_s)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        for line in self._lines.values():
            line.sock.close()
        self._lines.clear()
        self._ids.clear()
        self._polled().close()

    def _request(self, request: Request, *fds: int) -> None:
        packet = encode(request)
        if len(packet) > PACKET_LIMIT_BYTES:
            raise ValueError(f"a request of {len(packet)} bytes is too long for the fork server")
        try:
            socket.send_fds(self._control(), [packet], fds)
        except (BrokenPipeError, ConnectionError):
            raise AgentPoolError(self._ended()) from None

    def _read_answers(self) -> None:
        control = self._control()
        while True:
            try:
                packet = control.recv(PACKET_LIMIT_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                packet = b""
            if not packet:
                raise AgentPoolError(self._ended())
            self._take_answer(decode_answer(packet))

    def _take_answer(self, answer: Answer) -> None:
        line = None if answer.agent_id is None else self._lines.get(answer.agent_id)
        if isinstance(answer, AgentExited) and line is not None:
            self._read_line(line)  # all of its messages are there: it has ended
            self._forget(line)
        if isinstance(answer, AgentRefused) and line is not None and not line.started:
            self._forget(line)
        self._messages.append(answer)
        if isinstance(answer, AgentStarted) and line is not None:
            line.started = True
            self._messages += line.held
            line.held = []

    def _read_line(self, line: _Line) -> None:
        """Reads the messages of one agent; at end of file stops listening, its exit follows."""
        while True:
            try:
                data = line.sock.recv(65536)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self._unwatch(line)
                return
            *texts, line.rest = (line.rest + data).split(b"\n")
            for text in texts:
                # What an agent says is read strictly: it runs beside the job's own code.
                with contextlib.suppress(ProtocolError):
                    self._take_message(line, text)

    def _take_message(self, line: _Line, text: bytes) -> None:
        content = decode_message(text)
        message: Message
        if isinstance(content, Ready):
            message = AgentReady(line.agent_id, content)
        elif isinstance(content, Progress):
            message = AgentProgress(line.agent_id, content)
        elif isinstance(content, AgentReport):
            message = AgentDone(line.agent_id, content)
        else:
            return
        (self._messages if line.started else line.held).append(message)

    def _unwatch(self, line: _Line) -> None:
        if self._ids.pop(line.sock.fileno(), None) is not None:
            self._polled().unregister(line.sock.fileno())

    def _forget(self, line: _Line) -> None:
        self._unwatch(line)
        line.sock.close()
        del self._lines[line.agent_id]

    def _ended(self) -> str:
        server = self._server
        code = None
        if server is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = server.wait(_START_TIMEOUT_S)
        where = "" if self._log is None else f"; see {self._log}"
        if code is not None and code < 0:
            return f"the agents' fork server was ended by {signal.Signals(-code).name}{where}"
        return f"the agents' fork server has ended with exit code {code}{where}"

    def _control(self) -> socket.socket:
        if self._socket is None:
            raise AgentPoolError("the pool of agents has not been started")
        return self._socket

    def _polled(self) -> select.epoll:
        if self._epoll is None:
            raise AgentPoolError("the pool of agents has not been started")
        return self._epoll
