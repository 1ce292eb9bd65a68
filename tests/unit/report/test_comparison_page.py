"""``compare --page``: two runs beside each other, with the pictures of both."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.record.comparison import compare_runs
from testbed.record.reading import load_run
from testbed.report.comparison_page import (
    comparison_page,
    metric_cells,
    most_different,
)
from tests.unit.record import sample
from tests.unit.record.written import write_run


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    first, _ = write_run(tmp_path, sample.main_example(), name="first")
    second, _ = write_run(tmp_path, sample.main_example(), name="second")
    return first.path, second.path


def test_the_page_has_both_pictures_the_metrics_and_the_jobs(
    folders: tuple[Path, Path],
) -> None:
    runs = load_run(folders[0]), load_run(folders[1])
    found = compare_runs(*runs)
    page = comparison_page([(found, *runs)], 3)
    assert page.count("<svg") == 2
    assert all(sentence in page for sentence in found.sentences())
    for field, *_ in metric_cells(found):
        assert f">{field}</td>" in page
    for pair in most_different(found, 3):
        assert f">{pair.job_id}</td>" in page
    assert "default-src 'none'" in page


def test_the_verb_writes_the_page_and_still_prints(
    folders: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "page.html"
    words = ["compare", *map(str, folders), "--page"]
    assert run([*words, str(page)]) == 0
    shown = capsys.readouterr()
    assert "decisions are the same" in shown.out
    assert f"page: {page}" in shown.err
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("name", [".", "no-such/page.html"])
def test_a_page_that_cannot_be_written_is_refused(
    folders: tuple[Path, Path],
    tmp_path: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    to = tmp_path / name
    assert run(["compare", *map(str, folders), "--page", str(to)]) == 2
    assert f"--page {to}" in capsys.readouterr().err


def test_pictures_of_both_runs_are_files_with_their_values(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    to = tmp_path / "pictures"
    words = ["compare", *map(str, folders), "--pictures", str(to)]
    assert run([*words, "--json"]) == 0
    names = {path.name for path in to.iterdir()}
    assert names == {
        f"{side}-gantt.{kind}"
        for side in ("first", "second")
        for kind in ("svg", "png", "csv")
    }
    for side, folder in zip(("first", "second"), folders, strict=True):
        with (to / f"{side}-gantt.csv").open(newline="") as file:
            phases = list(csv.DictReader(file))
        jobs = {row.job_id for row in load_run(folder).rows}
        assert {phase["job_id"] for phase in phases} == jobs


def test_pictures_of_sweeps_are_files_beside_their_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeps = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        for file in ("sweep.svg", "sweep.png"):
            (folder / file).write_text(f"{file} of {name}")
        (folder / "table.csv").write_text("policy,cells\nvc,1\n")
        sweeps.append(str(folder))
    both = tmp_path / "both"
    words = ["compare", *sweeps, "--pictures", str(both), "--json"]
    assert run(words) == 0
    names = ("sweep.svg", "sweep.png", "table.csv")
    assert {path.name for path in both.iterdir()} == {
        f"{side}-{name}" for side in ("first", "second") for name in names
    }
    of_one = tmp_path / "of-one"
    capsys.readouterr()
    words = ["report", sweeps[0], "--pictures", str(of_one), "--json"]
    assert run(words) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {Path(item["file"]).name for item in listed} == set(names)
    assert (of_one / "sweep.svg").read_text() == "sweep.svg of one"
