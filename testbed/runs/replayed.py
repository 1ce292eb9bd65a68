"""A live run once more, without the network: the same answers, so the same decisions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import BadInput, RunFailed
from testbed.events import Event
from testbed.results.compare import Difference, decisions, first_difference
from testbed.results.folder import EVENTS, RunFolder
from testbed.results.read import policy_folders, policy_of, read_events
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


@dataclass(frozen=True)
class Source:
    """One policy of the experiment, and what its live run left: everything a replay reads."""

    policy: PolicySpec
    path: Path
    events: list[Event]
    answers: list[tuple[int, dict[str, Any]]]


def replay_sources(experiment: Experiment, live: Path) -> list[Source]:
    """The live run's folder of every policy, read. Raises BadInput; makes nothing."""
    found = policy_folders(live)
    several = len(experiment.policies) > 1
    by_policy = {policy_of(path): path for path in found}
    out = []
    for policy in experiment.policies:
        path = found[0] if len(found) == 1 and not several else by_policy.get(policy.label)
        if path is None:
            there = ", ".join(sorted(name for name in by_policy if name is not None))
            raise BadInput(
                f"{live} holds no run of the policy {policy.label}, only of {there or 'nothing'}",
                "replay the file that was run, or choose with --set policies=[…]",
            )
        answers, events = list(read_answers(path / ANSWERS)), read_events(path / EVENTS).events
        if not events:
            raise BadInput(f"{path / EVENTS} is empty: that run was killed before it began")
        out.append(Source(policy, path, events, answers))
    return out


def run_replayed(
    experiment: Experiment, sources: Sequence[Source], top: RunFolder, command: list[str]
) -> list[Replay]:
    """Every policy against the live run of it, as :func:`replay_sources` found them."""
    several = len(sources) > 1
    return [
        _one(experiment, source, top.policy(source.policy.label) if several else top, command)
        for source in sources
    ]


def _one(experiment: Experiment, source: Source, folder: RunFolder, command: list[str]) -> Replay:
    began = time.monotonic()
    policy, world = source.policy, Replayed(iter(source.answers))
    facts = {"replay_of": str(source.path)}
    begin_folder(folder, experiment, policy, world.name, command, facts)
    now: list[Any] = []
    stopped = None
    try:
        with folder.open_events() as log:
            play(experiment, policy, world, tee(log, now.append))
    except RunFailed as error:
        stopped = error.message
    recorded = conclude_run(folder, experiment, policy, time.monotonic() - began)
    told: Sequence[Any] = decisions(now)
    return Replay(recorded, len(told), first_difference(decisions(source.events), told), stopped)
