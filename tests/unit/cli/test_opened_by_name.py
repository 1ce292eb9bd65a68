"""Paths of audit events that are relative to no open folder."""

from __future__ import annotations

import pytest

from tests.support.opened_paths import by_name

FOLDER = 7
MODE = 0o700


@pytest.mark.parametrize(
    ("event", "arguments", "names"),
    [
        ("open", ("a", "r", 0), ["a"]),
        ("open", ("a", None, 0), []),
        ("open", ("/a", None, 0), ["/a"]),
        ("open", (5, "r", 0), []),
        ("os.mkdir", ("a", MODE, -1), ["a"]),
        ("os.mkdir", (b"a", MODE, -1), ["a"]),
        ("os.mkdir", ("a", MODE, FOLDER), []),
        ("os.mkdir", ("/a", MODE, FOLDER), ["/a"]),
        ("os.mkdir", ("/proc/self/fd/7/a", MODE, -1), []),
        ("os.chmod", ("a", MODE, -1), ["a"]),
        ("os.chmod", ("a", MODE, FOLDER), []),
        ("os.chmod", (FOLDER, MODE, -1), []),
        ("os.chown", ("a", 1000, 1000, -1), ["a"]),
        ("os.chown", ("a", 1000, 1000, FOLDER), []),
        ("os.truncate", ("a", 5), ["a"]),
        ("os.utime", ("a", None, None, -1), ["a"]),
        ("os.remove", ("a", -1), ["a"]),
        ("os.rename", ("a", "b", -1, -1), ["a", "b"]),
        ("os.rename", ("a", "b", FOLDER, -1), ["b"]),
        ("os.rename", ("a", "b", FOLDER, FOLDER), []),
        ("os.link", ("a", "b", -1, FOLDER), ["a"]),
        ("os.symlink", ("anywhere", "a", -1), ["a"]),
        ("shutil.move", ("a", "b"), ["a", "b"]),
        ("shutil.rmtree", ("a", None), ["a"]),
        ("shutil.rmtree", ("a", FOLDER), []),
    ],
)
def test_names_are_those_that_no_open_folder_holds(
    event: str, arguments: tuple[object, ...], names: list[str]
) -> None:
    assert by_name(event, arguments) == names
