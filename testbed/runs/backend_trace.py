"""Trace of a backend: its answers to the engine, recorded live and used again in a replay.

``answers.jsonl`` in a live run's folder holds one line a call. An engine that is given the same
answers is at the same time at the same step, so a policy without hidden state decides the same;
:func:`run_replayed` compares.
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
from testbed.runs.playing import RunRecord, begin_folder, conclude_run, play, tee
from testbed.schedulers.actions import Tier
from testbed.spec.experiment import Experiment, PolicySpec

TRACE = "answers.jsonl"

Write = Callable[[dict[str, Any]], None]


def writer(file: IO[str], reserve: DiskReserve) -> Write:
    """One flushed line an answer."""

    def write(answer: dict[str, Any]) -> None:
        with reserve.guarding():
            file.write(json.dumps(answer, separators=(",", ":"), allow_nan=False) + "\n")
            file.flush()

    return write


class TracingBackend:
    """A backend whose answers are recorded. See :class:`testbed.engine.backend.Backend`."""

    def __init__(self, backend: Backend, write: Write) -> None:
        self._backend = backend
        self._write = write
        self.name = backend.name

    def now_s(self) -> float:
        now_s = self._backend.now_s()
        self._write({"now_s": now_s})
        return now_s

    def wait(self, until_s: float | None) -> list[Completion]:
        done = self._backend.wait(until_s)
        self._write({"wait": until_s, "done": [each._asdict() for each in done]})
        return done

    def start(self, job: JobRequest, placement: Placement, rate_bps: int, tier: Tier) -> None:
        try:
            self._backend.start(job, placement, rate_bps, tier)
        except StartFailed as error:
            self._write({"start": job.id, "failed": str(error)})
            raise
        self._write({"start": job.id})

    def rescale(self, job_id: str, rate_bps: int) -> None:
        self._write({"rescale": job_id})
        self._backend.rescale(job_id, rate_bps)

    def preempt(self, job_id: str) -> None:
        self._write({"preempt": job_id})
        self._backend.preempt(job_id)

    def resume(self, job_id: str, cost_s: float, tier: Tier) -> None:
        self._write({"resume": job_id})
        self._backend.resume(job_id, cost_s, tier)

    def migrate(self, job_id: str, placement: Placement, cost_s: float, tier: Tier) -> None:
        self._write({"migrate": job_id})
        self._backend.migrate(job_id, placement, cost_s, tier)

    def switch_tier(self, job_id: str, tier: Tier) -> None:
        self._write({"switch_tier": job_id})
        self._backend.switch_tier(job_id, tier)

    def kill(self, job_id: str) -> None:
        self._write({"kill": job_id})
        self._backend.kill(job_id)


class ReplayBackend:
    """Answers each call as the trace does; calls must come in the trace's order.

    RunFailed names the first call that the trace does not hold: a decision differs from there on.
    """

    name = "replay"

    def __init__(self, trace: Iterator[tuple[int, dict[str, Any]]]) -> None:
        self._trace = trace

    def _next(self, call: str, of: object) -> dict[str, Any]:
        number, answer = next(self._trace, (0, {}))
        if answer.get(call, _NOTHING) != of:
            then = f"line {number}: {answer}" if number else "nothing more"
            asked = call if of is None else f"{call} {of}"
            raise RunFailed(f"replay: the engine asks for {asked}, the run's trace holds {then}")
        return answer

    def now_s(self) -> float:
        number, answer = next(self._trace, (0, {}))
        if "now_s" not in answer:
            raise RunFailed(f"replay: the engine asks for the time, line {number} is {answer}")
        return float(answer["now_s"])

    def wait(self, until_s: float | None) -> list[Completion]:
        return [Completion(**done) for done in self._next("wait", until_s)["done"]]

    # The arguments of a call beside its job are decisions: they are compared by the events.

    def start(self, job: JobRequest, *_: object) -> None:
        failed = self._next("start", job.id).get("failed")
        if failed is not None:
            raise StartFailed(str(failed))

    def rescale(self, job_id: str, *_: object) -> None:
        self._next("rescale", job_id)

    def preempt(self, job_id: str) -> None:
        self._next("preempt", job_id)

    def resume(self, job_id: str, *_: object) -> None:
        self._next("resume", job_id)

    def migrate(self, job_id: str, *_: object) -> None:
        self._next("migrate", job_id)

    def switch_tier(self, job_id: str, *_: object) -> None:
        self._next("switch_tier", job_id)

    def kill(self, job_id: str) -> None:
        self._next("kill", job_id)


_NOTHING = object()


def read_trace(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every answer with its line, from 1. Raises BadInput where there is none to read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror}", "only live runs keep a trace: testbed run writes it"
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


# -- a live run decided again, without the network


@dataclass(frozen=True)
class Replay:
    """One policy's replay: its run, how many decisions it made, and the first that differs."""

    recorded: RunRecord
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
class ReplaySource:
    """One policy of the experiment, with the events and the trace of its live run."""

    policy: PolicySpec
    path: Path
    events: list[Event]
    trace: list[tuple[int, dict[str, Any]]]


def replay_sources(experiment: Experiment, live: Path) -> list[ReplaySource]:
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
        trace, history = list(read_trace(path / TRACE)), read_events(path / EVENTS).events
        if not history:
            raise BadInput(f"{path / EVENTS} is empty: that run was killed before it began")
        out.append(ReplaySource(policy, path, history, trace))
    return out


def run_replayed(
    experiment: Experiment, sources: Sequence[ReplaySource], top: RunFolder, command: list[str]
) -> list[Replay]:
    """Every policy against the live run of it, as :func:`replay_sources` found them."""
    several = len(sources) > 1
    return [
        _one(experiment, source, top.policy(source.policy.label) if several else top, command)
        for source in sources
    ]


def _one(
    experiment: Experiment, source: ReplaySource, folder: RunFolder, command: list[str]
) -> Replay:
    began = time.monotonic()
    policy, backend = source.policy, ReplayBackend(iter(source.trace))
    facts = {"replay_of": str(source.path)}
    begin_folder(folder, experiment, policy, backend.name, command, facts)
    now: list[Event] = []
    stopped = None
    try:
        with folder.open_events() as log:
            play(experiment, policy, backend, tee(log, now.append))
    except RunFailed as error:
        stopped = error.message
    recorded = conclude_run(folder, experiment, policy, time.monotonic() - began)
    decided = decisions(now)
    return Replay(
        recorded, len(decided), first_difference(decisions(source.events), decided), stopped
    )
