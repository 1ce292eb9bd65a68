from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.live.agent_protocol import AgentReport, ReceivedPayload
from jobs.live.command import CommandPlan
from jobs.live.compute import ComputePlan
from jobs.live.transfer_plan import (
    Incoming,
    Outgoing,
    TransferPlan,
    curve_after,
    phases,
)
from testbed.plan.agent_plans import remaining


def report(
    index: int, *received: tuple[int, int], cpu_s: float = 0.0
) -> AgentReport:
    flows = tuple(
        ReceivedPayload(peer, size, None, None) for peer, size in received
    )
    return AgentReport(
        index, 0, 1, flows, (), cpu_s, None, "terminated by signal 15"
    )


def ring(n: int, size: int) -> tuple[TransferPlan, ...]:
    return tuple(
        TransferPlan(
            i,
            f"10.0.4.{i + 1}",
            5001,
            (
                Outgoing(
                    (i + 1) % n, f"10.0.4.{(i + 1) % n + 1}", 5001, size
                ),
            ),
            (Incoming((i - 1) % n, size),),
        )
        for i in range(n)
    )


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=6))
def test_what_was_received_and_what_is_left_are_the_whole(
    received: list[int],
) -> None:
    n = len(received)
    plans = ring(n, 1000)
    reports = {
        i: report(i, ((i - 1) % n, size)) for i, size in enumerate(received)
    }
    rest = remaining(plans, reports)
    for i, size in enumerate(received):
        sender, receiver = rest[(i - 1) % n], rest[i]
        assert isinstance(sender, TransferPlan)
        assert isinstance(receiver, TransferPlan)
        assert sum(flow.size_bytes for flow in sender.sends) == 1000 - size
        assert (
            sum(flow.size_bytes for flow in receiver.receives)
            == 1000 - size
        )


def test_a_vm_that_never_reported_begins_anew() -> None:
    plans = ring(3, 1000)
    assert remaining(plans, {}) == plans


def paused(size: int, *steps: tuple[float, int]) -> TransferPlan:
    """The first plan of a ring of two, with a demand curve."""
    return replace(ring(2, size)[0], demand=steps)


def test_a_pause_in_which_nothing_was_sent_begins_anew() -> None:
    plan = paused(1000, (0.5, 0), (1.0, 8_000_000))
    assert plan.remaining(None, {}) == plan


@pytest.mark.parametrize("size", [999, 1000, 1001, 10**9 + 1])
def test_a_pause_between_two_bursts_begins_anew(size: int) -> None:
    """By whole bytes: the burst before it may end with half a byte more."""
    steps = ((0.3, 8_000_000), (0.6, 0), (1.0, 8_000_000))
    first, _, last = phases(size, steps)
    rest = paused(size, *steps).remaining(None, {(0, 1): first.size_bytes})
    assert rest.sends_bytes == last.size_bytes
    (pause_end, rate_bps), burst = rest.demand
    assert rate_bps == 0
    assert pause_end == pytest.approx(3 / 7)
    assert burst == (1.0, 8_000_000)


curves = st.lists(
    st.tuples(
        st.integers(1, 20), st.integers(0, 3).map(lambda k: k * 8_000_000)
    ),
    min_size=1,
    max_size=5,
).filter(lambda steps: any(rate for _, rate in steps))


@given(curves, st.floats(0, 0.999))
@example([(1, 8_000_000), (1, 0), (1, 8_000_000)], 0.5)
def test_the_rest_of_a_demand_curve_takes_what_was_left_of_its_time(
    widths: list[tuple[int, int]], share: float
) -> None:
    total_width = sum(width for width, _ in widths)
    ends, at = [], 0
    for width, rate in widths:
        at += width
        ends.append((1.0 if at == total_width else at / total_width, rate))
    total = 10_000_000
    sent = total - round(total * (1 - share))
    after = curve_after(tuple(ends), total, sent)
    assert after[-1][0] == 1.0
    whole_ns = sum(p.duration_ns for p in phases(total, ends))
    rest_ns = sum(p.duration_ns for p in phases(total - sent, after))
    # Walk the whole curve: the earliest time at which those bytes were sent.
    area = sum(width * rate for width, rate in widths)
    done, spent = 0, 0.0
    for width, rate in widths:
        left = sent - round(total * done / area)
        if left <= 0:
            break
        part = total * width * rate / area
        spent += width * min(1.0, left / part if rate else 1.0)
        done += width * rate
    assert abs(rest_ns / whole_ns - (1 - spent / total_width)) < 1e-3


def test_cpu_that_was_burnt_is_not_burnt_again() -> None:
    (rest,) = remaining([ComputePlan(0, 3.0)], {0: report(0, cpu_s=1.25)})
    assert isinstance(rest, ComputePlan)
    assert rest.cpu_s == 1.75


def test_new_addresses_reach_everything_that_names_one() -> None:
    ips = ["10.0.8.1", "10.0.8.2"]
    for i, plan in enumerate(each.readdressed(ips) for each in ring(2, 10)):
        assert isinstance(plan, TransferPlan)
        assert plan.ip == ips[i]
        assert [flow.ip for flow in plan.sends] == [ips[1 - i]]
    command = CommandPlan(0, "a", ("a", "b"), ("true",)).readdressed(ips)
    assert isinstance(command, CommandPlan)
    assert (command.ip, command.peers) == (ips[0], tuple(ips))
