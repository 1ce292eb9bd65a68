"""The rule of ``python -m bench open-page``, and the run that it follows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import open_page
from bench.open_page import (
    IN_SIGHT,
    RUNNING,
    VMS,
    Sample,
    experiment,
    results,
    table,
    write_at_pace,
)
from testbed.record.folder import EVENTS
from testbed.spec.experiment_file import parse_experiment

SAMPLE = Sample(0.0, 20.0, 5_000, 120.0, 60.0)
HOUR = [replace(SAMPLE, at_s=5.0 * number) for number in range(720)]


def changed(**values: float) -> list[Sample]:
    """An hour whose last quarter differs."""
    return [*HOUR[:540], *(replace(s, **values) for s in HOUR[540:])]  # type: ignore[arg-type]


def missed(samples: list[Sample], played: float = 60.0) -> set[str]:
    return {
        row.name
        for row in results(samples, played, 60.0)
        if row.meets is False
    }


def test_an_hour_that_stays_as_it_is_meets_it() -> None:
    assert missed(HOUR) == set()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"page_mb": 26.0}, "page's memory"),
        ({"nodes": 5_600}, "page's nodes"),
        ({"server_mb": 190.0}, "server's memory"),
    ],
)
def test_what_grows_misses_it(change: dict[str, float], name: str) -> None:
    assert missed(changed(**change)) == {name}


def test_a_page_of_200_mb_or_with_few_frames_misses_it() -> None:
    large = [replace(sample, page_mb=200.0) for sample in HOUR]
    assert missed(large) == {"page's memory, most"}
    slow = [replace(sample, frames=19.0) for sample in HOUR]
    assert missed(slow) == {"frames, followed"}
    assert missed(HOUR, played=19.0) == {"frames, played again"}


def test_some_minutes_are_printed_and_not_judged() -> None:
    rows = results(changed(nodes=9_000), 60.0, 3.0)
    assert {row.meets for row in rows} == {None}
    assert "5,000.0 -> 9,000.0 (1.800)" in table(rows)


@pytest.mark.slow
def test_its_jobs_fill_500_slots_and_others_wait() -> None:
    planned = parse_experiment(experiment(2.0), Path("open-page.yaml"))
    assert VMS * RUNNING == 500
    at_once = [job for job in planned.jobs if job.submit_s == 0.0]
    assert len(at_once) == IN_SIGHT
    # As many end in a minute as come.
    assert len(planned.jobs) == IN_SIGHT + 2 * RUNNING
    assert max(job.submit_s for job in planned.jobs) == pytest.approx(120.0)


class Clock:
    """A clock that sleeping moves on."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_events_are_written_as_their_times_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(open_page, "time", clock)
    source = tmp_path / "whole"
    growing = tmp_path / "growing"
    source.mkdir()
    growing.mkdir()
    lines = [json.dumps({"t": t}) + "\n" for t in (0.0, 0.0, 0.1, 9.0)]
    (source / EVENTS).write_text("".join(lines))
    write_at_pace(source, growing, 5.0)
    assert clock.now_s == pytest.approx(5.0)
    assert (growing / EVENTS).read_text() == "".join(lines[:3])
    # No note of a run in progress is left.
    assert {path.name for path in growing.iterdir()} == {EVENTS}
