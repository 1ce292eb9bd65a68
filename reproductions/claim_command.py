"""``testbed claim``: a figure's rules, values and verdicts in one file, and the
judgement of such a file.
"""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from reproductions.claim_files import (
    Checked,
    Content,
    claim_content,
    figure_of,
    judged_again,
    read_claim_file,
    results_of,
    verdicts_of,
)
from reproductions.claim_origin import remarks_on_origin
from reproductions.figure_runs import (
    Request,
    checked_out,
    reproduce_figure,
    reproduce_live,
    write_live,
)
from reproductions.live_backends import Machine
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import AnyFigure, Figure, Reproduced
from reproductions.stored_results import sections
from testbed.cli import console
from testbed.cli.options import Json
from testbed.cli.sweep_progress import shown_progress
from testbed.errors import BadInput
from testbed.record.folder import write_asked_for
from testbed.sweeps.cluster import executor

CHECK = "check"
What = Annotated[
    str, typer.Argument(metavar="FIGURE|check", help="As dcloud-fig5.")
]
File = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="With check: the claim file."),
]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Where to write; default: FIGURE.claim.json.",
    ),
]
Results = Annotated[
    Path,
    typer.Option(
        "--results",
        metavar="FOLDER",
        help="Where testbed reproduce has put its results.",
    ),
]
Run = Annotated[
    bool,
    typer.Option(
        "--run",
        help="With check: run the figure again; a live one needs root.",
    ),
]


def claim(
    what: What,
    file: File = None,
    out: OutFile = None,
    results: Results = Path("reproduced"),
    run: Run = False,
    as_json: Json = False,
) -> None:
    """Write a figure's experiments, settings, rules, values and verdicts into one
    file; check FILE judges such a file again, remarks on what is otherwise or
    cannot be checked here, and with --run runs the figure again.

    Exit codes: 0 done, 1 a verdict is another one, 2 unknown name or a file
    that is none, 3 this machine cannot run it, 4 a live run failed.
    """
    if what == CHECK:
        if file is None:
            raise BadInput("which file?", "testbed claim check FILE")
        _check(file, results, run=run, as_json=as_json)
        return
    if file is not None or run:
        raise BadInput(
            "a file and --run go with check", "testbed claim check FILE"
        )
    name = _section_of(what)
    content = claim_content(name, results_of(name, results))
    path = out or Path(f"{name}.claim.json")
    text = json.dumps(content, ensure_ascii=False, indent=1)
    write_asked_for("--out", path, f"{text}\n")
    if as_json:
        console.print_json({"file": str(path), "digest": content["digest"]})
        return
    console.out().print(
        Text(f"{path}: {content['digest']}"), soft_wrap=True
    )


def _section_of(figure: str) -> str:
    """The section of a figure that is named as in ``reproduce --list``, or as its
    section is.

    Raises BadInput for an unknown one.
    """
    # A name of both kinds is the simulated figure.
    for name in (figure, f"{figure}-live"):
        if name in sections():
            return name
    near = difflib.get_close_matches(figure, sections(), 1)
    hint = "testbed reproduce --list"
    if near:
        hint = f"did you mean {near[0]}?"
    raise BadInput(f"no figure is called {figure}", hint)


def _check(path: Path, out: Path, *, run: bool, as_json: bool) -> None:
    # The file's own values by the file's own rules; what else differs from
    # this checkout is remarked on, and changes no exit code.
    content = read_claim_file(path)
    judged = judged_again(content)
    remarks = (*judged.remarks, *remarks_on_origin(content))
    checked = replace(judged, remarks=remarks)
    differ = list(checked.differ)
    if run:
        differ += _run_again(content, path, out)
    if as_json:
        console.print_json(_record(content, checked, differ))
    else:
        _show(content, checked, differ)
    if differ:
        raise typer.Exit(1)


def _record(
    content: Content, checked: Checked, differ: list[str]
) -> dict[str, Any]:
    return {
        "figure": content["figure"],
        "digest": content["digest"],
        "ledger": content["ledger"]["digest"],
        "verdicts": verdicts_of(checked.done),
        "differ": differ,
        "remarks": list(checked.remarks),
    }


def _show(content: Content, checked: Checked, differ: list[str]) -> None:
    out = console.out()
    for text, status, verdict in verdicts_of(checked.done):
        out.print(Text(f"{verdict}, {status}: {text}"), soft_wrap=True)
    for remark in checked.remarks:
        out.print(Text(f"remark: {remark}"), soft_wrap=True)
    for difference in differ:
        out.print(Text(f"differs: {difference}"), soft_wrap=True)
    if not differ:
        count = len(content["verdicts"])
        out.print(Text(f"{count} verdicts, each as in the file"))


def _run_again(content: Content, path: Path, out: Path) -> list[str]:
    """The verdicts that differ after the figure has been run again; results that
    are stored below ``out`` are not computed or measured twice.
    """
    record = content["results"]
    # The file's results may be of other seeds than its rules begin with
    # now: the same runs are made again.
    figure = replace(
        figure_of(content), first_seed=record.get("first_seed", 1)
    )
    seeds = int(record["seeds"])
    # The claims are about the full size, so that the run has it, too.
    again = ["testbed", "claim", CHECK, str(path), "--run"]
    folder = checked_out(out, "--results")
    request = Request(folder, seeds, quick=False, command=again)
    if isinstance(figure, LiveFigure):
        done = _measured(figure, request)
    else:
        done = _computed(figure, request)
    stages = tuple(record.get("stages", ()))
    return _differences(content, replace(done, stages=stages))


def _measured(figure: LiveFigure, request: Request) -> Reproduced:
    """The figure on the live network; its results are written below ``out``."""
    backends = Machine(request.command, " ".join(request.command))
    with shown_progress(figure.name) as report:
        measured = reproduce_live(figure, request, backends, report)
    write_live(measured, request)
    return measured.done


def _computed(figure: AnyFigure, request: Request) -> Reproduced:
    """The simulated figure with the same seeds."""
    assert isinstance(figure, Figure)  # noqa: S101 - there are these two kinds
    processes = len(os.sched_getaffinity(0))
    with (
        executor(None, processes, console.say) as runs,
        shown_progress(figure.name) as report,
    ):
        return reproduce_figure(figure, request, runs, report)


def _differences(content: Content, done: Reproduced) -> list[str]:
    """The claims whose verdict is not the file's, each as a sentence."""
    pairs = zip(content["verdicts"], verdicts_of(done), strict=True)
    differences = []
    for before, now in pairs:
        if before != now:
            text, _, verdict = now
            differences.append(
                f"run again, {text}: {verdict}, and not {before[2]}"
            )
    return differences
