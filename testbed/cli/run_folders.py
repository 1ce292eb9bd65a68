"""``testbed audit | explain | report RUN``: proofs, reasons and pages from a run
folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, PictureFolder, RunPath
from testbed.errors import BadInput
from testbed.record.folder import EVENTS, RunFolder
from testbed.units import (
    human_duration,
    number_of,
)

if TYPE_CHECKING:
    from testbed.audit import Audit, Result
    from testbed.record.job_history import Explanation

JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's name.")]

Written = Annotated[
    Literal["html", "parquet"],
    typer.Option(
        "--format", help="html: the page; parquet: jobs, links and events."
    ),
]

SHOWN_NAMES = 12
_STYLES = {"passed": "green", "failed": "bold red", "not applicable": "dim"}
_WORDS = {"passed": "ok", "failed": "FAILED", "not applicable": "–"}


def audit(run: RunPath, as_json: Json = False) -> None:
    """Prove a run's invariants from its events, with code that shares nothing
    with the schedulers.

    Exit codes: 0 all hold, 1 a check failed, 2 not a run folder, or a damaged
    one.
    """
    from testbed.audit import audit_all

    audits = audit_all(run)
    good = all(checked.passed for checked in audits)
    if as_json:
        console.print_json(audits)
    else:
        for checked in audits:
            _show_audit(checked)
        style = "bold green" if good else "bold red"
        console.out().print(Text(_closing(audits), style))
    if not good:
        raise typer.Exit(1)


def _show_audit(checked: Audit) -> None:
    out = console.out()
    events = number_of(checked.n_events, "event")
    title = f"{checked.path}: {checked.run}, {checked.policy}, {events}"
    out.print(Text(title, style="bold"), soft_wrap=True)
    longest = max(len(result.name) for result in checked.results)
    for result in checked.results:
        lines = Table.grid(padding=(0, 1))
        lines.add_column(width=len("  FAILED"), no_wrap=True)
        lines.add_column(width=longest, no_wrap=True)
        lines.add_column()
        lines.add_row(*_cells(result))
        out.print(lines)
        for finding in result.findings:
            out.print(
                Text(f"          {finding}", style="red"), soft_wrap=True
            )
        unshown = result.n_findings - len(result.findings)
        if unshown > 0:
            out.print(Text(f"          and {unshown:,} more"))


def _closing(audits: Sequence[Audit]) -> str:
    """The sentence over all policies: how many checks failed, in which, and how
    many passed.
    """
    statuses = []
    for checked in audits:
        statuses += [result.status for result in checked.results]
    passed = statuses.count("passed")
    failed = number_of(statuses.count("failed"), "check")
    # A run of several policies has a last audit, of the list of their summaries.
    # That of a single policy is all there is.
    *policies, last = audits
    size = f"{len(policies)} policies"
    where = ""
    if "failed" not in statuses:
        if policies:
            where = f" in {size} and the list above them"
        return f"all {passed} applicable checks passed{where}"
    places = []
    wrong = [checked.policy for checked in policies if not checked.passed]
    if wrong:
        places.append(f"{len(wrong)} of {size} ({', '.join(wrong)})")
    if not last.passed:
        places.append(f"the list above the {size}")
    if policies:
        where = f" in {' and in '.join(places)}"
    return f"{failed} failed{where}, {passed} passed"


def _cells(result: Result) -> tuple[Text, Text, Text]:
    """Cells of a check's line: status, name, and what it proves."""
    message = result.says
    style = "default"
    if result.status == "not applicable":
        message = f"not applicable: {result.why}"
        style = "dim"
    return (
        Text(f"  {_WORDS[result.status]}", style=_STYLES[result.status]),
        Text(result.name),
        Text(message, style=style),
    )


