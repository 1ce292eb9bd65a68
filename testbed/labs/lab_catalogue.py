"""Catalogue of the labs, each a folder ``labs/NN-name``.

It holds ``lab.yaml`` (title, files of an answer, network), ``page.md``,
``hints.md``, ``instructor.md``, ``start/``, ``solution/``, ``wrong.yaml`` and
``NAME_checks.py`` with ``CHECKS``.
"""

from __future__ import annotations

import importlib.util
import re
import sys
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
    """A lab.

    ``files``: handed in as the answer; ``network``: experiment file of its live
    checks.
    """

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
    """The solution with one piece of one file replaced.

    ``fails`` is the check that finds it.
    """

    name: str
    file: str
    replace: str
    by: str
    fails: str


@cache
def labs() -> tuple[Lab, ...]:
    """All labs by number. Raises BadInput without the folder of labs."""
    if not LABS.is_dir():
        raise BadInput(
            f"{LABS}: there are no labs",
            "install Hosenet again: they belong to it",
        )
    known = []
    for folder in LABS.iterdir():
        match = FOLDER.fullmatch(folder.name)
        if match is not None:
            number, name = match.groups()
            known.append(_lab(int(number), name, folder))
    known.sort(key=lambda lab: lab.number)
    return tuple(known)


def lab(number: int) -> Lab:
    """A lab by its number. Raises BadInput."""
    by_number = {known.number: known for known in labs()}
    if number not in by_number:
        numbers = ", ".join(map(str, by_number))
        raise BadInput(
            f"there is no lab {number}: known are {numbers}",
            "testbed lab list",
        )
    return by_number[number]


def wrong_answers(answered: Lab) -> tuple[WrongAnswer, ...]:
    """The lab's wrong answers, for the tests of its checks."""
    text = answered.path("wrong.yaml").read_text("utf-8")
    return tuple(WrongAnswer(**record) for record in yaml.safe_load(text))


def _lab(number: int, name: str, folder: Path) -> Lab:
    record = yaml.safe_load((folder / "lab.yaml").read_text("utf-8"))
    return Lab(
        number,
        name,
        title=record["title"],
        minutes=record["minutes"],
        files=tuple(record["files"]),
        network=record.get("network"),
        folder=folder,
    )


@cache
def _checks(folder: Path) -> tuple[Check, ...]:
    """``CHECKS`` of the folder's one module of checks."""
    # Raises where there are two: one of them would be passed over.
    (file,) = folder.glob("*_checks.py")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses look their module up by its name.
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return tuple(module.CHECKS)
