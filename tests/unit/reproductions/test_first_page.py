"""The first page of the papers' results, made from made verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from reproductions import first_page, paper_pages
from reproductions.catalogue import LIVE_FIGURES
from reproductions.claim_checks import Band, Check, Claim
from reproductions.first_page import (
    commits,
    live_sentences,
    main_results,
    paragraphs,
    times,
)
from reproductions.grid_quantities import Grid, Level
from reproductions.published_figure import Reproduced
from reproductions.stored_results import StoredResult
from tests.support.made_claims import more
from tests.support.made_figures import YIELD, Sum, figure, grid

VALUES = grid(
    a=[(50.0, 50.1, 50.2)] * 3, b=[(40.0, 40.1, 40.3)] * 2 + [(60.0,) * 3]
)
DIRECTION = Claim("a leads", "a > b", more(YIELD, "a", ("b",), [0.0]))
AS_NUMBER = Claim(
    "a is at fifty",
    "50 %",
    (Check(Level(YIELD, "a", 0.0), Band(45.0, 55.0)),),
    status="fitted",
)
WRONG = Claim(
    "b leads",
    "b > a",
    more(YIELD, "b", ("a",), [0.0, 2.0]),
    headline=True,
    beside=more(YIELD, "b", ("a",), [2.0]),
)
OWN = Claim("made", "ours", more(YIELD, "a", ("b",), [0.0]), "own check")


@pytest.fixture(autouse=True)
def _made_figures_are_jsa_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_page, "paper_of", lambda _: "jsa")


def result(
    claims: Sequence[Claim],
    *,
    values: Grid = VALUES,
    old: str = "",
    in_advance: bool = True,
    **record: Any,
) -> StoredResult:
    stated = replace(figure(*claims), seeds=3)
    done = Reproduced(stated, 3, quick=False, grid=values)
    facts = {"code": {"commit": "a"}, "cpu_s": 3600.0, "seeds": 3}
    return StoredResult(done, {**facts, **record}, old, in_advance)


@pytest.mark.parametrize(
    ("in_advance", "end"),
    [
        (True, "0 cannot be decided."),
        (False, "1 was judged on values known before their rules."),
    ],
)
def test_nothing_is_counted_where_there_is_nothing(
    in_advance: bool, end: str
) -> None:
    main = replace(DIRECTION, headline=True)
    text = paragraphs({"x": result([main], in_advance=in_advance)})
    numbers, _, main_results = text.partition("\n\n")
    assert numbers.endswith(end)
    assert main_results == (
        "Of its 1 main result:\n\n"
        "- 1 holds as a direction only: “a leads” ([x](jsa.md#x))"
    )


def test_a_paragraph_counts_by_outcome_and_names_the_main_results() -> None:
    claims = (DIRECTION, AS_NUMBER, WRONG, OWN)
    text = paragraphs({"made-fig1": result(claims, in_advance=False)})
    assert text == (
        "**JSA.** Of 3 sentences 1 holds with its number, 1 holds as a "
        "direction only, 1 does not hold and 0 cannot be decided. Of the 3, "
        "3 were judged on values known before their rules and 1 took part "
        "in choosing an interpretation.\n\n"
        "Of its 1 main result:\n\n"
        "- 1 does not hold: “b leads” ([made-fig1](jsa.md#made-fig1))\n\n"
        "By the rule that stands beside, and is not counted, “b leads” "
        "([made-fig1](jsa.md#made-fig1)) holds."
    )


def test_a_sentence_of_two_figures_is_quoted_once() -> None:
    every = {"made-fig1": result((WRONG,)), "made-fig2": result((WRONG,))}
    text = paragraphs(every)
    links = "[made-fig1](jsa.md#made-fig1), [made-fig2](jsa.md#made-fig2)"
    assert (
        f"Of its 2 main results:\n\n- 2 do not hold: “b leads” ({links})"
        in text
    )


def test_old_results_are_no_part_of_the_counts() -> None:
    every = {
        "made-fig1": result((DIRECTION,)),
        "made-fig2": result((WRONG,), old="its commit is gone"),
    }
    text = paragraphs(every)
    assert "Of 1 sentence 0 hold with their numbers" in text
    assert "main result" not in text
    assert "of old results, which do not count, are 1 more" in text


def test_main_results_show_the_verdict_beside_them() -> None:
    rows = main_results({"made-fig1": result((WRONG, DIRECTION))})
    assert "a leads" not in rows
    assert (
        "| **not reproduced** |  | reproduced: yield, b − a at 2 above 0 |"
    ) in rows
    old = main_results({"made-fig1": result((WRONG,), old="gone")})
    assert "| | old, not counted |  |" in old


def test_a_long_rule_is_cut_between_words() -> None:
    short = first_page.shortened("yield | of a " * 30)
    assert len(short) <= first_page.LONGEST_RULE
    assert short.endswith(" …")
    assert "|" not in short


def test_sentences_of_the_live_network_stand_apart() -> None:
    runs = [{"verdict": verdict} for verdict in ("ok", "ok", "suspect")]
    every = {
        "made-fig1": result((DIRECTION,)),
        "made-live": result((AS_NUMBER,), runs=runs),
        "silent-live": result((OWN,), runs=runs),
    }
    table = live_sentences(every)
    assert "a leads" not in table
    assert "| 3 seeds, 3 runs: 2 ok, 1 suspect | rules first |" in table
    assert table.endswith("Own checks alone: silent-live.")


def test_commits_are_those_of_results_that_count() -> None:
    every = {
        "a": result((DIRECTION,), code={"commit": "a" * 40}),
        "b": result((DIRECTION,), code={"commit": "a" * 40}),
        "c": result((DIRECTION,), code={"commit": "c"}),
        "d": result((DIRECTION,), code={"commit": "d"}, old="gone"),
    }
    assert commits(every) == (
        "Results that count: 3, of 2 commits; 2 are wholly of `aaaaaaaaaa`."
    )


def test_a_run_without_a_commit_is_at_no_further_one() -> None:
    runs = [{"commit": "b"}, {"commit": None}, {}]
    machine = {"cpu_model": None, "cpus": 2, "memory_bytes": 2**30}
    of_figure = result(
        (DIRECTION,),
        in_advance=False,
        code={"commit": "b"},
        runs=runs,
        machine=machine,
    )
    every = {"a": of_figure}
    assert commits(every) == "Results that count: 1, of 1 commit."
    page = paper_pages._taken(of_figure)
    assert "(live runs: 2 at an unknown commit, 1 at b)" in page


def test_the_time_of_all_is_that_of_the_seeds_that_rules_need() -> None:
    alone = result((DIRECTION,))
    needed = replace(alone.done.figure, seeds=6)
    more_seeds = replace(alone, done=replace(alone.done, figure=needed))
    wall = [{"verdict": "ok", "wall_s": 1800.0}]
    measured = replace(LIVE_FIGURES["cmbf-fig1"], seeds=3)
    live = replace(
        result((DIRECTION,), runs=wall),
        done=replace(alone.done, figure=measured),
    )
    text = times({"a": more_seeds, "the same": more_seeds, "live": live})
    assert "took 1.0 processor hours" in text
    assert "and 0.5 hours on the live network" in text
    assert "--all              # 2.0 processor hours" in text
    assert "--all --live  # 0.5 hours of wall time" in text


def test_a_figure_with_runs_of_its_own_is_counted() -> None:
    def apart(series: str, x: float, seed: int, quick: bool) -> Sum:
        return Sum(x, seed + 7.0)

    alone = result((DIRECTION,))
    other = replace(figure(DIRECTION), configuration=apart)
    another = replace(alone, done=replace(alone.done, figure=other))
    text = times({"a": alone, "b": another})
    assert "took 2.0 processor hours" in text
