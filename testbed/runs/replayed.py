"""A live run once more, without the network: the same answers, so the same decisions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import BadInput, RunFailed
from testbed.events import RunStarted
from testbed.results.compare import Difference, decisions, first_difference
from testbed.results.folder import EVENTS, RunFolder
from testbed.results.read import policy_folders, read_events, stream_events
from testbed.runs.answers import ANSWERS, Replayed, read_answers
from testbed.runs.play import play, tee
from testbed.runs.record import Recorded, begin_folder, conclude_run
from testbed.spec.experiment import Experiment, PolicySpec


@dataclass(frozen=True)
class Replay:
    """One policy's replay: its run, how many decisions it made, and the first that differs."""

    recorded: Recorded
    n_decisions: int
    difference: Difference | None
    stopped: str | None

    @property
    def same(self) -> bool:
        return self.difference is None and self.stopped is None

    def sentence(self) -> str:
        """The verdict for a person."""
        if self.same:
            return f"all {self.n_decisions} decisions are the live run's"
        found = self.difference
        where = "" if found is None else f"decision {found.place} differs: "
        then = "" if found is None else f"live {found.first}; replayed {found.second}"
        why = "" if self.stopped is None else f" ({self.stopped})"
        return f"{where}{then}{why}"

    def to_json(self) -> dict[str, Any]:
        return {
            **self.recorded.to_json(),
            "decisions": self.n_decisions,
            "same_decisions": self.same,
            "replay": self.sentence(),
        }


def run_replayed(
    experiment: Experiment, live: Path, top: RunFolder, command: list[str]
) -> list[Replay]:
    """Every policy against the live run's folder of it. Raises BadInput."""
    found = policy_folders(live)
    several = len(experiment.policies) > 1
    by_policy = {_policy_of(path): path for path in found}
    out = []
    for policy in experiment.policies:
        source = found[0] if len(found) == 1 and not several else by_policy.get(policy.label)
        if source is None:
            there = ", ".join(sorted(by_policy))
            raise BadInput(
                f"{live} holds no run of the policy {policy.label}, only of {there}",
                "replay the file that was run, or choose with --set policies=[…]",
            )
        folder = top.policy(policy.label) if several else top
        out.append(_one(experiment, policy, source, folder, command))
    return out


def _policy_of(folder: Path) -> str:
    """The policy of a run folder as the run itself says it: a folder's name may not hold it."""
    first = next(stream_events(folder / EVENTS), None)
    if not isinstance(first, RunStarted):
        raise BadInput(f"{folder / EVENTS}:1: damaged: a run begins with run_started")
    return first.policy


def _one(
    experiment: Experiment,
    policy: PolicySpec,
    source: Path,
    folder: RunFolder,
    command: list[str],
) -> Replay:
    began = time.monotonic()
    then = read_events(source / EVENTS).events
    world = Replayed(read_answers(source / ANSWERS))
    begin_folder(folder, experiment, policy, world.name, command, {"replay_of": str(source)})
    now: list[Any] = []
    stopped = None
    try:
        with folder.open_events() as log:
            play(experiment, policy, world, tee(log, now.append))
    except RunFailed as error:
        stopped = error.message
    recorded = conclude_run(folder, experiment, policy, time.monotonic() - began)
    told: Sequence[Any] = decisions(now)
    return Replay(recorded, len(told), first_difference(decisions(then), told), stopped)
