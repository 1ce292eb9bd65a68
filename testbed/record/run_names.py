"""Short names of run folders: ``latest``, an experiment's name, the beginning of
a folder's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testbed.errors import BadInput
from testbed.record.folder import DEFAULT_OUT, EVENTS, is_a_runs
from testbed.record.reading import policy_of

LATEST = "latest"
MAKE = (
    "`testbed simulate FILE` and `sudo testbed run FILE` make one, below the"
    " folder that they are called in"
)


def run_folder(written: Path) -> Path:
    """The folder that a path or a short name means, as ``latest/fcfs``; the path
    itself where none does.

    A path's first part that does not exist is a run's name: ``latest``, the
    experiment's name, or the beginning of that or of the folder's name; of
    several such runs the latest is meant. Below ``runs``, where nothing else is
    written. A further part is a policy's folder, or its beginning; BadInput
    where that is none's or several ones', and for ``latest`` without a run.
    """
    if written.exists() or written.is_absolute():
        return written
    base = Path()
    rest = list(written.parts)
    while rest and (base / rest[0]).is_dir():
        base /= rest.pop(0)
    if base == Path():
        base = DEFAULT_OUT
    run = _run_named(base, rest[0])
    if run is None:
        # The folder of a run is written, and its policy in short.
        if is_a_runs(base.name):
            return _policy_named(base, rest)
        if rest[0] == LATEST:
            raise BadInput(f"there is no run in {base}", MAKE)
        return written
    return _policy_named(run, rest[1:])


def short_names() -> list[str]:
    """Names by which the runs below ``runs`` are found: ``latest``, their
    experiments', their folders'.
    """
    runs = [
        folder.name
        for folder in _folders(DEFAULT_OUT)
        if is_a_runs(folder.name)
    ]
    if not runs:
        return []
    experiments: dict[str, None] = {}
    for run in runs:
        name = _without_time(run).rpartition("-s")[0]
        if name:
            experiments[name] = None
    return [LATEST, *experiments, *reversed(runs)]


def policy_names(written: Path) -> list[str]:
    """Folders of a run's policies, by a short name or the path of the run; none
    where it has a single policy.
    """
    folder = run_folder(written)
    names = []
    for policy in _folders(folder):
        if (policy / EVENTS).is_file():
            names.append(policy.name)
    return names


def _folders(base: Path) -> list[Path]:
    if not base.is_dir():
        return []
    return sorted(folder for folder in base.iterdir() if folder.is_dir())


def _run_named(base: Path, name: str) -> Path | None:
    """The latest run below ``base`` of that name: by the strictest rule that
    finds one.
    """
    runs = [folder for folder in _folders(base) if is_a_runs(folder.name)]
    if name == LATEST:
        # Names begin with the time in UTC: the last by name is the latest.
        if runs:
            return runs[-1]
        return None
    rules: tuple[Callable[[str], bool], ...] = (
        lambda folder: _without_time(folder) == name,
        lambda folder: _without_time(folder).rpartition("-s")[0] == name,
        lambda folder: folder.startswith(name),
        lambda folder: _without_time(folder).startswith(name),
    )
    for is_meant in rules:
        meant = [folder for folder in runs if is_meant(folder.name)]
        if meant:
            return meant[-1]
    return None


def _without_time(folder: str) -> str:
    return folder.partition("-")[2]


def _policy_named(run: Path, rest: list[str]) -> Path:
    """A policy's folder in a run. Raises BadInput where none or several begin
    so.
    """
    if not rest:
        return run
    name = rest[0]
    if (run / EVENTS).is_file():
        # The only policy of a run has no folder of its own.
        policies = [policy_of(run) or ""]
        if len(rest) == 1 and policies[0].startswith(name):
            return run
        raise _no_policy(run, rest, policies)
    policies = [folder.name for folder in _folders(run)]
    meant = [policy for policy in policies if policy.startswith(name)]
    # A whole name, though another one begins with it: dcloud, dcloud-ts.
    if name in policies:
        meant = [name]
    if len(meant) != 1 or len(rest) > 1:
        raise _no_policy(run, rest, policies)
    return run / meant[0]


def _no_policy(run: Path, rest: list[str], policies: list[str]) -> BadInput:
    name = "/".join(rest)
    hint = f"it has: {', '.join(policies)}"
    for folder in reversed(_folders(run.parent)):
        if _has_policy(folder, run, name):
            hint += f"; {folder / name} is an earlier run's"
            break
    return BadInput(f"{run} has no policy {name!r}", hint)


def _has_policy(folder: Path, run: Path, name: str) -> bool:
    """True for a run of the same experiment and seed with such a policy."""
    is_alike = _without_time(folder.name) == _without_time(run.name)
    return is_alike and (folder / name / EVENTS).is_file()
