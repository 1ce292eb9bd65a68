"""The common part of all agents: channel, wait for the start, stopwatch, end."""

from __future__ import annotations

import contextlib
import resource
import select
import signal
import socket
import time
from typing import Protocol

from jobs.live.agent_protocol import AgentReport, Begin, Progress, Ready, decode_message
from jobs.live.json_decoding import encode

EXIT_GOOD = 0
EXIT_FAILED = 1
EXIT_SIGNAL = 128  # plus the number of the signal, as shells count

TERMINATING = (signal.SIGTERM, signal.SIGINT)

# Selectors count in milliseconds: the last stretch before the start is slept precisely.
_PRECISE_NS = 3_000_000


class AgentFailure(Exception):
    """The agent cannot do its work; the text is the reason that the report carries."""


class Terminated(BaseException):
    """Raised by the handler of SIGTERM and SIGINT, so that an agent still reports."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"terminated by signal {signum}")
        self.signum = signum


def terminate(signum: int, _frame: object) -> None:
    """The handler of the signals in ``TERMINATING``."""
    # One is enough: a second must not interrupt the report of the first.
    for each in TERMINATING:
        signal.signal(each, signal.SIG_IGN)
    raise Terminated(signum)


class Agent(Protocol):
    """One plan at work. ``report`` may be called at any time, also after a failure."""

    def run(self) -> None: ...
    def report(self, error: str | None) -> AgentReport: ...


def used_cpu_s() -> float:
    """User and system time of this process so far, in seconds (getrusage)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Stopwatch:
    """Start instant, CPU time since then, and when the next progress sample is due."""

    def __init__(self) -> None:
        self.start_ns: int | None = None
        self._cpu_start_s = 0.0
        self._sample_ns = 0

    def start(self, at_ns: int) -> None:
        self.start_ns = at_ns
        self._sample_ns = at_ns
        self._cpu_start_s = used_cpu_s()

    def cpu_s(self) -> float:
        """CPU seconds since the start; 0 before it."""
        return 0.0 if self.start_ns is None else used_cpu_s() - self._cpu_start_s

    def elapsed_s(self, now_ns: int) -> float:
        return 0.0 if self.start_ns is None else (now_ns - self.start_ns) / 1e9

    def sample_due(self, now_ns: int, every_s: float) -> bool:
        """True once per period of ``every_s``; a late call does not double the next one."""
        if now_ns < self._sample_ns + round(every_s * 1e9):
            return False
        self._sample_ns = now_ns
        return True

    def sample(self, channel: Channel, index: int, every_s: float) -> None:
        """Says where VM ``index`` stands, by its CPU time alone, once per period of ``every_s``."""
        now_ns = time.monotonic_ns()
        if self.sample_due(now_ns, every_s):
            channel.say(Progress(index, now_ns, 0, 0, self.cpu_s()))


def wait_for_start(channel: Channel, start_at_ns: int | None) -> int:
    """Sleep until the start, given or sent by the caller; returns the actual time.

    A start that has passed already means now: the report then shows how late it was.
    """
    while start_at_ns is None or time.monotonic_ns() < start_at_ns - _PRECISE_NS:
        left_s = None if start_at_ns is None else _left_s(start_at_ns - _PRECISE_NS)
        if select.select([channel], [], [], left_s)[0]:
            for begin in channel.heard():
                start_at_ns = begin.at_ns
    time.sleep(_left_s(start_at_ns))
    return max(start_at_ns, time.monotonic_ns())


def _left_s(until_ns: int) -> float:
    return max(0.0, (until_ns - time.monotonic_ns()) / 1e9)


def run_to_report(agent: Agent, channel: Channel) -> int:
    """Run the agent, say its report whatever happens, and return the exit code."""
    reason: str | None
    try:
        code, reason = _run(agent)
        # From here on a signal would only cost the report; one that came before is raised here.
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATING)
    except Terminated as stop:
        code, reason = EXIT_SIGNAL + stop.signum, str(stop)
    channel.finish_with(agent.report(reason))
    return code


def _run(agent: Agent) -> tuple[int, str | None]:
    """The exit code and the reason of a failure. May be left by Terminated at any point."""
    try:
        agent.run()
    except (AgentFailure, OSError, ValueError) as error:
        return EXIT_FAILED, str(error)
    except Exception as error:  # noqa: BLE001 - a defect of ours must end in a report, too
        return EXIT_FAILED, f"{type(error).__name__}: {error}"
    return EXIT_GOOD, None


# ------------------------------------------------------------------------------------- channel


# What may wait for a slow caller; beyond it progress samples are left out.
_PENDING_LIMIT_BYTES = 65536


class CallerGone(ConnectionError):
    """The caller closed the channel: nobody wants this agent's work any more."""

    def __init__(self) -> None:
        super().__init__("the caller closed the channel")


class Channel:
    """The agent's end. ``fileno`` is readable when the caller has sent a message."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._pending = b""
        self._received = b""

    def fileno(self) -> int:
        return self._sock.fileno()

    def say(self, message: Ready | Progress) -> None:
        """Send without waiting; what does not fit now goes with the next message."""
        if len(self._pending) < _PENDING_LIMIT_BYTES:
            self._pending += encode(message)
        try:
            self._pending = self._pending[self._sock.send(self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            raise CallerGone from None

    def finish_with(self, report: AgentReport, timeout_s: float = 5.0) -> None:
        """Send the report and what still waits, at most ``timeout_s`` for a slow caller; close."""
        self._sock.settimeout(timeout_s)
        with contextlib.suppress(OSError):
            self._sock.sendall(self._pending + encode(report))
        self._sock.close()

    def heard(self) -> list[Begin]:
        """Messages of the caller since the last call; raises CallerGone at its end."""
        begins: list[Begin] = []
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return begins
        except OSError:
            raise CallerGone from None
        if not data:
            raise CallerGone
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            message = decode_message(line)
            if isinstance(message, Begin):
                begins.append(message)
        return begins