def explain(run: RunPath, job: JobId, as_json: Json = False) -> None:
    """Say why a job waited: what was tried, what stood in its way, who was
    started before it.

    With several policies in the run, one after another. Exit codes: 0 good, 2
    not a run folder, or no such job.
    """
    from testbed.record.event_file import stream_events
    from testbed.record.job_history import explained
    from testbed.record.reading import policy_folders

    histories = [
        explained(stream_events(folder / EVENTS), job)
        for folder in policy_folders(run)
    ]
    if as_json:
        console.print_json(histories)
        return
    for history in histories:
        _show_history(history)


def _show_history(history: Explanation) -> None:
    out = console.out()
    out.print(
        Text(f"{history.job_id}, {history.policy}", style="bold"),
        soft_wrap=True,
    )
    for step in history.steps:
        sentence = step.says
        if step.behind:
            sentence += f"; it waits for {_first(step.behind)}"
        if step.until_s is not None:
            sentence += (
                f"; by what is known it starts at {step.until_s:.6g} s"
            )
        line = Text(f"  {step.t:>12.6g} s  ", style="dim")
        line.append(sentence, style="default")
        out.print(line, soft_wrap=True)
    out.print(Text(_sentence(history)), soft_wrap=True)


def _first(names: Sequence[str]) -> str:
    """The first of the names, and the number of the others."""
    text = ", ".join(names[:SHOWN_NAMES])
    more = len(names) - SHOWN_NAMES
    if more > 0:
        text += f" and {more} more"
    return text


def _sentence(history: Explanation) -> str:
    """The sentence about the job's waits, its cuts, and later jobs that started."""
    cut = ""
    if history.cut_s:
        cut = f" It was cut for {human_duration(history.cut_s)}."
    if not history.waited_s and history.start_s is not None:
        return f"It did not wait.{cut}"
    message = f"It waited {human_duration(history.waited_s)}.{cut}"
    if not history.overtaken_by:
        return f"{message} No later job started meanwhile."
    jobs = []
    for job in history.overtaken_by:
        jobs.append(
            f"{job.job_id} ({job.n_vms} VMs, at {job.start_s:.6g} s)"
        )
    count = f"{number_of(len(jobs), 'job')} submitted later"
    return f"{message} Meanwhile {count} started: {_first(jobs)}."


def report(
    run: RunPath,
    written: Written = "html",
    to: PictureFolder = None,
    as_json: Json = False,
) -> None:
    """Write a run's report.html again, from what lies in its folder, and print
    where it is.

    With --format parquet its jobs, links and events as Parquet files, and no
    page; with --pictures its pictures as files, a sweep's too, and no page.
    Exit code 2 where the folder is no run folder, or is damaged.
    """
    from testbed.record.reading import policy_folders
    from testbed.report.page import write_report
    from testbed.sweeps.sweep_comparison import is_sweep

    if to is not None and is_sweep(run):
        from testbed.sweeps.sweep_comparison_page import copy_pictures

        _show_files(copy_pictures([run], to), as_json=as_json)
        return
    if is_sweep(run):
        raise BadInput(
            f"{run} is a sweep's folder",
            "type the command of its provenance.json again: a new folder has the"
            " page, and cells that are stored are not computed",
        )
    folders = policy_folders(run)
    console.say(f"reading {run}")
    if to is not None:
        from testbed.report.picture_files import write_pictures

        _show_files(write_pictures(run, to), as_json=as_json)
        return
    if written == "parquet":
        from testbed.record.parquet_tables import write_parquet

        paths: list[Path] = []
        for folder in folders:
            paths += write_parquet(RunFolder.open(folder))
        _show_files(paths, as_json=as_json)
        return
    path = write_report(RunFolder.open(run))
    if as_json:
        console.print_json(
            {"report": str(path), "bytes": path.stat().st_size}
        )
    else:
        console.print_text(str(path))


def _show_files(paths: Sequence[Path], *, as_json: bool) -> None:
    if as_json:
        console.print_json(
            [
                {"file": str(path), "bytes": path.stat().st_size}
                for path in paths
            ]
        )
        return
    for path in paths:
        console.print_text(str(path))
