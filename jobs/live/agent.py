"""The common part of all agents: channel, wait for the start, stopwatch, end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
import tempfile
import time

from jobs.live.agent_protocol import (
    RATE_PREFIX,
    AgentMessage,
    AgentProgress,
    AgentReport,
    Plan,
    Ready,
    encode,
)

EXIT_GOOD = 0
EXIT_FAILED = 1
# Plus the number of the signal, as shells count.
EXIT_SIGNAL = 128

AGENT_FOLDERS = "hosenet-"
"""The beginning of names of agents' temporary folders."""
TERMINATING = (signal.SIGTERM, signal.SIGINT)


class AgentFailure(Exception):
    """An agent's failure; its text is the reason in the report."""


class Terminated(BaseException):
    """Raised by the handler of SIGTERM and SIGINT, so that the agent reports."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"terminated by signal {signum}")
        self.signum = signum


class Termination:
    """The handler of the signals in ``TERMINATING``, which may be held back.

    Python runs it between any two steps. Between the read of a socket and the
    count of what came it would lose up to a megabyte, which is then sent again
    when the job resumes elsewhere.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._signum: int | None = None

    def __call__(self, signum: int, _frame: object) -> None:
        # A second signal must not interrupt the report.
        for number in TERMINATING:
            signal.signal(number, signal.SIG_IGN)
        if self._is_held:
            self._signum = signum
            return
        raise Terminated(signum)

    def hold(self) -> None:
        """Lets a signal wait for :meth:`release`."""
        self._is_held = True

    def release(self) -> None:
        """Raises Terminated if a signal has come meanwhile."""
        self._is_held = False
        if self._signum is not None:
            signum = self._signum
            self._signum = None
            raise Terminated(signum)


terminate = Termination()
"""The handler of this process."""


def make_folder() -> str:
    """Makes a temporary folder, locked until this process ends: one without a
    lock is a killed agent's, which ``testbed clean`` removes.
    """
    folder = tempfile.mkdtemp(prefix=AGENT_FOLDERS)
    # Closed by the kernel alone, whatever ends the process.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return folder


class Agent:
    """The execution of one plan, with its stopwatch.

    Made in the VM's namespace while the process still has root's privileges.
    """

    _received_bytes = 0
    _sent_bytes = 0
    has_reported = False

    def __init__(
        self,
        plan: Plan,
        channel: Channel,
    ) -> None:
        self._plan = plan
        self._channel = channel
        self._start_ns: int | None = None
        self._cpu_start_s = 0.0
        self._sample_ns = 0

    def run(self) -> None:
        """Carry out the plan. Raises AgentFailure or OSError with the reason."""
        raise NotImplementedError

    def report(self, error: str | None) -> AgentReport:
        """The report. May be made at any time, also after a failure."""
        end_ns = time.monotonic_ns()
        return AgentReport(
            self._plan.index,
            self._start_ns,
            end_ns,
            cpu_s=self._cpu_s(),
            error=error,
        )

    def _report_early(self) -> None:
        """Reports a good end while its VM is still of use to others."""
        # A signal in between would have it report twice.
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATING)
        self._channel.say(self.report(None))
        self.has_reported = True
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINATING)

    def _start_together(self) -> None:
        """Waits for the common start of the job's agents; starts the stopwatch."""
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
        if self._start_ns is None:
            return 0.0
        return used_cpu_s() - self._cpu_start_s

    def _sample_when_due(self) -> None:
        """Sends the VM's progress if a period has passed since the last time."""
        now_ns = time.monotonic_ns()
        period_ns = round(self._plan.progress_every_s * 1e9)
        # From now on, not from when it was due: an agent that was frozen is
        # not to make up for the samples that it missed.
        if now_ns >= self._sample_ns + period_ns:
            self._sample_ns = now_ns
            self._sample()

    def _sample(self) -> None:
        progress = AgentProgress(
            index=self._plan.index,
            at_ns=time.monotonic_ns(),
            received_bytes=self._received_bytes,
            sent_bytes=self._sent_bytes,
            cpu_s=self._cpu_s(),
        )
        self._channel.say(progress)


