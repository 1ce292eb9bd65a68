"""``testbed lab``: a course on SDN reservation that marks itself."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json
from testbed.labs import catalogue, sandbox, student_folder
from testbed.labs.checking import Network, Outcome, run_checks
from testbed.labs.student_folder import StudentFolder
from testbed.labs.submission import Submission

lab = typer.Typer(no_args_is_help=True)

Number = Annotated[int, typer.Argument(metavar="N", help="The lab's number.")]
Into = Annotated[
    Path | None, typer.Option("--out", metavar="FOLDER", help="Instead of lab-NN-NAME, here.")
]
In = Annotated[
    Path | None, typer.Option("--in", metavar="FOLDER", help="Instead of lab-NN-NAME or this one.")
]


@lab.command("list")
def list_(as_json: Json = False) -> None:
    """List the labs."""
    every = catalogue.labs()
    if as_json:
        keys = ("number", "name", "title", "minutes", "files")
        console.print_json([{key: getattr(one, key) for key in keys} for one in every])
        return
    table = Table("lab", "title", "minutes", "to hand in", "points")
    for one in every:
        points = sum(check.points for check in one.checks)
        files = ", ".join(one.files)
        table.add_row(str(one.number), one.title, str(one.minutes), files, str(points))
    console.out().print(table)
    console.say("next: testbed lab start 1")


@lab.command()
def start(number: Number, out: Into = None, as_json: Json = False) -> None:
    """Make a folder with the lab's page and its starting point."""
    chosen = catalogue.lab(number)
    folder = student_folder.start(chosen, out or _default(chosen))
    if as_json:
        console.print_json({"lab": number, "folder": str(folder.path)})
        return
    console.print_text(f"lab {number}, {chosen.title}: {folder.path}")
    console.say(f"next: read {folder.path / student_folder.PAGE}")


@lab.command()
def check(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Check a folder: functions and text, as root also on the wire, each failure a sentence.

    Exit codes: 0 all checks that ran passed, 1 one failed, 2 bad usage, 3 this machine cannot.
    """
    found = _folder(number, folder)
    confined = not (why := sandbox.unavailable())
    if not confined:
        console.say(f"without confinement ({why}; {sandbox.INSTALL}): for your own code alone")
    submission = Submission(found.path, found.lab.files, confined=confined)
    outcomes = []
    checks = found.lab.checks
    with console.progress(f"checking lab {number}", len(checks)) as bars:
        for outcome in run_checks(checks, submission, network=_network(found)):
            outcomes.append(outcome)
            bars.advance(bars.task_ids[0])
            if not as_json:
                _say_outcome(outcome)
    passed = all(one.verdict != "failed" for one in outcomes)
    if as_json:
        console.print_json(record(found, outcomes))
    else:
        earned, points = sum(one.earned for one in outcomes), sum(one.points for one in outcomes)
        console.print_text(f"{earned} of {points} points")
        if any(one.verdict == "not run" for one in outcomes):
            console.say(f"the rest needs root: sudo testbed lab check {number} --in {found.path}")
    if not passed:
        raise typer.Exit(1)


@lab.command()
def hint(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Print the next hint of three."""
    step, of, text = student_folder.next_hint(_folder(number, folder))
    if as_json:
        console.print_json({"lab": number, "hint": step, "of": of, "text": text})
    else:
        console.print_text(f"hint {step} of {of}\n\n{text}")


@lab.command()
def reset(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Put the starting point back; what stood there is kept beside it."""
    found = _folder(number, folder)
    aside = student_folder.reset(found)
    if as_json:
        console.print_json({"lab": number, "folder": str(found.path), "kept": str(aside)})
    else:
        console.print_text(f"lab {number} begins anew in {found.path}; what stood there: {aside}")


def record(folder: StudentFolder, outcomes: list[Outcome]) -> dict[str, Any]:
    """The JSON of ``check``."""
    return {
        "lab": folder.lab.number,
        "folder": str(folder.path),
        "passed": all(one.verdict != "failed" for one in outcomes),
        "complete": all(one.verdict in ("passed", "failed") for one in outcomes),
        "earned": sum(one.earned for one in outcomes),
        "points": sum(one.points for one in outcomes),
        "checks": [asdict(one) | {"earned": one.earned} for one in outcomes],
    }


def _network(folder: StudentFolder) -> Network | str:
    """Brings up the lab's network; a text where this process may not."""
    if os.geteuid() != 0:
        return "the network needs root"
    if folder.lab.network is None:
        return nullcontext
    from testbed.runs.standing_network import up

    return partial(up, folder.lab.path(folder.lab.network))


def _default(of: catalogue.Lab) -> Path:
    return Path(f"lab-{of.number:02}-{of.name}")


def _folder(number: int, given: Path | None) -> StudentFolder:
    """The folder that is meant: as given, this one, or the one that ``start`` makes here."""
    chosen = catalogue.lab(number)
    if given is None:
        here = Path(student_folder.RECORD).exists()
        given = Path() if here else _default(chosen)
    return student_folder.opened(given, number)


MARKS = {"passed": "green", "failed": "bold red", "not reached": "dim", "not run": "yellow"}


def _say_outcome(outcome: Outcome) -> None:
    line = Text(f"{outcome.layer:>10}  ")
    line.append(f"{outcome.verdict:<11}", MARKS[outcome.verdict])
    line.append(f"  {outcome.check}")
    console.out().print(line, soft_wrap=True)
    details = [outcome.sentence] if outcome.verdict == "failed" else []
    details += [str(margin) for margin in outcome.margins if margin.good]
    if outcome.verdict == "failed" and outcome.printed:
        details.append(f"it had printed: {outcome.printed.strip()}")
    for detail in details:
        console.print_text(f"{'':25}{detail}")

