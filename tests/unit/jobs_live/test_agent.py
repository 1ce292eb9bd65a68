"""The end of an agent: always with a report, whatever happens and whenever it is stopped."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from pydantic import TypeAdapter

from jobs.live.agent import (
    TERMINATING,
    Agent,
    AgentFailure,
    Channel,
    Terminated,
    run_to_report,
    terminate,
    wait_for_start,
)
from jobs.live.agent_protocol import (
    AgentMessage,
    AgentProgress,
    AgentReport,
    Ready,
)
from jobs.live.connections import (
    _SO_MAX_PACING_RATE,
    Receiving,
    Sending,
)
from jobs.live.transfer import TransferAgent
from jobs.live.transfer_plan import Incoming, Outgoing, TransferPlan


def decode(line: bytes) -> AgentMessage:
    decoder: TypeAdapter[AgentMessage] = TypeAdapter(AgentMessage)
    return decoder.validate_json(line)


class Scripted(Agent):
    """An agent that does what the test says."""

    def __init__(
        self,
        run: Callable[[], None],
        before_report: Callable[[], None] = lambda: None,
    ) -> None:
        self._run, self._before_report = run, before_report

    def run(self) -> None:
        self._run()

    def report(self, error: str | None) -> AgentReport:
        self._before_report()
        return AgentReport(0, None, 1, (), (), 0.0, None, error)


def fail(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def stop_me() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def fail_while_stopped() -> None:
    try:
        raise AgentFailure("first")
    finally:
        stop_me()


def life_of(agent: Scripted) -> tuple[int, AgentReport]:
    """Run the agent in a process of its own; its exit code and its report."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            ours.close()
            for signum in TERMINATING:
                signal.signal(signum, terminate)
            code = run_to_report(agent, Channel(theirs))
        finally:
            os._exit(code)
    theirs.close()
    with ours:
        ours.settimeout(60)
        line = b""
        while data := ours.recv(65536):
            line += data
    _, status = os.waitpid(pid, 0)
    report = decode(line)
    assert isinstance(report, AgentReport)
    return os.waitstatus_to_exitcode(status), report


@pytest.mark.parametrize(
    ("agent", "code", "reason"),
    [
        (Scripted(lambda: None), 0, None),
        (Scripted(fail(AgentFailure("VM 3 is gone"))), 1, "VM 3 is gone"),
        (Scripted(fail(OSError("no route"))), 1, "no route"),
        (
            Scripted(fail(ZeroDivisionError("by 0"))),
            1,
            "ZeroDivisionError: by 0",
        ),
        (Scripted(fail(Terminated(15))), 143, "terminated by signal 15"),
        (Scripted(stop_me), 143, "terminated by signal 15"),
        (Scripted(fail_while_stopped), 143, "terminated by signal 15"),
        # Too late to change anything: the work was done, or had failed, before.
        (Scripted(lambda: None, stop_me), 0, None),
        (Scripted(fail(AgentFailure("gone")), stop_me), 1, "gone"),
        (Scripted(stop_me, stop_me), 143, "terminated by signal 15"),
    ],
)
def test_every_end_is_reported(
    agent: Scripted, code: int, reason: str | None
) -> None:
    exit_code, report = life_of(agent)
    assert (exit_code, report.error) == (code, reason)


class SignalledSocket:
    """A socket during whose reading SIGTERM comes."""

    def recv_into(self, into: memoryview) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return len(into)


@pytest.fixture
def terminated() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in TERMINATING}
    for number in TERMINATING:
        signal.signal(number, terminate)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("terminated")
