"""The registered figures: whole, sound, and of the shape that is published."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from reproductions import configuration
from reproductions.catalogue import FIGURES, figures
from reproductions.figure_plots import _tick_labels, pictures
from reproductions.grid_quantities import Grid
from reproductions.published_figure import Figure, Reproduced
from reproductions.stored_results import stored
from testbed.errors import BadInput
from testbed.play import playing

ALL = list(FIGURES.values())


@pytest.mark.parametrize("figure", ALL, ids=lambda figure: figure.name)
def test_every_claim_can_be_judged_from_the_figure_s_own_points(
    figure: Figure,
) -> None:
    class Anything(dict[str, float]):
        def __missing__(self, _: str) -> float:
            return 0.5

    points = {point: (Anything(), Anything()) for point in figure.points}
    for claim in figure.claims:
        assert claim.text
        assert claim.published
        assert claim.checks
        assert claim.judge(Grid(points)).verdict in (
            "reproduced",
            "not reproduced",
            "inconclusive",
        )
    texts = Counter(claim.text for claim in figure.claims)
    assert max(texts.values()) == 1, texts.most_common(1)
    for panel in figure.panels:
        assert set(panel.published) <= set(figure.points)


@pytest.mark.parametrize("figure", ALL, ids=lambda figure: figure.name)
def test_configurations_are_plain_values_that_differ(
    figure: Figure,
) -> None:
    for quick in (False, True):
        runs = [
            run
            for own in figure.configurations(2, quick=quick).values()
            for run in own
        ]
        texts = {
            (type(run), json.dumps(run.to_json(), sort_keys=True))
            for run in runs
        }
        assert len(texts) == len(set(runs))
        assert len(runs) == len(figure.points) * (1 if figure.exact else 2)
        assert all(run.cost() > 0 for run in runs)


def test_seeds_are_common_to_all_series() -> None:
    runs = FIGURES["dcloud-fig5"].configurations(3, quick=False)
    requests = {}
    for (_, x), own in runs.items():
        for run in own:
            plain = {
                k: v for k, v in run.to_json().items() if k != "policy"
            }
            requests.setdefault((x, plain["seed"]), []).append(plain)
    for same in requests.values():
        assert len(same) == 3
        assert all(one == same[0] for one in same)


def test_seeds_begin_at_the_first_one_and_play_the_same() -> None:
    early = replace(FIGURES["dcloud-fig5"], first_seed=1)
    late = replace(early, first_seed=101)
    for runs in late.configurations(3, quick=True).values():
        seeds = [run.to_json()["seed"] for run in runs]
        assert seeds == [101, 102, 103]
    assert late.played_digest() == early.played_digest()


def test_names_in_the_order_given_and_each_once() -> None:
    wanted = figures(["dcloud-fig9", "dcloud-fig4", "dcloud-fig9"])
    assert [figure.name for figure in wanted] == [
        "dcloud-fig9",
        "dcloud-fig4",
    ]


def test_unknown_names_are_all_reported_with_the_known() -> None:
    with pytest.raises(BadInput) as caught:
        figures(["dcloud-fig5", "dcloud-fg6", "nothing"])
    assert "dcloud-fg6, nothing" in caught.value.message
    assert "did you mean dcloud-fig6?" in caught.value.message
    assert caught.value.hint is not None
    assert all(name in caught.value.hint for name in FIGURES)


@pytest.mark.slow
def test_a_strategic_tenant_gains_nothing_but_what_the_paper_grants() -> (
    None
):
    figure = FIGURES["dcloud-charging"]
    runs = {
        run
        for own in figure.configurations(1, quick=False).values()
        for run in own
    }
    done = Reproduced.of(
        figure, 1, {run: run.run() for run in runs}, quick=False
    )
    assert [
        j.claim.text for j in done.judged if j.verdict != "reproduced"
    ] == []


@pytest.mark.parametrize(
    ("xs", "labels"),
    [
        ((90.0, 96.0, 100.0, 190.0), ["90", "96", "\n100", "190"]),
        ((100.0, 96.0, 0.0), ["100", "\n96", "0"]),
        ((1.0, 2.0, 20.0), ["1", "2", "20"]),
        ((5.0,), ["5"]),
    ],
)
def test_labels_along_x_do_not_touch(
    xs: tuple[float, ...], labels: list[str]
) -> None:
    assert _tick_labels(xs) == labels


def test_series_at_one_x_stand_below_each_other_by_name() -> None:
    done = stored()["dcloud-bl"].done
    assert len(done.figure.xs) == 1
    picture = pictures(done)["svg"].decode()
    heights = {}
    for y, name in re.findall(
        r' y="([\d.]+)"[^>]*>([^<]+)</text>', picture
    ):
        if name in done.figure.series:
            heights[name] = float(y)
    assert sorted(heights, key=heights.__getitem__) == list(
        done.figure.series
    )


def test_allocations_are_timed_with_loaded_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loading machine code is no part of a process's first allocation."""
    order: list[str] = []

    def play(*_: object, **__: object) -> None:
        order.append("played")
        raise InterruptedError

    monkeypatch.setattr(
        configuration, "load_loops", lambda: order.append("loaded")
    )
    monkeypatch.setattr(playing, "play", play)
    points = FIGURES["dcloud-fig4"].configurations(1, quick=True)
    (run,) = points["DCloud", 0.0]
    with pytest.raises(InterruptedError):
        run.run()
    assert order == ["loaded", "played"]
