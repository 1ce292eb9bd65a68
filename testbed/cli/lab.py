"""``testbed lab``: a course on SDN reservation that marks itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, Out
from testbed.labs import lab_catalogue, sandbox, student_folder
from testbed.labs.checked_folder import check_folder
from testbed.labs.checking import CheckOutcome
from testbed.labs.student_folder import chosen
from testbed.owned_files import as_it_leads, caller
from testbed.record.folder import RunFolder
from testbed.units import number_of

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
    every = lab_catalogue.labs()
    if as_json:
        keys = ("number", "name", "title", "minutes", "files")
        console.print_json(
            [{key: getattr(one, key) for key in keys} for one in every]
        )
        return
    table = Table("lab", "title", "minutes", "to hand in", "points")
    for one in every:
        points = sum(check.points for check in one.checks)
        files = ", ".join(one.files)
        table.add_row(
            str(one.number), one.title, str(one.minutes), files, str(points)
        )
    console.out().print(table)
    console.say("next: testbed lab start 1")


@lab.command()
def start(number: Number, out: Into = None, as_json: Json = False) -> None:
    """Make a folder with the lab's page and its starting point."""
    of = lab_catalogue.lab(number)
    folder = student_folder.make(of, out or student_folder.default_path(of))
    if as_json:
        console.print_json({"lab": number, "folder": str(folder.path)})
        return
    console.print_text(f"lab {number}, {of.title}: {folder.path}")
    console.say(f"next: read {folder.path / student_folder.PAGE}")


@lab.command()
def check(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Check a folder: functions and text, as root also on the wire, each
    failure a sentence.

    Exit codes: 0 all checks that ran passed, 1 one failed, 2 bad usage, 3 this
    machine cannot.
    """
    found = chosen(number, folder)
    if why := sandbox.unavailable():
        console.say(
            f"without confinement ({why}; {sandbox.INSTALL}): for your own code alone"
        )
    total = len(found.lab.checks)
    with console.counted(f"checking lab {number}", total) as advance:

        def tell(outcome: CheckOutcome) -> None:
            advance()
            if not as_json:
                _say_outcome(outcome)

        result = check_folder(found, tell)
    if as_json:
        console.print_json(result.to_json())
    else:
        console.print_text(
            f"{result.earned} of {number_of(result.points, 'point')}"
        )
        if any(one.verdict == "not run" for one in result.outcomes):
            console.say(
                f"the rest needs root: sudo testbed lab check {number} --in {found.path}"
            )
    if not result.passed:
        raise typer.Exit(1)


@lab.command()
def hint(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Print the next hint of three."""
    step, of, text = student_folder.next_hint(chosen(number, folder))
    if as_json:
        console.print_json(
            {"lab": number, "hint": step, "of": of, "text": text}
        )
    else:
        console.print_text(f"hint {step} of {of}\n\n{text}")


@lab.command()
def reset(number: Number, folder: In = None, as_json: Json = False) -> None:
    """Put the starting point back; what stood there is kept beside it."""
    found = chosen(number, folder)
    aside = student_folder.reset(found)
    if as_json:
        console.print_json(
            {"lab": number, "folder": str(found.path), "kept": str(aside)}
        )
    else:
        console.print_text(
            f"lab {number} begins anew in {found.path}; what stood there: {aside}"
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
    class_folder = as_it_leads(class_folder)
    folder = RunFolder(
        out or Path(f"{class_folder.resolve().name}-marks"), caller()
    )
    every = grading.handed_in(
        class_folder, numbers or (), leave=folder.path
    )
    if not live:
        console.say(
            "without the checks on the wire"
            + ("" if offline else ", which need root")
        )
    marks: list[grading.Mark] = []
    try:
        with console.counted("grading", len(every)) as advance:
            for mark in grading.marks(
                every, folder, live=live, again=again
            ):
                marks.append(mark)
                advance()
    except KeyboardInterrupt:
        console.say(
            f"{len(marks)} of {len(every)} graded; the same command goes on from there"
        )
        raise
    grading.write_tables(folder, class_folder.resolve().name, marks)
    bad = [mark for mark in marks if not mark.graded]
    if as_json:
        rows = [mark.to_json() for mark in marks]
        console.print_json(
            {"out": str(folder.path), "graded": not bad, "marks": rows}
        )
    else:
        problems: dict[tuple[str, str], list[str]] = {}
        for mark in bad:
            problems.setdefault((mark.student, mark.problem), []).append(
                str(mark.lab)
            )
        for (student, problem), numbers_of in problems.items():
            console.print_text(
                f"{student}, lab {', '.join(numbers_of)}: {problem}"
            )
        console.print_text(
            f"{number_of(len(marks), 'mark')}: {folder.path / grading.HTML}"
        )
    if bad:
        raise typer.Exit(1)


MARKS = {
    "passed": "green",
    "failed": "bold red",
    "not reached": "dim",
    "not run": "yellow",
}


def _say_outcome(outcome: CheckOutcome) -> None:
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
