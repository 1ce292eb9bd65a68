"""The agent of a launched program's VM.

Files are copied and ``prepare`` is run before the VM is ready, and so is the
launcher (mpirun, say), which starts :mod:`jobs.live.rank_start` in place of each
rank. A rank that has come waits for the instant at which all ranks of the job
start, and its agent learns how it ends. The agents are also the remote shell
with which a launcher in the first VM reaches the others: they run a command for
whoever calls from an address of the job's own VMs.
"""

from __future__ import annotations

import inspect
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.live import (
    dask_head,
    rank_start,
    rank_waits,
    remote_shell,
    spark_driver,
    spark_head,
)
from jobs.live.agent import (
    Agent,
    AgentFailure,
    Channel,
    make_folder,
    sleep_until,
)
from jobs.live.agent_protocol import AgentReport, RankEnd, VmTraffic
from jobs.live.command import (
    GRACE_S,
    end_groups,
    ended_sentence,
    start_piped,
)
from jobs.live.program_output import OutputLog, ProgramOutput
from jobs.live.program_plan import (
    DASK_HEAD,
    FOLDER,
    RANK_START,
    REMOTE_SHELL,
    SHELL_PORT,
    SPARK_DRIVER,
    SPARK_HEAD,
    ProgramPlan,
)
from jobs.live.vm_counters import vm_traffic

_REQUEST_LIMIT_BYTES = 1 << 20
_BACKLOG = 1024
_TAIL_BYTES = 300


# Read by the fork server: agents may not be allowed to read the files.
SCRIPTS = {
    RANK_START: inspect.getsource(rank_start),
    REMOTE_SHELL: inspect.getsource(remote_shell),
    DASK_HEAD: inspect.getsource(dask_head),
    SPARK_HEAD: inspect.getsource(spark_head),
    SPARK_DRIVER: inspect.getsource(spark_driver),
}
_FIRST_LINE = f"#!{os.path.realpath(sys.executable)} -IS\n"


@dataclass
class _Rank:
    """A rank that has come: its start's socket, and its output."""

    number: int
    start: socket.socket
    output: ProgramOutput | None = None


@dataclass
class _Session:
    """A command of a remote shell's caller."""

    caller: socket.socket
    request: bytes = b""
    child: subprocess.Popen[bytes] | None = None


