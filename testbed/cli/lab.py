"""``testbed lab``: a course on SDN reservation that marks itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, Out
from testbed.labs import lab_catalogue, sandbox, student_folder
from testbed.labs.checked_folder import CheckedFolder, check_folder
from testbed.labs.checking import CheckOutcome
from testbed.labs.student_folder import chosen
from testbed.owned_files import caller, resolved_for_root
from testbed.record.folder import RunFolder
from testbed.units import number_of

if TYPE_CHECKING:
    from testbed.labs.grading import HandedIn, Mark

lab = typer.Typer(no_args_is_help=True)

Number = Annotated[
    int, typer.Argument(metavar="N", help="The lab's number.")
]
Into = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FOLDER", help="Instead of lab-NN-NAME, here."
    ),
]
In = Annotated[
    Path | None,
    typer.Option(
        "--in", metavar="FOLDER", help="Instead of lab-NN-NAME or this one."
    ),
]


@lab.command("list")
def list_(as_json: Json = False) -> None:
    """List the labs."""
    catalogue = lab_catalogue.labs()
    if as_json:
        keys = ("number", "name", "title", "minutes", "files")
        console.print_json(
            [
                {key: getattr(entry, key) for key in keys}
                for entry in catalogue
            ]
        )
        return
    table = Table("lab", "title", "minutes", "to hand in", "points")
    for entry in catalogue:
        table.add_row(
            str(entry.number),
            entry.title,
            str(entry.minutes),
            ", ".join(entry.files),
            str(sum(check.points for check in entry.checks)),
        )
    console.out().print(table)
    console.say("next: testbed lab start 1")


@lab.command()
def start(number: Number, out: Into = None, as_json: Json = False) -> None:
    """Make a folder with the lab's page and its starting point."""
    wanted = lab_catalogue.lab(number)
    path = out or student_folder.default_path(wanted)
    folder = student_folder.make(wanted, path)
    console.print_result(
        {"lab": number, "folder": str(folder.path)},
        f"lab {number}, {wanted.title}: {folder.path}",
        as_json=as_json,
    )
    if not as_json:
        console.say(f"next: read {folder.path / student_folder.PAGE}")


