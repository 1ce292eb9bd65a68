"""The caller's side: a pool of agents that one fork server starts, and one
stream of messages.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from jobs import linux
from jobs.live.agent_protocol import (
    PACKET_LIMIT_BYTES,
    RATE_PREFIX,
    AgentExited,
    AgentMessage,
    AgentProgress,
    AgentReport,
    AgentStarted,
    ForkServerReply,
    Ready,
    SignalRequest,
    SpawnRequest,
)
from jobs.python_child import ISOLATED, python_command

_END_TIMEOUT_S = 60.0
# A report of thousands of VMs is shorter.
_LINE_LIMIT_BYTES = 8 << 20
_MOST_READS = 64
"""Reads of one channel at a time: far more than its buffer holds at its end."""


class AgentPoolError(Exception):
    """The fork server has ended; no agent of the pool lives on."""


Message = AgentMessage | ForkServerReply


@dataclass
class _Line:
    """The caller's end of one agent's channel."""

    agent_id: str
    sock: socket.socket
    rest: bytes = b""
    started: bool = False
    # Messages that came before AgentStarted, which comes by the server's socket:
    # between two sockets there is no order.
    held: list[tuple[str, Message]] = field(default_factory=list)


def _own_mounts() -> None:
    """Gives this process mounts of its own: where the server mounts VMs' folders
    (:mod:`jobs.vm_folders`), nobody else sees them.

    Called in the server's process before its program begins.
    """
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            linux.own_mounts()


class AgentPool:
    """Agents and their fork server; a context manager that ends every agent.

    To be used by the thread that made it: the server ends with that thread.
    ``log``: file for the server's own errors; None: they are dropped.
    ``folder``: the log's folder by the name that messages give it.
    """

    def __init__(
        self,
        log: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        self._log = log
        self._folder = folder
        self._lines: dict[str, _Line] = {}
        self._messages: list[tuple[str, Message]] = []
        self._urgent = False  # whether one of them is not Progress
        # The kinds exclude each other; most by far are Progress.
        kinds = Annotated[
            AgentProgress | AgentReport | Ready,
            Field(union_mode="left_to_right"),
        ]
        self._decoder: TypeAdapter[AgentMessage] = TypeAdapter(kinds)
        # Packets: each request comes whole, with its own descriptors.
        self._control, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        with theirs:
            for end in (self._control, theirs):
                # The kernel sends no packet that is larger than the buffer,
                # in which its own bookkeeping counts too.
                end.setsockopt(
                    socket.SOL_SOCKET,
                    socket.SO_SNDBUF,
                    2 * PACKET_LIMIT_BYTES,
                )
            self._server = self._started(theirs.fileno())
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ)

    def _started(self, fd: int) -> subprocess.Popen[bytes]:
        """The fork server; it inherits one socket and nothing else of this
        process.
        """
        pair = (str(fd), str(os.getpid()))
        flags = (*ISOLATED, "-S")
        path = os.devnull if self._log is None else self._log
        writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(path, writing, 0o644), "ab") as output:
            return subprocess.Popen(
                python_command("jobs.live.forkserver", *pair, flags=flags),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(fd,),
                cwd="/",
                env={"PATH": os.defpath},
                # No thread of this program has a lock that it needs.
                preexec_fn=_own_mounts,  # noqa: PLW1509
            )

    def __enter__(self) -> AgentPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process number of the fork server."""
        return self._server.pid

    def spawn(self, request: SpawnRequest) -> None:
        """Asks for an agent; AgentStarted or AgentRefused follows in
        :meth:`poll`.
        """
        if request.id in self._lines:
            raise ValueError(
                f"an agent named {request.id!r} is in the pool already"
            )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        # Closed here at the end of the block: while this process held it
        # too, the channel would not end with the agent.
        with theirs:
            ours.settimeout(0)
            line = self._lines[request.id] = _Line(request.id, ours)
            self._selector.register(ours, selectors.EVENT_READ, line)
            try:
                self._request(request, theirs.fileno())
            except ValueError:
                self._forget(line)
                raise

    def begin(
        self,
        agent_ids: Iterable[str],
        at_ns: int,
    ) -> None:
        """Tells agents to start at ``at_ns`` (CLOCK_MONOTONIC)."""
        self._tell(agent_ids, b"%d\n" % at_ns)

    def rerate(
        self,
        agent_ids: Iterable[str],
        rate_bps: int,
    ) -> None:
        """Tells agents the payload that each of their VMs may send from now on.

        Those that have ended are passed over.
        """
        present = [name for name in agent_ids if name in self._lines]
        self._tell(present, RATE_PREFIX + b"%d\n" % rate_bps)

    def _tell(
        self,
        agent_ids: Iterable[str],
        line: bytes,
    ) -> None:
        for agent_id in agent_ids:
            if agent_id not in self._lines:
                raise ValueError(
                    f"no agent named {agent_id!r} is in the pool"
                )
            # One that has just ended says so itself, by its report and its
            # exit.
            with contextlib.suppress(ConnectionError):
                self._lines[agent_id].sock.send(line)

    def signal(
        self,
        agent_id: str,
        signum: int,
    ) -> None:
        """Has the server send a signal to one of its agents."""
        self._request(SignalRequest(agent_id, int(signum)))

    def poll(self, timeout_s: float = 0.0) -> list[tuple[str, Message]]:
        """Agents' names and their messages since the last call.

        It waits up to ``timeout_s`` for the first that is not Progress: the
        Progress of hundreds of agents would wake their caller all the time. Per
        agent the order is AgentStarted, Ready, Progress ..., AgentReport,
        AgentExited. Raises AgentPoolError when the server has ended.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            left_s = 0.0
            if not self._urgent:
                left_s = max(0.0, end_s - time.monotonic())
            self._read_what_came(left_s)
            if self._urgent or time.monotonic() >= end_s:
                messages = self._messages
                self._messages = []
                self._urgent = False
                return messages

    def _read_what_came(self, timeout_s: float) -> None:
        ready = {}
        for key, _ in self._selector.select(timeout_s):
            ready[key.fd] = key.data
        # By descriptor, an order that the selector does not keep.
        for _, line in sorted(ready.items()):
            if line is not None:
                self._read_line(line)
        # The server's last: an agent's exit comes after its messages.
        if self._control.fileno() in ready:
            self._read_answers()

    def close(self, timeout_s: float = 10.0) -> None:
        """Ends all agents and the server; safe to call twice and after a
        failure.
        """
        # This is enough: when its caller's socket ends, the server ends its
        # agents and itself.
        self._control.close()
        try:
            self._server.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        for line in self._lines.values():
            line.sock.close()
        self._lines.clear()
        self._selector.close()

    def _request(
        self,
        request: SpawnRequest | SignalRequest,
        *fds: int,
    ) -> None:
        packet = pickle.dumps(request)
        if len(packet) > PACKET_LIMIT_BYTES:
            raise ValueError(
                f"a request of {len(packet)} bytes is too long for the fork server"
            )
        try:
            socket.send_fds(self._control, [packet], fds)
        except ConnectionError:
            raise AgentPoolError(self._ended()) from None

    def _read_answers(self) -> None:
        while True:
            try:
                packet = self._control.recv(
                    PACKET_LIMIT_BYTES, socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                return
            except ConnectionError:
                packet = b""
            if not packet:
                raise AgentPoolError(self._ended())
            # Only the server can have sent it, so it may be unpickled: agents
            # have no descriptor of this socket.
            self._take_answer(*pickle.loads(packet))  # noqa: S301

    def _take_answer(
        self,
        agent_id: str,
        answer: ForkServerReply,
    ) -> None:
        line = self._lines.get(agent_id)
        if line is not None and isinstance(answer, AgentExited):
            # All of its messages are there: it has ended.
            self._read_line(line)
        self._messages.append((agent_id, answer))
        self._urgent = True
        if line is None:
            return
        if isinstance(answer, AgentStarted):
            line.started = True
            self._messages += line.held
        # AgentRefused ends an agent that has not started; of one that has,
        # it refuses a signal.
        elif isinstance(answer, AgentExited) or not line.started:
            self._forget(line)

    def _read_line(self, line: _Line) -> None:
        """Reads the messages of one agent; at end of file stops listening, its
        exit follows.
        """
        # A job's programs may tamper with its agent: one that sends without end
        # must not keep the caller here, nor fill its memory.
        for _ in range(_MOST_READS):
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
            if len(line.rest) > _LINE_LIMIT_BYTES:
                line.rest = b""
            for text in texts:
                # What the job's own programs made of it is left out.
                with contextlib.suppress(ValidationError):
                    self._take(line, self._decoder.validate_json(text))

    def _take(
        self,
        line: _Line,
        message: AgentMessage,
    ) -> None:
        if not line.started:
            line.held.append((line.agent_id, message))
            return
        self._messages.append((line.agent_id, message))
        if not isinstance(message, AgentProgress):
            self._urgent = True

    def _unwatch(self, line: _Line) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(line.sock)

    def _forget(self, line: _Line) -> None:
        self._unwatch(line)
        line.sock.close()
        del self._lines[line.agent_id]

    def _ended(self) -> str:
        code = None
        # Its socket is closed before its process has ended, which on a
        # starved machine may take a while.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._server.wait(_END_TIMEOUT_S)
        where = ""
        if self._log is not None:
            folder = self._folder or self._log.parent
            where = f"; see {folder / self._log.name}"
        how = f"has ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {linux.signal_name(-code)}"
        return f"the agents' fork server {how}{where}"
