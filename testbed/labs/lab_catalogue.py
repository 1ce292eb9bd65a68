"""The labs that there are: each a folder ``labs/NN-name``.

It holds ``lab.yaml`` (title, files of an answer, network), ``page.md``, ``hints.md``,
``instructor.md``, ``start/``, ``solution/``, ``wrong.yaml`` and ``NAME_checks.py`` with ``CHECKS``.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from testbed.errors import BadInput
from testbed.labs.checking import Check

LABS = Path(__file__).resolve().parents[2] / "labs"
FOLDER = re.compile(r"(\d\d)-([a-z0-9-]+)")


@dataclass(frozen=True)
class Lab:
    """A lab. ``files``: what is handed in; ``network``: experiment file of its live checks."""

    number: int
    name: str
    title: str
    minutes: int
    files: tuple[str, ...]
    network: str | None
    folder: Path

    @property
    def checks(self) -> tuple[Check, ...]:
        return _checks(self.folder)

    def path(self, part: str) -> Path:
        return self.folder / part


@dataclass(frozen=True)
class WrongAnswer:
    """The solution with one piece of one file replaced; ``fails`` is the check that finds it."""

    name: str
    file: str
    replace: str
    by: str
    fails: str


@cache
def labs() -> tuple[Lab, ...]:
    """All labs by number. Raises BadInput where the folder of labs is not there."""
    if not LABS.is_dir():
        raise BadInput(f"{LABS}: there are no labs", "install Hosenet again: they belong to it")
    found = [(match, path) for path in LABS.iterdir() if (match := FOLDER.fullmatch(path.name))]
    return tuple(sorted((_lab(*one) for one in found), key=lambda lab: lab.number))


def lab(number: int) -> Lab:
    """A lab by its number. Raises BadInput."""
    known = labs()
    found = next((one for one in known if one.number == number), None)
    if found is None:
        numbers = ", ".join(str(one.number) for one in known)
        raise BadInput(f"there is no lab {number}: known are {numbers}", "testbed lab list")
    return found


def wrong_answers(of: Lab) -> tuple[WrongAnswer, ...]:
    """The lab's wrong answers, for the tests of its checks."""
    records = yaml.safe_load(of.path("wrong.yaml").read_text("utf-8"))
    return tuple(WrongAnswer(**record) for record in records)


def _lab(match: re.Match[str], folder: Path) -> Lab:
    record = yaml.safe_load((folder / "lab.yaml").read_text("utf-8"))
    given = record["title"], record["minutes"], tuple(record["files"]), record.get("network")
    return Lab(int(match[1]), match[2], *given, folder)


@cache
def _checks(folder: Path) -> tuple[Check, ...]:
    """``CHECKS`` of the folder's one module of checks."""
    (file,) = folder.glob("*_checks.py")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    checks: Sequence[Check] = module.CHECKS
    return tuple(checks)
