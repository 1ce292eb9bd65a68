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
    """Checks a student's folder of lab ``number``.

    Without ``folder``: the working directory if it is a lab's folder, else
    ``lab-NN-NAME`` in it. The code runs confined where bubblewrap is
    installed. The live checks run for root alone. Raises BadInput,
    MachineCannot.
    """
    return check_folder(_student_folder(number, folder))


def start(
    number: int,
    folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Makes a folder with the lab's page and starting point. Raises BadInput."""
    lab_to_start = lab(number)
    path = student_folder.default_path(lab_to_start)
    if folder is not None:
        path = Path(folder)
    return student_folder.make(lab_to_start, path).path


def hint(
    number: int,
    folder: str | os.PathLike[str] | None = None,
) -> str:
    """Returns the next hint, and records that it was read.

    After the last one it returns that one again. Raises BadInput.
    """
    _, _, text = student_folder.next_hint(_student_folder(number, folder))
    return text


def _student_folder(
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
    # Without bubblewrap it runs unconfined: the code is the caller's own.
    submission = Submission(
        folder.path,
        folder.lab.files,
        confined=sandbox.unavailable() == "",
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
    """Returns a function that brings up the lab's network.

    Without root it returns a sentence that says why there is none. A lab
    without a network gets an empty context.
    """
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
