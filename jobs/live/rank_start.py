"""A rank's start in its VM: a script of the standard library alone.

A launcher (mpirun, or the VM's agent) starts it in place of the rank, with the
rank's command as its arguments. It tells the agent that the rank is there,
waits for the common start of all ranks, runs the command with the output that
the agent gives it, and tells the agent how the command has ended.
"""

import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import NamedTuple

SOCKET = "HOSENET_LAUNCHER"
RANKS = (
    "HOSENET_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
)
"""Variables with the rank's number, of the agents, Open MPI, and MPICH."""
SIGNAL_EXIT = 128
NOT_RUN = 127


def main(words: list[str]) -> int:
    """Runs the rank ``words``; its exit code, as shells count."""
    agent = connected()
    start = awaited(agent)
    if start is None:
        return NOT_RUN
    # A fork: the launcher watches this process, which sees the rank's end at
    # once and reports it.
    child = os.fork()
    if child == 0:
        take(start)
        _become(words)
    # The output ends when its last writer, the rank, has closed it.
    os.close(start.output)
    return watched(child, agent)


class RankStart(NamedTuple):
    """The pipe and the variables that the agent gives a rank at its start."""

    output: int
    variables: dict[str, str]


def connected() -> socket.socket:
    """A connection with the VM's agent."""
    # By a path and not by a port: ranks of other users or VMs cannot reach
    # it.
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    agent.connect(os.environ[SOCKET])
    return agent


def awaited(agent: socket.socket) -> RankStart | None:
    """Tells that the rank has come, and waits for the start; None where the
    agent hangs up: it has ended, or has this rank already.
    """
    rank = next(os.environ[name] for name in RANKS if name in os.environ)
    agent.sendall(f"{rank}\n".encode())
    data, outputs, _, _ = socket.recv_fds(agent, 65536, 1)
    if not data:
        return None
    return RankStart(outputs[0], json.loads(data))


def take(start: RankStart) -> None:
    """Gives this process, the rank's, its output and variables."""
    os.dup2(start.output, 1)
    os.dup2(start.output, 2)
    os.close(start.output)
    os.environ.update(start.variables)
    # Programs that the rank starts are no ranks: they find no agent.
    os.environ.pop(SOCKET)


def watched(
    child: int,
    agent: socket.socket,
) -> int:
    """Tells the agent how the rank's process ends; its exit code."""
    _pass_on_signals(child)
    _, status = os.waitpid(child, 0)
    end_ns = time.monotonic_ns()
    code = os.waitstatus_to_exitcode(status)
    agent.sendall(f"{code} {end_ns}\n".encode())
    return code if code >= 0 else SIGNAL_EXIT - code


def _pass_on_signals(child: int) -> None:
    """Passes a launcher's signals on to the rank. This process stays, to report
    the rank's end.
    """

    def pass_on(signum: int, _: FrameType | None) -> None:
        # The rank may have ended, with its end not yet reported.
        with suppress(ProcessLookupError):
            os.kill(child, signum)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, pass_on)


def _become(words: list[str]) -> None:
    """In the child: the rank's command in place of this script."""
    # Python ignores SIGPIPE, and the command would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(words[0], words)  # noqa: S606 - in place of this script
    except OSError as error:
        message = f"cannot run {words[0]!r}: {error.strerror}\n"
        os.write(2, message.encode())
    os._exit(NOT_RUN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
