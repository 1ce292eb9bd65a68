"""Uploads that came without the record of `testbed lab start`."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import BadInput
from testbed.labs import grading


def test_files_without_a_record_are_the_labs_that_they_belong_to(
    tmp_path: Path,
) -> None:
    """Of several labs in one folder all count; a part of one if it is asked for."""
    students = tmp_path / "class"
    for name, files in {
        "ada": ["sharing.py", "hose.py"],
        "ben/upload": ["flows.py"],
        "carla": ["notes.py"],
    }.items():
        (students / name).mkdir(parents=True)
        for file in files:
            (students / name / file).write_text("")

    def found(*numbers: int) -> dict[tuple[str, int], str]:
        entries = grading.handed_in(students, numbers)
        return {
            (entry.student, entry.lab.number): (
                entry.problem if entry.folder is None else entry.folder.name
            )
            for entry in entries
        }

    nothing = "the folder holds no lab"
    assert found() == {
        ("ada", 1): "ada",
        ("ada", 2): "ada",
        **{
            (name, lab): nothing
            for name in ("ben", "carla")
            for lab in (1, 2)
        },
    }
    assert found(4) == {
        ("ada", 4): "nothing handed in",
        ("ben", 4): "upload",
        ("carla", 4): nothing,
    }


def test_a_folder_called_as_no_lab_stops_no_other_students_marks(
    tmp_path: Path,
) -> None:
    for folder in ("ada/lab-99-mine", "ada/lab-00-mine", "ben"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ben" / "sharing.py").write_text("")
    ada, ben = grading.handed_in(tmp_path)
    assert (ada.lab.number, ada.problem) == (1, "the folder holds no lab")
    assert ben.folder == tmp_path / "ben"


def test_a_third_folder_of_a_lab_is_not_the_answer_either(
    tmp_path: Path,
) -> None:
    for name in ("first", "second", "third"):
        (tmp_path / "ada" / name).mkdir(parents=True)
        (tmp_path / "ada" / name / "sharing.py").write_text("")
    [ada] = grading.handed_in(tmp_path)
    assert ada.folder is None
    assert ada.problem == "there are two folders of lab 1"


def test_a_link_to_itself_stops_no_other_students_marks(
    tmp_path: Path,
) -> None:
    (tmp_path / "ada").symlink_to("ada")
    (tmp_path / "ben").mkdir()
    (tmp_path / "ben" / "sharing.py").write_text("")
    (tmp_path / "marks").mkdir()
    ada, ben = grading.handed_in(tmp_path, leave=tmp_path / "marks")
    assert ada.problem == "the folder is a symbolic link"
    assert ben.folder == tmp_path / "ben"


def test_a_student_who_handed_in_an_archive_is_told_so(
    tmp_path: Path,
) -> None:
    for name in ("ben/sharing.py", "ivy/lab-01.zip", "ivy/._lab-01.zip"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    _, ivy = grading.handed_in(tmp_path)
    assert ivy.problem == "the folder holds no lab: unpack lab-01.zip"


def test_a_class_of_archives_alone_is_to_be_unpacked(
    tmp_path: Path,
) -> None:
    (tmp_path / "dora.tar.gz").touch()
    with pytest.raises(BadInput, match="no student's folder") as refused:
        grading.handed_in(tmp_path)
    assert refused.value.hint == "unpack dora.tar.gz"
