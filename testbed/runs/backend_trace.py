"""What a world answered the engine, call by call: written down live, given again in a replay.

``answers.jsonl`` in a live run's folder holds one line a call. An engine that is given the same
answers is at the same time at the same step, so a policy without hidden state decides the same:
:func:`testbed.runs.backend_trace.run_replayed` shows whether it did.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from jobs.request import JobRequest
from testbed.embedding.placement import Placement
from testbed.engine.backend import Backend, Completion, StartFailed
from testbed.errors import BadInput, RunFailed
from testbed.events import Event
from testbed.results.comparison import Difference, decisions, first_difference
from testbed.results.folder import EVENTS, DiskReserve, RunFolder
from testbed.results.reading import CHANGED, policy_folders, policy_of, read_events
from testbed.runs.playing import Recorded, begin_folder, conclude_run, play, tee
from testbed.schedulers.actions import Tier
from testbed.spec.experiment import Experiment, PolicySpec

ANSWERS = "answers.jsonl"

Write = Callable[[dict[str, Any]], None]


def writer(file: IO[str], reserve: DiskReserve) -> Write:
    """One flushed line an answer."""

    def write(answer: dict[str, Any]) -> None:
        with reserve.guarding():
            file.write(json.dumps(answer, separators=(",", ":"), allow_nan=False) + "\n")
            file.flush()

    return write


class TracingBackend:
    """A world whose answers are written down. See :class:`testbed.engine.backend.Backend`."""

    def __init__(self, world: Backend, write: Write) -> None:
        self._world = world
        self._write = write
        self.name = world.name

    def now_s(self) -> float:
        now_s = self._world.now_s()
        self._write({"now_s": now_s})
        return now_s

    def wait(self, until_s: float | None) -> list[Completion]:
        done = self._world.wait(until_s)
        self._write({"wait": until_s, "done": [each._asdict() for each in done]})
        return done

    def start(self, job: JobRequest, placement: Placement, rate_bps: int, tier: Tier) -> None:
        try:
            self._world.start(job, placement, rate_bps, tier)
        except StartFailed as error:
            self._write({"start": job.id, "failed": str(error)})
            raise
        self._write({"start": job.id})

    def rescale(self, job_id: str, rate_bps: int) -> None:
        self._write({"rescale": job_id})
        self._world.rescale(job_id, rate_bps)

    def preempt(self, job_id: str) -> None:
        self._write({"preempt": job_id})
        self._world.preempt(job_id)

    def resume(self, job_id: str, cost_s: float, tier: Tier) -> None:
        self._write({"resume": job_id})
        self._world.resume(job_id, cost_s, tier)

    def migrate(self, job_id: str, placement: Placement, cost_s: float, tier: Tier) -> None:
        self._write({"migrate": job_id})
        self._world.migrate(job_id, placement, cost_s, tier)

    def switch_tier(self, job_id: str, tier: Tier) -> None:
        self._write({"switch_tier": job_id})
        self._world.switch_tier(job_id, tier)

    def kill(self, job_id: str) -> None:
        self._write({"kill": job_id})
        self._world.kill(job_id)


class ReplayBackend:
    """The world that a run met, once more: every call must come where it came then.

    RunFailed says where the engine asks for something else: a decision differs from there on.
    """

    name = "replay"

    def __init__(self, answers: Iterator[tuple[int, dict[str, Any]]]) -> None:
        self._answers = answers

    def _next(self, call: str, of: object) -> dict[str, Any]:
        number, answer = next(self._answers, (0, {}))
        if answer.get(call, _NOTHING) != of:
            then = f"line {number}: {answer}" if number else "nothing more"
            asked = call if of is None else f"{call} {of}"
            raise RunFailed(f"replay: the engine asks for {asked}, the run's answers hold {then}")
        return answer

    def now_s(self) -> float:
        number, answer = next(self._answers, (0, {}))
        if "now_s" not in answer:
            raise RunFailed(f"replay: the engine asks for the time, line {number} is {answer}")
        return float(answer["now_s"])

    def wait(self, until_s: float | None) -> list[Completion]:
        return [Completion(**done) for done in self._next("wait", until_s)["done"]]

    def start(
        self,
        job: JobRequest,
        placement: Placement,  # noqa: ARG002 - what is decided is compared by the events
        rate_bps: int,  # noqa: ARG002
        tier: Tier,  # noqa: ARG002
    ) -> None:
        failed = self._next("start", job.id).get("failed")
        if failed is not None:
            raise StartFailed(str(failed))

    def rescale(self, job_id: str, rate_bps: int) -> None:  # noqa: ARG002
        self._next("rescale", job_id)

    def preempt(self, job_id: str) -> None:
        self._next("preempt", job_id)

    def resume(self, job_id: str, cost_s: float, tier: Tier) -> None:  # noqa: ARG002
        self._next("resume", job_id)

    def migrate(self, job_id: str, placement: Placement, cost_s: float, tier: Tier) -> None:  # noqa: ARG002
        self._next("migrate", job_id)

    def switch_tier(self, job_id: str, tier: Tier) -> None:  # noqa: ARG002
        self._next("switch_tier", job_id)

    def kill(self, job_id: str) -> None:
        self._next("kill", job_id)


_NOTHING = object()


def read_answers(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every answer with its line, from 1. Raises BadInput where there is none to read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror}", "only live runs keep answers: testbed run writes them"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: damaged: {error}", CHANGED) from error
    for number, line in enumerate(lines, 1):
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            return  # cut short: the process was killed here
        if not isinstance(answer, dict):
            raise BadInput(f"{path}:{number}: damaged: not a JSON object", CHANGED)
        yield number, answer


# ---- A live run once more, without the network: the same answers, so the same decisions.


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
    policy, world = source.policy, ReplayBackend(iter(source.answers))
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
