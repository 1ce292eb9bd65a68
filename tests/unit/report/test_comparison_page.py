"""``compare --page``: two runs beside each other, with the pictures of both."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.record.comparison import (
    JobPair,
    PolicyComparison,
    compare_runs,
)
from testbed.record.metrics import Fidelity, JobRow
from testbed.record.reading import RecordedRun, load_run
from testbed.report.comparison_page import (
    comparison_page,
    metric_cells,
    most_different,
)
from testbed.report.comparison_sentences import (
    details,
    difference,
    first_difference,
    headline,
    named_jobs,
    sentences,
)
from testbed.report.metric_words import metric_words
from tests.support.undrawn import nothing_drawn
from tests.unit.record import sample
from tests.unit.record.written import write_run


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    first, _ = write_run(tmp_path, sample.main_example(), name="first")
    second, _ = write_run(tmp_path, sample.main_example(), name="second")
    return first.path, second.path


@pytest.mark.slow
def test_the_page_has_both_pictures_the_metrics_and_the_jobs(
    folders: tuple[Path, Path],
) -> None:
    runs = load_run(folders[0]), load_run(folders[1])
    found = compare_runs(*runs)
    page = comparison_page([(found, *runs)], 3)
    assert page.count("<svg") == 2
    assert all(escape(line) in page for line in headline(found))
    assert all(escape(line) in page for line in details(found))
    for field, *_ in metric_cells(found):
        assert f">{field}</td>" in page
        assert f">{metric_words(field).heading}</td>" in page
    for pair in most_different(found, 3):
        assert f">{pair.job_id}</td>" in page
    assert "default-src 'none'" in page


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


FILE = """\
name: day
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, fcfs]
workload: {kind: batch, jobs: 30, vms: {mean: 3}, bandwidth: {mean: 200 Mbit/s}}
"""


@pytest.fixture(scope="module")
def policies(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[RecordedRun, RecordedRun]:
    """Thirty jobs at once: vc rejects most of them, fcfs lets them wait."""
    base = tmp_path_factory.mktemp("runs")
    path = base / "day.yaml"
    path.write_text(FILE)
    with nothing_drawn():
        code = run(["simulate", str(path), "--out", str(base / "out")])
    assert code == 0
    (folder,) = (base / "out").iterdir()
    return load_run(folder / "vc"), load_run(folder / "fcfs")


@pytest.fixture
def compared(
    policies: tuple[RecordedRun, RecordedRun],
) -> PolicyComparison:
    return compare_runs(*policies)


@pytest.mark.slow
def test_the_page_opens_with_the_runs_and_the_outcome(
    policies: tuple[RecordedRun, RecordedRun], compared: PolicyComparison
) -> None:
    page = comparison_page([(compared, *policies)], 3)
    box = page[page.index('class="verdict') : page.index("</header>")]
    assert "<h1>day: vc and fcfs compared</h1>" in page
    assert "<title>day: vc and fcfs compared</title>" in page
    assert "two runs: vc (simulated) and fcfs (simulated), seed" in page
    first, second = compared.summaries
    more = second.finished - first.finished
    assert more > 0
    assert (
        f"Of the same 30 jobs vc finished {first.finished} and fcfs"
        f" {second.finished}: {more} more with fcfs." in box
    )
    assert "fcfs&#39;s jobs waited " in box
    assert "longer on average than vc&#39;s" in box
    assert "Their decisions differ from number " in box
    # Each picture bears its run's name.
    for name in compared.names:
        assert f"<h3>{name}</h3>" in page


@pytest.mark.slow
def test_rejected_jobs_are_counted_by_run_and_their_names_are_cut(
    policies: tuple[RecordedRun, RecordedRun], compared: PolicyComparison
) -> None:
    (rejected,) = named_jobs(compared)
    count = len(rejected.job_ids)
    assert count > 10
    assert rejected.says == f"{count} jobs rejected by vc alone"
    text = " ".join(sentences(compared))
    assert f"{rejected.job_ids[9]} and {count - 10} more" in text
    assert rejected.job_ids[10] not in rejected.sentence
    page = comparison_page([(compared, *policies)], 0)
    assert f"<summary>{rejected.says}</summary>" in page
    assert ", ".join(rejected.job_ids) in page
    assert compared.to_json()["accepted_differ"] == list(rejected.job_ids)


@pytest.mark.slow
def test_a_difference_says_in_whose_favour(
    compared: PolicyComparison,
) -> None:
    first, second = compared.summaries
    rates = first.success_rate, second.success_rate
    assert rates[0] is not None
    assert rates[1] is not None
    points = f"{100 * (rates[1] - rates[0]):.1f}"
    assert difference(compared, "success_rate") == (
        f"fcfs {points} points more"
    )
    assert difference(compared, "rejected").startswith("vc ")
    assert difference(compared, "preemptions") == "the same"
    assert f"success rate: fcfs {points} points more" in details(compared)


@pytest.mark.slow
def test_runs_of_other_jobs_are_told_and_doubted(
    policies: tuple[RecordedRun, RecordedRun],
) -> None:
    first, second = policies

    def other(row: JobRow, place: int) -> JobRow:
        return replace(row, n_vms=row.n_vms + 1) if place < 4 else row

    rows = tuple(other(row, i) for i, row in enumerate(second.rows[:-1]))
    changed = replace(second, rows=rows)
    comparison = compare_runs(first, changed)
    assert len(comparison.other_requests) == 4
    opening = headline(comparison)[0]
    assert opening.startswith(
        "Not the same jobs: 4 of 29 names in both stand for different jobs,"
        " 1 job only vc had."
    )
    page = comparison_page([(comparison, first, second)], 0)
    assert '<div class="verdict doubt"' in page


def test_a_fidelity_that_is_not_ok_stands_on_top(
    compared: PolicyComparison,
) -> None:
    first, second = compared.summaries
    live = replace(
        second, fidelity=Fidelity("suspect", ("the processors were busy",))
    )
    comparison = replace(compared, summaries=(first, live))
    assert headline(comparison)[-1] == (
        "The emulation of fcfs (simulated) is suspect: the processors were"
        " busy."
    )


def test_times_are_told_in_units_that_fit(
    compared: PolicyComparison,
) -> None:
    pairs = (
        JobPair("a", ("finished",) * 2, (0.0, 0.0), (9.0, 9.0), (9.0, 26e3), 0.0, 25991.0),
        JobPair("b", ("finished",) * 2, (0.0, 0.0), (9.0, 9.0), (9.0, 26e3), 0.0, 25991.0),
        JobPair("c", ("finished",) * 2, (0.0, 0.0), (9.0, 18.0), (9.0, 8e4), 1.0, 79512.89),
    )  # fmt: skip
    spread_of = compared.completion
    assert spread_of is not None
    wide = replace(spread_of, min=0.0, median=0.0, max=1.0)
    comparison = replace(compared, jobs=pairs, completion=wide)
    running, ends, _ = details(comparison)
    assert running == (
        "half of the 3 jobs that finished in both ran equally long; the"
        " largest difference: c ran 100.00 % longer with fcfs"
    )
    assert ends == (
        "half of them ended within 7 h 13 min of each other; c ended"
        " 22 h 05 min later with fcfs"
    )


def test_the_same_decisions_are_told_in_the_box(
    policies: tuple[RecordedRun, RecordedRun],
) -> None:
    comparison = compare_runs(policies[0], policies[0])
    assert first_difference(comparison) == (
        "All decisions are the same, at the same times."
    )
