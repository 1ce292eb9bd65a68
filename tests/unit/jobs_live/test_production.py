"""Production on a simulated clock: what Eq. 1 says, within the buffer that the model allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.live.transfer_plan import (
    CHUNK_S,
    LATENESS_LIMIT_NS,
    Production,
    chunks,
    phases,
)
from tests.support.examples import examples

MS = 1_000_000
FULL_BUFFER_BYTES = 20_000  # of 8 Mbit/s, BUFFER_S
Steps = tuple[tuple[float, int], ...]


@st.composite
def curves(draw: st.DrawFn) -> Steps:
    """Demand curves of one to five steps, some of them without demand."""
    ends = sorted(draw(st.sets(st.integers(1, 99), max_size=4)))
    rates = draw(
        st.lists(
            st.sampled_from(
                [0, 200_000, 3_000_000, 40_000_000, 900_000_000]
            ),
            min_size=len(ends) + 1,
            max_size=len(ends) + 1,
        ).filter(any)
    )
    return tuple(
        zip([*(end / 100 for end in ends), 1.0], rates, strict=True)
    )


def tau_s(total_bytes: int, steps: Steps) -> float:
    """τ of Eq. 1: the time at infinite bandwidth."""
    starts = [0.0, *(end for end, _ in steps)]
    mean = sum(
        (end - start) * rate
        for start, (end, rate) in zip(starts, steps, strict=False)
    )
    return 8 * total_bytes / mean


def eq1_s(total_bytes: int, steps: Steps, bandwidth_bps: float) -> float:
    """τ ∫ max(1, c(x)/b) dx at a constant b."""
    starts = [0.0, *(end for end, _ in steps)]
    return tau_s(total_bytes, steps) * sum(
        (end - start) * max(1.0, rate / bandwidth_bps)
        for start, (end, rate) in zip(starts, steps, strict=False)
    )


def simulate(
    total_bytes: int,
    steps: Sequence[tuple[float, int]],
    bandwidth_bps: Callable[[float], float],
    *,
    cpu_share: float = 0.0,
    cpu_speed: float = 1.0,
    step_ns: int = MS // 2,
) -> float:
    """Seconds until all is produced and sent over a network of ``bandwidth_bps(t)``.

    ``cpu_speed`` is how much CPU time a second of burning yields (a throttled VM gets less).
    """
    production = Production(total_bytes, steps, cpu_share)
    now_ns = cpu_ns = 0
    sent = 0.0
    while sent < total_bytes or not production.finished:
        production.advance(now_ns, cpu_ns, int(sent))
        assert 0 <= sent <= production.produced_bytes <= total_bytes
        cpu_ns += min(
            production.cpu_missing_ns(cpu_ns), round(step_ns * cpu_speed)
        )
        now_ns += step_ns
        sent = min(
            float(production.produced_bytes),
            sent + bandwidth_bps(now_ns / 1e9) * step_ns / 8e9,
        )
        assert now_ns < 600 * 10**9, "production does not end"
    return now_ns / 1e9


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(1, 10**9), curves())
def test_phases_and_chunks_sum_to_the_volume_and_to_tau(
    total_bytes: int, steps: Steps
) -> None:
    whole = phases(total_bytes, steps)
    assert sum(phase.size_bytes for phase in whole) == total_bytes
    total_ns = sum(phase.duration_ns for phase in whole)
    assert total_ns == pytest.approx(
        1e9 * tau_s(total_bytes, steps), abs=len(steps) + 1
    )
    if tau_s(total_bytes, steps) < 60:
        cut = list(chunks(total_bytes, steps))
        assert sum(chunk.size_bytes for chunk in cut) == total_bytes
        assert sum(chunk.duration_ns for chunk in cut) == total_ns
        assert max(chunk.duration_ns for chunk in cut) <= CHUNK_S * 1e9 + 1
        assert all(
            0 <= chunk.size_bytes <= chunk.buffer_bytes for chunk in cut
        )


def test_a_step_without_demand_takes_its_time_and_no_bytes() -> None:
    # 1 s of computing, then 1 s at 8 Mbit/s.
    pause, burst = phases(1_000_000, ((0.5, 0), (1.0, 8_000_000)))
    assert (pause.size_bytes, pause.duration_ns) == (0, 10**9)
    assert (burst.size_bytes, burst.duration_ns) == (1_000_000, 10**9)


@pytest.mark.slow
@given(
    curves(), st.sampled_from([1e6, 8e6, 75e6, 200e6]), st.floats(0.5, 2.0)
)
@example(((1.0, 40_000_000),), 75e6, 1.0)
@example(((0.3, 900_000_000), (0.7, 0), (1.0, 3_000_000)), 75e6, 2.0)
@examples(25)
def test_it_takes_as_long_as_eq_1_says(
    steps: Steps, bandwidth_bps: float, ideal_s: float
) -> None:
    """At a constant b, for jobs of 0.5-2 s: within what the buffers and clock steps allow."""
    total_bytes = max(
        1, round(1e6 * ideal_s / eq1_s(1_000_000, steps, bandwidth_bps))
    )
    expected_s = eq1_s(total_bytes, steps, bandwidth_bps)
    measured_s = simulate(
        total_bytes, steps, lambda _: bandwidth_bps, step_ns=MS
    )
    # Where a step's demand ends, its buffer may still be on its way or may be already.
    in_buffers_s = (
        sum(
            8
            * max(
                chunk.buffer_bytes
                for chunk in chunks(total_bytes, ((1.0, rate),))
            )
            for rate in {rate for _, rate in steps if rate}
        )
        / bandwidth_bps
    )
    slack_s = (
        min(0.25 * expected_s, in_buffers_s) + len(steps) * 2 * CHUNK_S
    )
    assert expected_s - slack_s <= measured_s <= expected_s + slack_s


def test_blocked_time_is_not_caught_up() -> None:
    """A VM cut off for a second loses that second, although the network is fast afterwards."""
    steps = ((1.0, 8_000_000),)  # 2 s for 2 MB
    free_s = simulate(2_000_000, steps, lambda _: 1e9)
    cut_s = simulate(
        2_000_000, steps, lambda t: 0.0 if 0.5 < t <= 1.5 else 1e9
    )
    assert free_s == pytest.approx(2.0, abs=0.02)
    assert cut_s == pytest.approx(3.0, abs=0.05)


def test_a_vm_with_too_little_cpu_produces_more_slowly() -> None:
    steps = ((1.0, 8_000_000),)  # 1 s for 1 MB
    enough_s = simulate(1_000_000, steps, lambda _: 1e9, cpu_share=0.8)
    throttled_s = simulate(
        1_000_000, steps, lambda _: 1e9, cpu_share=0.8, cpu_speed=0.4
    )
    assert enough_s == pytest.approx(1.0, abs=0.02)
    assert throttled_s == pytest.approx(2.0, rel=0.05)


def test_of_a_late_wake_up_so_much_is_caught_up_and_the_rest_is_a_pause() -> (
    None
):
    production = Production(1_000_000, ((1.0, 8_000_000),), 0.0)
    production.advance(0, 0, 0)
    production.advance(
        13 * MS, 0, 0
    )  # 8 ms late for the first chunk of 5 ms
    assert production.produced_bytes == 10_000
    assert production.due_ns == 15 * MS
    assert production.lost_ns == 0
    production.advance(50 * MS, 0, 10_000)  # 35 ms late: 15 too many
    assert production.produced_bytes == 10_000 + FULL_BUFFER_BYTES
    production.advance(50 * MS, 0, production.produced_bytes)
    assert production.due_ns == 55 * MS
    production.advance(
        1000 * MS, 0, production.produced_bytes
    )  # a pause of nearly a second
    assert production.produced_bytes == 10_000 + 2 * FULL_BUFFER_BYTES


def test_what_is_lost_by_a_late_wake_up_is_counted() -> None:
    production = Production(1_000_000, ((1.0, 8_000_000),), 0.0)
    production.advance(0, 0, 0)
    production.advance(105 * MS, 0, 0)  # 100 ms late, 20 are caught up
    assert production.lost_ns == 80 * MS


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30))
def test_late_wake_ups_cost_what_is_beyond_the_limit(
    late_ms: list[int],
) -> None:
    """On a network that carries all at once, an agent that is woken up so late again and again."""
    production = Production(1_000_000, ((1.0, 8_000_000),), 0.0)
    production.advance(0, 0, 0)
    now_ns, lost_ns = 0, 0
    for late in late_ms:
        assert production.due_ns is not None
        now_ns = production.due_ns + late * MS
        lost_ns += max(0, late * MS - LATENESS_LIMIT_NS)
        before = production.produced_bytes
        production.advance(now_ns, 0, before)
        burst = production.produced_bytes - before
        # A full buffer: production resumes when the network has taken some, at once here.
        assert (production.due_ns is None) == (burst == FULL_BUFFER_BYTES)
        if production.due_ns is None:
            lost_ns += (
                min(late * MS, LATENESS_LIMIT_NS)
                - (burst - 5_000) // 5_000 * 5 * MS
            )
            production.advance(now_ns, 0, production.produced_bytes)
    assert (
        production.produced_bytes == (now_ns - lost_ns) // (5 * MS) * 5_000
    )
