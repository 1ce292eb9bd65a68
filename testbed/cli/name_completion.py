"""Names that a shell completes where a verb asks for a run."""

from __future__ import annotations

import shlex
from pathlib import Path

from testbed.errors import TestbedError


def run_names(incomplete: str) -> list[str]:
    """Names of runs below ``runs``, short ones and folders', that begin with
    ``incomplete``; after a slash, names of the run's policies.

    Names that a shell would have to quote are left out. Empty where
    ``incomplete`` begins a path, which shells complete themselves.
    """
    from testbed.record.run_names import policy_names, short_names

    run, slash, _ = incomplete.partition("/")
    names = []
    try:
        if slash and Path(run).exists():
            return []
        if slash:
            for policy in policy_names(Path(run)):
                names.append(f"{run}/{policy}")
        else:
            names = short_names()
    except (OSError, TestbedError):
        # A shell that asks while a line is typed shows no errors.
        return []
    return [
        name
        for name in names
        if name.startswith(incomplete) and shlex.quote(name) == name
    ]


def watched_names(incomplete: str) -> list[str]:
    """Names of runs, and of what else ``testbed watch`` shows."""
    names = run_names(incomplete)
    for word in ("up", "sweep"):
        if word.startswith(incomplete):
            names.append(word)
    return names
