"""``testbed lab``: exit codes, JSON, folders, hints, marks of a class; examples that repeat."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from testbed import labs
from testbed.cli import main
from testbed.labs import grading, lab_catalogue, sandbox
from testbed.labs.checking import Margin, Wrong, for_all, run_check
from testbed.labs.submission import CodeFailed, Submission
from tests.support import small_lab

ROOT = Path(__file__).parents[3]
confined = pytest.mark.skipif(
    bool(sandbox.unavailable()), reason=sandbox.unavailable()
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, the small lab, and no root: what is live is tested in tests/emu."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(lab_catalogue, "LABS", tmp_path / "labs")
    monkeypatch.setattr(
        "testbed.labs.checked_folder.live_network", lambda _: "no root"
    )
    lab_catalogue.labs.cache_clear()
    lab_catalogue._checks.cache_clear()
    small_lab.make(tmp_path / "labs")
    yield
    lab_catalogue.labs.cache_clear()
    lab_catalogue._checks.cache_clear()


def run(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    code = main.run(["lab", *arguments])
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def as_json(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, Any]:
    code, out, _ = run(capsys, *arguments, "--json")
    return code, json.loads(out)


def solve(folder: str = "lab-01-small") -> None:
    Path(folder, small_lab.FILE).write_text(small_lab.GOOD)


# -- one folder


@pytest.mark.slow
def test_a_lab_from_its_start_to_its_points(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert as_json(capsys, "start", "1") == (
        0,
        {"lab": 1, "folder": "lab-01-small"},
    )
    code, out, err = run(capsys, "check", "1")
    assert code == 1
    assert "answer() returned 0; expected 42 (see README.md, 'One')" in out
    assert "failed       answer() is 42 (0 of 3)\n" in out
    assert "not run      the wire (0 of 2)\n" in out
    assert "1 of 6 points" in out
    assert "next: testbed lab hint 1\n" in err
    assert "the rest needs root" not in err
    solve()
    code, out, err = run(capsys, "check", "1")
    assert code == 0
    assert "passed       answer() is 42 (3 of 3)\n" in out
    assert "4 of 6 points" in out
    assert "next:" not in err
    assert (
        "the rest needs root: sudo testbed lab check 1 --in lab-01-small"
        in err
    )


@pytest.mark.slow
def test_a_check_that_is_not_reached_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = lab_catalogue.LABS / "01-small" / "small_checks.py"
    text.write_text(small_lab.CHECKS.replace('"wire", on', '"text", on'))
    run(capsys, "start", "1", "--out", "mine")
    _, out, err = run(capsys, "check", "1", "--in", "mine")
    assert (
        "not reached  the wire (0 of 2): an earlier layer has failed\n"
        in out
    )
    assert "next: testbed lab hint 1 --in mine\n" in err


@pytest.mark.slow
def test_the_record_of_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "start", "1", "--out", "mine")
    code, record = as_json(capsys, "check", "1", "--in", "mine")
    assert code == 1
    keys = [
        "lab",
        "folder",
        "passed",
        "complete",
        "earned",
        "points",
        "checks",
    ]
    assert list(record) == keys
    assert (record["passed"], record["complete"], record["earned"]) == (
        False,
        False,
        1,
    )
    assert record["checks"][0] == {
        "check": "answer() is 42",
        "layer": "pure",
        "verdict": "failed",
        "points": 3,
        "sentence": "answer() returned 0; expected 42 (see README.md, 'One')",
        "margins": [],
        "printed": "",
        "earned": 0,
    }


def test_a_margin_that_is_no_number_is_null() -> None:
    shown = Margin("x", float("nan"), 0, 1).to_json()
    assert shown["value"] is None
    assert json.dumps(shown, allow_nan=False)


def test_hints_come_one_by_one_and_survive_a_reset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(capsys, "start", "1")
    texts = [as_json(capsys, "hint", "1")[1] for _ in range(4)]
    assert [(one["hint"], one["text"]) for one in texts] == [
        (1, "one"), (2, "two"), (3, "three"), (3, "three"),
    ]  # fmt: skip
    solve()
    code, record = as_json(capsys, "reset", "1")
    assert code == 0
    assert (
        Path(record["kept"], small_lab.FILE).read_text() == small_lab.GOOD
    )
    assert "return 0" in Path("lab-01-small", small_lab.FILE).read_text()
    assert as_json(capsys, "hint", "1")[1]["hint"] == 1
    assert as_json(capsys, "reset", "1")[1]["kept"].endswith(
        "before-reset-2"
    )


def test_the_folder_one_is_in_is_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "start", "1", "--out", "mine")
    monkeypatch.chdir("mine")
    assert as_json(capsys, "check", "1")[1]["folder"] == "."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["start", "9"], "there is no lab 9: known are 1, 2"),
        (
            ["check", "1"],
            "lab-01-small is no folder of a lab (.lab.json: is not in the folder)",
        ),
        (["hint", "1", "--in", "nowhere"], "nowhere is no folder of a lab"),
        (
            ["reset", "1", "--in", "other"],
            "other is a folder of lab 2, not 1",
        ),
        (["start", "1", "--out", "other"], "other is there already"),
        (["check", "1", "--in", "damaged"], "damaged/.lab.json is damaged"),
        (
            ["check", "1", "--in", "loop"],
            "loop is no folder of a lab (.lab.json: cannot be read",
        ),
        (["start", "1", "--out", "loop"], "loop: "),
        (["check", "x"], "Invalid value for 'N'"),
        (["grade", "nowhere"], "nowhere: No such file or directory"),
        (["grade", "empty"], "empty: no student's folder holds a lab"),
        (["grade", "other"], "other is one student's folder"),
    ],
)
def test_what_is_wrong_is_a_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    shutil.copytree(
        lab_catalogue.LABS / "01-small", lab_catalogue.LABS / "02-second"
    )
    lab_catalogue.labs.cache_clear()
    run(capsys, "start", "2", "--out", "other")
    Path("empty").mkdir()
    Path("loop").symlink_to("loop")
    Path("damaged").mkdir()
    Path("damaged/.lab.json").write_text('{"lab": []}')
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    # No hint leads to a folder that is taken.
    assert "--out damaged" not in err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (
            ["hint", "1"],
            "cd to where it is, or --in FOLDER; testbed lab start 1 begins the lab",
        ),
        (
            ["start", "1", "--out", "mine"],
            (
                "testbed lab check 1 --in mine resumes it; "
                "testbed lab reset 1 --in mine begins anew"
            ),
        ),
        (["start", "1", "--out", "file"], "name another folder with --out"),
        (
            ["start", "1", "--out", "others"],
            "name another folder with --out",
        ),
    ],
)
def test_hints_lead_to_the_students_work(
    capsys: pytest.CaptureFixture[str], arguments: list[str], hint: str
) -> None:
    run(capsys, "start", "1", "--out", "mine")
    Path("file").touch()
    Path("others").mkdir()
    Path("others", "thesis.txt").touch()
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert f"hint: {hint}\n" in err


def test_a_lab_that_is_begun_twice_resumes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(capsys, "start", "1")
    code, _, err = run(capsys, "start", "1")
    assert code == 2
    assert (
        "hint: testbed lab check 1 resumes it; testbed lab reset 1 begins anew\n"
        in err
    )


def test_a_missing_file_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(capsys, "start", "1")
    Path("lab-01-small", small_lab.FILE).unlink()
    code, out, _ = run(capsys, "check", "1")
    assert code == 1
    assert "answer.py: is not in the folder" in out


def test_damaged_hints_of_a_record_are_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(capsys, "start", "1")
    Path("lab-01-small/.lab.json").write_text('{"lab": 1, "hints": -7}')
    assert as_json(capsys, "hint", "1")[1]["hint"] == 1


def test_the_labs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, every = as_json(capsys, "list")
    assert code == 0
    assert every == [
        {
            "number": 1,
            "name": "small",
            "title": "Small",
            "minutes": 1,
            "files": ["answer.py"],
        }
    ]
    assert "Small" in run(capsys, "list")[1]


# -- from Python


@pytest.mark.slow
def test_labs_from_python() -> None:
    folder = labs.start(1)
    assert folder == Path("lab-01-small")
    result = labs.check(1, folder)
    assert (result.passed, result.earned, result.points) == (False, 1, 6)
    assert repr(result).endswith("1 of 6 points")
    assert "expected 42" in repr(result)
    assert labs.hint(1) == "one"
    Path(folder, small_lab.FILE).write_text(
        "def answer():\n    return '<script>'\n"
    )
    page = labs.check(1)._repr_html_()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page


# -- examples


def test_the_smallest_example_is_told() -> None:
    def holds(example: list[int]) -> None:
        if sum(example) > 10:
            raise Wrong(f"{example}", "at most 10", "here")

    numbers = st.lists(st.integers(0, 20))
    with pytest.raises(Wrong) as told:
        for_all(numbers, holds)
    assert str(told.value) == "[11]; expected at most 10 (see here)"


def test_one_that_hung_is_not_asked_for_a_smaller_example() -> None:
    asked = []

    def holds(example: int) -> None:
        asked.append(example)
        if example:
            raise CodeFailed("f.py", "hung", ended=True)

    with pytest.raises(CodeFailed, match="hung"):
        for_all(st.integers(0, 5), holds)
    assert [bool(one) for one in asked].count(True) == 1


def test_a_fault_that_does_not_come_again_is_told() -> None:
    tried = []

    def holds(example: int) -> None:
        tried.append(example)
        if len(tried) == 1:
            raise TypeError("no number")

    with pytest.raises(Flaky):
        for_all(st.integers(0, 5), holds)


@pytest.mark.slow
def test_examples_are_the_same_in_every_program() -> None:
    code = """
