"""Progress of many runs: lines without a terminal, and the time left."""

from __future__ import annotations

import pytest

from testbed.cli import sweep_progress
from testbed.cli.sweep_progress import shown_progress
from testbed.sweeps.result_store import SweepProgress


@pytest.fixture
def clock_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test moves; every report is a line."""
    now_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    monkeypatch.setattr(sweep_progress, "SAY_EVERY_S", 0.0)
    return now_s


def progress(
    done: int, cost: float, *, in_seconds: bool = False, stage: str = ""
) -> SweepProgress:
    return SweepProgress(
        done=done,
        of=4,
        cost=cost,
        of_cost=240.0,
        kept=0,
        in_seconds=in_seconds,
        stage=stage,
    )


def last_line(captured: pytest.CaptureFixture[str]) -> str:
    return captured.readouterr().err.splitlines()[-1]


def test_a_first_run_that_begins_slowly_says_little_of_the_time_left(
    clock_s: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress("fig") as report:
        report(progress(0, 0.0, in_seconds=True))
        assert last_line(capsys) == "fig 0/4 runs, about 4:00 left"
        # A network was built for half a minute: a second of the experiment.
        clock_s[0] = 30.0
        report(progress(0, 1.0, in_seconds=True))
        assert last_line(capsys) == "fig 0/4 runs, about 5:53 left"
        # Later the pace counts: half as fast as was expected.
        clock_s[0] = 360.0
        report(progress(3, 180.0, in_seconds=True))
        assert last_line(capsys) == "fig 3/4 runs, about 1:45 left"


def test_costs_that_are_no_seconds_have_the_pace_alone(
    clock_s: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress("fig") as report:
        report(progress(0, 0.0))
        clock_s[0] = 10.0
        report(progress(1, 24.0))
        assert last_line(capsys) == "fig 1/4 runs, about 1:30 left"


def test_more_seeds_have_their_own_clock(
    clock_s: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress("fig") as report:
        report(progress(4, 240.0))
        clock_s[0] = 3_600.0
        report(progress(0, 0.0))
        clock_s[0] = 3_610.0
        report(progress(1, 24.0))
        assert last_line(capsys) == "fig 1/4 runs, about 1:30 left"


def test_a_stage_has_its_own_clock(
    clock_s: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with shown_progress("fig") as report:
        report(progress(0, 0.0, stage="simulating first"))
        clock_s[0] = 100.0
        report(progress(2, 120.0, stage="simulating first"))
        assert (
            last_line(capsys)
            == "fig, simulating first: 2/4 runs, about 1:40 left"
        )
        clock_s[0] = 200.0
        report(progress(0, 0.0, in_seconds=True))
        assert last_line(capsys) == "fig 0/4 runs, about 4:00 left"


@pytest.mark.parametrize(
    ("stage", "kept"),
    [
        ("", ["fig: 2 of 4 runs are kept; the same command continues"]),
        ("simulating first", []),
    ],
)
def test_an_interrupt_says_what_is_kept_of_runs_alone(
    stage: str, kept: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        with shown_progress("fig") as report:
            report(progress(2, 120.0, stage=stage))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert capsys.readouterr().err.splitlines() == kept
