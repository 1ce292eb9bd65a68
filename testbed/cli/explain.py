"""``testbed explain RUN JOB``: why a job waited, what stood in its way, and who overtook it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json
from testbed.results.folder import EVENTS
from testbed.results.job_history import Explanation, explained
from testbed.results.reading import policy_folders, stream_events
from testbed.units import human_duration

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as runs/2026….")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's name.")]

SHOWN = 12


def explain(run: RunPath, job: JobId, as_json: Json = False) -> None:
    """Say why a job waited: what was tried, what stood in its way, who was started before it.

    With several policies in the run, one after another. Exit codes: 0 good, 2 not a run folder, or
    no such job.
    """
    found = [explained(stream_events(folder / EVENTS), job) for folder in policy_folders(run)]
    if as_json:
        console.print_json([each.to_json() for each in found])
        return
    for each in found:
        _show(each)


def _show(history: Explanation) -> None:
    out = console.out()
    out.print(Text(f"{history.job_id}, {history.policy}", style="bold"), soft_wrap=True)
    for step in history.steps:
        line = Text(f"  {step.t:>12.6g} s  ", style="dim")
        line.append(step.says, style="default")
        if step.behind:
            line.append(f"; it waits for {_names(step.behind)}", style="default")
        if step.until_s is not None:
            line.append(f"; by what is known it starts at {step.until_s:.6g} s", style="default")
        out.print(line, soft_wrap=True)
    out.print(Text(_sentence(history)), soft_wrap=True)


def _names(names: tuple[str, ...]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _sentence(history: Explanation) -> str:
    """Time waited, and the later jobs that started meanwhile."""
    if not history.waited_s and history.start_s is not None:
        return "It did not wait."
    message = f"It waited {human_duration(history.waited_s)}."
    if not history.overtaken_by:
        return f"{message} No later job started meanwhile."
    who = [f"{o.job_id} ({o.n_vms} VMs, at {o.start_s:.6g} s)" for o in history.overtaken_by]
    count = f"{len(who)} job{'s' if len(who) > 1 else ''} submitted later"
    return f"{message} Meanwhile {count} started: {_names(tuple(who))}."
