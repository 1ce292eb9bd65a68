"""The iperf3 agent on the loopback interface."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.live.agent_protocol import AgentExited, AgentReport, Plan
from jobs.live.iperf3 import Iperf3Agent, Iperf3Plan, _sent
from tests.support.agent_watch import Watch, loopback_ips

pytestmark = pytest.mark.skipif(
    shutil.which("iperf3") is None, reason="there is no iperf3"
)

PORT = 21_000
SpawnAll = Callable[[Sequence[Plan]], list[str]]


def plan(
    index: int,
    ips: Sequence[str],
    sends: Sequence[int],
    receives: Sequence[int],
) -> Plan:
    peers = tuple((peer, ips[peer]) for peer in sends)
    return Iperf3Plan(
        index,
        ips[index],
        PORT,
        1,
        peers,
        tuple(receives),
        connect_timeout_s=5.0,
    )


@pytest.mark.slow
def test_what_the_servers_count_is_what_is_received(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    ips = loopback_ips(3)
    plans = [plan(k, ips, [(k + 1) % 3], [(k - 1) % 3]) for k in range(3)]
    reports = [
        outcome.report for outcome in watch.run_together(spawn_all(plans))
    ]
    for index, report in enumerate(reports):
        assert report.error is None
        (received,), (sent,) = report.received, report.sent
        assert (received.peer, sent.peer) == (
            (index - 1) % 3,
            (index + 1) % 3,
        )
        assert received.size_bytes > 0
        assert received.reported_bps == pytest.approx(
            8 * received.size_bytes, rel=0.1
        )  # in a second
        # A second from its sender's start on: its own may have been later.
        sender_ns = reports[received.peer].start_ns
        assert sender_ns is not None
        assert received.last_ns is not None
        assert received.last_ns - sender_ns > 0.99e9
        (counted,) = reports[sent.peer].received
        assert (
            sent.acknowledged_bytes == counted.size_bytes <= sent.size_bytes
        )
        assert report.congestion_control


@pytest.mark.slow
def test_the_reason_of_a_failure_is_iperf3s_own(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    (outcome,) = watch.run_together(
        spawn_all([plan(0, loopback_ips(2), [1], [])])
    )
    assert outcome.report.error is not None
    assert outcome.report.error.startswith("iperf3 client for VM 1: ")
    assert "onnect" in outcome.report.error
    assert outcome.report.sent == ()


@pytest.mark.slow
def test_an_address_that_is_not_the_vms_is_reported_before_the_start(
    watch: Watch, spawn_all: SpawnAll
) -> None:
    names = spawn_all([plan(0, ["192.0.2.1", "192.0.2.2"], [], [1])])
    (outcome,) = watch.until(names, AgentExited)
    assert outcome.report.error is not None
    assert outcome.report.error.startswith(
        "iperf3 server for VM 1: error - unable to start"
    )
    assert outcome.report.start_ns is None


@pytest.mark.parametrize(
    ("seconds", "counted", "omitted"), [(1, 1, 0), (2, 1, 1), (5, 4, 1)]
)
def test_the_first_second_does_not_count_unless_it_is_the_only_one(
    seconds: int, counted: int, omitted: int
) -> None:
    agent = Iperf3Agent(
        Iperf3Plan(1, "10.0.4.2", 5001, seconds, (), ()), cast(Any, None)
    )
    options = agent._client("10.0.4.1")
    given = {
        name: options[options.index(name) + 1]
        for name in ("--time", "--omit", "--port")
    }
    assert given == {
        "--time": str(counted),
        "--omit": str(omitted),
        "--port": "5002",
    }


@pytest.mark.parametrize(
    ("told", "size"), [(1_147_019_264, 1_147_027_456), (2 << 30, 2 << 30)]
)
def test_no_less_is_sent_than_arrived(told: int, size: int) -> None:
    """iperf3 3.18's own words: 1,147,019,264 sent, and 1,147,027,456 received."""
    client = SimpleNamespace(peer=1, end_ns=5)
    received = {"bytes": 1_147_027_456}
    client.result = {
        "end": {"sum_sent": {"bytes": told}, "sum_received": received}
    }
    sent = _sent(cast(Any, client))
    assert (sent.size_bytes, sent.acknowledged_bytes) == (
        size,
        1_147_027_456,
    )


def test_a_plan_moves_and_is_divided_by_time() -> None:
    one = Iperf3Plan(1, "10.0.4.2", 5001, 4, ((0, "10.0.4.1"),), (0, 2))
    there = one.readdressed(["10.0.5.1", "10.0.5.2", "10.0.5.3"])
    assert (there.ip, there.sends) == ("10.0.5.2", ((0, "10.0.5.1"),))
    assert one.remaining(None, {}) == one
    for ran_s, left in ((0.5, 4), (1.2, 3), (9.0, 1)):
        report = AgentReport(1, 7 * 10**9, round((7 + ran_s) * 1e9))
        assert one.remaining(report, {}).seconds == left
