"""The fork server: a process that starts agents by forking itself.

A new Python takes some 100 ms to start; a fork of one that has the agents' code
in memory takes a millisecond. The server holds the socket to its caller and a
process handle per agent. On request it starts an agent, or sends one a signal; it
acts on its own children alone. It does not outlive its caller: agents, server
and caller are tied by parent-death signals and by the ends of their sockets.

Started as ``python -m jobs.live.forkserver FD PARENT_PID``
by :class:`jobs.live.agent_pool.AgentPool`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import selectors
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from fcntl import F_DUPFD, fcntl
from typing import Any

from jobs import linux
from jobs.call_filter import pack_filter, refuse_calls
from jobs.inherited_settings import drop_inherited_settings
from jobs.live.agent import (
    EXIT_FAILED,
    TERMINATING,
    Agent,
    Channel,
    run_to_report,
    terminate,
)
from jobs.live.agent_protocol import (
    PACKET_LIMIT_BYTES,
    AgentExited,
    AgentRefused,
    AgentReport,
    AgentStarted,
    ForkServerReply,
    Plan,
    SignalRequest,
    SpawnRequest,
)
from jobs.live.command import CommandAgent, CommandPlan
from jobs.live.compute import ComputeAgent, ComputePlan
from jobs.live.iperf3 import Iperf3Agent, Iperf3Plan
from jobs.live.program import ProgramAgent
from jobs.live.program_plan import ProgramPlan
from jobs.live.transfer import TransferAgent
from jobs.live.transfer_plan import TransferPlan
from jobs.mapped_folders import give_callers_folders
from jobs.vm_folders import OWN_MOUNTS, enter_mounts, replace_machines
from jobs.vm_names import (
    ACCOUNTS,
    accounts_text,
    hosts_text,
    machines_hosts,
    name_vm,
)
from jobs.vm_processes import own_processes

AGENTS: dict[type[Plan], Callable[[Any, Channel], Agent]] = {
    TransferPlan: TransferAgent,
    ComputePlan: ComputeAgent,
    CommandPlan: CommandAgent,
    Iperf3Plan: Iperf3Agent,
    ProgramPlan: ProgramAgent,
}
"""The agent of each kind of plan."""

_REAP_TIMEOUT_S = 5.0
"""The longest time for which an ending server waits for agents that it killed."""


class ForkServer:
    """Serves one caller on one SOCK_SEQPACKET socket until it closes."""

    def __init__(self, caller: socket.socket) -> None:
        self._caller = caller
        # Process handles (pidfd) by the agents' names.
        self._children: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()
        self._open = True

    def serve(self) -> None:
        """Handles requests and reports exits until the caller's socket ends."""
        self._selector.register(self._caller, selectors.EVENT_READ)
        try:
            while self._open:
                for key, _ in self._selector.select():
                    # An agent's handle has the agent's name, the caller's
                    # socket has none.
                    if key.data is None:
                        self._handle()
                    else:
                        self._reap(key.data)
        finally:
            self._end_children()

    def _handle(self) -> None:
        """Reads one packet and carries it out; an empty one ends the server."""
        try:
            packet, fds, _, _ = socket.recv_fds(
                self._caller, PACKET_LIMIT_BYTES, 1
            )
        except ConnectionResetError:
            # The caller has gone with replies unread.
            self._open = False
            return
        try:
            if not packet:
                self._open = False
                return
            request = pickle.loads(packet)  # noqa: S301 - of the process that started this one
            if isinstance(request, SignalRequest):
                self._signal(request)
            elif reason := self._refusal(request):
                self._answer(request.id, AgentRefused(reason))
            elif not fds:
                # The kernel drops a descriptor that this process has no room
                # for.
                self._answer(
                    request.id, AgentRefused("too many open files")
                )
            else:
                self._spawn(request, fds[0])
        finally:
            for fd in fds:
                os.close(fd)

    def _refusal(self, request: SpawnRequest) -> str | None:
        if request.id in self._children:
            return "an agent of this name is running"
        if os.geteuid() == 0 and 0 in (request.uid, request.gid):
            return "agents do not run as root; give the uid and gid of an ordinary account"
        return None

    def _spawn(self, request: SpawnRequest, channel_fd: int) -> None:
        with contextlib.ExitStack() as stack:
            try:
                log_fd = _open_log(request)
                stack.callback(os.close, log_fd)
                pid = os.fork()
            except OSError as error:
                self._answer(request.id, AgentRefused(str(error)))
                return
            if pid == 0:
                _become_agent(request, channel_fd, log_fd, os.getppid())
        # The number is still this child's, even if it has ended: nobody has
        # waited for it.
        pidfd = os.pidfd_open(pid)
        self._children[request.id] = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, request.id)
        self._answer(request.id, AgentStarted(pid))

    def _signal(self, request: SignalRequest) -> None:
        pidfd = self._children.get(request.id)
        if pidfd is None:
            self._answer(
                request.id, AgentRefused("no agent of this name is running")
            )
            return
        # By handle: the process's number could have been reused.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, request.signum)

    def _reap(self, agent_id: str) -> None:
        """Reports the end of an agent."""
        pidfd = self._children.pop(agent_id)
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        assert result is not None  # noqa: S101 - without WNOHANG
        answer = AgentExited(signum=result.si_status)
        if result.si_code == os.CLD_EXITED:
            answer = AgentExited(code=result.si_status)
        self._answer(agent_id, answer)

    def _end_children(self) -> None:
        """Kills agents that still run. A frozen one dies when it is thawed."""
        for pidfd in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        end_s = time.monotonic() + _REAP_TIMEOUT_S
        self._selector.unregister(self._caller)
        while self._children and time.monotonic() < end_s:
            for key, _ in self._selector.select(end_s - time.monotonic()):
                self._reap(key.data)

    def _answer(self, agent_id: str, answer: ForkServerReply) -> None:
        # The end of the caller is noticed by reading its socket.
        with contextlib.suppress(ConnectionError):
            self._caller.send(pickle.dumps((agent_id, answer)))


