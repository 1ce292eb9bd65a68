"""The common part of all agents: channel, wait for the start, stopwatch, end."""

from __future__ import annotations

import contextlib
import resource
import select
import signal
import socket
import time

from jobs.live.agent_protocol import (
    AgentMessage,
    AgentProgress,
    AgentReport,
    Plan,
    Ready,
    encode,
)

EXIT_GOOD = 0
EXIT_FAILED = 1
EXIT_SIGNAL = 128  # plus the number of the signal, as shells count

TERMINATING = (signal.SIGTERM, signal.SIGINT)


class AgentFailure(Exception):
    """The agent cannot do its work; the text is the reason that the report
    carries.
    """


class Terminated(BaseException):
    """Raised by the handler of SIGTERM and SIGINT, so that an agent still
    reports.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"terminated by signal {signum}")
        self.signum = signum


def terminate(signum: int, _frame: object) -> None:
    """The handler of the signals in ``TERMINATING``."""
    # One is enough: a second must not interrupt the report of the first.
    for each in TERMINATING:
        signal.signal(each, signal.SIG_IGN)
    raise Terminated(signum)


class Agent:
    """One plan at work, with its stopwatch.

    It is made in its VM's namespace, while it still has root's privileges.
    """

    _received_bytes = 0
    _sent_bytes = 0

    def __init__(self, plan: Plan, channel: Channel) -> None:
        self._plan = plan
        self._channel = channel
        self._start_ns: int | None = None
        self._cpu_start_s = 0.0
        self._sample_ns = 0

    def run(self) -> None:
        """Do the work; raises AgentFailure or OSError with the reason where
        that fails.
        """
        raise NotImplementedError

    def report(self, error: str | None) -> AgentReport:
        """The end of its work. May be called at any time, also after a failure."""
        end_ns = time.monotonic_ns()
        return AgentReport(
            self._plan.index,
            self._start_ns,
            end_ns,
            cpu_s=self._cpu_s(),
            error=error,
        )

    def _start_together(self) -> None:
        """Waits for the instant at which all agents of the job start, and
        starts the stopwatch.
        """
        self._say_ready()
        self._start(wait_for_start(self._channel))

    def _say_ready(self) -> None:
        self._channel.say(Ready(self._plan.index, time.monotonic_ns()))

    def _start(self, at_ns: int) -> None:
        """Starts the stopwatch at an instant that has come."""
        self._start_ns = self._sample_ns = at_ns
        self._cpu_start_s = used_cpu_s()

    def _cpu_s(self) -> float:
        """CPU seconds since the start; 0 before it."""
        return (
            0.0
            if self._start_ns is None
            else used_cpu_s() - self._cpu_start_s
        )

    def _sample_when_due(self) -> None:
        """Says where its VM stands once per period; a late call does not double
        the next one.
        """
        now_ns = time.monotonic_ns()
        if now_ns >= self._sample_ns + round(
            self._plan.progress_every_s * 1e9
        ):
            self._sample_ns = now_ns
            self._sample()

    def _sample(self) -> None:
        moved = self._received_bytes, self._sent_bytes
        now_ns = time.monotonic_ns()
        self._channel.say(
            AgentProgress(self._plan.index, now_ns, *moved, self._cpu_s())
        )


def used_cpu_s() -> float:
    """User and system time of this process and its ended children so far, in s
    (getrusage).
    """
    usages = map(
        resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def wait_for_start(channel: Channel) -> int:
    """Sleep until the start that the caller sends; returns the actual time.

    A start that has passed already means now: the report then shows how late it
    was.
    """
    while (start_at_ns := channel.heard()) is None:
        select.select([channel], [], [])
    return sleep_until(start_at_ns)


def sleep_until(start_at_ns: int) -> int:
    """Sleeps until an instant; returns when it was left, at the earliest then."""
    # Selectors count in milliseconds: this is slept precisely.
    time.sleep(max(0.0, (start_at_ns - time.monotonic_ns()) / 1e9))
    return max(start_at_ns, time.monotonic_ns())


def run_to_report(agent: Agent, channel: Channel) -> int:
    """Run the agent, say its report whatever happens, and return the exit code."""
    reason: str | None
    try:
        code, reason = _run(agent)
        # From here on a signal would only cost the report; one that came before
        # is raised here.
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATING)
    except Terminated as stop:
        code = EXIT_SIGNAL + stop.signum
        reason = str(stop)
    channel.finish_with(agent.report(reason))
    return code


def _run(agent: Agent) -> tuple[int, str | None]:
    """The exit code and the reason of a failure. May be left by Terminated at
    any point.
    """
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


# Nobody wants this agent's work any more.
_GONE = "the caller closed the channel"


class Channel:
    """The agent's end. ``fileno`` is readable when the caller has sent the
    start.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._pending = b""
        self._received = b""

    def fileno(self) -> int:
        return self._sock.fileno()

    def say(self, message: AgentMessage) -> None:
        """Send without waiting; what does not fit now goes with the next
        message.
        """
        if len(self._pending) < _PENDING_LIMIT_BYTES:
            self._pending += encode(message)
        try:
            self._pending = self._pending[self._sock.send(self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            raise ConnectionError(_GONE) from None

    def finish_with(
        self, report: AgentReport, timeout_s: float = 5.0
    ) -> None:
        """Send the report and what still waits, at most ``timeout_s`` for a
        slow caller; close.
        """
        self._sock.settimeout(timeout_s)
        with contextlib.suppress(OSError):
            self._sock.sendall(self._pending + encode(report))
        self._sock.close()

    def heard(self) -> int | None:
        """The start, if it has come since the last call; raises ConnectionError
        at its end.
        """
        try:
            data = self._sock.recv(4096)
        except BlockingIOError:
            return None
        except OSError:
            raise ConnectionError(_GONE) from None
        if not data:
            raise ConnectionError(_GONE)
        self._received += data
        return (
            int(self._received) if self._received.endswith(b"\n") else None
        )
