"""The fork server in this process: callers that go, and forks that fail."""

from __future__ import annotations

import gc
import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.live.agent_protocol import AgentRefused, SpawnRequest
from jobs.live.compute import ComputePlan
from jobs.live.forkserver import ForkServer


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The caller's end and the server's."""
    caller, server = socket.socketpair(
        socket.AF_UNIX, socket.SOCK_SEQPACKET
    )
    with caller, server:
        yield caller, server


def test_a_caller_that_goes_with_answers_unread_ends_the_server(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    caller, server = ends
    server.send(b"an answer")
    caller.close()
    ForkServer(server).serve()


def test_a_fork_that_fails_is_answered_and_leaves_no_file_open(
    ends: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_fork() -> int:
        raise BlockingIOError("no processes are left")

    caller, server = ends
    plan = ComputePlan(0, cpu_s=1.0, share=0.5)
    request = SpawnRequest("vm0", plan, 1, 1, log=str(tmp_path / "log"))
    packet = pickle.dumps(request)
    monkeypatch.setattr(os, "fork", no_fork)
    fork_server = ForkServer(server)
    # Files of other tests that nobody holds any more are closed first, not in
    # between.
    gc.collect()
    before = set(Path("/proc/self/fd").iterdir())
    socket.send_fds(caller, [packet], [caller.fileno()])
    fork_server._handle()
    answer = pickle.loads(caller.recv(1 << 16))  # noqa: S301 - of this process
    assert answer == ("vm0", AgentRefused("no processes are left"))
    # A thread of an earlier test may close one meanwhile.
    assert set(Path("/proc/self/fd").iterdir()) <= before


def test_an_agent_whose_channel_did_not_arrive_is_refused(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """As where the server has as many open files as it may."""
    caller, server = ends
    plan = ComputePlan(0, cpu_s=1.0, share=0.5)
    caller.send(pickle.dumps(SpawnRequest("vm0", plan, 1, 1)))
    ForkServer(server)._handle()
    answer = pickle.loads(caller.recv(1 << 16))  # noqa: S301 - of this process
    assert answer == ("vm0", AgentRefused("too many open files"))