def _open_log(request: SpawnRequest) -> int:
    """Opens an agent's log. Raises OSError unless it is a plain file.

    The folder may be another user's, who could put a link or a pipe there.
    """
    if request.log is None:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    # O_NONBLOCK: to open a pipe fails at once then, and does not wait for a
    # reader.
    flags = (
        os.O_WRONLY
        | os.O_CREAT
        | os.O_APPEND
        | os.O_NOFOLLOW
        | os.O_CLOEXEC
        | os.O_NONBLOCK
    )
    fd = os.open(request.log, flags, 0o600)
    status = os.fstat(fd)
    # With a second link it could be somebody else's file, into which the
    # agent would write.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(fd)
        raise OSError(f"log {request.log} is not a plain file of its own")
    os.fchmod(fd, 0o600)
    os.fchown(fd, os.getuid(), os.getgid())
    return fd


def _become_agent(
    request: SpawnRequest,
    channel_fd: int,
    log_fd: int,
    server_pid: int,
) -> None:
    """Makes this forked process an agent in its VM. Never returns."""
    code = EXIT_FAILED
    try:
        channel = Channel(_take_descriptors(channel_fd, log_fd))
        for signum in TERMINATING:
            signal.signal(signum, terminate)
        code = _work(request, server_pid, channel)
    except BaseException as error:  # noqa: BLE001 - nothing may get back into the server's loop
        line = f"agent {request.id}: {type(error).__name__}: {error}\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())
    finally:
        os._exit(code)


def _take_descriptors(channel_fd: int, log_fd: int) -> socket.socket:
    """Closes all of the server's descriptors but the log and the channel.

    Standard input is empty, output and errors go to the log; the channel, which
    is returned, becomes descriptor 3.
    """
    null_fd = os.open(os.devnull, os.O_RDONLY)
    # First to numbers above the targets 0 to 3, so that no dup2 overwrites
    # what is still to be copied.
    high = [
        fcntl(fd, F_DUPFD, 4)
        for fd in (null_fd, log_fd, log_fd, channel_fd)
    ]
    for target, source in enumerate(high):
        os.dup2(source, target)
    # With other agents' handles an agent could signal those, with the
    # caller's socket read its requests.
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    return socket.socket(fileno=3)


