"""The command agent: a real application in the VM, one process tree per rank.

The command finds its place in its environment, as in MPI-like launchers:

- ``HOSENET_RANK``: this VM's number, from 0; ``HOSENET_SIZE``: how many VMs the job has;
- ``HOSENET_IP``: this VM's address; ``HOSENET_PEERS``: the addresses of all VMs by rank, with
  commas between them, this one's included;
- ``HOSENET_JOB``, ``HOSENET_BANDWIDTH_BPS``: the job's name, and what each VM may send;
- ``HOME`` and ``TMPDIR``: a folder of its own, removed when it ends.

The job has finished when the command of every rank has ended with exit code 0.
What a command leaves running is ended with it. Its output goes to the agent's
log, up to a limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, ClassVar

from jobs import linux
from jobs.live.agent import Agent, AgentFailure, make_folder
from jobs.live.agent_protocol import Plan
from jobs.live.program_output import MOST_READS

OUTPUT_LIMIT_BYTES = 4 << 20
GRACE_S = 2.0
"""The time from a program's SIGTERM to its SIGKILL."""
_LAST_LINE_BYTES = 300
_READ_BYTES = 65536
_CUT = b"\n[the rest of the output is not kept]\n"


@dataclass(frozen=True)
class CommandPlan(Plan):
    """The agent of VM ``index`` runs an application: ``argv``, one process tree
    per VM.

    ``ip`` is the VM's address, ``peers`` are those of all VMs by rank, its own
    included. ``environment`` is added to what every command gets. A command
    that migrates starts from its beginning.
    """

    pinned: ClassVar[bool] = True
    ip: str
    peers: tuple[str, ...]
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """Words that may be paths on the machine."""
        return self.argv

    @property
    def job(self) -> str:
        return dict(self.environment).get("HOSENET_JOB", "")

    @property
    def home(self) -> str:
        """The home of its user's account."""
        return "/tmp"  # noqa: S108 - the VM's

    def readdressed(self, ips: Sequence[str]) -> CommandPlan:
        return replace(self, ip=ips[self.index], peers=tuple(ips))


