"""A student's folder: made from a lab's starting point, given back to it, and its hints."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import BadInput
from testbed.labs.lab_catalogue import Lab, lab
from testbed.labs.submission import CodeFailed, small_text
from testbed.results.folder import caller

RECORD = ".lab.json"
PAGE = "README.md"


@dataclass(frozen=True)
class StudentFolder:
    """A folder of a lab; ``hints``: how many have been read."""

    path: Path
    lab: Lab
    hints: int = 0


def start(of: Lab, path: Path) -> StudentFolder:
    """Makes a folder with the lab's page and its starting point. Raises BadInput, OSError."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path} is there already", "name another folder with --out")
    path.mkdir(parents=True, exist_ok=True)
    _copy_start(of, path)
    return _recorded(StudentFolder(path, of))


def opened(path: Path, number: int | None = None) -> StudentFolder:
    """A folder that :func:`start` has made, of lab ``number`` if given. Raises BadInput."""
    start_it = f"testbed lab start {number or 'N'} --out {path}"
    try:
        record = json.loads(small_text(path, RECORD))
        found = StudentFolder(path, lab(int(record["lab"])), max(0, int(record.get("hints", 0))))
    except CodeFailed as failed:
        raise BadInput(f"{path} is no folder of a lab ({failed})", start_it) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise BadInput(f"{path}/{RECORD} is damaged", start_it) from None
    if number is not None and found.lab.number != number:
        raise BadInput(f"{path} is a folder of lab {found.lab.number}, not {number}")
    return found


def chosen(number: int, given: Path | None) -> StudentFolder:
    """The folder that is meant: as given, this one, or the one that :func:`start` makes here.

    Raises BadInput.
    """
    if given is None:
        given = Path() if Path(RECORD).exists() else default_path(lab(number))
    return opened(given, number)


def default_path(of: Lab) -> Path:
    return Path(f"lab-{of.number:02}-{of.name}")


def reset(folder: StudentFolder) -> Path:
    """Puts the starting point back; what stood there moves to the folder returned."""
    aside = next(
        path for n in range(1, 10_000) if not (path := folder.path / f"before-reset-{n}").exists()
    )
    aside.mkdir()
    for item in sorted(folder.path.iterdir()):
        if item.name != RECORD and not item.name.startswith("before-reset-"):
            item.rename(aside / item.name)
    _copy_start(folder.lab, folder.path)
    _recorded(StudentFolder(folder.path, folder.lab))
    return aside


def next_hint(folder: StudentFolder) -> tuple[int, int, str]:
    """The next of the lab's hints, its number and how many there are; the last one again."""
    every = hints(folder.lab)
    number = min(folder.hints + 1, len(every))
    _recorded(StudentFolder(folder.path, folder.lab, number))
    return number, len(every), every[number - 1]


def hints(of: Lab) -> tuple[str, ...]:
    """The lab's hints: the parts of hints.md under its second-level headings."""
    parts = re.split(r"^## .*$", of.path("hints.md").read_text("utf-8"), flags=re.MULTILINE)
    return tuple(part.strip() for part in parts[1:])


def _copy_start(of: Lab, path: Path) -> None:
    shutil.copytree(of.path("start"), path, dirs_exist_ok=True)
    shutil.copyfile(of.path("page.md"), path / PAGE)


def _recorded(folder: StudentFolder) -> StudentFolder:
    record = {"lab": folder.lab.number, "hints": folder.hints}
    (folder.path / RECORD).write_text(json.dumps(record) + "\n", "utf-8")
    if owner := caller():
        for path in (folder.path, *folder.path.rglob("*")):
            os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
    return folder
