"""A class's marks on the live network: a fresh network per submission, and nothing of it left."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import psutil
import pytest

from testbed.labs import grading, sandbox, student_folder
from testbed.labs.checking import LIVE
from testbed.labs.lab_catalogue import labs, wrong_answers
from testbed.record.folder import RunFolder
from tests.emu.test_up import machine


@pytest.mark.long
@pytest.mark.skipif(
    bool(sandbox.unavailable()), reason=sandbox.unavailable()
)
def test_a_class_is_graded_on_the_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path / "state"))
    # Its checks on the wire are the shortest of those that have a network.
    (lab,) = (one for one in labs() if one.name == "placement")
    live = {check.name for check in lab.checks if check.layer in LIVE}
    wrong = next(one for one in wrong_answers(lab) if one.fails in live)
    for name in ("right", "wrong"):
        folder = tmp_path / "class" / name
        student_folder.make(lab, folder)
        shutil.copytree(lab.path("solution"), folder, dirs_exist_ok=True)
    text = (folder / wrong.file).read_text("utf-8")
    (folder / wrong.file).write_text(
        text.replace(wrong.replace, wrong.by), encoding="utf-8"
    )
    before = machine("hn")
    entries = grading.handed_in(tmp_path / "class")
    marks = {
        one.student: one
        for one in grading.marks(
            entries, RunFolder(tmp_path / "out"), live=True
        )
    }
    assert machine("hn") == before
    assert marks["right"].earned == marks["right"].points, marks[
        "right"
    ].sentence
    failed = [
        one["check"]
        for one in marks["wrong"].checks
        if one["verdict"] == "failed"
    ]
    assert failed[0] == wrong.fails


PEEKS = """
import os

try:
    seen = open({path!r}).read()
except OSError as error:
    seen = error.strerror
raise RuntimeError(f"by {{os.getuid()}}: {{seen[:20]}}")
"""


LEAVES = """
import os, subprocess
for folder in ("/tmp", "/dev/shm", "/var/tmp"):
    open(folder + "/hosenet-left-behind", "w").close()
subprocess.Popen(["sleep", "86399.25"], start_new_session=True)
os._exit(3)
"""


@pytest.mark.skipif(
    bool(sandbox.unavailable()), reason=sandbox.unavailable()
)
@pytest.mark.timeout(300)
def test_controllers_that_end_themselves_or_look_for_the_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed row each: the first leaves nothing, the second is nobody and finds
    no solution.
    """
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SUDO_UID", "31337")
    monkeypatch.setenv("SUDO_GID", "31337")
    (lab,) = (one for one in labs() if "app.py" in one.files)
    solution = str(lab.path("solution/app.py"))
    applications = {"leaves": LEAVES, "peeks": PEEKS.format(path=solution)}
    for name, code in applications.items():
        folder = tmp_path / "class" / name
        student_folder.make(lab, folder)
        shutil.copytree(lab.path("solution"), folder, dirs_exist_ok=True)
        (folder / "app.py").write_text(code, encoding="utf-8")
    entries = grading.handed_in(tmp_path / "class")
    marks = {
        mark.student: mark
        for mark in grading.marks(
            entries, RunFolder(tmp_path / "out"), live=True
        )
    }
    assert {
        name: mark.of_layer("wire") for name, mark in marks.items()
    } == {
        "leaves": 0,
        "peeks": 0,
    }
    said = marks["leaves"].sentence
    assert "ended with 3 before it was ready" in said
    for left in ("tmp", "dev/shm", "var/tmp"):
        assert not (Path("/") / left / "hosenet-left-behind").exists()
    for process in psutil.process_iter(["cmdline"]):
        assert "86399.25" not in (process.info["cmdline"] or ())
    said = marks["peeks"].sentence
    found = re.search(r"RuntimeError: by (\d+): Permission denied", said)
    assert found is not None, said
    assert int(found[1]) not in (0, 31337, 65534)