class CommandAgent(Agent):
    """Runs one :class:`CommandPlan`."""

    _plan: CommandPlan
    _kept_bytes = 0
    _tail = b""

    def run(self) -> None:
        """Runs the command to its end; raises AgentFailure with its last output
        if it fails.
        """
        # The time counts from the command's own start: nobody knows of an
        # arbitrary program when it is ready.
        self._start_together()
        home = make_folder()
        try:
            with start_piped(
                self._plan.argv, self._environment(home), home
            ) as child:
                try:
                    self._attend(child)
                finally:
                    end_groups([child])
        finally:
            shutil.rmtree(home, ignore_errors=True)
        if child.returncode:
            raise AgentFailure(self._reason(child.returncode))

    def _environment(self, home: str) -> dict[str, str]:
        plan = self._plan
        # Nothing but PATH comes from the agent's own environment: that is the
        # fork server's.
        return {
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

    def _attend(self, child: subprocess.Popen[bytes]) -> None:
        """Passes the command's output on, and looks after the channel, until the
        command ends.
        """
        assert child.stdout is not None  # noqa: S101 - asked for above
        output = child.stdout.fileno()
        os.set_blocking(output, False)
        # The end of the output is not the command's end: processes that it
        # left running may hold the pipe, and a running command may close it.
        handle = os.pidfd_open(child.pid)
        try:
            with selectors.DefaultSelector() as selector:
                for watched in (self._channel, handle, output):
                    selector.register(watched, selectors.EVENT_READ)
                while not self._has_ended(selector, handle, output):
                    self._sample_when_due()
        finally:
            os.close(handle)

    def _has_ended(
        self,
        selector: selectors.BaseSelector,
        handle: int,
        output: int,
    ) -> bool:
        """Waits at most a period, and takes what has come: the channel's messages,
        and the command's output. True if the command has ended.
        """
        for key, _ in selector.select(self._plan.progress_every_s):
            if key.fileobj is self._channel:
                self._channel.heard()
            elif key.fileobj == handle:
                # The command's last output may have come since.
                self._pass_on(output)
                return True
            elif not self._pass_on(output):
                selector.unregister(output)
        return False

    def _pass_on(self, descriptor: int) -> bool:
        """Passes the command's output so far on to the log. Returns False once all
        its writers have closed the pipe.
        """
        # Not until it is empty: a fast writer would hold up all else.
        for _ in range(MOST_READS):
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._tail = (self._tail + data)[-_LAST_LINE_BYTES:]
            if self._kept_bytes < OUTPUT_LIMIT_BYTES:
                self._kept_bytes += len(data)
                if self._kept_bytes >= OUTPUT_LIMIT_BYTES:
                    data += _CUT
                # A full disk costs the log, not the job.
                with contextlib.suppress(OSError):
                    os.write(1, data)
        return True

    def _reason(self, code: int) -> str:
        """A sentence on the command's end, with the last line of its output."""
        name = os.path.basename(self._plan.argv[0])  # noqa: PTH119 - a command, not a path
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        last_line = lines[-1].strip() if lines else ""
        return ended_sentence(name, code, last_line)


def ended_sentence(
    name: str,
    code: int,
    last_line: str,
) -> str:
    """A sentence on how a process ended. ``code``: negative for a signal."""
    how = f"exit code {code}" if code >= 0 else linux.signal_name(-code)
    sentence = f"{name} ended with {how}"
    if last_line:
        sentence += f": {last_line}"
    return sentence


def start_piped(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
) -> subprocess.Popen[bytes]:
    """A program as of :func:`start_tied`, whose output comes by a pipe. Raises
    AgentFailure.
    """
    try:
        return start_tied(
            argv,
            subprocess.PIPE,
            env=env,
            cwd=cwd,
            # The output is read by its descriptor: no selector sees what a
            # buffer holds.
            bufsize=0,
        )
    except OSError as error:
        raise AgentFailure(
            f"cannot run {argv[0]!r}: {error.strerror}"
        ) from None


def start_tied(
    argv: Sequence[str],
    output: int | IO[bytes],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    bufsize: int = -1,
) -> subprocess.Popen[bytes]:
    """A program in a process group of its own that ends with its agent. Raises
    OSError.
    """
    variables = os.environ if env is None else env
    _check_that_it_starts(argv[0], variables, cwd or "")
    return subprocess.Popen(
        linux.ended_with_parent(argv, signal.SIGKILL),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=variables,
        cwd=cwd,
        bufsize=bufsize,
    )


def _check_that_it_starts(
    program: str,
    variables: Mapping[str, str],
    folder: str,
) -> None:
    """Raises OSError for a program that is not there, or that may not be
    executed: setpriv would only print it, among the program's own output.
    """
    if "/" in program:
        path = os.path.join(folder, program)  # noqa: PTH118 - at each start of a program
        code = errno.EACCES if os.path.exists(path) else errno.ENOENT  # noqa: PTH110
    else:
        path = program
        code = errno.ENOENT
    places = variables.get("PATH", os.defpath)
    if shutil.which(path, path=places) is None:
        raise OSError(code, os.strerror(code))


def end_groups(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends programs, and whatever they have left running: programs that still
    run by SIGTERM first, then all by SIGKILL.
    """
    running = [child for child in children if child.poll() is None]
    _signal_groups(running, signal.SIGTERM)
    # A program's group may live on when the program has ended.
    _signal_groups(children, signal.SIGKILL)


def _signal_groups(
    children: Sequence[subprocess.Popen[bytes]],
    signum: signal.Signals,
) -> None:
    """Sends a signal to process groups, and gives the programs time to end."""
    for child in children:
        # No permission: none of the group is this user's any more.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signum)
    with contextlib.suppress(subprocess.TimeoutExpired):
        # The first that outlasts its time ends the waiting: all others have
        # had as much.
        for child in children:
            child.wait(GRACE_S)
