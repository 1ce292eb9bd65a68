"""Published numbers of the ledger are in the pictures, or listed with a reason."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from reproductions.claim_checks import Band, Check, Claim
from reproductions.figure_plots import (
    NAMED,
    PUBLISHED,
    live_pictures,
    pictures,
)
from reproductions.grid_quantities import (
    Change,
    Difference,
    Gain,
    Largest,
    Level,
    Measure,
    Quantity,
)
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import (
    AnyFigure,
    Limits,
    Panel,
    Relation,
)
from reproductions.published_values import (
    marks_of,
    published_points,
    with_published,
)
from reproductions.stored_results import has_curves, sections, stored

NOT_DRAWN = {
    "> +100 %": "holds in most scenarios, and names none",
    "> +50 %": "holds in most scenarios, and names none",
    "2 to 4 % less": "all four drops are claims of their own",
    "below 15 %": "compares with Figure 4, which has the number",
    "10⁴ s": "an order of magnitude",
    "o(10³) ≪ o(10⁴) s": "an order of magnitude, of no panel's measure",
    "< 1,000 ms": "no panel shows how long an allocation takes",
    "1 and 0.959": "no panel shows the discount",
    "at most 100 %": "no panel shows the best case",
    "p by a small sample input, errors below 12 %": "of no panel",
    "AMCBF < EASY up to 600 s": "a place on the x axis, up to which it holds",
    "AMCBF < EASY up to 360 s": "a place on the x axis, up to which it holds",
    "AMCBF < EASY below 0.95": "a place on the x axis, up to which it holds",
    "AMCBF < EASY below 0.8": "a place on the x axis, up to which it holds",
    "as told in Section 4.1": "the number of a section",
    "as told in Section 4.2": "the number of a section",
}
"""Published texts with digits that no picture has, and the reason."""
YIELD = Measure("yield", "yield", "%")
A, B = ("a", 2.0), ("b", 2.0)


def made(published: str, *quantities: Quantity) -> list[object]:
    """The marks of a claim that publishes something."""
    checks = tuple(
        Check(quantity, Band(low=0.0)) for quantity in quantities
    )
    claim = Claim("made", published, checks)
    return [mark for _, mark in marks_of(claim)]


@pytest.mark.parametrize(
    ("published", "quantity", "mark"),
    [
        ("99.1 %", Level(YIELD, *A), (A, 99.1)),
        ("10 % succeed", Level(YIELD, *A), (A, 10.0)),
        ("almost 100 %", Level(YIELD, *A), (A, 100.0)),
        ("BL ≈ 100 %", Level(YIELD, *A), (A, 100.0)),
        (
            "+40 %",
            Difference(YIELD, "a", "b", 2.0),
            Relation(A, B, 40.0),
        ),
        (
            "+1,156 %",
            Gain(YIELD, "a", "b", 2.0),
            Relation(A, B, 1156.0, relative=True),
        ),
        (
            "almost 3 ×",
            Gain(YIELD, "a", "b", 2.0),
            Relation(A, B, 200.0, relative=True),
        ),
        (
            "-2.8 %",
            Change(YIELD, "a", 0.0, 2.0, relative=True),
            Relation(A, ("a", 0.0), -2.8, relative=True),
        ),
        (
            "350",
            Largest(YIELD, (Level(YIELD, *A), Level(YIELD, "a", 3.0))),
            Limits((2.0, 3.0), None, 350.0),
        ),
        (
            "up to +2.4 %",
            Largest(YIELD, (Gain(YIELD, "a", "b", 2.0),)),
            Relation(A, B, 2.4, relative=True, at_most=True),
        ),
        ("80 to 100 %", Level(YIELD, *A), Limits((2.0,), 80.0, 100.0)),
    ],
)
def test_a_published_number_is_a_mark(
    published: str, quantity: Quantity, mark: object
) -> None:
    assert made(published, quantity) == [mark]


def test_two_numbers_are_of_both_series() -> None:
    marks = made("55 against 37 %", Difference(YIELD, "a", "b", 2.0))
    assert marks == [(A, 55.0), (B, 37.0)]


@pytest.mark.parametrize("published", ["> +50 %", "ours", "below 15 %"])
def test_other_texts_are_no_marks(published: str) -> None:
    assert made(published, Gain(YIELD, "a", "b", 2.0)) == []


def test_a_relation_is_worth_what_it_says_of_the_other() -> None:
    assert Relation(A, B, 40.0).value(50.0) == 90.0
    assert Relation(A, B, 40.0, relative=True).value(50.0) == 70.0


@pytest.mark.parametrize(
    "figure", sections().values(), ids=lambda figure: figure.section
)
def test_every_published_number_is_in_a_panel_or_listed(
    figure: AnyFigure,
) -> None:
    plotted = {panel.measure.name for panel in figure.panels}
    in_panels = {
        mark
        for panel in figure.panels
        for mark in (
            *panel.published.items(),
            *panel.relations,
            *panel.limits_published,
        )
    }
    for claim in figure.claims:
        if not re.search(r"\d", claim.published):
            continue
        marks = [m for name, m in marks_of(claim) if name in plotted]
        measures = {check.quantity.measure.name for check in claim.checks}
        is_listed = claim.published in NOT_DRAWN
        assert marks or is_listed or not measures & plotted, claim.text
        assert set(marks) <= in_panels, claim.text


def test_reasons_are_of_texts_that_the_ledger_has() -> None:
    texts = {
        claim.published
        for figure in sections().values()
        for claim in figure.claims
    }
    assert set(NOT_DRAWN) <= texts


def test_a_figure_takes_another_ones_published_values() -> None:
    figures = sections()
    known = published_points(
        figures["dcloud-fig7"],
        figures["dcloud-fig7"].panels[0].measure,
    )
    panel = figures["dcloud-requests"].panels[0]
    for (series, x), value in panel.published.items():
        assert known[series.partition(",")[0], x] == value


def drawn(name: str) -> str:
    """A picture of stored values, as text."""
    done = stored()[name].done
    if isinstance(done.figure, LiveFigure):
        return live_pictures(done, done.figure, {})["svg"].decode()
    return pictures(done)["svg"].decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dcloud-fig4", "published for DCloud at 12: DCloud at 0 − 4 %"),
        ("dcloud-fig5", "published for DCloud at 20: VC + 40 points"),
        ("dcloud-fig9", "published for DCloud-BS at 500: VC + 176 %"),
        ("adaba-fig4", "published for AdaBa at 700: at most greedy + 15 %"),
        ("bgmbf-fig8", "published: at most 350"),
        (
            "cmbf-fig3",
            "published for CMCBF, AMCBF at 0.5 to 0.9: at most EASY + 2.4 %",
        ),
        ("cmbf-fig4", "published for CMCBF, AMCBF at 1.2: EASY + 16 %"),
        ("cmbf-interference-live", "published: 80 to 100 %"),
    ],
)
def test_relations_are_named_above_their_panel(
    name: str, words: str
) -> None:
    assert f">{words}</text>" in drawn(name)


@pytest.mark.slow
def test_a_value_far_above_ours_is_named_and_does_not_press_ours() -> None:
    picture = drawn("dcloud-fig5")
    assert "BL + 1,156 % (not drawn: 5" in picture
    ticks = [float(y) for y in re.findall(r">(\d+)</text>", picture)]
    assert max(ticks) <= 100.0


@pytest.mark.slow
def test_the_legend_names_published_values_where_a_panel_has_some() -> None:
    done = stored()["dcloud-fig7"].done
    assert PUBLISHED in pictures(done)["svg"].decode()
    nothing = tuple(Panel(panel.measure) for panel in done.figure.panels)
    bare = replace(done, figure=replace(done.figure, panels=nothing))
    picture = pictures(bare)["svg"].decode()
    assert PUBLISHED not in picture
    assert NAMED not in picture


@pytest.mark.slow
def test_a_live_legend_names_no_value_of_a_panel_that_is_not_drawn() -> (
    None
):
    done = stored()["adaba-fig4-live"].done
    figure = done.figure
    assert isinstance(figure, LiveFigure)
    point = figure.points[0]
    shown, *others = figure.panels
    simulated_alone = [
        replace(panel, published={point: 50.0})
        if panel.measure.name.endswith("_sim")
        else panel
        for panel in others
    ]
    other = replace(figure, panels=(shown, *simulated_alone))
    picture = live_pictures(replace(done, figure=other), other, {})
    assert PUBLISHED not in picture["svg"].decode()


@pytest.mark.slow
def test_a_published_value_stands_out_from_its_bar() -> None:
    done = stored()["adaba-fig4-live"].done
    figure = done.figure
    assert isinstance(figure, LiveFigure)
    shown, *others = figure.panels
    published = dict.fromkeys(figure.points, 20.0)
    marked = replace(shown, published=published)
    other = replace(figure, panels=(marked, *others))
    picture = live_pictures(replace(done, figure=other), other, {})
    svg = picture["svg"].decode()
    assert PUBLISHED in svg
    marks = re.findall(r"fill: #ffffff; stroke: #1b1f24", svg)
    assert len(marks) >= len(figure.series)


@pytest.mark.slow
def test_series_orders_of_magnitude_apart_have_a_logarithmic_axis() -> None:
    picture = drawn("cmbf-fig4")
    assert {">10,000</text>", ">1,000,000</text>"} <= set(
        re.findall(r">[\d,]+</text>", picture)
    )
    assert "1e6" not in picture


@pytest.mark.slow
def test_values_below_zero_are_in_the_picture() -> None:
    picture = drawn("cmbf-interference-live")
    assert ">−20</text>" in picture
    assert ">100</text>" in picture


@pytest.mark.slow
def test_a_legend_has_each_name_once_whatever_the_panels_subject() -> None:
    picture = drawn("adaba-interpretations")
    assert picture.count(">AdaBa</text>") == 1
    assert "AdaBa, tree" not in picture


def test_values_that_a_panel_has_of_its_own_stay() -> None:
    figure = sections()["dcloud-fig7"]
    panel = figure.panels[0]
    point = ("DCloud", 1.0)
    panels = (replace(panel, published={point: 12.0}),)
    after = with_published(replace(figure, panels=panels))
    assert after.panels[0].published[point] == 12.0


def test_pictures_that_values_alone_determine_have_marks_to_draw() -> None:
    marked = [
        name
        for name, figure in sections().items()
        if not has_curves(figure)
        and any(
            panel.published or panel.relations or panel.limits_published
            for panel in figure.panels
        )
    ]
    assert len(marked) >= 14
