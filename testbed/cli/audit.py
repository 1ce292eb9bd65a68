"""``testbed audit RUN``: a run's events replayed, its invariants proved or refuted."""

from __future__ import annotations

from collections.abc import Sequence
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
        good = all(each.passed for each in audits)
        console.out().print(Text(closing(audits), style="bold green" if good else "bold red"))
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


def closing(audits: Sequence[Audit]) -> str:
    """One sentence over all policies: how many checks failed, in whose run, how many passed."""
    statuses = [result.status for each in audits for result in each.results]
    failed, passed = statuses.count("failed"), statuses.count("passed")
    # Of several policies the last audit is that of the list above them.
    policies, above = (audits[:-1], audits[-1:]) if len(audits) > 1 else (audits, [])
    if not failed:
        where = f" in {len(policies)} policies and the list above them" if above else ""
        return f"all {passed} applicable checks passed{where}"
    wrong = [each.policy for each in policies if not each.passed]
    places = [f"{len(wrong)} of {len(policies)} policies ({', '.join(wrong)})"] if wrong else []
    places += [f"the list above the {len(policies)} policies" for a in above if not a.passed]
    where = f" in {' and in '.join(places)}" if above else ""
    return f"{failed} {'check' if failed == 1 else 'checks'} failed{where}, {passed} passed"


def _line(result: Result) -> Text:
    line = Text(f"  {_WORDS[result.status]:<7}", style=_STYLES[result.status])
    line.append(f"{result.name:<18}", style="default")
    message = result.says if result.status != "not applicable" else f"not applicable: {result.why}"
    line.append(message, style="dim" if result.status == "not applicable" else "default")
    return line
