"""VM slots of servers over time, against the fold of the jobs' lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from testbed import events
from testbed.record.job_lives import FOREGROUND, JobLives
from testbed.record.metrics import tally
from testbed.record.reading import load_run
from testbed.record.server_use import ServerUse
from testbed.report.pictures import pictures
from testbed.report.server_rows import MAX_ROWS, in_rows
from tests.unit.record import sample
from tests.unit.record.written import write_run

RUNS = (
    sample.main_example,
    sample.sliding,
    sample.preempting,
    sample.two_tiers,
    sample.flat,
    sample.eventful,
    sample.leases,
)


def server_uses(stream: Sequence[events.Event]) -> list[ServerUse]:
    counted = tally(stream, recording=True)
    return counted.uses.until(counted.lives.now_s)


@pytest.mark.parametrize("run", RUNS)
def test_slots_in_use_are_those_that_jobs_hold(
    run: Callable[[], Sequence[events.Event]],
) -> None:
    stream = run()
    uses = server_uses(stream)
    lives = JobLives()
    for number, event in enumerate(stream):
        lives.follow(event)
        last = number + 1 == len(stream)
        if last or stream[number + 1].t == event.t:
            continue
        held = 0
        for life in lives.jobs.values():
            held += life.hold.n_slots if life.hold else 0
        used = 0
        for use in uses:
            during = use.start_s <= event.t < use.end_s
            if during and use.tier == FOREGROUND:
                used += use.n_slots
        assert used == held, event


def test_pictures_need_no_second_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, results = write_run(tmp_path, sample.two_tiers())
    recorded = load_run(folder.path)

    def follow(*_: object) -> None:
        pytest.fail("jobs' lives are folded a second time")

    monkeypatch.setattr(JobLives, "follow", follow)
    kinds = {made.kind for made in pictures(recorded, results.verdicts)}
    assert {"gantt", "servers"} <= kinds


def test_preemptions_and_tiers_are_told() -> None:
    preempted = server_uses(sample.preempting())
    assert {use.end for use in preempted} >= {"ended", "preempted"}
    tiers = {use.tier for use in server_uses(sample.two_tiers())}
    assert tiers == {"foreground", "background"}


def test_a_stream_without_an_end_leaves_uses_open() -> None:
    stream = sample.main_example()
    uses = server_uses(stream[: len(stream) // 2])
    assert "open" in {use.end for use in uses}


def _use(job: str, start_s: float, end_s: float, n_slots: int) -> ServerUse:
    return ServerUse(job, 0, n_slots, FOREGROUND, start_s, end_s, "ended")


def test_rows_are_as_many_as_slots_at_once() -> None:
    uses = [
        _use("a", 0, 4, 2),
        _use("b", 1, 3, 1),
        _use("c", 3, 6, 1),
        _use("d", 4, 6, 2),
    ]
    placed, n_rows = in_rows(uses)
    assert n_rows == 3
    taken = {}
    for part in placed:
        for row in range(part.first, part.first + part.n_rows):
            taken.setdefault((part.use.job_id, row), part.use)
    for (job, row), use in taken.items():
        for (other, same), another in taken.items():
            if row == same and job != other:
                apart = (
                    use.end_s <= another.start_s
                    or another.end_s <= use.start_s
                )
                assert apart, (job, other, row)
    assert sum(part.n_rows for part in placed) == 6


def test_a_number_of_slots_without_sense_makes_no_rows_without_end() -> (
    None
):
    placed, n_rows = in_rows([_use("a", 0, 1, 10**9), _use("b", 0, 1, -3)])
    assert n_rows == MAX_ROWS
    assert [part.use.job_id for part in placed] == ["a"]
