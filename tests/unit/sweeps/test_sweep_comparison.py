"""Two sweeps beside each other: which means differ, and by more than their intervals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.errors import BadInput
from testbed.sweeps.intervals import Estimate
from testbed.sweeps.sweep_comparison import MetricPair, compare_sweeps
from testbed.sweeps.sweep_tables import with_interval

HEAD = "load,policy,cells,failed,outside,wait_mean_s,wait_mean_s_ci95\n"
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def swept(base: Path, name: str, *rows: str, head: str = HEAD) -> Path:
    folder = base / name
    folder.mkdir()
    lines = "".join(f"{row}\n" for row in rows)
    (folder / "table.csv").write_text(head + lines, encoding="utf-8")
    (folder / "sweep.svg").write_text(SVG, encoding="utf-8")
    return folder


def test_a_difference_beyond_both_intervals_is_told_from_one_within_them(
    tmp_path: Path,
) -> None:
    first = swept(
        tmp_path, "a", "0.5,vc,3,0,0,10,1", "0.7,vc,3,0,0,20,5", "0.9,vc,3,0,0,1,1"
    )  # fmt: skip
    second = swept(
        tmp_path, "b", "0.5,vc,3,0,0,13,1", "0.7,vc,3,0,0,23,5", "2,vc,3,0,0,1,1"
    )  # fmt: skip
    found = compare_sweeps(first, second)
    apart = {pair.values: pair.is_apart for pair in found.pairs}
    assert apart == {("0.5", "vc"): True, ("0.7", "vc"): False}
    assert found.only_in == (1, 1)
    assert found.sentences() == [
        "2 combinations are in both",
        "1 are only in a",
        "1 are only in b",
        "2 of 2 means differ, 1 by more than both 95 % intervals (apart)",
    ]
    assert found.pairs[0].second_less_first == 3.0
    (outcome,) = found.outcomes()
    assert outcome == (
        "Mean wait, in 2 combinations: more in the second sweep in 1, in the"
        " first in 0; the intervals overlap in 1."
    )
    *_, metric, one, two, difference, key = found.pairs[0].page_cells()
    assert (metric, one, two) == (
        "Mean wait [s]",
        "10.0 ± 1.0",
        "13.0 ± 1.0",
    )
    assert difference == "second 3.00 s more (apart)"
    assert key == "wait_mean_s"


def test_sweeps_with_the_same_means_are_told(tmp_path: Path) -> None:
    first = swept(tmp_path, "a", "0.5,vc,3,0,0,10,1")
    second = swept(tmp_path, "b", "0.5,vc,3,0,0,10,1")
    comparison = compare_sweeps(first, second)
    assert comparison.outcomes() == [
        "Mean wait: the same in 1 combination."
    ]


def test_one_seed_has_no_interval_and_nothing_is_apart(
    tmp_path: Path,
) -> None:
    first = swept(tmp_path, "a", "0.5,vc,1,0,0,10,")
    second = swept(tmp_path, "b", "0.5,vc,1,0,0,13,")
    comparison = compare_sweeps(first, second)
    (pair,) = comparison.pairs
    assert not pair.is_apart
    assert pair.cells()[-1] == "+3"
    (outcome,) = comparison.outcomes()
    assert outcome == (
        "Mean wait, in 1 combination: more in the second sweep in 0, in the"
        " first in 0; the intervals overlap in 0; 1 without two intervals."
    )


def test_a_combination_without_a_mean_is_left_out(tmp_path: Path) -> None:
    first = swept(tmp_path, "a", "0.5,vc,3,3,0,,")
    second = swept(tmp_path, "b", "0.5,vc,3,0,0,13,1")
    assert compare_sweeps(first, second).pairs == ()


def test_sweeps_over_other_keys_are_refused(tmp_path: Path) -> None:
    first = swept(tmp_path, "a", "0.5,vc,3,0,0,10,1")
    head = HEAD.replace("load", "jobs")
    second = swept(tmp_path, "b", "5,vc,3,0,0,10,1", head=head)
    with pytest.raises(
        BadInput, match=r"varies load, policy, and .* varies jobs"
    ):
        compare_sweeps(first, second)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n1,2\n",
        HEAD + "1,vc,x,0,0,1,1\n",
        HEAD + "1,vc,3,0,0,1,inf\n",
        HEAD + "1,vc,3,0,0,nan,1\n",
    ],
)
def test_a_damaged_table_is_named(tmp_path: Path, text: str) -> None:
    first = swept(tmp_path, "a", "0.5,vc,3,0,0,10,1")
    second = swept(tmp_path, "b", head=text)
    with pytest.raises(
        BadInput, match=r"b/table\.csv: is no table of a sweep"
    ):
        compare_sweeps(first, second)


def test_the_verb_compares_sweeps_and_writes_a_page_that_runs_no_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = swept(tmp_path, "a", "0.5,vc,3,0,0,10,1")
    second = swept(tmp_path, "b", "0.5,vc,3,0,0,13,1")
    page = tmp_path / "page.html"
    words = ["compare", str(first), str(second)]
    assert run([*words, "--page", str(page)]) == 0
    assert "1 of 1 means differ" in capsys.readouterr().out
    text = page.read_text("utf-8")
    assert "10.0 ± 1.0" in text
    assert "<title>Two sweeps compared</title>" in text
    assert "Mean wait, in 1 combination: more in the second" in text
    assert text.count("data:image/svg+xml;base64,") == 2
    assert "<h2>The means of both sweeps</h2>" in text
    assert "The jobs over time" not in text
    assert "<script" not in text
    assert run([*words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["means"][0]["apart"] is True


def test_a_page_shows_the_pictures_that_there_are(tmp_path: Path) -> None:
    first = swept(tmp_path, "a", "0.5,vc,3,3,0,,")
    second = swept(tmp_path, "b", "0.5,vc,3,0,0,13,1")
    # Where no cell has a result, there is none.
    (first / "sweep.svg").unlink()
    page = tmp_path / "page.html"
    words = ["compare", str(first), str(second), "--page", str(page)]
    assert run(words) == 0
    text = page.read_text("utf-8")
    assert "Means of two sweeps: first: a; second: b." in text
    assert text.count("data:image/svg+xml;base64,") == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (19421.3, "19,420"),
        (0.74834, "0.7483"),
        (1.0, "1"),
        (-2e6, "-2,000,000"),
    ],
)
def test_a_large_mean_has_no_exponent(value: float, shown: str) -> None:
    assert with_interval(Estimate(value, None, 1)) == shown
    assert with_interval(Estimate(value, 0.0, 2)) == f"{shown} ± 0"
    rounding = abs(value) * 1e-15
    assert with_interval(Estimate(value, rounding, 2)) == f"{shown} ± 0"


def test_what_rounding_leaves_between_two_means_is_no_difference() -> None:
    pair = MetricPair(
        ("0.4",),
        "ratio",
        Estimate(1.0, 0.1, 3),
        Estimate(1.0 + 3e-15, 0.1, 3),
    )
    assert pair.second_less_first == 0.0
    assert pair.cells()[-1] == "0"
