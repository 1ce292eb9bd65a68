"""``testbed audit RUN``: a run's events replayed, its invariants proved or refuted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json
from testbed.results.audit import Audit, Result, audit_all

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as runs/2026….")]

_STYLES = {"passed": "green", "failed": "bold red", "not applicable": "dim"}
_WORDS = {"passed": "ok", "failed": "FAILED", "not applicable": "–"}


def audit(run: RunPath, as_json: Json = False) -> None:
    """Prove a run's invariants from its events, with code that shares nothing with the schedulers.

    Exit codes: 0 all hold, 1 a check failed, 2 not a run folder, or a damaged one.
    """
    audits = audit_all(run)
    if as_json:
        console.print_json([each.to_json() for each in audits])
    else:
        for each in audits:
            _show(each)
    if not all(each.passed for each in audits):
        raise typer.Exit(1)


def _show(checked: Audit) -> None:
    out = console.out()
    title = f"{checked.path}: {checked.run}, {checked.policy}, {checked.n_events:,} events"
    out.print(Text(title, style="bold"), soft_wrap=True)
    for result in checked.results:
        out.print(_line(result), soft_wrap=True)
        for finding in result.findings:
            out.print(Text(f"          {finding}", style="red"), soft_wrap=True)
        if result.n_findings > len(result.findings):
            out.print(Text(f"          and {result.n_findings - len(result.findings):,} more"))
    failed = sum(result.status == "failed" for result in checked.results)
    passed = sum(result.status == "passed" for result in checked.results)
    verdict = f"{failed} checks failed" if failed else f"all {passed} applicable checks passed"
    out.print(Text(verdict, style="bold red" if failed else "bold green"))


def _line(result: Result) -> Text:
    line = Text(f"  {_WORDS[result.status]:<7}", style=_STYLES[result.status])
    line.append(f"{result.name:<18}", style="default")
    said = result.says if result.status != "not applicable" else f"not applicable: {result.why}"
    line.append(said, style="dim" if result.status == "not applicable" else "default")
    return line
