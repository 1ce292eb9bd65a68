"""Every lab: its solution passes, its start fails in sentences, its wrong answers are found."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path

import pytest

from bench.lab_marks import answered
from testbed.labs import student_folder
from testbed.labs.checking import LAYERS, LIVE, CheckOutcome, run_checks
from testbed.labs.lab_catalogue import Lab, WrongAnswer, labs, wrong_answers
from testbed.labs.submission import Submission

LABS = pytest.mark.parametrize(
    "lab", labs(), ids=lambda lab: f"{lab.number:02}-{lab.name}"
)
WRONG = [(lab, answer) for lab in labs() for answer in wrong_answers(lab)]
SENTENCE = re.compile(
    r"; expected .+ \(see .+\)$|^[\w.-]+\.\w+(:\d+)?: |band .+ to "
)


def offline(lab: Lab, folder: Path) -> list[CheckOutcome]:
    since = time.monotonic()
    outcomes = list(
        run_checks(
            lab.checks, Submission(folder, lab.files), network="offline"
        )
    )
    print(
        f"lab {lab.number}, {folder.name}: {time.monotonic() - since:.1f} s"
    )
    return outcomes


def failed(outcomes: list[CheckOutcome]) -> list[CheckOutcome]:
    return [one for one in outcomes if one.verdict == "failed"]


@pytest.mark.short("01-", "02-", "05-")
@pytest.mark.slow
@LABS
def test_the_solution_passes(lab: Lab) -> None:
    outcomes = offline(lab, lab.path("solution"))
    assert not failed(outcomes), [one.sentence for one in failed(outcomes)]
    live = [one for one in outcomes if one.layer in LIVE]
    assert {one.verdict for one in live} <= {"not run"}
    assert {one.verdict for one in outcomes if one.layer not in LIVE} == {
        "passed"
    }
    assert live, "no check on the wire"


@pytest.mark.slow
@LABS
def test_the_start_fails_in_sentences(lab: Lab) -> None:
    outcomes = offline(lab, lab.path("start"))
    found = failed(outcomes)
    assert found
    # Nothing is earned for nothing.
    assert "passed" not in {one.verdict for one in outcomes}
    for one in found:
        assert "\n" not in one.sentence
        assert SENTENCE.search(one.sentence), one.sentence


@LABS
def test_all_its_parts_are_there(lab: Lab) -> None:
    assert len(student_folder.hints(lab)) == 3
    assert all(student_folder.hints(lab))
    for part in ("page.md", "instructor.md"):
        assert lab.path(part).read_text("utf-8").strip()
    for folder in ("start", "solution"):
        assert all(
            lab.path(f"{folder}/{file}").is_file() for file in lab.files
        )
    assert lab.network is None or lab.path(lab.network).is_file()
    names = [check.name for check in lab.checks]
    assert len(names) == len(set(names))
    assert [c.layer for c in lab.checks] == sorted(
        (c.layer for c in lab.checks), key=LAYERS.index
    )
    wrong = wrong_answers(lab)
    assert len(wrong) >= 6
    layers = {check.name: check.layer for check in lab.checks}
    assert any(layers[answer.fails] in LIVE for answer in wrong), (
        "none is found on the wire alone"
    )


@LABS
def test_the_solution_is_nowhere_else(lab: Lab) -> None:
    """No three lines of a solution's function that the start does not have stand in the page."""
    files = (
        path for path in lab.path("start").rglob("*") if path.is_file()
    )
    given = [path for path in files if path.parent.name != "__pycache__"]
    texts = {path.name: _plain(path.read_text("utf-8")) for path in given}
    page = _plain(
        lab.path("page.md").read_text("utf-8")
        + lab.path("hints.md").read_text("utf-8")
    )
    for file in lab.files:
        if not file.endswith(".py"):
            continue
        start = _bodies(lab.path(f"start/{file}"))
        for name, body in _bodies(lab.path(f"solution/{file}")).items():
            if body == start.get(name):
                continue
            own = [
                _plain(line)
                for line in body.splitlines()
                if len(_plain(line)) >= 12
            ]
            for text in (page, texts[file]):
                run = longest = 0
                for line in own:
                    run = run + 1 if line in text else 0
                    longest = max(longest, run)
                assert longest < 3, f"{file}: {name}"
                assert _plain(body) not in text or len(_plain(body)) < 40, (
                    f"{file}: {name}"
                )


def _plain(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _bodies(path: Path) -> dict[str, str]:
    """The text of each function's body, without its docstring."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            body = (
                node.body[1:]
                if ast.get_docstring(node) is not None
                else node.body
            )
            found[node.name] = "\n".join(map(ast.unparse, body))
    return found


@pytest.mark.short(
    "02-no default class", "02-queues in packets", "05-rates in"
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("lab", "answer"),
    WRONG,
    ids=[f"{lab.number:02}-{answer.name}" for lab, answer in WRONG],
)
def test_a_wrong_answer_is_found_by_its_check(
    lab: Lab, answer: WrongAnswer, tmp_path: Path
) -> None:
    folder = answered(lab, tmp_path / "handed-in", answer)
    (finder,) = [
        check for check in lab.checks if check.name == answer.fails
    ]
    outcomes = run_checks(
        lab.checks, Submission(folder, lab.files), network="offline"
    )
    found = next((one for one in outcomes if one.verdict == "failed"), None)
    if finder.layer in LIVE:
        assert found is None, "an earlier layer finds it"
    else:
        assert found is not None
        assert found.check == answer.fails
        assert SENTENCE.search(found.sentence), found.sentence


def test_a_students_page_has_no_comments_and_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for lab in labs():
        assert "<!--" in lab.path("page.md").read_text("utf-8")
        student_folder.make(lab, tmp_path / lab.name)
        page = (tmp_path / lab.name / student_folder.PAGE).read_text(
            "utf-8"
        )
        assert "<!--" not in page
        assert page.startswith("# Lab")
    (fifth,) = [lab for lab in labs() if lab.number == 5]
    start = (tmp_path / fifth.name / "index.py").read_text("utf-8")
    page = (tmp_path / fifth.name / student_folder.PAGE).read_text("utf-8")
    for answer in ("5.7", "30.6", "4.75", "3.55", "7.85"):
        assert answer not in start
        assert answer not in page


HEADROOM = (
    "*Headroom*: the live part needs no quiet machine; beside a program that "
    "takes half a processor the solution earns all its live points."
)
BENCHMARKS = Path(__file__).parents[3] / "docs" / "benchmarks.md"


@LABS
def test_its_page_says_its_headroom_as_it_was_measured(lab: Lab) -> None:
    assert HEADROOM in lab.path("page.md").read_text("utf-8")
    points = sum(
        check.points for check in lab.checks if check.layer in LIVE
    )
    table = BENCHMARKS.read_text("utf-8").partition("### Labs")[2]
    row = re.search(rf"^\| {lab.number} \|(.*)$", table, re.M)
    assert row
    _, _, measured, *_ = row[1].split("|")
    assert {int(earned) for earned in measured.split(",")} == {points}
