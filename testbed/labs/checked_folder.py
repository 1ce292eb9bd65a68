"""A student's folder with all its checks' outcomes, for terminal and Jupyter."""

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
from testbed.labs.checking import BringUp, CheckOutcome, run_checks
from testbed.labs.lab_catalogue import Lab, lab
from testbed.labs.student_folder import StudentFolder
from testbed.labs.submission import Submission
from testbed.units import number_of


@dataclass(frozen=True, repr=False)
class CheckedFolder:
    """The outcomes of a folder's checks, in order."""

    folder: StudentFolder
    outcomes: tuple[CheckOutcome, ...]

    @property
    def passed(self) -> bool:
        """No check that ran has failed."""
        return all(outcome.verdict != "failed" for outcome in self.outcomes)

    @property
    def complete(self) -> bool:
        """Every check has run."""
        ran = ("passed", "failed")
        return all(outcome.verdict in ran for outcome in self.outcomes)

    @property
    def earned(self) -> int:
        return sum(outcome.earned for outcome in self.outcomes)

    @property
    def points(self) -> int:
        return sum(outcome.points for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        return {
            "lab": self.folder.lab.number,
            "folder": str(self.folder.path),
            "passed": self.passed,
            "complete": self.complete,
            "earned": self.earned,
            "points": self.points,
            "checks": [outcome.to_json() for outcome in self.outcomes],
        }

    def __repr__(self) -> str:
        lines = []
        for outcome in self.outcomes:
            lines.append(f"{outcome.verdict:<11}  {outcome.check}")
            details = _details(outcome)
            if details:
                lines.append(f"{'':13}{details}")
        return "\n".join(
            [*lines, f"{self.earned} of {number_of(self.points, 'point')}"]
        )

    def _repr_html_(self) -> str:
        rows = ""
        for outcome in self.outcomes:
            rows += "<tr>"
            for text in (outcome.verdict, outcome.check, _details(outcome)):
                rows += f"<td>{html.escape(text)}</td>"
            rows += "</tr>"
        return f"<table>{rows}</table><p>{self.earned} of {number_of(self.points, 'point')}</p>"


def check(
    number: int,
    folder: str | os.PathLike[str] | None = None,
) -> CheckedFolder:
    """Checks a folder of lab ``number``: lab-NN-NAME or this one, unless given.

    The code runs confined where bubblewrap is installed; as root also on the
    wire. Raises BadInput, MachineCannot.
    """
    return check_folder(_opened(number, folder))


def start(
    number: int,
    folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Makes a folder with the lab's page and starting point. Raises BadInput."""
    started = lab(number)
    path = student_folder.default_path(started)
    if folder is not None:
        path = Path(folder)
    return student_folder.make(started, path).path


def hint(
    number: int,
    folder: str | os.PathLike[str] | None = None,
) -> str:
    """The next hint of three. Raises BadInput."""
    _, _, text = student_folder.next_hint(_opened(number, folder))
    return text


def _opened(
    number: int,
    folder: str | os.PathLike[str] | None,
) -> StudentFolder:
    path = None
    if folder is not None:
        path = Path(folder)
    return student_folder.chosen(number, path)


def check_folder(
    folder: StudentFolder,
    report: Callable[[CheckOutcome], object] = lambda _: None,
) -> CheckedFolder:
    """Runs a folder's checks, and reports each outcome at once."""
    # Without bubblewrap all the same: it is one's own code.
    submission = Submission(
        folder.path, folder.lab.files, confined=not sandbox.unavailable()
    )
    network = live_network(folder.lab)
    outcomes = []
    for outcome in run_checks(
        folder.lab.checks, submission, network=network
    ):
        outcomes.append(outcome)
        report(outcome)
    return CheckedFolder(folder, tuple(outcomes))


def live_network(checked_lab: Lab) -> BringUp | str:
    """Brings up the lab's network; a text where this process may not."""
    if os.geteuid() != 0:
        return "the network needs root"
    if checked_lab.network is None:
        return nullcontext
    # Slow to import, and needed on the wire alone.
    from testbed.standing.standing_network import up

    return partial(up, checked_lab.path(checked_lab.network))


def _details(outcome: CheckOutcome) -> str:
    """The sentence and the good margins; bad ones are in the sentence."""
    texts = [str(margin) for margin in outcome.margins if margin.good]
    if outcome.sentence:
        texts.insert(0, outcome.sentence)
    return "; ".join(texts)
