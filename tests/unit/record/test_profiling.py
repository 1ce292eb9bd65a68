"""A bandwidth sweep's runs as a profile: medians, the threshold, and the messages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import BadInput, RunFailed
from testbed.record.bandwidth_sweep import (
    MeasuredSweep,
    SweepPoint,
    measured_sweep,
    stored_sweep,
    sweep_of_rows,
)
from testbed.record.metrics import JobRow
from testbed.report.bandwidth_charts import profile_alt, profile_figure
from testbed.report.plot_style import svg
from testbed.report.result_tables import profile_table
from testbed.spec.experiment import BandwidthSweep
from testbed.spec.job_entries import read_profile

MBIT = 10**6


def measured(
    *points: tuple[int, tuple[float, ...]], tolerance: float = 0.02
) -> MeasuredSweep:
    return measured_sweep(
        "app",
        tolerance,
        [SweepPoint(mbit * MBIT, times) for mbit, times in points],
    )


FLAT_ABOVE_200 = measured(
    (100, (8.0, 8.4, 8.1)),
    (200, (4.02, 4.0, 4.1)),
    (300, (4.0,) * 3),
    (400, (4.01,) * 3),
)


def test_the_median_counts_and_the_threshold_is_found() -> None:
    assert FLAT_ABOVE_200.profile.options == (
        (100 * MBIT, 8.1),
        (200 * MBIT, 4.02),
    )
    assert FLAT_ABOVE_200.threshold_found
    assert FLAT_ABOVE_200.sentence() == (
        "No-elongation threshold: 200 Mbit/s; up to 400 Mbit/s nothing was faster by more than 2 %"
    )


def test_elongation_is_the_time_over_that_at_the_threshold() -> None:
    assert [
        round(FLAT_ABOVE_200.elongation(point), 3)
        for point in FLAT_ABOVE_200.points
    ] == [
        2.015,
        1.0,
        0.995,
        0.998,
    ]


def test_a_sweep_that_ends_too_early_does_not_claim_a_threshold() -> None:
    still_falling = measured((100, (8.0,)), (200, (4.0,)))
    assert not still_falling.threshold_found
    assert still_falling.sentence().startswith(
        "No-elongation threshold: not reached, 200 Mbit/s"
    )
    assert "tells nothing" in measured((100, (8.0,))).sentence()


def test_a_threshold_at_the_least_bandwidth_is_an_upper_bound() -> None:
    assert (
        "100 Mbit/s at most"
        in measured((100, (8.0,)), (200, (7.99,))).sentence()
    )


def modelled(*points: tuple[int, float, float]) -> MeasuredSweep:
    found = [
        SweepPoint(mbit * MBIT, (time_s,), model_s)
        for mbit, time_s, model_s in points
    ]
    return measured_sweep("app", 0.02, found)


def test_the_threshold_is_compared_with_the_models_by_the_same_rule() -> (
    None
):
    alike = modelled((100, 8.2, 8.0), (200, 4.1, 4.0), (300, 4.1, 4.0))
    assert alike.model_threshold_bps == 200 * MBIT
    assert alike.model_sentence() == "The application's model says the same"
    slow_at_200 = modelled(
        (100, 8.2, 8.0), (200, 4.5, 4.0), (300, 4.1, 4.0), (400, 4.1, 4.0)
    )
    assert slow_at_200.threshold_bps == 300 * MBIT
    assert (
        slow_at_200.model_sentence()
        == "The application's model says 200 Mbit/s"
    )
    flat_too_early = modelled(
        (100, 8.0, 8.0), (200, 5.0, 4.0), (300, 5.0, 2.7)
    )
    assert (
        flat_too_early.model_sentence()
        == "The application's model says that it is not reached"
    )
    assert profile_alt(flat_too_early).endswith(
        "model says that it is not reached."
    )


def test_without_a_model_nothing_is_reported_of_it() -> None:
    assert FLAT_ABOVE_200.model_threshold_bps is None
    assert FLAT_ABOVE_200.model_sentence() is None
    columns = [
        column.header for column in profile_table(FLAT_ABOVE_200).columns
    ]
    assert "model" not in columns
    columns = [
        column.header
        for column in profile_table(modelled((1, 2.0, 2.0))).columns
    ]
    assert "model" in columns


def test_the_record_gives_the_same_profile_again() -> None:
    for sweep in (
        FLAT_ABOVE_200,
        modelled((100, 8.2, 8.0), (200, 4.1, 4.0)),
    ):
        record = json.loads(json.dumps(sweep.to_json()))
        assert stored_sweep(record, Path("profile.json")) == sweep


def test_the_file_is_one_that_jobs_can_name(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    path.write_text(FLAT_ABOVE_200.text("Measured here."), "utf-8")
    profile, document = read_profile(path)
    assert document.problems == []
    assert profile == FLAT_ABOVE_200.profile
    assert path.read_text("utf-8").startswith(
        "# Measured here.\n# 4 bandwidths were tried, "
    )


def row(
    job_id: str,
    bandwidth_bps: int,
    measured_s: float | None,
    outcome: str = "finished",
) -> JobRow:
    return JobRow(
        job_id, "scripted", "transfer", 0.0, 0.0, 9.0, outcome, "VM 0: gone" if outcome == "killed"
        else "", 2, bandwidth_bps, bandwidth_bps, 4.0, measured_s, None, None, 0, 0, 0.0, 0.0,
        "app", 4.0, None, None,
    )  # fmt: skip


SWEEP = BandwidthSweep("app", (100, 200), 2, 0.02)
ROWS = [
    row("a", 200, 4.0),
    row("b", 100, 8.0),
    row("c", 200, 4.2),
    row("d", 100, 8.2),
]


def test_rows_of_other_applications_are_none_of_its() -> None:
    other = replace(row("e", 100, 99.0), application="other")
    found = sweep_of_rows(SWEEP, [*ROWS, other])
    assert [point.times_s for point in found.points] == [
        (8.0, 8.2),
        (4.0, 4.2),
    ]
    assert [point.model_s for point in found.points] == [4.0, 4.0]
    command = sweep_of_rows(replace(SWEEP, modelled=False), ROWS)
    assert [point.model_s for point in command.points] == [None, None]


def test_a_run_that_did_not_finish_leaves_no_profile_and_says_why() -> None:
    with pytest.raises(RunFailed, match="no profile: d killed: VM 0: gone"):
        sweep_of_rows(SWEEP, [*ROWS[:3], row("d", 100, None, "killed")])
    with pytest.raises(RunFailed, match="1 were never started"):
        sweep_of_rows(SWEEP, ROWS[:3])


def test_the_picture_says_in_words_what_it_shows() -> None:
    assert svg(profile_figure(FLAT_ABOVE_200), "profile").startswith("<svg")
    words = profile_alt(FLAT_ABOVE_200)
    assert "8.10 s at 100 Mbit/s" in words
    assert "threshold: 200 Mbit/s" in words


@pytest.mark.parametrize("time_s", [0.0, -1.0])
@pytest.mark.parametrize("n_points", [1, 4])
def test_a_record_with_a_time_that_no_run_has_is_damaged(
    time_s: float, n_points: int
) -> None:
    record = json.loads(json.dumps(FLAT_ABOVE_200.to_json()))
    for point in record["rungs"][:n_points]:
        point["times_s"] = [time_s]
    with pytest.raises(BadInput, match="damaged: a time of"):
        stored_sweep(record, Path("profile.json"))