def used_cpu_s() -> float:
    """User and system time of this process and its ended children, in s."""
    # Children that still run are not counted: the kernel adds their time as
    # they are waited for.
    agent = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    user_s = agent.ru_utime + children.ru_utime
    return user_s + agent.ru_stime + children.ru_stime


def wait_for_start(channel: Channel) -> int:
    """Sleeps until the instant that the caller sends; returns the actual one.

    Returns at once if it has passed: the report then shows the lateness.
    """
    while (start_at_ns := channel.heard()) is None:
        select.select([channel], [], [])
    return sleep_until(start_at_ns)


def sleep_until(start_at_ns: int) -> int:
    """Sleeps until an instant; returns the actual one."""
    # Selectors wait in whole milliseconds, sleep() precisely.
    time.sleep(max(0.0, (start_at_ns - time.monotonic_ns()) / 1e9))
    return max(start_at_ns, time.monotonic_ns())


def run_to_report(
    agent: Agent,
    channel: Channel,
) -> int:
    """Runs an agent and sends its report in any case; returns the exit code."""
    reason: str | None
    try:
        code, reason = _run(agent)
        # From here on a signal could only prevent the report. One that arrived
        # before is raised here.
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATING)
    except Terminated as stop:
        code = EXIT_SIGNAL + stop.signum
        reason = str(stop)
    if agent.has_reported:
        return EXIT_GOOD
    channel.finish_with(agent.report(reason))
    return code


def _run(agent: Agent) -> tuple[int, str | None]:
    """Exit code and reason of a failure. Terminated may be raised anywhere."""
    try:
        agent.run()
    except (AgentFailure, OSError, ValueError) as error:
        return EXIT_FAILED, str(error)
    except Exception as error:  # noqa: BLE001 - a defect of ours must end in a report, too
        return EXIT_FAILED, f"{type(error).__name__}: {error}"
    return EXIT_GOOD, None


# ------------------------------------------------------------------------------------- channel


# Most data that waits for a slow caller. Beyond it no samples are added.
_PENDING_LIMIT_BYTES = 65536


# Reason of an agent whose caller has ended.
_GONE = "the caller closed the channel"


class Channel:
    """The agent's end of the channel to its caller.

    Its descriptor is readable when the caller has sent the start, or another
    ``rate_bps``: the payload that the VM may send since then (0: that of its plan).
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._pending = b""
        self._received = b""
        self.rate_bps = 0

    def fileno(self) -> int:
        return self._sock.fileno()

    def say(self, message: AgentMessage) -> None:
        """Sends without waiting; the rest goes with the next message.

        Raises ConnectionError if the caller has ended.
        """
        # A sample beyond it is no loss: the next one has the sums since the
        # start.
        is_sample = isinstance(message, AgentProgress)
        if not is_sample or len(self._pending) < _PENDING_LIMIT_BYTES:
            self._pending += encode(message)
        self.send_rest()

    def send_rest(self) -> None:
        """Sends what a slow caller has left of earlier messages, as far as it
        goes without waiting. Raises ConnectionError if the caller has ended.
        """
        try:
            self._pending = self._pending[self._sock.send(self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            raise ConnectionError(_GONE) from None

    def finish_with(
        self,
        report: AgentReport,
        timeout_s: float = 5.0,
    ) -> None:
        """Sends the rest and the report, and closes.

        ``timeout_s``: longest wait for a slow caller.
        """
        # Waits from here on: the report is the last word and has no next
        # message to go with.
        self._sock.settimeout(timeout_s)
        with contextlib.suppress(OSError):
            self._sock.sendall(self._pending + encode(report))
        self._sock.close()

    def heard(self) -> int | None:
        """The start in ns, if it has arrived since the last call.

        Raises ConnectionError if the caller has ended.
        """
        try:
            data = self._sock.recv(4096)
        except BlockingIOError:
            return None
        except OSError:
            raise ConnectionError(_GONE) from None
        if not data:
            raise ConnectionError(_GONE)
        # A stream has no messages: the last line may come in two pieces.
        *lines, self._received = (self._received + data).split(b"\n")
        start_at_ns = None
        for line in lines:
            if line.startswith(RATE_PREFIX):
                self.rate_bps = int(line.removeprefix(RATE_PREFIX))
            else:
                start_at_ns = int(line)
        return start_at_ns
