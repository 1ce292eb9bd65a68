"""``testbed doctor``: what this machine can do, and the command that helps where it cannot."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.markup import escape

from testbed.cli import console
from testbed.cli.options import Json
from testbed.errors import MachineCannot

MARKS = {"ok": "[green]ok[/]  ", "warn": "[yellow]warn[/]", "fail": "[bold red]fail[/]"}


def doctor(as_json: Json = False) -> None:
    """Try everything a live run needs. Exit code 3 if this machine cannot run one."""
    from testbed.backends.emu.machine_checks import examine, verdict

    checks = examine()
    able, sentence = verdict(checks)
    if as_json:
        rows = [asdict(check) for check in checks]
        console.print_json({"can_run": able, "verdict": sentence, "checks": rows})
    else:
        out = console.out()
        for check in checks:
            line = f"{MARKS[check.grade]} {escape(check.name)}: {escape(check.found)}"
            out.print(line, soft_wrap=True)
            if check.hint is not None:
                out.print(f"     hint: {escape(check.hint)}", soft_wrap=True)
        out.print(escape(sentence), soft_wrap=True)
    if not able:
        raise typer.Exit(MachineCannot.exit_code)