import sys
for module in sys.argv[1:]:
    __import__(module)
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from testbed.labs.checking import for_all
for_all(st.lists(st.integers() | st.text()), lambda example: print(ascii(example)), number=60)
"""
    printed = [
        subprocess.run(
            [sys.executable, "-c", code, *modules],
            cwd=ROOT, capture_output=True, check=True, timeout=60,
        ).stdout
        for modules in ([], ["testbed.labs.grading", "testbed.engine.engine"])
    ]  # fmt: skip
    assert printed[0] == printed[1]
    assert len(printed[0].splitlines()) == 60


def test_what_python_orders_by_chance_is_in_one_order(
    tmp_path: Path,
) -> None:
    (tmp_path / "f.py").write_text(
        "import random\n\n\ndef f():\n    return [random.random(), *set('abcdefgh')]\n"
    )
    runs = [
        Submission(tmp_path, ("f.py",), confined=False).call("f.py", "f")
        for _ in range(3)
    ]
    assert runs[0] == runs[1] == runs[2]


def test_errors_of_the_machine_are_no_failures(tmp_path: Path) -> None:
    from testbed.errors import MachineCannot
    from testbed.labs.checking import Check

    def cannot(submission: Submission) -> None:
        raise MachineCannot("no network")

    with pytest.raises(MachineCannot):
        run_check(
            Check("a", "pure", cannot), Submission(tmp_path, ()), None
        )


# -- a class


@pytest.fixture
def a_class() -> Path:
    students = Path("class")
    for name in ("ada", "=1+1"):
        small_lab.hand_in(students / name)
    small_lab.hand_in(
        students / "ben" / "lab-01-small",
        "def answer():\n    return '=<b>'\n",
    )
    (students / "carla").mkdir()
    (students / "__MACOSX" / "ada").mkdir(parents=True)
    (students / "ben" / "__MACOSX").mkdir()
    (students / "names.csv").write_text("not a student\n")
    return students


def rows() -> list[dict[str, str]]:
    with Path("class-marks", grading.CSV).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@confined
def test_an_upload_without_its_record_is_graded_by_its_files(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = small_lab.hand_in(Path("class") / "ada")
    below = small_lab.hand_in(Path("class") / "ben" / "lab-01-small")
    for folder in (alone, below):
        (folder / ".lab.json").unlink()
    Path("class", "carla", "lab-01-small").mkdir(parents=True)
    _, record = as_json(capsys, "grade", "class", "--offline", "--lab", "1")
    earned = {one["student"]: one["earned"] for one in record["marks"]}
    assert earned == {"ada": 4, "ben": 4, "carla": 0}


@pytest.mark.slow
@confined
def test_marks_of_a_class(
    capsys: pytest.CaptureFixture[str], a_class: Path
) -> None:
    code, record = as_json(capsys, "grade", "class", "--offline")
    assert code == 1
    assert [one["student"] for one in record["marks"]] == [
        "=1+1",
        "ada",
        "ben",
        "carla",
    ]
    found = rows()
    assert [
        (r["student"], r["earned"], r["points"], r["not_run"])
        for r in found
    ] == [
        ("'=1+1", "4", "6", "2"),
        ("ada", "4", "6", "2"),
        ("ben", "0", "6", "2"),
        ("carla", "0", "6", "0"),
    ]
    assert (
        found[2]["sentence"]
        == "answer() returned '=<b>'; expected a number (see README.md, 'One')"
    )
    assert found[3]["sentence"] == "the folder holds no lab"
    assert found[0]["pure"] == "4"
    assert found[0]["wire"] == found[2]["wire"] == ""
    page = Path("class-marks", grading.HTML).read_text()
    assert "=&lt;b&gt;" in page
    assert "<b>" not in page
    assert (
        json.loads(Path("class-marks", grading.JSON).read_text())
        == record["marks"]
    )


@pytest.mark.slow
@confined
def test_marks_are_kept_until_something_changes(
    capsys: pytest.CaptureFixture[str],
    a_class: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graded = []
    first = grading._graded
    monkeypatch.setattr(
        grading,
        "_graded",
        lambda e, f, live: (
            graded.append(e.student) or first(e, f, live=live)
        ),
    )

    def again(*options: str) -> list[str]:
        graded.clear()
        run(capsys, "grade", "class", "--offline", *options)
        return sorted(graded)

    assert again() == ["=1+1", "ada", "ben"]
    marks = Path("class-marks", grading.CSV).read_bytes()
    assert again() == []
    assert again("--again") == ["=1+1", "ada", "ben"]
    assert Path("class-marks", grading.CSV).read_bytes() == marks
    (a_class / "ben/lab-01-small" / small_lab.FILE).write_text(
        small_lab.GOOD
    )
    (a_class / "ben/lab-01-small/notes.txt").write_text("not handed in")
    assert again() == ["ben"]
    assert rows()[2]["earned"] == "4"
    for outcome in Path("class-marks", grading.OUTCOMES).iterdir():
        outcome.write_text("{")
    assert again() == ["=1+1", "ada", "ben"]
    checks = lab_catalogue.LABS / "01-small" / "small_checks.py"
    checks.write_text(small_lab.CHECKS + "# changed\n")
    assert again() == ["=1+1", "ada", "ben"]
    # Checks read files of the start, and networks, as well.
    for name in ("start/answer.py", "network.yaml"):
        (checks.parent / name).write_text("# changed\n")
        assert again() == ["=1+1", "ada", "ben"], name
    for name in ("page.md", "hints.md", "solution/answer.py"):
        (checks.parent / name).write_text("changed\n")
    assert again() == []


@pytest.mark.slow
@confined
def test_points_stay_earned_where_a_later_check_breaks_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small_lab.hand_in(Path("class") / "ada")
    checks = lab_catalogue.LABS / "01-small" / "small_checks.py"
    broken = "from testbed.errors import RunFailed\n" + small_lab.CHECKS
    checks.write_text(
        broken.replace(
            "    def holds",
            "    raise RunFailed('no network')\n\n    def holds",
        )
    )
    code, record = as_json(capsys, "grade", "class", "--offline")
    assert code == 1
    [mark] = record["marks"]
    assert mark["sentence"] == "not graded: no network"
    assert (mark["earned"], mark["not_run"], mark["points"]) == (3, 3, 6)
    assert [one["verdict"] for one in mark["checks"]] == [
        "passed",
        "not run",
        "not run",
    ]
    # And is tried again.
    assert list(Path("class-marks").glob(f"{grading.OUTCOMES}/*")) == []


@pytest.mark.slow
@confined
def test_files_among_the_students_folders_are_named(
    capsys: pytest.CaptureFixture[str], a_class: Path
) -> None:
    (a_class / "dora.zip").touch()
    (a_class / ".DS_Store").touch()
    _, _, err = run(capsys, "grade", "class", "--offline")
    assert [line for line in err.splitlines() if "passed over" in line] == [
        "passed over: dora.zip (unpack it)",
        "passed over: names.csv",
    ]


@pytest.mark.slow
@confined
def test_a_lab_that_nobody_handed_in(
    capsys: pytest.CaptureFixture[str], a_class: Path
) -> None:
    (a_class / "carla").rmdir()
    (a_class / "ben").rename(a_class / "ben-")
    code, _, _ = run(
        capsys,
        "grade",
        "class",
        "--offline",
        "--lab",
        "1",
        "--out",
        "marks",
    )
    assert code == 0
    assert not Path("class-marks").exists()


def test_two_folders_of_one_lab(a_class: Path) -> None:
    small_lab.hand_in(a_class / "ben" / "lab-01-small-2")
    (ben,) = [
        one for one in grading.handed_in(a_class) if one.student == "ben"
    ]
    assert ben.problem == "there are two folders of lab 1"


def test_without_confinement_nobody_is_graded(
    capsys: pytest.CaptureFixture[str],
    a_class: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        sandbox, "unavailable", lambda: "bubblewrap is not installed"
    )
    code, _, err = run(capsys, "grade", "class", "--offline")
    assert code == 3
    assert "bubblewrap is not installed" in err
    assert "hint: sudo apt-get install bubblewrap" in err


GRADE = """
import os, signal, sys
from pathlib import Path
from testbed.labs import lab_catalogue
lab_catalogue.LABS = Path({labs!r})
{more}
from testbed.cli.main import main
main(["lab", "grade", "class", "--offline"])
"""


def grade(more: str = "") -> subprocess.Popen[str]:
    """The command in a process of its own, after ``more``."""
    return subprocess.Popen(
        [sys.executable, "-c", GRADE.format(labs=str(lab_catalogue.LABS), more=more)],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
@confined
def test_ctrl_c_leaves_what_is_done(a_class: Path) -> None:
    small_lab.hand_in(
        a_class / "zoe", "def answer():\n    while True: pass\n"
    )
    command = grade()
    outcomes = Path("class-marks", grading.OUTCOMES)
    until = time.monotonic() + 60
    while not outcomes.is_dir() or len(list(outcomes.glob("*.json"))) < 3:
        assert time.monotonic() < until
        time.sleep(0.02)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130
    # The third outcome may be written, and not yet counted.
    assert re.search(
        r"[234] of 5 graded; the same command goes on from there", err
    )
    assert not Path("class-marks", grading.CSV).exists()


@pytest.mark.slow
@confined
def test_a_ctrl_c_that_comes_while_a_process_is_made_is_not_lost(
    a_class: Path,
) -> None:
    interrupt = "lambda: os.kill(os.getpid(), signal.SIGINT)"
    command = grade(f"os.register_at_fork(after_in_parent={interrupt})")
    _, err = command.communicate(timeout=60)
    assert command.returncode == 130
    assert "0 of 4 graded" in err


@pytest.mark.slow
@confined
@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_marks_belong_to_who_called_sudo(
    capsys: pytest.CaptureFixture[str],
    a_class: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SUDO_UID", "31337")
    monkeypatch.setenv("SUDO_GID", "31337")
    run(capsys, "grade", "class", "--offline")
    marks = Path("class-marks")
    owners = {
        path: path.stat().st_uid for path in (marks, *marks.rglob("*"))
    }
    # Three of them the picture of the class.
    assert len(owners) == 11
    assert set(owners.values()) == {31337}
