"""``testbed verify``: the network that is up, compared with its plan."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.table import Column, Table
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, require_root
from testbed.standing import verification
from testbed.standing.keeper_protocol import ask
from testbed.standing.network_layout import (
    NetworkLayout,
    ShowLayout,
    ShowPlans,
    TenantPlans,
)

# Problems that are listed per check; --json has all.
MOST_LISTED = 20


def verify(as_json: Json = False) -> None:
    """Compare cables, tc and flows with the plan, and try which packets pass and
    which do not.

    Exit codes: 0 everything is as it should be, 1 something differs, which is
    named.
    """
    require_root("testbed verify")
    layout = ask(ShowLayout(), NetworkLayout)
    # Read once: a tenant that comes or goes during the checks is reported as a
    # difference.
    plans = ask(ShowPlans(), TenantPlans)
    checks = []
    total = len(verification.CHECKS)
    with console.counted("verifying", total) as advance:
        for check in verification.checks(layout, plans):
            checks.append(check)
            advance()
    if as_json:
        console.print_json(
            [asdict(check) | {"good": check.good} for check in checks]
        )
    else:
        _print(checks)
    if not all(check.good for check in checks):
        raise typer.Exit(1)


def _print(checks: list[verification.NetworkCheck]) -> None:
    table = Table(
        "check", "of", Column("number", justify="right"), "verdict"
    )
    for check in checks:
        table.add_row(
            check.name,
            verification.CHECKS[check.name],
            str(check.compared),
            _verdict(check),
        )
    console.out().print(table)
    for check in checks:
        _print_problems(check)


def _verdict(check: verification.NetworkCheck) -> Text:
    if check.problems:
        return Text(f"{len(check.problems)} WRONG", "bold red")
    # Where nothing was compared, nothing is proved.
    if not check.compared or check.note:
        return Text("–")
    return Text("ok", "green")


def _print_problems(check: verification.NetworkCheck) -> None:
    if check.note:
        console.print_text(f"{check.name}: {check.note}")
    for problem in check.problems[:MOST_LISTED]:
        console.print_text(f"{check.name}: {problem}")
    left = len(check.problems) - MOST_LISTED
    if left > 0:
        console.print_text(f"{check.name}: {left} more")