def test_what_was_read_is_counted_before_a_signal_ends_the_agent() -> None:
    """Up to a megabyte was lost, and sent again, when jobs moved."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        plan = TransferPlan(0, ip="", port=1, sends=(), receives=())
        receiver = TransferAgent(plan, Channel(ours))
        signalled = cast("socket.socket", SignalledSocket())
        flow = Receiving(Incoming(1, 100_000), signalled)
        receiver._into = receiver._into[:70_000]
        flow.wake_bytes = 0
        with pytest.raises(Terminated, match="terminated by signal 15"):
            receiver._receive(flow)
        assert flow.received_bytes == 70_000
        # None is left for later.
        terminate.release()
        receiver._connections.close()
        receiver._selector.close()


@pytest.fixture
def line() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(60)
        yield Channel(theirs), ours


def test_the_start_comes_from_the_caller(
    line: tuple[Channel, socket.socket],
) -> None:
    channel, caller = line
    caller.sendall(b"12")
    assert channel.heard() is None
    caller.sendall(b"34\n")
    assert wait_for_start(channel) > 1234


def test_a_caller_that_is_gone_is_noticed(
    line: tuple[Channel, socket.socket],
) -> None:
    channel, caller = line
    caller.close()
    with pytest.raises(
        ConnectionError, match="the caller closed the channel"
    ):
        wait_for_start(channel)
    with pytest.raises(
        ConnectionError, match="the caller closed the channel"
    ):
        channel.say(Ready(0, 1))


@pytest.mark.slow
def test_a_caller_that_does_not_read_costs_samples_but_not_the_report(
    line: tuple[Channel, socket.socket],
) -> None:
    channel, caller = line
    # A live network raises the default while it is up.
    channel._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    for i in range(20_000):
        channel.say(AgentProgress(0, i, i, i, 0.0))
    pid = os.fork()
    if pid == 0:
        caller.close()
        channel.finish_with(
            AgentReport(0, None, 1, (), (), 0.0, None, None), timeout_s=60
        )
        os._exit(0)
    channel._sock.close()
    output = b""
    while data := caller.recv(1 << 20):
        output += data
    os.waitpid(pid, 0)
    messages = [decode(text) for text in output.splitlines()]
    samples = [m.at_ns for m in messages if isinstance(m, AgentProgress)]
    assert isinstance(messages[-1], AgentReport)
    assert samples == list(range(len(samples)))
    assert 100 < len(samples) < 20_000


def test_a_channel_brings_the_start_and_other_rates() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs)
        assert channel.heard() is None
        ours.send(b"77")
        assert channel.heard() is None
        ours.send(b"7\nrate 5000\nra")
        assert channel.heard() == 777
        assert channel.rate_bps == 5000
        ours.send(b"te 6000\n")
        assert channel.heard() is None
        assert channel.rate_bps == 6000


def test_the_rate_of_a_flow_that_ends_is_the_others(
    line: tuple[Channel, socket.socket],
) -> None:
    """Also where its acknowledgement comes before the kernel tells that all of
    it is sent, and it is not the first.
    """
    plan = TransferPlan(
        0, ip="", port=1, sends=(), receives=(),
        at_once=True, rate_bps=24_000_000,
    )  # fmt: skip
    agent = TransferAgent(plan, line[0])
    for peer in (1, 2, 3):
        agent._connections.sendings.append(
            Sending(Outgoing(peer, "", 1, size_bytes=9), socket.socket())
        )
    agent._prepare()
    first, ended, last = agent._connections.sendings
    ended.sent_bytes = 9
    ended.answer = struct.pack("!QQQ", 9, 1, 2)
    agent._conclude(ended)
    agent._watch_sending()
    for sending in (first, last):
        paced = sending.sock.getsockopt(
            socket.SOL_SOCKET, _SO_MAX_PACING_RATE
        )
        assert paced == 24_000_000 / 8 / 2
    agent._connections.close()
    agent._selector.close()


def test_an_early_report_comes_however_late_the_caller_reads(
    line: tuple[Channel, socket.socket],
) -> None:
    channel, caller = line
    while len(channel._pending) < 65_536:
        channel.say(AgentProgress(0, 1, 1, 1, 0.0))
    agent = Scripted(lambda: None)
    agent._channel = channel
    agent._report_early()
    output = b""
    # As a program's agent, which says nothing more.
    while channel._pending:
        output += caller.recv(1 << 20)
        channel.send_rest()
    caller.settimeout(0)
    while not output.endswith(b"\n") or b"end_ns" not in output[-200:]:
        output += caller.recv(1 << 20)
    assert isinstance(decode(output.splitlines()[-1]), AgentReport)