def _work(
    request: SpawnRequest,
    server_pid: int,
    channel: Channel,
) -> int:
    """Runs an agent in its VM, without privileges; returns its exit code.

    A failure to get there is reported as the agent's.
    """
    try:
        _enter(request)
        # Still as root: it opens sockets, for which users may not choose
        # every congestion control.
        agent = AGENTS[type(request.plan)](request.plan, channel)
        _give_up_root(request, server_pid)
    except (OSError, ArithmeticError) as error:
        report = AgentReport(
            index=request.plan.index,
            start_ns=None,
            end_ns=time.monotonic_ns(),
            error=str(error),
        )
        channel.finish_with(report)
        return EXIT_FAILED
    return run_to_report(agent, channel)


def _enter(request: SpawnRequest) -> None:
    """Enters the VM's processors, control groups, namespaces and mounts.

    Root's privileges are needed for all of it.
    """
    if os.geteuid() == 0:
        # Before a program's own /proc is mounted, which lacks this process.
        drop_inherited_settings()
    if request.cpus:
        os.sched_setaffinity(0, request.cpus)
    for path in request.cgroups:
        _join_cgroup(path)
    if request.netns is not None:
        linux.enter_network_namespace(request.netns)
    if request.folder:
        _enter_folders(request)
        _hide_processes(request)
    elif request.shared_bytes:
        linux.own_mounts()
        linux.own_shared_memory(request.shared_bytes)
        linux.show_own_queues()


def _enter_folders(request: SpawnRequest) -> None:
    """Mounts the VM's folders and names in place of the machine's."""
    enter_mounts(request.folder, request.shared_bytes, OWN_MOUNTS)
    # Before the VM's folders are mounted: some of the caller's are in /tmp,
    # which they hide.
    if request.caller is not None:
        give_callers_folders(request.shown, request.caller, request.uid)
    if isinstance(request.plan, CommandPlan):
        _give_names(request, request.plan)
    # Last, as this hides /run, and with it the VM's own folder.
    replace_machines(request.folder, request.shown)


def _hide_processes(request: SpawnRequest) -> None:
    """Hides other VMs' processes: by a PID namespace, or in /proc alone."""
    if isinstance(request.plan, ProgramPlan) and own_processes(
        request.uid, request.gid
    ):
        return
    if linux.hides_processes():
        with contextlib.suppress(OSError):
            linux.hide_processes()


def _give_names(request: SpawnRequest, plan: CommandPlan) -> None:
    hosts = hosts_text(machines_hosts(), plan.job, plan.peers)
    accounts = accounts_text(
        ACCOUNTS.read_text("utf-8", "replace"),
        request.uid,
        request.gid,
        plan.home,
    )
    name_vm(request.folder, plan.index, hosts, accounts)


def _give_up_root(
    request: SpawnRequest,
    server_pid: int,
) -> None:
    """Gives up root for good, and has this process end with the server."""
    if os.geteuid() == 0:
        os.setgroups([])
    os.setresgid(request.gid, request.gid, request.gid)
    os.setresuid(request.uid, request.uid, request.uid)
    # From here on programs that change their user (sudo) gain nothing. Without
    # this a user may set no filter.
    linux.set_no_new_privileges()
    refuse_calls()
    # After the change of user, which clears it.
    linux.set_parent_death_signal(signal.SIGKILL)
    # The server may have died before the signal was set.
    if os.getppid() != server_pid:
        os._exit(EXIT_FAILED)


def _join_cgroup(path: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            # 0 is the writer itself, in both versions of control groups.
            os.write(fd, b"0")
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(
            f"cannot join cgroup {path}: {error.strerror}"
        ) from None


def main(arguments: list[str]) -> int:
    """Serves on the inherited socket until the caller is gone."""
    fd, parent_pid = map(int, arguments)
    linux.set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != parent_pid:
        return EXIT_FAILED
    # Ctrl-C reaches every process of the foreground group: the caller ends
    # this one when it cleans up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pack_filter()
    # Frozen objects are not touched by collections in the forks, which would
    # copy their pages.
    gc.collect()
    gc.freeze()
    os.umask(0o077)
    with socket.socket(fileno=fd) as caller:
        caller.set_inheritable(False)
        ForkServer(caller).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
