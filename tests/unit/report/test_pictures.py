from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.expectations import Expectation
from testbed.record.link_rates import link_rows
from testbed.record.metrics import tally
from testbed.report import plot_style
from testbed.report.bandwidth_charts import applications
from testbed.report.link_timelines import alike, link_series, title
from testbed.report.plot_style import figure, svg, time_axis
from tests.support.whole_lives import lives_of
from tests.unit.record import sample


def test_a_preempted_job_waits_between_its_runs() -> None:
    low = [
        s
        for s in lives_of(sample.preempting()).stretches()
        if s.job_id == "low"
    ]
    assert [(s.phase, s.start_s, s.end_s) for s in low] == [
        ("running", 0.0, 10.0),
        ("waiting", 10.0, 40.0),
        ("running", 40.0, 45.0),
        ("running", 45.0, 77.5),
    ]


def test_a_booked_job_is_reserved_until_it_starts() -> None:
    late = [
        s
        for s in lives_of(sample.sliding()).stretches()
        if s.job_id == "late"
    ]
    assert [(s.phase, s.start_s, s.end_s) for s in late] == [
        ("reserved", 1.0, 112.0),
        ("running", 112.0, 224.0),
    ]


def test_what_is_open_ends_with_the_stream() -> None:
    cut = lives_of(sample.sliding()[:8]).stretches()
    assert ("late", "reserved", 112.0) in {
        (s.job_id, s.phase, s.end_s) for s in cut
    }


@pytest.mark.slow
def test_only_applications_that_were_scaled_are_figure_ten() -> None:
    rows = tuple(tally(sample.main_example()).rows())
    found = applications(rows, (), Expectation())
    assert [(a.name, len(a.rows), a.least_bps) for a in found] == [
        ("sort", 5, 150_000_000),
        ("index", 5, 150_000_000),
    ]
    assert found[0].estimate_s(375e6) == 8.0
    assert found[0].estimate_s(900e6) == 4.0
    assert applications(rows[:2], (), Expectation()) == []
    assert (
        applications(
            tuple(tally(sample.simulated(60)).rows()), (), Expectation()
        )
        == []
    )


def test_links_alike_share_a_panel() -> None:
    groups = alike(
        link_series(link_rows(tally(sample.main_example(), recording=True)))
    )
    # Three servers, racks and aggregation switches, both directions; two servers, both directions.
    # Index's two servers hold 1 and 2 of 3 VMs: min(X, N-X) is 1 on either's link.
    assert [len(group) for group in groups] == [18, 8]
    assert title(groups[0]) == "server 0 → rack 0 and 17 more alike"
    assert all(series.sent_bps for group in groups for series in group)


def test_a_link_left_out_of_a_sample_was_empty() -> None:
    series = link_series(
        link_rows(tally(sample.main_example(), recording=True))
    )
    lengths = {len(one.times_s) for one in series} | {
        len(one.reserved_bps) for one in series
    }
    assert len(lengths) == 1
    index_only = min(series, key=lambda one: one.load)
    assert index_only.reserved_bps[-1] == 0.0


@pytest.mark.parametrize(
    ("span_s", "unit"),
    [(50.0, "[s]"), (1000.0, "[min]"), (9000.0, "[h]"), (9e5, "[days]")],
)
def test_time_is_in_the_unit_that_fits(span_s: float, unit: str) -> None:
    with figure(2, 1) as made:
        axes = made.add_subplot()
        seconds = time_axis(axes, span_s)
        assert axes.get_xlabel().endswith(unit)
        assert axes.get_xlim()[1] == pytest.approx(span_s / seconds)
        text = svg(made, "probe")
    assert text.startswith("<svg aria-hidden")
    assert 'id="probe-figure_1"' in text


def test_the_same_drawing_gives_the_same_bytes() -> None:
    def draw() -> str:
        with figure(2, 1) as made:
            made.add_subplot().plot([1, 2], [3, 4])
            return svg(made, "probe")

    assert draw() == draw()


def test_names_in_a_picture_stay_as_they_are() -> None:
    names = [
        f": {plot_style.BAD}",
        'id="a" href="#b" url(#c)',
        "font: 12px serif",
    ]
    with figure(2, 1) as made:
        axes = made.add_subplot()
        for name in names:
            axes.text(0, 0, name, color=plot_style.BAD)
        text = svg(made, "probe")
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert shown[-3:] == names
    assert text.count(": var(--bad)") == 3


def test_colours_are_those_of_the_light_page_each_once() -> None:
    css = (
        Path(plot_style.__file__).parent / "templates" / "style.css"
    ).read_text("utf-8")
    light = dict(
        re.findall(r"(--[\w-]+): (#\w{6})", css.split("@media", 1)[0])
    )
    assert {
        variable: light[variable]
        for variable in plot_style.VARIABLES.values()
    } == {
        variable: colour
        for colour, variable in plot_style.VARIABLES.items()
    }
    assert len(plot_style.VARIABLES) == 4 + len(plot_style.SERIES)


@pytest.mark.slow
def test_a_figure_keeps_its_style_outside_and_shows_itself() -> None:
    with figure(2, 1) as made:
        axes = made.add_subplot()
        axes.plot([0, 100], [0, 1], color=plot_style.TEXT)
    axes.set_xticks(range(0, 101, 5))  # ticks that did not exist inside
    made.draw_without_rendering()
    assert {label.get_color() for label in axes.get_xticklabels()} == {
        plot_style.TEXT
    }
    assert made._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert not re.search(r": #\w{6}", svg(made, "probe"))


def test_settings_of_the_working_directory_are_not_of_a_picture() -> None:
    """As matplotlib reads them: TeX, which reads files, and a wide line."""
    from matplotlib import rc_context, rcParams

    with (
        rc_context({"text.usetex": True, "lines.linewidth": 40.0}),
        figure(1, 1),
    ):
        assert rcParams["text.usetex"] is False
        assert rcParams["lines.linewidth"] < 40.0