@lab.command()
def check(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Check a folder: functions and text, as root also on the wire, each
    failure a sentence.

    Exit codes: 0 all checks that ran passed, 1 one failed, 2 bad usage, 3 this
    machine cannot, 4 a live check broke off.
    """
    checked = chosen(number, folder)
    if why := sandbox.unavailable():
        console.say(
            f"without confinement ({why}; {sandbox.INSTALL}): for your own code alone"
        )
    total = len(checked.lab.checks)
    with console.counted(f"checking lab {number}", total) as advance:

        def tell(outcome: CheckOutcome) -> None:
            advance()
            if not as_json:
                _say_outcome(outcome)

        result = check_folder(checked, tell)
    points = number_of(result.points, "point")
    console.print_result(
        result, f"{result.earned} of {points}", as_json=as_json
    )
    if not as_json:
        _say_next(result, folder)
    if not result.passed:
        raise typer.Exit(1)


def _say_next(result: CheckedFolder, named: Path | None) -> None:
    """Says what follows: after a failure a hint, else the checks on the wire,
    which root alone can run. ``named``: the folder if the caller named it.
    """
    number = result.folder.lab.number
    if not result.passed:
        place = "" if named is None else f" --in {named}"
        console.say(f"next: testbed lab hint {number}{place}")
    elif any(outcome.verdict == "not run" for outcome in result.outcomes):
        console.say(
            f"the rest needs root: sudo testbed lab check {number} --in {result.folder.path}"
        )


@lab.command()
def hint(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Print the next hint of three."""
    step, of, text = student_folder.next_hint(chosen(number, folder))
    console.print_result(
        {"lab": number, "hint": step, "of": of, "text": text},
        f"hint {step} of {of}\n\n{text}",
        as_json=as_json,
    )


@lab.command()
def reset(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Put the starting point back; what stood there is kept beside it."""
    begun = chosen(number, folder)
    aside = student_folder.reset(begun)
    console.print_result(
        {"lab": number, "folder": str(begun.path), "kept": str(aside)},
        f"lab {number} begins anew in {begun.path}; what stood there: {aside}",
        as_json=as_json,
    )


@lab.command()
def grade(
    class_folder: Annotated[
        Path,
        typer.Argument(metavar="CLASSFOLDER", help="A folder a student."),
    ],
    numbers: Annotated[
        list[int] | None,
        typer.Option(
            "--lab", metavar="N", help="This lab; may be repeated."
        ),
    ] = None,
    out: Out = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Leave out the checks on the wire."),
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Forget what an earlier call has graded."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Mark a class: marks.csv, marks.json and marks.html, of every student's
    folders.

    Each submission runs confined. A second call goes on where the first ended.
    Exit codes: 0 all graded, 1 a folder could not be, 2 bad usage, 3 this
    machine cannot.
    """
    from testbed.labs import grading

    live = not offline and os.geteuid() == 0
    # Links are followed here, once: root follows none of those that come
    # later.
    class_folder = resolved_for_root(class_folder)
    class_name = class_folder.resolve().name
    folder = RunFolder(out or Path(f"{class_name}-marks"), caller())
    # Marks may lie within the class's folder: they are no student's.
    entries = grading.handed_in(
        class_folder, numbers or (), leave=folder.path
    )
    for file in grading.passed_over(class_folder):
        console.say(f"passed over: {file}")
    if not live:
        reason = "" if offline else ", which need root"
        console.say(f"without the checks on the wire{reason}")
    marks = _graded(entries, folder, live=live, again=again)
    grading.write_tables(folder, class_name, marks)
    all_graded = all(mark.graded for mark in marks)
    if as_json:
        console.print_json(
            {"out": str(folder.path), "graded": all_graded, "marks": marks}
        )
    else:
        _print_not_graded(marks)
        console.print_text(
            f"{number_of(len(marks), 'mark')}: {folder.path / grading.HTML}"
        )
    if not all_graded:
        raise typer.Exit(1)


def _graded(
    entries: Sequence[HandedIn],
    folder: RunFolder,
    *,
    live: bool,
    again: bool,
) -> list[Mark]:
    """Grades what was handed in. If it is interrupted, says how many are kept."""
    from testbed.labs import grading

    marks: list[Mark] = []
    try:
        with console.counted("grading", len(entries)) as advance:
            for mark in grading.marks(
                entries, folder, live=live, again=again
            ):
                marks.append(mark)
                advance()
    except KeyboardInterrupt:
        console.say(
            f"{len(marks)} of {len(entries)} graded; the same command goes on from there"
        )
        raise
    return marks


def _print_not_graded(marks: Sequence[Mark]) -> None:
    """A line for each problem, with all the labs of a student that have it:
    an unreadable folder is one problem in each lab.
    """
    labs_of: dict[tuple[str, str], list[str]] = {}
    for mark in marks:
        if not mark.graded:
            problem = (mark.student, mark.problem)
            labs_of.setdefault(problem, []).append(str(mark.lab))
    for (student, text), labs in labs_of.items():
        console.print_text(f"{student}, lab {', '.join(labs)}: {text}")


STYLES = {
    "passed": "green",
    "failed": "bold red",
    "not reached": "dim",
    "not run": "yellow",
}


def _say_outcome(outcome: CheckOutcome) -> None:
    line = Text(f"{outcome.layer:>10}  ")
    line.append(f"{outcome.verdict:<11}", STYLES[outcome.verdict])
    line.append(f"  {outcome.check} ({outcome.earned} of {outcome.points})")
    if outcome.verdict == "not reached":
        line.append(f": {outcome.sentence}")
    console.out().print(line, soft_wrap=True)
    failed = outcome.verdict == "failed"
    details = [outcome.sentence] if failed else []
    details += [str(margin) for margin in outcome.margins if margin.good]
    if failed and outcome.printed:
        details.append(f"it had printed: {outcome.printed.strip()}")
    for detail in details:
        console.print_text(f"{'':25}{detail}")
