"""The live figures of papers' examples, with the simulator in place of the live network."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import yaml

from reproductions import configuration, figure_runs
from reproductions.adaba import bgmbf_live
from reproductions.catalogue import LIVE_FIGURES
from reproductions.cmbf.cmbf_examples import AMBF, CMBF, LATE, MOVED, end_of
from reproductions.cmbf.cmbf_interference import (
    IDLE_USED,
    LOSS,
    background_share,
)
from reproductions.figure_runs import (
    LiveReproduced,
    Request,
    reproduce_live,
)
from reproductions.grid_quantities import Grid
from reproductions.live_figure import LiveFigure
from testbed.play import playing
from testbed.record.metrics import JobRow
from testbed.record.reading import RecordedRun
from tests.support.live_backend import Scripted


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_runs, "live_pictures", lambda *_: {})
    monkeypatch.setattr(playing, "write_report", lambda *_: None)
    monkeypatch.setattr(
        playing, "provenance", lambda **_: {"code": {"commit": "abc"}}
    )


def run(
    tmp_path: Path, figure: LiveFigure, slow: float = 1.0
) -> LiveReproduced:
    backend = Scripted()
    backend.slow = slow
    request = Request(tmp_path, 1, quick=False, command=["testbed"])
    return reproduce_live(figure, request, backend, lambda _: None)


def verdicts(found: LiveReproduced) -> list[str]:
    """By one repetition: a scripted backend leaves nothing to chance."""
    grid = Grid(found.done.grid.runs, exact=True)
    claims = found.done.figure.claims
    return [claim.judge(grid).verdict for claim in claims]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cmbf-fig1", "cmcbf-fig2"])
def test_the_examples_are_reproduced_where_nothing_takes_time(
    tmp_path: Path, name: str
) -> None:
    found = run(tmp_path, LIVE_FIGURES[name])
    assert set(verdicts(found)) == {"reproduced"}


@pytest.mark.slow
def test_a_slow_backend_has_the_moves_but_not_the_times(
    tmp_path: Path,
) -> None:
    found = run(tmp_path, LIVE_FIGURES["cmbf-fig1"], slow=1.06)
    grid = found.done.grid
    assert [
        *grid.values(MOVED, CMBF, 6.0),
        *grid.values(MOVED, AMBF, 6.0),
    ] == [
        0.0,
        0.0,
    ]
    assert grid.values(LATE, CMBF, 6.0) == pytest.approx([6.0])
    assert grid.values(end_of("J3"), CMBF, 6.0) == pytest.approx([1.06])
    assert (
        verdicts(found)
        == ["reproduced"] * 2 + ["not reproduced"] + ["reproduced"] * 3
    )


def test_sizes_name_the_time_scale_of_their_files() -> None:
    named = {}
    for name, figure in LIVE_FIGURES.items():
        found = re.search(r"an hour in ([0-9.]+) s", figure.size)
        if found is not None:
            series, x = figure.points[0]
            variant = figure.variant(series, x, False)  # noqa: FBT003 - full size
            text = (configuration.FOLDER / variant.file).read_text()
            scale = yaml.safe_load(text)["scale"]["time"]
            named[name] = (float(found[1]), 3600 / scale)
    assert len(named) >= 2
    for hour_s, played_s in named.values():
        assert hour_s == played_s


def test_nothing_is_measured_of_jobs_that_never_start() -> None:
    summary = SimpleNamespace(
        queued_mean_s=None, bounded_slowdown_mean=None, preemptions=0
    )
    run = cast(RecordedRun, SimpleNamespace(summary=summary))
    found = bgmbf_live.measures(run)
    assert math.isnan(found[bgmbf_live.WAITING.name])
    assert math.isnan(found[bgmbf_live.SLOWDOWN.name])
    assert found[bgmbf_live.SUSPENDED.name] == 0.0


def test_the_study_reads_off_what_the_model_has(tmp_path: Path) -> None:
    figure = LIVE_FIGURES["cmbf-interference"]
    few = LiveFigure(
        **{
            **vars(figure),
            "xs": (30.0,),
            "series": figure.series[:1],
            "claims": (),
        }
    )
    grid = run(tmp_path, few).done.grid
    series = few.series[0]
    assert 0.0 <= grid.values(LOSS, series, 30.0)[0] <= 3.7
    # One process behind another: eff is uniform in 80 to 100 %, and 70 % of the CPU is idle.
    assert 80.0 <= grid.values(IDLE_USED, series, 30.0)[0] <= 100.0


def test_a_background_that_ends_first_has_done_no_more_than_its_work() -> (
    None
):
    def share(rear_end_s: float) -> float:
        foreground = SimpleNamespace(end_s=200.0)
        rear = SimpleNamespace(
            start_s=0.0, end_s=rear_end_s, duration_s=150.0
        )
        return background_share(
            cast(JobRow, foreground), cast(JobRow, rear)
        )

    assert share(250.0) == 0.5
    assert share(200.0) == 0.75
    assert share(180.0) == 0.75


@pytest.mark.slow
def test_leases_have_their_claims(tmp_path: Path) -> None:
    figure = LIVE_FIGURES["mbfcbs-leases"]
    few = LiveFigure(**{**vars(figure), "xs": figure.xs[-1:], "claims": ()})
    found = run(tmp_path, few)
    for series in few.series:
        (run_,) = found.done.grid.runs[series, 40.0]
        assert run_["late_s"] == run_["twice"] == run_["killed"] == 0.0
        assert 0.0 < run_["use"] < 1.0
        assert run_["accepted"] == run_["success"] * 40
