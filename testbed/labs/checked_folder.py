"""All checks of a student's folder and what came of them: for the command line and for Jupyter."""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from testbed.labs import sandbox, student_folder
from testbed.labs.checking import Network, Outcome, run_checks
from testbed.labs.lab_catalogue import Lab, lab
from testbed.labs.student_folder import StudentFolder
from testbed.labs.submission import Submission


@dataclass(frozen=True, repr=False)
class Checked:
    """The outcomes of a folder's checks, in order."""

    folder: StudentFolder
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """No check that ran has failed."""
        return all(one.verdict != "failed" for one in self.outcomes)

    @property
    def complete(self) -> bool:
        return all(one.verdict in ("passed", "failed") for one in self.outcomes)

    @property
    def earned(self) -> int:
        return sum(one.earned for one in self.outcomes)

    @property
    def points(self) -> int:
        return sum(one.points for one in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        return {
            "lab": self.folder.lab.number,
            "folder": str(self.folder.path),
            "passed": self.passed,
            "complete": self.complete,
            "earned": self.earned,
            "points": self.points,
            "checks": [one.to_json() for one in self.outcomes],
        }

    def __repr__(self) -> str:
        lines = [f"{one.verdict:<11}  {one.check}{_details(one)}" for one in self.outcomes]
        return "\n".join([*lines, f"{self.earned} of {self.points} points"])

    def _repr_html_(self) -> str:
        cells = [
            "".join(f"<td>{html.escape(text)}</td>" for text in (one.verdict, one.check, _why(one)))
            for one in self.outcomes
        ]
        rows = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table>{rows}</table><p>{self.earned} of {self.points} points</p>"


def check(number: int, folder: str | os.PathLike[str] | None = None) -> Checked:
    """Checks a folder of lab ``number``: lab-NN-NAME or this one, unless given.

    The code runs confined where bubblewrap is installed; as root also on the wire. Raises BadInput,
    MachineCannot.
    """
    return checked(student_folder.chosen(number, None if folder is None else Path(folder)))


def start(number: int, folder: str | os.PathLike[str] | None = None) -> Path:
    """Makes a folder with the lab's page and its starting point. Raises BadInput."""
    of = lab(number)
    path = student_folder.default_path(of) if folder is None else Path(folder)
    return student_folder.start(of, path).path


def hint(number: int, folder: str | os.PathLike[str] | None = None) -> str:
    """The next hint of three. Raises BadInput."""
    found = student_folder.chosen(number, None if folder is None else Path(folder))
    return student_folder.next_hint(found)[2]


def checked(folder: StudentFolder, tell: Callable[[Outcome], None] | None = None) -> Checked:
    """Runs a folder's checks and tells each outcome as soon as it is there."""
    submission = Submission(folder.path, folder.lab.files, confined=not sandbox.unavailable())
    outcomes = []
    for outcome in run_checks(folder.lab.checks, submission, network=live_network(folder.lab)):
        outcomes.append(outcome)
        if tell is not None:
            tell(outcome)
    return Checked(folder, tuple(outcomes))


def live_network(of: Lab) -> Network | str:
    """Brings up the lab's network; a text where this process may not."""
    if os.geteuid() != 0:
        return "the network needs root"
    if of.network is None:
        return nullcontext
    from testbed.runs.standing_network import up

    return partial(up, of.path(of.network))


def _why(outcome: Outcome) -> str:
    margins = [str(margin) for margin in outcome.margins if margin.good]
    return "; ".join([outcome.sentence, *margins] if outcome.sentence else margins)


def _details(outcome: Outcome) -> str:
    why = _why(outcome)
    return f"\n{'':13}{why}" if why else ""
