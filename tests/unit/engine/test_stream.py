"""Jobs met one by one: the same events as with all of them at hand, and nothing kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.request import JobRequest, JobStream
from testbed import events
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.play.playing import dry_run, simulated
from testbed.schedulers.registry import build_policy
from testbed.spec.experiment import Experiment, PolicySpec
from testbed.spec.experiment_file import parse_experiment

FLAT = "topology: {kind: flat, nodes: 64}"
TREE = "topology: {kind: tree, fanout: [4, 4], links: 1 Gbit/s, slots_per_server: 4}"
WORKLOAD = "workload: {kind: feitelson, jobs: 120, largest: 32, load: 1.2}"


def experiment(topology: str) -> Experiment:
    return parse_experiment(f"{topology}\n{WORKLOAD}\n", Path("x.yaml"))


def with_list(given: Experiment) -> Experiment:
    return replace(given, jobs=tuple(given.jobs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["vc", "bl", "fcfs", "bgmbf", "easy", "cmbf", "amcbf"]
)
@pytest.mark.parametrize("topology", [FLAT, TREE], ids=["flat", "tree"])
def test_a_stream_gives_the_events_of_the_list(
    topology: str, policy: str
) -> None:
    given = experiment(topology)
    assert isinstance(given.jobs, JobStream)
    streamed = dry_run(given, PolicySpec(policy))
    assert streamed == dry_run(with_list(given), PolicySpec(policy))
    assert sum(event.name == "job_ended" for event in streamed) == 120


def test_only_jobs_that_are_here_are_kept() -> None:
    given = experiment(FLAT)
    policy = build_policy("easy", embedder(given.embedder), {})
    most = 0

    def look(engine: Engine) -> None:
        nonlocal most
        here = len(engine.waiting) + len(engine.running)
        # The next to come, and those that ended in this step.
        assert len(engine.jobs) <= here + 1 + 64
        most = max(most, len(engine.jobs))

    seen: list[events.Event] = []
    backend = simulated(given, PolicySpec("easy"))
    engine = Engine(
        given.datacentre, given.jobs, policy, backend, seen.append, look
    )
    engine.run()
    assert engine.jobs == {}
    assert 1 < most < 120


def test_a_stream_out_of_order_is_refused() -> None:
    class Listed(JobStream):
        def __init__(self, *submit_s: float) -> None:
            self._jobs = [
                JobRequest(f"j{k}", s, 1, 0, 9.0)
                for k, s in enumerate(submit_s)
            ]

        def __len__(self) -> int:
            return len(self._jobs)

        def __getitem__(self, index: int) -> JobRequest:  # type: ignore[override]
            return self._jobs[index]

    given = replace(experiment(FLAT), jobs=Listed(0.0, 5.0, 3.0))
    with pytest.raises(ValueError, match="j2 of a stream is out of order"):
        dry_run(given, PolicySpec("easy"))
