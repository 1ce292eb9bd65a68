"""Traffic against its rate, but for the times that the experiment disturbs."""

from __future__ import annotations

from math import inf, nan

import pytest

from testbed.plan.counted_traffic import (
    NONE,
    SETTLES_S,
    Arrival,
    Counted,
    CurveStep,
    HeldUp,
    LinkUse,
    disturbance,
    due_s,
)

RATE_BPS = 8_000_000
SECOND_BYTES = 1_000_000


def after(shares: list[float], from_s: float, outage_s: float) -> Counted:
    """A limiter's second by second shares of its rate, disturbed at an instant."""
    counted = Counted(0.0, 0, RATE_BPS)
    sent_bytes = 0
    for second, share in enumerate(shares, start=1):
        sent_bytes += round(share * SECOND_BYTES)
        disturbed = NONE
        if second > from_s:
            disturbed = disturbance(from_s, outage_s)
        counted.take(second, sent_bytes, RATE_BPS, disturbed)
    return counted


def lack_s(counted: Counted) -> float:
    return counted.seconds(counted.lack_bits)


def test_what_a_disturbance_takes_is_no_lack() -> None:
    counted = after([1, 0.4, 0.2, 1, 1], from_s=1.5, outage_s=1.0)
    assert lack_s(counted) == 0
    assert (counted.watched_s, counted.disturbed_s) == (3.0, 2.0)


def test_a_lack_after_traffic_is_at_its_rate_again_counts() -> None:
    counted = after([1, 0.4, 1, 0.5, 1], from_s=1.5, outage_s=9.0)
    assert lack_s(counted) == pytest.approx(0.5)
    assert counted.disturbed_s == 1.0


def test_a_disturbance_excuses_no_longer_than_tcp_needs() -> None:
    shares = [1.0] + [0.0] * 9
    counted = after(shares, from_s=1.5, outage_s=2.0)
    assert counted.disturbed_s == pytest.approx(1.0 + 2.0 + SETTLES_S)
    assert lack_s(counted) == pytest.approx(5.0)


def test_a_job_that_is_cut_lacks_nothing_until_it_is_reconnected() -> None:
    cut = disturbance(1.5, inf)
    failure = disturbance(3.0, 0.1)
    reconnected = cut.followed_by(disturbance(9.0, 7.5))
    assert reconnected.until_s == 16.5 + SETTLES_S
    # A failure elsewhere does not end the time that it takes to come back.
    later = reconnected.followed_by(
        failure._replace(from_s=10.0, until_s=11.1)
    )
    assert (later.from_s, later.until_s) == (10.0, reconnected.until_s)


def test_the_last_bytes_count_from_when_the_disturbance_is_over() -> None:
    late = Arrival(7.0 * RATE_BPS, 8.0)
    assert after([1] * 5, 9.0, 0.0).tail_lack(late) == RATE_BPS
    counted = after([1] * 5, 9.0, 0.0)
    assert counted.tail_lack(late, disturbance(5.5, 0.0)) == 0
    assert counted.tail_lack(late, disturbance(3.5, 0.0)) == RATE_BPS


def test_lack_is_told_in_time_at_the_mean_of_several_rates() -> None:
    counted = Counted(0.0, 0, RATE_BPS)
    counted.take(1.0, SECOND_BYTES, RATE_BPS // 4)
    counted.take(5.0, 2 * SECOND_BYTES, RATE_BPS // 4)
    assert lack_s(counted) == 0
    assert counted.seconds(2 * RATE_BPS) == pytest.approx(5.0)


# Two seconds at a quarter of the rate, a pause, three seconds at all of it.
CURVE = (
    CurveStep(0.5 * RATE_BPS, 2.0),
    CurveStep(0.0, 1.0),
    CurveStep(3.0 * RATE_BPS, 3.0),
    CurveStep(0.0, 2.0),
)
ALL_BITS = 3.5 * RATE_BPS


@pytest.mark.parametrize(
    ("share", "at_s"),
    [
        (0.0, 0.0),
        (0.25 / 3.5, 1.0),
        (0.5 / 3.5, 2.0),
        (2.0 / 3.5, 4.5),
        (1.0, 6.0),
    ],
)
def test_when_a_share_of_a_curve_is_due(share: float, at_s: float) -> None:
    assert due_s(CURVE, share) == pytest.approx(at_s)


@pytest.mark.parametrize("fast_share", [1.0, 0.95, 0.5])
def test_a_phase_that_is_sent_too_slowly_puts_a_curve_behind(
    fast_share: float,
) -> None:
    """By the time that its traffic takes longer, and by nothing else."""
    counted = Counted(100.0, 0, RATE_BPS)
    counted.take(102.0, SECOND_BYTES // 2, RATE_BPS)
    counted.take(103.0, SECOND_BYTES // 2, RATE_BPS)
    in_time = SECOND_BYTES // 2 + round(2 * fast_share * SECOND_BYTES)
    counted.take(105.0, in_time, RATE_BPS)
    ended_s = 103.0 + 3.0 / fast_share
    behind_s, tail_s = counted.behind_s(
        CURVE, 100.0, Arrival(ALL_BITS, ended_s)
    )
    assert behind_s == pytest.approx(3.0 / fast_share - 3.0)
    left_s = 3.0 - 2.0 * fast_share
    assert tail_s == pytest.approx(left_s / fast_share - left_s)


def test_a_curve_s_last_packet_that_comes_late_is_behind() -> None:
    counted = Counted(0.0, 0, RATE_BPS)
    counted.take(5.5, 3 * SECOND_BYTES, RATE_BPS)
    behind_s, tail_s = counted.behind_s(CURVE, 0.0, Arrival(ALL_BITS, 7.2))
    assert behind_s == pytest.approx(1.2)
    assert tail_s == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("sent", "lack"), [(1.0, 0.0), (0.9, 0.1), (0.3, 0.5)]
)
def test_a_full_link_holds_a_vm_up_by_design(
    sent: float, lack: float
) -> None:
    """A VM gets half of its cap behind a link that sends a share of its rate."""
    link = LinkUse(0.0, 0, RATE_BPS)
    vm = HeldUp()
    vm.take(1.0, 0.5, [link])
    assert vm.watched_s == 0.0
    for second in (1, 2):
        link.take(second, round(sent * second * SECOND_BYTES), RATE_BPS)
        vm.take(1.0, 0.5, [link])
    assert vm.watched_s == 2.0
    assert vm.lack == pytest.approx(lack)


def test_a_count_beside_a_link_of_another_time_says_nothing() -> None:
    link = LinkUse(0.0, 0, RATE_BPS)
    link.take(1.0, SECOND_BYTES, RATE_BPS)
    vm = HeldUp()
    vm.take(0.5, 0.2, [link])
    vm.take(1.0, 0.2, [None])
    link.take(nan, 2 * SECOND_BYTES, RATE_BPS)
    vm.take(1.0, 0.2, [link])
    assert vm.watched_s == 0.0
    # Where no link can be full, all that is missing lacks.
    vm.take(1.0, 0.2, [])
    assert (vm.watched_s, vm.lack) == (1.0, 0.2)
