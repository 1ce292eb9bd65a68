"""The end of a job, estimated from its agents' progress."""

from __future__ import annotations

import pytest

from jobs.live.agent_protocol import AgentProgress
from jobs.live.command import CommandPlan
from jobs.live.compute import ComputePlan
from jobs.live.transfer_plan import Incoming, TransferPlan
from testbed.backends.emu.live_job import SAMPLES, Pace

S = 1_000_000_000
NOBODY: frozenset[int] = frozenset()


def burns(index: int, cpu_s: float = 1.0) -> ComputePlan:
    return ComputePlan(index, cpu_s, 1.0)


def sample(
    index: int, at_s: float, cpu_s: float = 0.0, received: int = 0
) -> AgentProgress:
    return AgentProgress(index, round(at_s * S), received, 0, cpu_s)


def test_the_slowest_agent_decides() -> None:
    pace = Pace((burns(0), burns(1)))
    for at_s, first, second in ((10.0, 0.2, 0.1), (11.0, 0.4, 0.2)):
        pace.receive(sample(0, at_s, first))
        pace.receive(sample(1, at_s, second))
    # 0.2 a second with 0.6 to go, 0.1 a second with 0.8 to go.
    assert pace.end_ns(NOBODY) == pytest.approx(19 * S)
    assert pace.end_ns(frozenset({1})) == pytest.approx(14 * S)


def test_one_of_whom_nothing_is_known_leaves_it_open() -> None:
    pace = Pace((burns(0), burns(1)))
    pace.receive(sample(0, 10.0, 0.2))
    assert pace.end_ns(frozenset({1})) is None
    pace.receive(sample(0, 11.0, 0.2))
    assert pace.end_ns(frozenset({1})) is None  # it stands still
    pace.receive(sample(0, 12.0, 0.4))
    assert pace.end_ns(frozenset({1})) == pytest.approx(18 * S)
    assert pace.end_ns(NOBODY) is None


def test_speed_is_that_of_late() -> None:
    pace = Pace((burns(0, 10.0),))
    for step in range(20):
        pace.receive(
            sample(
                0,
                step,
                0.1 * step if step < 10 else 1.0 + 0.5 * (step - 10),
            )
        )
    # 5.5 of 10 at second 19, half a second's worth a second.
    assert pace.end_ns(NOBODY) == pytest.approx(28 * S)
    assert SAMPLES < 10


def test_transfers_by_what_they_received_and_commands_not_at_all() -> None:
    plan = TransferPlan(
        0, "10.0.4.1", 5001, (), (Incoming(1, 600), Incoming(2, 400))
    )
    pace = Pace((plan,))
    pace.receive(sample(0, 1.0, received=250))
    pace.receive(sample(0, 2.0, received=500))
    assert pace.end_ns(NOBODY) == pytest.approx(4 * S)
    runs = Pace((CommandPlan(0, "10.0.4.1", ("10.0.4.1",), ("true",), ()),))
    runs.receive(sample(0, 1.0, 1.0))
    assert runs.end_ns(NOBODY) is None
