"""Uploads that came without the record of `testbed lab start`."""

from __future__ import annotations

from pathlib import Path

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
