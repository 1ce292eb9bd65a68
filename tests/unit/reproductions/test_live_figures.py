"""The live figures themselves: what they play is there, and their curves say what they mean."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from jobs.request import JobRequest
from reproductions.catalogue import LIVE_FIGURES
from reproductions.configuration import FOLDER
from reproductions.dcloud import dcloud_live
from reproductions.dcloud.dcloud_live import deadline_over_finish
from reproductions.figure_plots import live_pictures
from reproductions.jsa.jsa_live import REWARD, rewarded
from reproductions.live_figure import SIMULATED, LiveFigure, digest
from reproductions.stored_results import stored
from testbed import events
from testbed.record.folder import EVENTS
from testbed.record.reading import RecordedRun, load_run
from testbed.record.topology_record import topology_record
from topologies.tree import tree

TOPOLOGY = topology_record(tree([2], [10**9], 2))


def job(name: str, value: float) -> events.JobSubmitted:
    request = JobRequest(
        id=name,
        submit_s=10.0,
        n_vms=2,
        bandwidth_bps=1,
        duration_s=5.0,
        deadline_s=40.0,
        value=value,
    )
    return events.JobSubmitted(10.0, request.to_json())


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    """Of three jobs due 40 s after they came one takes 20 s, one 50 s, one is turned away."""
    told: list[events.Event] = [
        events.RunStarted(
            t=0.0,
            run="r",
            policy="p",
            backend="live",
            seed=1,
            topology=TOPOLOGY,
        ),
        *(
            job(name, value)
            for name, value in (("a", 2.0), ("b", 3.0), ("c", 5.0))
        ),
        events.JobEnded(
            t=10.0,
            job_id="c",
            outcome="rejected",
            reason="no room",
            measured_s=None,
            detail={},
        ),
        events.JobStarted(10.0, "a", 1, "foreground"),
        events.JobStarted(10.0, "b", 1, "foreground"),
        events.JobEnded(
            t=30.0,
            job_id="a",
            outcome="finished",
            reason="",
            measured_s=20.0,
            detail={},
        ),
        events.JobEnded(
            t=60.0,
            job_id="b",
            outcome="finished",
            reason="",
            measured_s=50.0,
            detail={},
        ),
        events.RunEnded(60.0, "completed", ""),
    ]
    with (tmp_path / EVENTS).open("w") as file:
        for event in told:
            file.write(json.dumps(event.to_json()) + "\n")
    return load_run(tmp_path)


@pytest.mark.parametrize("name", LIVE_FIGURES)
def test_every_point_has_its_experiment_file(name: str) -> None:
    figure = LIVE_FIGURES[name]
    for quick in (False, True):
        for series, x in figure.points:
            variant = figure.variant(series, x, quick)
            assert (FOLDER / variant.file).is_file()
            assert variant.policy


def test_claims_are_about_points_that_the_figure_has() -> None:
    for figure in LIVE_FIGURES.values():
        names = {panel.measure.name for panel in figure.tables}
        for claim in figure.claims:
            for check in claim.checks:
                assert check.quantity.measure.name in names


def test_deadline_over_finish_is_zero_for_who_never_finished(
    run: RecordedRun,
) -> None:
    curve = deadline_over_finish(run)
    assert [x for x, _ in curve] == pytest.approx([0.0, 0.8, 2.0])
    assert [y for _, y in curve] == pytest.approx([100 / 3, 200 / 3, 100.0])


def test_reward_is_that_of_jobs_on_time(run: RecordedRun) -> None:
    assert math.isclose(rewarded(run)[REWARD.name], 0.2)


def test_use_by_hour_is_each_hours_mean(
    monkeypatch: pytest.MonkeyPatch, run: RecordedRun
) -> None:
    # A quarter of the first hour all slots, from 1.5 h on half of them.
    steps = [(0.0, 1.0), (900.0, 0.0), (5400.0, 0.5)]
    monkeypatch.setattr(dcloud_live, "slots_in_use", lambda _: steps)
    curve = dict(dcloud_live.slots_by_hour(run))
    assert [curve[hour] for hour in (0.0, 1.0, 2.0, 24.0)] == pytest.approx(
        [25.0, 25.0, 50.0, 50.0]
    )


def test_traffic_is_what_jobs_moved_over_the_time_that_it_took(
    run: RecordedRun,
) -> None:
    curve = dcloud_live.traffic_among_vms(run)
    # Two VMs of a bit a second for five seconds, in 20 s and in 50 s, by two
    # links of a Gbit/s.
    assert [at_s for at_s, _ in curve] == [0.0, 10.0, 30.0, 60.0]
    assert [2e9 * share for _, share in curve] == pytest.approx(
        [0.0, 0.7, 0.2, 0.0], abs=1e-9
    )


def test_a_killed_jobs_traffic_is_what_had_arrived(tmp_path: Path) -> None:
    told: list[events.Event] = [
        events.RunStarted(
            t=0.0,
            run="r",
            policy="p",
            backend="live",
            seed=1,
            topology=TOPOLOGY,
        ),
        job("a", 1.0),
        events.JobStarted(10.0, "a", 1, "foreground"),
        events.JobProgress(12.0, "a", 100, 0.25),
        events.JobProgress(14.0, "a", 200, 0.5),
        events.JobEnded(
            t=15.0,
            job_id="a",
            outcome="killed",
            reason="late",
            measured_s=None,
            detail={},
        ),
        events.RunEnded(60.0, "completed", ""),
    ]
    with (tmp_path / EVENTS).open("w") as file:
        for event in told:
            file.write(json.dumps(event.to_json()) + "\n")
    curve = dcloud_live.traffic_among_vms(load_run(tmp_path))
    assert [2e9 * share for _, share in curve] == pytest.approx(
        [0.0, 1.0, 0.0], abs=1e-9
    )


def test_jobs_that_end_much_earlier_than_they_must(
    run: RecordedRun,
) -> None:
    measures = dcloud_live.measures(run)
    # Due after 40 s they took 20 s and 50 s.
    assert measures["early"] == 0.0
    assert measures["traffic_day"] == 0.0


def test_a_seed_draws_the_order_of_a_figures_runs() -> None:
    figure = LIVE_FIGURES["cmbf-interference"]
    quick = False
    orders = set()
    for x in figure.xs:
        variant = figure.variant(figure.series[0], x, quick)
        played = [digest(variant.repetition(1)) for _ in range(2)]
        assert played[0] == played[1]
        jobs = {job.id: job for job in variant.repetition(1).jobs}
        orders.add(jobs["alone"].after == "rear")
        assert (jobs["front"].after == "alone") is (
            jobs["alone"].after != "rear"
        )
    assert orders == {True, False}


def test_a_picture_shows_nothing_that_is_not_written_down() -> None:
    """Pictures are drawn again from stored values alone."""
    for name, figure in LIVE_FIGURES.items():
        written = {panel.measure.name for panel in figure.tables}
        if len(figure.xs) > 1:
            continue
        for panel in figure.panels:
            if not panel.measure.name.endswith(SIMULATED):
                assert panel.measure.name + SIMULATED in written, name


def test_bars_of_simulated_values_have_an_outline() -> None:
    done = stored()["adaba-fig4-live"].done
    figure = done.figure
    assert isinstance(figure, LiveFigure)
    picture = live_pictures(done, figure, {})["svg"].decode()
    outlines = re.findall(
        r"fill: #ffffff; stroke-dasharray: [^;]*; [^\"]*stroke-width: ([\d.]+)",
        picture,
    )
    measured = [
        panel
        for panel in figure.panels
        if not panel.measure.name.endswith(SIMULATED)
    ]
    assert len(outlines) == len(figure.series) * len(measured)
    assert all(float(width) > 0 for width in outlines)
