"""The page of a sweep: its outcome in sentences, and pictures of what is possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from testbed.sweeps.intervals import Estimate
from testbed.sweeps.sweep_conclusion import conclusion, label_of
from testbed.sweeps.sweep_page import sweep_page
from testbed.sweeps.sweep_pictures import (
    MOST_NAMES,
    Line,
    _bars,
    _title,
    across_names,
    has_cut_intervals,
    panels,
    sweep_figure,
)
from testbed.sweeps.sweep_plan import SweepPlan
from testbed.sweeps.sweep_tables import TableRow, printed_row
from tests.unit.sweeps.small_sweep import planned

SEEDS = 3
LOADS = "workload.load=0.4,0.8"


def row(
    load: float,
    policy: str,
    *estimates: tuple[float, float | None],
    **others: Any,
) -> TableRow:
    """A combination with its means and half widths."""
    kept = {"cells": SEEDS, "failed": 0, "outside": 0, "needed": None}
    means = [Estimate(mean, half, SEEDS) for mean, half in estimates]
    return TableRow((load, policy), estimates=tuple(means), **kept | others)


def plan_of(*metrics: str) -> SweepPlan:
    return planned(LOADS, "seed=1..3", metrics=metrics)


def outcome(plan: SweepPlan, table: Sequence[TableRow]) -> str:
    ((_, text),) = conclusion(plan, table).outcomes
    return text


ACCEPTED = (
    row(0.4, "fcfs", (0.99, 0.05)),
    row(0.4, "easy", (0.91, 0.10)),
    row(0.8, "fcfs", (0.99, 0.01)),
    row(0.8, "easy", (0.43, 0.02)),
)


def test_truth_values_are_those_of_the_file() -> None:
    names = ("topology.ecmp", "policy")
    assert label_of(names, (True, "fcfs")) == "topology.ecmp true, fcfs"
    assert printed_row((False, 0.4), "3", ()) == ("false", "0.4", "3")


def test_the_best_is_named_where_intervals_do_not_overlap() -> None:
    plan = plan_of("acceptance_rate")
    concluded = conclusion(plan, ACCEPTED)
    assert concluded.asked == (
        "fcfs and easy at 2 values of workload.load, from 0.4 to 0.8;"
        " simulated, 3 seeds each."
    )
    ((metric, text),) = concluded.outcomes
    assert metric == "Jobs accepted"
    assert text == (
        "at 0.4 not decided by 3 seeds between fcfs (99.0 %) and easy"
        " (91.0 %); at 0.8 most with fcfs, 99.0 %: 56.0 points more than"
        " easy."
    )
    assert concluded.mood == "open"


def test_of_waits_the_least_is_the_best() -> None:
    table = [
        row(0.4, "fcfs", (7200.0, 60.0)),
        row(0.4, "easy", (3600.0, 60.0)),
        row(0.8, "fcfs", (0.0, 0.0)),
        row(0.8, "easy", (0.0, 0.0)),
    ]
    assert outcome(plan_of("wait_mean_s"), table) == (
        "at 0.4 least with easy, 1 h 00 min: 1 h 00 min less than fcfs;"
        " at 0.8 the same with all, 0 s."
    )


def test_one_seed_decides_nothing() -> None:
    table = [
        row(0.4, "fcfs", (0.9, None), cells=1),
        row(0.4, "easy", (0.1, None), cells=1),
    ]
    plan = plan_of("acceptance_rate")
    assert "not decided by " in outcome(plan, table)


def test_live_cells_that_are_not_sound_are_told_at_once() -> None:
    plan = planned(LOADS, "seed=1..3", metrics=("finished",), live=True)
    table = [
        row(0.4, "fcfs", (3.0, 0.0), fidelity=("ok", "suspect", "ok")),
        row(0.8, "fcfs", (3.0, 0.0), fidelity=("ok", "ok", "ok")),
    ]
    concluded = conclusion(plan, table)
    assert (
        "live (fidelity suspect in 1 of 6 runs), 3 seeds" in concluded.asked
    )
    assert concluded.mood == "doubt"


def test_failed_cells_are_told_on_top() -> None:
    table = [row(0.4, "fcfs", (3.0, 0.0), failed=2)]
    concluded = conclusion(plan_of("finished"), table)
    assert concluded.mood == "bad"
    assert concluded.remarks[0].startswith("2 of 3 runs failed")


def test_waits_are_told_to_be_of_jobs_that_started() -> None:
    table = [
        row(0.4, "fcfs", (9.0, 0.0), accepted=0.99),
        row(0.4, "easy", (0.0, 0.0), accepted=0.22),
    ]
    (remark,) = conclusion(plan_of("wait_mean_s"), table).remarks
    assert remark.startswith("Mean wait is of jobs that started.")
    assert "easy accepted 22.0 %" in remark
    alike = [
        row(0.4, "fcfs", (9.0, 0.0), accepted=0.99),
        row(0.4, "easy", (0.0, 0.0), accepted=0.98),
    ]
    assert conclusion(plan_of("wait_mean_s"), alike).remarks == ()


def test_intervals_are_drawn_as_far_as_is_possible() -> None:
    plan = plan_of("acceptance_rate")
    assert has_cut_intervals(plan, ACCEPTED)
    made = sweep_figure(plan, ACCEPTED)
    (axes,) = made.axes
    assert axes.get_title(loc="left") == "Jobs accepted [%]"
    low, high = axes.get_ylim()
    assert (round(low), round(high)) == (-3, 103)
    for bars in axes.containers:
        for segment in bars[2][0].get_segments():
            assert all(0.0 <= y <= 100.0 for _, y in segment)


def test_times_begin_at_zero_in_one_unit() -> None:
    table = [
        row(0.4, "fcfs", (86_915.0, 4_000.0)),
        row(0.8, "fcfs", (13_000.0, 14_000.0)),
    ]
    (axes,) = sweep_figure(plan_of("wait_mean_s"), table).axes
    assert axes.get_title(loc="left") == "Mean wait [h]"
    assert -2 < axes.get_ylim()[0] <= 0
    assert axes.get_ylim()[1] < 30


@pytest.mark.parametrize("cut", [True, False])
def test_the_page_says_what_points_and_bars_are(*, cut: bool) -> None:
    half = 0.05 if cut else 0.001
    table = [
        row(0.4, "fcfs", (0.99, half)),
        row(0.8, "fcfs", (0.99, half)),
    ]
    plan = plan_of("acceptance_rate")
    page = sweep_page(
        plan,
        table,
        sentence="6 cells: 6 computed",
        reasons=[],
        picture="<svg/>",
        where={},
    )
    opening = page[: page.index("</header>")]
    assert "simulated, 3 seeds each" in opening
    assert "cells:" not in opening
    assert "6 cells: 6 computed" in page[page.index("Provenance") :]
    assert "<small>acceptance_rate</small>" in page
    assert "Jobs accepted [%]" in page
    assert (">99.0 ± 5.0<" if cut else ">99.00 ± 0.10<") in page
    assert "mean over 3 seeds, its bar the 95 % confidence interval" in page
    assert "a little beside each other" in page
    assert ("Bars end at what is possible" in page) is cut


def test_the_legend_is_above_the_panels_and_names_the_seeds() -> None:
    made = sweep_figure(plan_of("acceptance_rate"), ACCEPTED)
    (legend,) = made.legends
    assert (
        legend.get_title()
        .get_text()
        .startswith("queue: means over 3 seeds")
    )
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["fcfs", "easy"]
    made.draw_without_rendering()
    (axes,) = made.axes
    below = axes.get_window_extent().y1
    assert legend.get_window_extent().y0 >= below


def long_row(name: str) -> TableRow:
    values = (f"a long value of {'x' * 28}{name}", "fcfs")
    estimate = Estimate(mean=0.5, half_width=0.1, n=SEEDS)
    return TableRow(
        values,
        estimates=(estimate,),
        cells=SEEDS,
        failed=0,
        outside=0,
        needed=None,
    )


def test_values_whose_names_are_cut_alike_keep_their_places() -> None:
    plan = plan_of("acceptance_rate")
    table = [long_row("1"), long_row("2"), long_row("1")]
    places = across_names(plan, table, keys=(0,))
    assert [places.x_of(row) for row in table] == [0, 1, 0]
    assert len(places.names) == 2


def test_lines_at_a_single_place_stand_side_by_side() -> None:
    table = [
        row(0.4, "fcfs", (86_915.0, 4_000.0)),
        row(0.4, "easy", (13_000.0, 14_000.0)),
    ]
    (axes,) = sweep_figure(plan_of("wait_mean_s"), table).axes
    first, second = (line.get_xdata()[0] for line in axes.lines[::3])
    assert first < 0.4 < second


def test_names_beyond_those_that_are_shown_are_counted() -> None:
    table = [long_row(str(number)) for number in range(MOST_NAMES + 3)]
    title = _title(plan_of("acceptance_rate"), table, 1, MOST_NAMES + 3)
    assert title.endswith("; 3 more names in table.csv")


def test_points_beyond_the_names_that_are_shown_are_not_drawn() -> None:
    plan = plan_of("acceptance_rate")
    table = [long_row(str(number)) for number in range(MOST_NAMES + 3)]
    x = across_names(plan, table, keys=(0,))
    (panel,) = panels(plan, table)
    line = Line(
        label="",
        looks=(0, 0),
        xs=tuple(map(x.x_of, reversed(table))),
        estimates=tuple(row.estimates for row in table),
    )
    drawn = _bars(line, x, panel).places
    assert sorted(drawn) == list(range(MOST_NAMES))
