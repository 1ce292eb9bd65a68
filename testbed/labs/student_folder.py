"""A student's folder: made from a lab's starting point, reset, and its hints."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import BadInput
from testbed.labs.lab_catalogue import Lab, lab
from testbed.labs.submission import CodeFailed, small_text
from testbed.owned_files import (
    caller,
    make_folders,
    resolved_for_root,
    set_aside,
)
from testbed.record.folder import RunFolder

RECORD = ".lab.json"
PAGE = "README.md"
ASIDE = "before-reset-"


@dataclass(frozen=True)
class StudentFolder:
    """A folder of a lab; ``hints``: how many have been read."""

    path: Path
    lab: Lab
    hints: int = 0


def make(started: Lab, path: Path) -> StudentFolder:
    """Makes a folder with the lab's page and its starting point.

    Raises BadInput, OSError.
    """
    path = resolved_for_root(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(
            f"{path} is there already", _taken_hint(started, path)
        )
    make_folders(path, caller())
    _copy_start(started, path)
    folder = StudentFolder(path, started)
    _record(folder)
    return folder


def _taken_hint(started: Lab, path: Path) -> str:
    """The hint where a lab's folder would be made and something is: a second
    ``start`` is mostly by a student who wants to resume the work.
    """
    try:
        opened(path, started.number)
    except BadInput:
        return "name another folder with --out"
    number = started.number
    place = ""
    if path != default_path(started):
        place = f" --in {path}"
    return (
        f"testbed lab check {number}{place} resumes it; "
        f"testbed lab reset {number}{place} begins anew"
    )


def opened(path: Path, number: int | None = None) -> StudentFolder:
    """A folder that :func:`make` has made, of lab ``number`` if given.

    Raises BadInput.
    """
    start = f"testbed lab start {number or 'N'}"
    try:
        folder = _read(path)
    except CodeFailed as error:
        raise BadInput(
            f"{path} is no folder of a lab ({error})",
            f"cd to where it is, or --in FOLDER; {start} begins the lab",
        ) from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ):
        # A student's file may hold any JSON, or none.
        # Not this path: it is taken.
        raise BadInput(
            f"{path}/{RECORD} is damaged",
            f"{start} --out FOLDER makes a new one",
        ) from None
    if number is not None and folder.lab.number != number:
        raise BadInput(
            f"{path} is a folder of lab {folder.lab.number}, not {number}"
        )
    return folder


def _read(path: Path) -> StudentFolder:
    record = json.loads(small_text(path, RECORD))
    n_hints = max(0, int(record.get("hints", 0)))
    return StudentFolder(path, lab(int(record["lab"])), n_hints)


def chosen(number: int, path: Path | None) -> StudentFolder:
    """The folder of a lab: at ``path`` if given, else the working directory if it
    is a lab's folder, else :func:`default_path` in it.

    Raises BadInput.
    """
    if path is None:
        path = Path()
        if not Path(RECORD).exists():
            path = default_path(lab(number))
    return opened(resolved_for_root(path), number)


def default_path(started: Lab) -> Path:
    return Path(f"lab-{started.number:02}-{started.name}")


def reset(folder: StudentFolder) -> Path:
    """Puts the starting point back, and forgets which hints were read. Moves
    the student's files into a subfolder; returns its path.
    """
    aside = set_aside(
        folder.path, prefix=ASIDE, kept=RECORD, owner=caller()
    )
    _copy_start(folder.lab, folder.path)
    _record(StudentFolder(folder.path, folder.lab))
    return aside


def next_hint(folder: StudentFolder) -> tuple[int, int, str]:
    """The next hint: its number, how many there are, its text.

    After the last hint, the last one again.
    """
    texts = hints(folder.lab)
    number = min(folder.hints + 1, len(texts))
    _record(StudentFolder(folder.path, folder.lab, number))
    return number, len(texts), texts[number - 1]


def hints(hinted: Lab) -> tuple[str, ...]:
    """The lab's hints: the parts of hints.md under its second-level headings."""
    text = hinted.path("hints.md").read_text("utf-8")
    parts = re.split(r"^## .*$", text, flags=re.MULTILINE)
    return tuple(part.strip() for part in parts[1:])


def _copy_start(started: Lab, path: Path) -> None:
    folder = RunFolder(path, caller())
    folder.copy(started.path("start"))
    page = started.path("page.md").read_text("utf-8")
    # Comments are for whoever keeps the lab, and show where a page is read as
    # text.
    shown = re.sub(r"<!--.*?-->\n*", "", page, flags=re.DOTALL)
    folder.write_text(PAGE, shown)


def _record(folder: StudentFolder) -> None:
    record = {"lab": folder.lab.number, "hints": folder.hints}
    text = json.dumps(record) + "\n"
    RunFolder(folder.path, caller()).write_text(RECORD, text)
