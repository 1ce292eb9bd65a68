"""The picture of a class's marks: files beside marks.csv, with the same marks."""

from __future__ import annotations

import csv
from pathlib import Path

from testbed.labs.grading import Mark, write_tables
from testbed.labs.mark_pictures import marks_picture, marks_sentences
from testbed.record.folder import RunFolder

NAMES = ("ada", "bob", "=eve")


def mark(student: str, lab: int, earned: int) -> Mark:
    check = {
        "layer": "unit",
        "check": "it adds",
        "points": 10,
        "earned": earned,
        "verdict": "passed" if earned else "failed",
        "sentence": "it adds",
        "margins": [],
        "printed": "",
    }
    return Mark(student, lab, 10, (check,))


def test_files_and_page_have_the_picture(tmp_path: Path) -> None:
    marks = []
    for number, student in enumerate(NAMES):
        marks += [mark(student, 1, 5 * number), mark(student, 2, 10)]
    out = RunFolder(tmp_path / "marks")
    out.make()
    write_tables(out, "A class", marks)
    assert (out.path / "shares.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out.path / "shares.svg").read_text()
    with (out.path / "shares.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(marks)
    for row, shown in zip(rows, marks, strict=True):
        assert int(row["earned"]) == shown.earned
        assert float(row["share_percent"]) == 10 * shown.earned
    # No spreadsheet takes a name for a formula.
    assert not any(row["student"].startswith("=") for row in rows)
    page = (out.path / "marks.html").read_text()
    assert "<svg" in page
    assert "lab 1: 50 % (3 students); lab 2: 100 % (3 students)" in page
    opening = page[: page.index("</header>")]
    assert "3 students, 2 labs. Median share of the points" in opening
    assert "All points of their lab: 4 of 6 marks." in opening


def test_points_of_equal_marks_are_apart() -> None:
    picture = marks_picture([mark(f"s{n}", 1, 10) for n in range(30)])
    assert picture is not None
    (axes,) = picture.draw().axes
    places = [float(x) for x in axes.lines[0].get_xdata()]
    assert len(set(places)) == 30
    assert max(map(abs, places)) < 0.5
    assert axes.get_ylabel() == "share of the points [%]"


def test_without_a_graded_lab_there_is_none() -> None:
    assert marks_picture([Mark("ada", 1, 8, problem="no folder")]) is None


def test_what_has_no_mark_is_told_on_top(tmp_path: Path) -> None:
    marks = [
        mark("ada", 1, 10),
        Mark("bob", 1, 10, problem="nothing handed in"),
        Mark("eve", 1, 10, problem="the grading was stopped"),
    ]
    lines = marks_sentences(marks)
    assert "Nothing was handed in for 1 of them." in lines
    assert any(
        line.startswith("Not graded: 1 of 3 marks") for line in lines
    )
    out = RunFolder(tmp_path / "marks")
    out.make()
    write_tables(out, "A class", marks)
    page = (out.path / "marks.html").read_text()
    assert '<div class="verdict doubt"' in page


def test_a_class_without_a_mark_is_told() -> None:
    lines = marks_sentences([Mark("ada", 1, 8, problem="no folder")])
    assert lines == ["1 student, 1 lab: nothing could be graded."]


def test_points_of_checks_that_did_not_run_are_told() -> None:
    check = {"points": 10, "earned": 0, "verdict": "not run"}
    lines = marks_sentences([Mark("ada", 1, 10, (check,))])
    assert any(line.startswith("Some checks did not run") for line in lines)