class ProgramAgent(Agent):
    """Runs one :class:`ProgramPlan`."""

    _plan: ProgramPlan

    def __init__(
        self,
        plan: ProgramPlan,
        channel: Channel,
    ) -> None:
        super().__init__(plan, channel)
        self._selector = selectors.DefaultSelector()
        self._log = OutputLog(plan.expected)
        self._folder = plan.folder
        self._children: list[subprocess.Popen[bytes]] = []
        self._ranks: dict[int, _Rank] = {}
        self._ended: list[RankEnd] = []
        self._at_work = 0
        # Commands that were asked to end, and until when each may take.
        self._asked_to_end: dict[subprocess.Popen[bytes], float] = {}
        self._start_at_ns: int | None = None
        self._at_start: VmTraffic | None = None

    def run(self) -> None:
        """Runs the VM's ranks to their end, and serves the others until it is
        ended; raises AgentFailure where a rank fails.
        """
        with ExitStack() as stack:
            stack.callback(self._selector.close)
            self._selector.register(
                self._channel,
                selectors.EVENT_READ,
                self._hear_channel,
            )
            self._make_folder(stack)
            # Before the folder goes: what runs in it would write there.
            stack.callback(end_groups, self._children)
            self._until_ready(stack)
            self._start_ranks()
            while self._works():
                self._sample_when_due()
                self._attend()
            self._report_early()
            # Ranks of other VMs may still want something of this one's daemons.
            while True:
                self._channel.send_rest()
                self._attend()

    def _until_ready(self, stack: ExitStack) -> None:
        """Does all that precedes the job's start, and is no running time."""
        self._prepare()
        # The sockets first: a launcher's ranks and calls come at once.
        self._listen(stack)
        self._launch()
        while len(self._ranks) < self._plan.ranks:
            self._attend()
        self._say_ready()

    def _start_ranks(self) -> None:
        while self._start_at_ns is None:
            self._attend()
        self._at_start = vm_traffic()
        self._start(sleep_until(self._start_at_ns))
        for rank in self._ranks.values():
            self._release(rank)

    def report(self, error: str | None) -> AgentReport:
        """Its end is that of the VM's last rank, not of what started them."""
        report = super().report(error)
        if error is None:
            ends_ns = [rank.end_ns for rank in self._ended]
            last_ns = max(ends_ns, default=self._start_ns or 0)
            report = replace(report, end_ns=last_ns)
        return replace(
            report,
            ranks=tuple(sorted(self._ended, key=lambda end: end.rank)),
            printed=tuple(sorted(self._log.printed)),
            traffic=self._traffic_since_start(),
        )

    def _traffic_since_start(self) -> VmTraffic | None:
        now = vm_traffic()
        if now is None or self._at_start is None:
            return None
        return now.since(self._at_start)

    # -- before the start -------------------------------------------------------------------

    def _make_folder(self, stack: ExitStack) -> None:
        if not self._folder:
            self._folder = make_folder()
        # A job that migrates may come to a VM where it was before.
        os.makedirs(self._folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        stack.callback(
            shutil.rmtree,
            self._folder,
            ignore_errors=True,
        )
        os.chdir(self._folder)
        Path(FOLDER).mkdir(mode=0o700, exist_ok=True)
        for name, text in SCRIPTS.items():
            path = Path(FOLDER, name)
            # The product's own folder may be closed to the VM's user.
            path.write_text(_FIRST_LINE + text, "utf-8")
            path.chmod(0o700)

    def _prepare(self) -> None:
        """Copies the files, and runs the preparation."""
        for file in self._plan.files:
            shutil.copy(file, self._folder)
        if self._plan.launch == "mpi":
            self._make_waits_sleep()
        if not self._plan.prepare:
            return
        code, output = self._run_to_end(self._plan.prepare, "prepare")
        if code:
            raise AgentFailure(_how("prepare", code, output))

    def _make_waits_sleep(self) -> None:
        """Compiles the library by which a rank that waits sleeps; without it,
        as where there is no compiler, the rank polls.
        """
        Path(FOLDER, rank_waits.SOURCE_FILE).write_text(
            rank_waits.SOURCE, "utf-8"
        )
        words = rank_waits.compiler_words(FOLDER)
        if words:
            self._run_to_end(words, "compiler")

    def _run_to_end(
        self,
        words: Sequence[str],
        name: str,
    ) -> tuple[int, ProgramOutput]:
        """A command's exit code, and what it has printed."""
        # Daemons that it has started may hold the pipe open: not the output's
        # end counts, but that of the process.
        child = self._started(words)
        output = self._follow(child, name)
        while child.poll() is None:
            self._attend()
        output.pass_on()
        return child.returncode, output

    def _listen(self, stack: ExitStack) -> None:
        """For ranks in this VM, and for callers of its remote shell."""
        ranks = stack.enter_context(socket.socket(socket.AF_UNIX))
        ranks.bind(self._socket_path)
        ranks.listen(_BACKLOG)
        self._watch(ranks, lambda: self._accept_rank(ranks))
        if self._plan.launch == "each":
            return
        shell = stack.enter_context(socket.socket())
        # An earlier program's connections may still be in TIME_WAIT.
        shell.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        shell.bind((self._plan.ip, SHELL_PORT))
        shell.listen(_BACKLOG)
        self._watch(shell, lambda: self._accept_call(shell))

    @property
    def _socket_path(self) -> str:
        return f"{self._folder}/{FOLDER}/ranks"

    def _launch(self) -> None:
        """Starts the launcher, or the VM's ranks where there is none."""
        plan = self._plan
        if plan.launcher:
            self._run_launcher(plan.launcher)
        elif plan.launch == "each":
            start = f"{self._folder}/{FOLDER}/{RANK_START}"
            for number in range(plan.ranks):
                rank = plan.first_rank + number
                self._run_start((start, *plan.argv), rank)

    def _run_start(
        self,
        words: Sequence[str],
        rank: int,
    ) -> None:
        child = self._started(words, HOSENET_RANK=str(rank))

        def ended(output: ProgramOutput) -> None:
            # A rank that has come reports its end itself.
            if rank not in self._ranks:
                raise AgentFailure(_how("start", child.returncode, output))

        self._when_ended(child, "start", ended)

    def _run_launcher(self, words: Sequence[str]) -> None:
        name = words[0].rpartition("/")[2]
        child = self._started(words)
        self._at_work += 1

        def ended(output: ProgramOutput) -> None:
            self._at_work -= 1
            # One that ends well before its ranks has not started all of them.
            early = len(self._ended) < self._plan.ranks
            if child.returncode or early:
                raise AgentFailure(_how(name, child.returncode, output))

        self._when_ended(child, name, ended)

    def _started(
        self,
        words: Sequence[str],
        **variables: str,
    ) -> subprocess.Popen[bytes]:
        environment = self._environment() | variables
        child = start_piped(words, environment, self._folder)
        self._children.append(child)
        return child

    def _environment(self) -> dict[str, str]:
        path = os.environ.get("PATH", os.defpath)
        # Clients name `python`: the one that has Dask is the testbed's own.
        if self._plan.launch == "dask":
            path = f"{os.path.dirname(sys.executable)}:{path}"  # noqa: PTH120
        variables = {
            "PATH": path,
            "LANG": "C.UTF-8",
            "HOME": self._folder,
            "TMPDIR": self._folder,
            rank_start.SOCKET: self._socket_path,
            remote_shell.PORT: str(SHELL_PORT),
        }
        return variables | self._rank_variables()

    def _rank_variables(self) -> dict[str, str]:
        """The job's variables in this VM."""
        plan = self._plan
        return {
            "HOSENET_SIZE": str(plan.total),
            "HOSENET_IP": plan.ip,
            "HOSENET_PEERS": ",".join(plan.peers),
            **dict(plan.environment),
        }

    # -- ranks --------------------------------------------------------------------------------

    def _accept_rank(self, ranks: socket.socket) -> None:
        start, _ = ranks.accept()
        self._watch(start, lambda: self._take_rank(start))

    def _take_rank(self, start: socket.socket) -> None:
        """Reads the number that a rank's start sends first."""
        self._selector.unregister(start)
        text = start.recv(64)
        number = int(text) if text.strip().isdigit() else -1
        # Any process of the VM may call here: a rank that is there already
        # is not to be taken for another.
        is_new = number not in self._ranks
        if not (0 <= number < self._plan.total and is_new):
            start.close()
            return
        rank = self._ranks[number] = _Rank(number, start)
        self._watch(start, lambda: self._hear_rank(rank))
        if self._start_ns is not None:
            # One more than this VM was to have; it need not wait.
            self._release(rank)

    def _release(self, rank: _Rank) -> None:
        """Has a rank start, with its output to a pipe."""
        reading, writing = os.pipe()
        label = ""
        if self._plan.total > len(self._plan.peers):
            label = f"rank {rank.number}: "
        rank.output = ProgramOutput(reading, label, self._log, is_rank=True)
        self._watch_output(rank.output)
        # Launchers pass on the first VM's variables, or none.
        variables = self._rank_variables()
        variables["HOSENET_RANK"] = str(rank.number)
        variables["HOME"] = self._folder
        variables["TMPDIR"] = self._folder
        library = Path(self._folder, FOLDER, rank_waits.LIBRARY)
        if library.exists():
            variables.setdefault("LD_PRELOAD", str(library))
        text = json.dumps(variables).encode()
        # A rank that was killed meanwhile is noticed by its closed socket.
        with suppress(OSError):
            socket.send_fds(rank.start, [text], [writing])
        # The rank, or what it leaves running, is then the pipe's last writer.
        os.close(writing)

    def _hear_rank(self, rank: _Rank) -> None:
        """A rank has ended, or its start was killed with it."""
        self._selector.unregister(rank.start)
        end = _rank_end(rank)
        rank.start.close()
        self._ended.append(end)
        if rank.output is None:
            raise AgentFailure(f"rank {rank.number} ended before the start")
        rank.output.pass_on()
        rank.output.finish()
        if end.code:
            name = self._plan.argv[0].rpartition("/")[2]
            how = _how(name, end.code, rank.output)
            raise AgentFailure(f"rank {rank.number}: {how}")

    def _works(self) -> bool:
        """True until all ranks, the launcher and all calls have ended."""
        return len(self._ended) < len(self._ranks) or self._at_work > 0

    # -- the remote shell ---------------------------------------------------------------------

    def _accept_call(self, shell: socket.socket) -> None:
        caller, (address, _) = shell.accept()
        # Flows keep other tenants away; an application of somebody's own in
        # place of the controller may not.
        if address not in self._plan.peers:
            caller.close()
            return
        # The VM is not done while a launcher's helper, as orted, runs in it.
        self._at_work += 1
        session = _Session(caller)
        self._watch(caller, lambda: self._hear_caller(session))

    def _hear_caller(self, session: _Session) -> None:
        """Reads more of a request; ends the command of a caller who has gone."""
        data = b""
        with suppress(ConnectionError):
            data = session.caller.recv(65536)
        session.request += data
        if not data or len(session.request) > _REQUEST_LIMIT_BYTES:
            self._hang_up(session)
        elif session.child is None and session.request.endswith(b"\n"):
            try:
                command = str(json.loads(session.request)["command"])
            except (ValueError, KeyError, TypeError, RecursionError):
                # Any process of the job's VMs may call here.
                self._hang_up(session)
                return
            self._call(session, command)

    def _hang_up(self, session: _Session) -> None:
        """Ends the command of a caller who has gone, as sshd does: by SIGTERM,
        and GRACE_S later by SIGKILL. Dask's workers, for one, may get stuck
        while they close their connections.
        """
        self._selector.unregister(session.caller)
        if session.child is None:
            self._close(session)
            return
        # It closes the session when it has ended.
        with suppress(ProcessLookupError):
            os.killpg(session.child.pid, signal.SIGTERM)
        self._asked_to_end[session.child] = time.monotonic() + GRACE_S

    def _kill_overdue(self) -> None:
        """Kills commands whose time to end by themselves is over."""
        now_s = time.monotonic()
        for child, until_s in list(self._asked_to_end.items()):
            if child.returncode is not None:
                del self._asked_to_end[child]
            elif now_s > until_s:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                del self._asked_to_end[child]

    def _call(
        self,
        session: _Session,
        command: str,
    ) -> None:
        # By a shell, as sshd does it: launchers quote their words for one.
        child = session.child = self._started(("sh", "-c", command))

        def ended(_: ProgramOutput) -> None:
            code = child.returncode
            answer = code if code >= 0 else rank_start.SIGNAL_EXIT - code
            with suppress(OSError):
                session.caller.sendall(f"{answer}\n".encode())
            # One who has hung up is unregistered already.
            with suppress(KeyError):
                self._selector.unregister(session.caller)
            self._close(session)

        self._when_ended(child, "remote-shell", ended)

    def _close(self, session: _Session) -> None:
        session.caller.close()
        self._at_work -= 1

    # -- all of them --------------------------------------------------------------------------

    def _watch(
        self,
        what: socket.socket | int,
        act: Callable[[], object],
    ) -> None:
        self._selector.register(what, selectors.EVENT_READ, act)

    def _follow(
        self,
        child: subprocess.Popen[bytes],
        name: str,
    ) -> ProgramOutput:
        """Keeps the output of a process, under its name."""
        assert child.stdout is not None  # noqa: S101 - a pipe
        output = ProgramOutput(
            child.stdout.fileno(),
            f"{name}: ",
            self._log,
            is_rank=False,
        )
        self._watch_output(output)
        return output

    def _watch_output(self, output: ProgramOutput) -> None:
        def read() -> None:
            # A closed pipe stays readable: the selector would not wait again.
            if not output.pass_on():
                self._selector.unregister(output.descriptor)

        self._watch(output.descriptor, read)

    def _when_ended(
        self,
        child: subprocess.Popen[bytes],
        name: str,
        act: Callable[[ProgramOutput], object],
    ) -> None:
        """Keeps the output of a process, and acts on its end."""
        output = self._follow(child, name)
        handle = os.pidfd_open(child.pid)

        def ended() -> None:
            self._selector.unregister(handle)
            os.close(handle)
            child.wait()
            output.pass_on()
            act(output)

        self._watch(handle, ended)

    def _attend(self) -> None:
        """Waits for events, at most a period, and handles them."""
        self._kill_overdue()
        events = self._selector.select(self._plan.progress_every_s)
        for key, _ in events:
            # An earlier event may have ended what this one is of, and another
            # may have its descriptor by now.
            if self._selector.get_map().get(key.fd) is key:
                key.data()

    def _hear_channel(self) -> None:
        started_at_ns = self._channel.heard()
        if started_at_ns is not None:
            self._start_at_ns = started_at_ns


def _rank_end(rank: _Rank) -> RankEnd:
    """A rank's end as its start reports it; without a report it was killed."""
    words: list[bytes] = []
    with suppress(ConnectionError):
        words = rank.start.recv(64).split()
    now_ns = time.monotonic_ns()
    if len(words) != 2:
        return RankEnd(rank.number, -signal.SIGKILL, now_ns)
    # A rank's start is the job's own process: it cannot end in the future.
    end_ns = min(now_ns, int(words[1]))
    return RankEnd(rank.number, int(words[0]), end_ns)


def _how(
    name: str,
    code: int,
    output: ProgramOutput,
) -> str:
    """A sentence on how a process ended, with its last line."""
    last = output.last[-_TAIL_BYTES:].decode("utf-8", "replace")
    return ended_sentence(name, code, last)
