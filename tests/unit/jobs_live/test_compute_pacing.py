"""Work at a small share of a core takes its time, whatever its pace costs."""

from __future__ import annotations

import pytest

from jobs.live.compute import Pacing

SECOND_NS = 1_000_000_000


def played(
    share: float,
    work_s: float,
    look_s: float,
    frozen_s: float = 0.0,
    waits_s: float = 0.0,
) -> tuple[float, float, float]:
    """Seconds that work takes, CPU seconds it used, and seconds that it lost.

    Looking at the clock takes ``look_s``; it has no processor for ``waits_s``
    each time that it works.
    """
    now_ns = used_ns = 0
    work_ns = round(work_s * 1e9)
    pacing = Pacing(share, now_ns)
    frozen_ns = round(frozen_s * 1e9)
    while pacing.due_ns < work_ns or used_ns < work_ns:
        now_ns += round(look_s * 1e9)
        used_ns += round(look_s * 1e9)
        if pacing.due_ns > used_ns and used_ns < work_ns:
            now_ns += 1_000_000 + round(waits_s * 1e9)
            used_ns += 1_000_000
        else:
            now_ns += max(100_000, round(pacing.sleep_s(work_ns) * 1e9))
        if frozen_ns and now_ns > SECOND_NS:
            now_ns += frozen_ns
            frozen_ns = 0
        pacing.advance(now_ns, used_ns)
    pacing.end(work_ns)
    return now_ns / 1e9, used_ns / 1e9, pacing.lost_ns / 1e9


@pytest.mark.parametrize("look_s", [0.00001, 0.0001, 0.0003])
def test_a_job_of_one_vm_takes_its_whole_time(look_s: float) -> None:
    took_s, _, _ = played(share=0.01, work_s=0.12, look_s=look_s)
    assert took_s == pytest.approx(12.0, abs=0.02)


def test_half_a_core_takes_twice_its_work() -> None:
    took_s, used_s, _ = played(share=0.5, work_s=3.0, look_s=0.00005)
    assert took_s == pytest.approx(6.0, abs=0.02)
    assert used_s == pytest.approx(3.0, abs=0.01)


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_time_in_which_it_is_frozen_is_no_work(share: float) -> None:
    took_s, _, _ = played(
        share, work_s=4 * share, look_s=0.00005, frozen_s=3.0
    )
    assert took_s == pytest.approx(7.0, abs=0.25)


@pytest.mark.parametrize(
    ("share", "frozen_s", "waits_s"),
    [
        (0.5, 0.0, 0.0),
        (0.01, 3.0, 0.0),
        (0.5, 0.5, 0.0),
        (0.2, 0.0, 0.02),
        (0.5, 0.0, 0.004),
    ],
)
def test_an_agent_says_by_how_much_it_fell_behind(
    share: float, frozen_s: float, waits_s: float
) -> None:
    took_s, _, lost_s = played(
        share, 4 * share, 0.00005, frozen_s=frozen_s, waits_s=waits_s
    )
    assert lost_s == pytest.approx(took_s - 4.0, abs=0.03)
