"""The command agent: a real application in the VM, one process tree per rank.

The command finds its place in its environment, as in MPI-like launchers:

- ``HOSENET_RANK``: this VM's number, from 0; ``HOSENET_SIZE``: how many VMs the job has;
- ``HOSENET_IP``: this VM's address; ``HOSENET_PEERS``: the addresses of all VMs by rank, with
  commas between them, this one's included;
- ``HOSENET_JOB``, ``HOSENET_BANDWIDTH_BPS``: the job's name, and what each VM may send;
- ``HOME`` and ``TMPDIR``: a folder of its own, removed when it ends.

The job has finished when the command of every rank has ended with exit code 0. What a command
leaves running is ended with it. Its output goes to the agent's log, up to a limit.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from jobs import linux
from jobs.live.agent import AgentFailure, Channel, Stopwatch, wait_for_start
from jobs.live.agent_protocol import AgentReport, Plan, Ready
from jobs.live.json_decoding import Check, Positive, Text

OUTPUT_LIMIT_BYTES = 4 << 20
_LAST_LINE_BYTES = 300
_READ_BYTES = 65536
_CUT = b"\n[the rest of the output is not kept]\n"


@dataclass(frozen=True)
class CommandPlan(Plan):
    """The agent of VM ``index`` runs an application: ``argv``, one process tree per VM.

    ``ip`` is the VM's address, ``peers`` are those of all VMs by rank, its own included.
    ``environment`` is added to what every command gets. ``grace_s`` is how long the command may
    continue after SIGTERM before it is killed. A command that migrates starts from its beginning.
    """

    kind: ClassVar[str] = "command"
    pinned: ClassVar[bool] = True
    ip: Text
    peers: tuple[str, ...]
    argv: Annotated[tuple[str, ...], Check("a list of at least 1 texts", bool)]
    environment: tuple[tuple[str, str], ...] = ()
    start_at_ns: int | None = None
    grace_s: Positive = 2.0
    progress_every_s: Positive = 0.2

    def readdressed(self, ips: Sequence[str]) -> CommandPlan:
        return replace(self, ip=ips[self.index], peers=tuple(ips))


class ProcessStopwatch(Stopwatch):
    """A stopwatch of an agent that runs programs: their CPU time counts once they have ended."""

    def __init__(self) -> None:
        super().__init__()
        self._children_before_s = children_cpu_s()

    def cpu_s(self) -> float:
        if self.start_ns is None:
            return 0.0
        return super().cpu_s() + children_cpu_s() - self._children_before_s


class CommandAgent:
    """Runs one :class:`CommandPlan`."""

    def __init__(self, plan: CommandPlan, channel: Channel) -> None:
        self._plan = plan
        self._channel = channel
        self._watch = ProcessStopwatch()
        self._kept_bytes = 0
        self._tail = b""

    def run(self) -> None:
        """Run the command to its end; raises AgentFailure with its last output if it fails."""
        self._channel.say(Ready(self._plan.index, time.monotonic_ns()))
        self._watch.start(wait_for_start(self._channel, self._plan.start_at_ns))
        home = tempfile.mkdtemp(prefix="hosenet-")
        try:
            with self._started(home) as child:
                try:
                    self._attend(child)
                finally:
                    self._end(child)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        if child.returncode:
            raise AgentFailure(self._how(child.returncode))

    def report(self, error: str | None) -> AgentReport:
        """Its duration and the CPU time it used."""
        start_ns, end_ns = self._watch.start_ns, time.monotonic_ns()
        return AgentReport(
            self._plan.index, start_ns, end_ns, cpu_s=self._watch.cpu_s(), error=error
        )

    def _started(self, home: str) -> subprocess.Popen[bytes]:
        plan = self._plan
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": home,
            "TMPDIR": home,
            "HOSENET_RANK": str(plan.index),
            "HOSENET_SIZE": str(len(plan.peers)),
            "HOSENET_IP": plan.ip,
            "HOSENET_PEERS": ",".join(plan.peers),
            **dict(plan.environment),
        }
        try:
            return subprocess.Popen(
                plan.argv,
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                # Before exec, in a process without threads: it ends with its agent.
                preexec_fn=tie_to_agent,  # noqa: PLW1509
            )
        except OSError as error:
            raise AgentFailure(f"cannot run {plan.argv[0]!r}: {error.strerror}") from None

    def _attend(self, child: subprocess.Popen[bytes]) -> None:
        """Pass its output on and look after the channel until it ends."""
        assert child.stdout is not None  # noqa: S101 - asked for above
        os.set_blocking(child.stdout.fileno(), False)
        handle = os.pidfd_open(child.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._channel, selectors.EVENT_READ, self._channel.heard)
                selector.register(handle, selectors.EVENT_READ, None)
                selector.register(child.stdout, selectors.EVENT_READ, child.stdout)
                while True:
                    self._watch.sample(self._channel, self._plan.index, self._plan.progress_every_s)
                    for key, _ in selector.select(self._plan.progress_every_s):
                        if key.data is None:
                            self._pass_on(child.stdout.fileno())
                            return
                        if key.data is child.stdout:
                            if not self._pass_on(child.stdout.fileno()):
                                selector.unregister(child.stdout)
                        else:
                            key.data()
        finally:
            os.close(handle)

    def _pass_on(self, descriptor: int) -> bool:
        """Its output so far to the log; False once it has closed it."""
        while True:
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._tail = (self._tail + data)[-_LAST_LINE_BYTES:]
            if self._kept_bytes < OUTPUT_LIMIT_BYTES:
                cut = self._kept_bytes + len(data) >= OUTPUT_LIMIT_BYTES
                self._kept_bytes += len(data)
                # A full disk costs the log, not the job.
                with contextlib.suppress(OSError):
                    os.write(1, data + _CUT if cut else data)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Whatever is left of it: a word first, then by force."""
        if child.poll() is None:
            signal_group(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(self._plan.grace_s)
        signal_group(child.pid, signal.SIGKILL)
        child.wait()

    def _how(self, code: int) -> str:
        name = os.path.basename(self._plan.argv[0])  # noqa: PTH119 - a command, not a path
        how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        return f"{name} ended with {how}" + (f": {lines[-1].strip()}" if lines else "")


def tie_to_agent() -> None:
    """In a child before exec: it ends with its agent, and on the signals that end one."""
    linux.set_parent_death_signal(signal.SIGKILL)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)


def signal_group(group: int, signum: int) -> None:
    """Signals a process group that may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def children_cpu_s() -> float:
    """User and system time of this process's ended children so far, in seconds (getrusage)."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
