"""Short names of run folders: ``latest``, an experiment's name, the beginning of
a folder's name.
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
    """The folder that a path or a short name, as ``latest/fcfs``, stands for.

    A path that exists stands for itself, and so does a name that no run has.
    Of another path the first part that does not exist is a run's name:
    ``latest``, the experiment's name, or the beginning of the experiment's or
    of the folder's name. The parts before it name the folder of the runs; it
    is ``runs`` where there are none. Of several runs the latest is meant. The
    part after it is the name of one of the run's policies, or its beginning.

    Raises BadInput where no policy or several have that name, and for
    ``latest`` where there is no run.
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
        # ``base`` is a run's own folder: its policy's short name follows.
        if is_a_runs(base.name):
            return _policy_named(base, rest)
        if rest[0] == LATEST:
            raise BadInput(f"there is no run in {base}", MAKE)
        return written
    return _policy_named(run, rest[1:])


def short_names() -> list[str]:
    """Names of the runs below ``runs``: ``latest``, then those of experiments,
    then those of folders, the latest first.
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
        experiments[_experiment_of(run)] = None
    return [LATEST, *experiments, *reversed(runs)]


def policy_names(written: Path) -> list[str]:
    """Names of the folders of a run's policies; none where the run has a single
    policy. ``written``: the run's path or short name.
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
    """The latest run below ``base`` of that name, by the strictest rule that
    fits a run.
    """
    runs = [folder for folder in _folders(base) if is_a_runs(folder.name)]
    if name == LATEST:
        # Folders' names begin with the time in UTC and are sorted.
        if runs:
            return runs[-1]
        return None
    rules: tuple[Callable[[str], bool], ...] = (
        lambda run: _without_time(run) == name,
        lambda run: _experiment_of(run) == name,
        lambda run: run.startswith(name),
        lambda run: _without_time(run).startswith(name),
    )
    for is_meant in rules:
        meant = [folder for folder in runs if is_meant(folder.name)]
        if meant:
            return meant[-1]
    return None


def _without_time(run: str) -> str:
    """``day-s1`` of ``20261120T141500Z-day-s1``."""
    return run.partition("-")[2]


def _experiment_of(run: str) -> str:
    """``day`` of ``20261120T141500Z-day-s1``."""
    return _without_time(run).rpartition("-s")[0]


def _policy_named(run: Path, rest: list[str]) -> Path:
    """The folder of the policy whose name is, or begins as, ``rest``; the run's
    own where that is empty. Raises BadInput for no policy, and for several.
    """
    if not rest:
        return run
    name = rest[0]
    if (run / EVENTS).is_file():
        # The only policy of a run has no folder of its own.
        policy = policy_of(run) or ""
        if len(rest) == 1 and policy.startswith(name):
            return run
        raise _no_policy(run, rest, [policy])
    # Not every folder is a policy's: a live run also has `logs`.
    policies = policy_names(run)
    meant = [policy for policy in policies if policy.startswith(name)]
    # A whole name means that policy alone: ``dcloud``, beside ``dcloud-ts``.
    if name in policies:
        meant = [name]
    if len(meant) != 1 or len(rest) > 1:
        raise _no_policy(run, rest, policies)
    return run / meant[0]


def _no_policy(run: Path, rest: list[str], policies: list[str]) -> BadInput:
    """The error about a name that no policy of a run has, or several have."""
    name = "/".join(rest)
    hint = f"it has: {', '.join(policies) or 'none'}"
    for folder in reversed(_folders(run.parent)):
        if _has_policy(folder, run, name):
            hint += f"; {folder / name} is another run's"
            break
    return BadInput(f"{run} has no policy {name!r}", hint)


def _has_policy(folder: Path, run: Path, name: str) -> bool:
    """True if ``folder`` is a run of the same experiment and seed, with that
    policy.
    """
    is_alike = _without_time(folder.name) == _without_time(run.name)
    return is_alike and (folder / name / EVENTS).is_file()
