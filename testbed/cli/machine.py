"""``testbed doctor`` and ``testbed clean``: this machine, and what runs have
left on it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from testbed.cli import console
from testbed.cli.options import Json, require_root
from testbed.errors import MachineCannot

if TYPE_CHECKING:
    from testbed.backends.emu.machine_checks import MachineCheck

MARKS = {
    "ok": ("ok  ", "green"),
    "warn": ("warn", "yellow"),
    "fail": ("fail", "bold red"),
}

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be removed.")
]


def require_live(prefix: str, command: str) -> None:
    """Raises BadInput for a prefix that names nothing, MachineCannot without
    root or where one of the doctor's checks fails.
    """
    from testbed.backends.emu.machine_checks import require_machine
    from testbed.plan.network_plan import check_prefix

    check_prefix(prefix, "--prefix")
    require_root(command)
    require_machine()


def doctor(as_json: Json = False) -> None:
    """Try everything a live run needs. Exit code 3 if this machine cannot run
    one.
    """
    from testbed.backends.emu.machine_checks import examine, verdict

    checks = examine()
    able, sentence = verdict(checks)
    if as_json:
        console.print_json(
            {"can_run": able, "verdict": sentence, "checks": checks}
        )
    else:
        for check in checks:
            _print(check)
        console.out().print(sentence, soft_wrap=True)
    if not able:
        raise typer.Exit(MachineCannot.exit_code)


def _print(check: MachineCheck) -> None:
    out = console.out()
    line = Text.assemble(
        MARKS[check.grade], f" {check.name}: {check.sentence}"
    )
    out.print(line, soft_wrap=True)
    if check.hint is not None:
        out.print(f"     hint: {check.hint}", soft_wrap=True)


def clean(dry_run: DryRun = False, as_json: Json = False) -> None:
    """Remove what the cleanup journals of dead runs name and nothing else, and
    temporary folders of killed commands. Exit code 3 while a run is alive.
    """
    if os.geteuid() != 0:
        raise MachineCannot(
            "removing namespaces and bridges needs root",
            "sudo testbed clean",
        )
    from testbed.backends.emu.cleanup import clean as remove_leftovers
    from testbed.backends.emu.cleanup import remove_temporary_folders

    removed = remove_leftovers(dry_run=dry_run)
    removed += remove_temporary_folders(dry_run=dry_run)
    if as_json:
        console.print_json({"dry_run": dry_run, "removed": removed})
        return
    verb = "would remove" if dry_run else "removed"
    for thing in removed:
        console.print_text(f"{verb} {thing.what} {thing.name}")
    if not removed:
        console.print_text("nothing to remove")
