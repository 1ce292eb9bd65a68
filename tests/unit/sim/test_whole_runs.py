"""Whole simulated runs of DCloud and its baselines: audited, conserved, blind to names and units.

Random small experiments as a user writes them: every kind of data centre, both arrivals, all
interpretations of the paper's equations, profiling errors of both signs, services.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.workload.distributions import NormalDistribution
from jobs.workload.tenants import (
    INTERPRETATIONS,
    day_and_night,
    interpretation,
)
from testbed import events
from testbed.audit import audit
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.play.playing import dry_run
from testbed.record.conclusion import conclude
from testbed.record.folder import RunFolder
from testbed.schedulers.registry import build_policy
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from topologies.tree import tree

pytestmark = pytest.mark.slow

POLICIES = (
    "dcloud",
    "dcloud-ts",
    "dcloud-bs",
    "{name: dcloud, gamma: 0 %}",
    "vc",
    "bl",
    "{name: bl, coupling: lockstep}",
    "{name: bl, coupling: independent}",
)
TOPOLOGIES = (
    "{kind: tree, fanout: [2, 2, 3], links: [2 Gbit/s, 1.5 Gbit/s, 1 Gbit/s], slots_per_server: 4}",
    "{kind: tree, fanout: [3, 4], links: [777 Mbit/s, 333 Mbit/s], slots_per_server: 7}",
    "{kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 2}",
    "{kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 2, network: pooled}",
    "{kind: flat, nodes: 10}",
)
ERRORS = (
    "",
    "profiling_error: {low: -40 %, high: 40 %}, ",
    "profiling_error: {low: 20 %, high: 60 %}, ",
)
RUNS = max(2, int(os.environ.get("HOSENET_TEST_CASES", "60")) // 30)
"""Experiments a test: ``provision.sh test`` makes ten of it."""


def text_of(rng: random.Random, policy: str, error: str) -> str:
    arrivals = rng.choice(
        [
            f"kind: poisson, per_hour: {rng.randint(2, 10)}, hours: {rng.randint(1, 4)}",
            f"kind: batch, jobs: {rng.randint(5, 20)}",
        ]
    )
    services = rng.choice(["", "services: 20 %, "])
    ratio = rng.choice(
        [
            "",
            "deadline_ratio: {mean: 1, sigma: 0}, ",
            "deadline_ratio: {mean: 20}, ",
        ]
    )
    return f"""\
name: random
seed: {rng.randint(0, 10**6)}
topology: {rng.choice(TOPOLOGIES)}
embedder: {rng.choice(["oktopus", "exact"])}
policies: [{policy}]
workload: {{{arrivals}, {error}{services}{ratio}
  reading: {rng.choice(sorted(INTERPRETATIONS))},
  pattern: {rng.choice(["permutation", "all-to-all"])},
  vms: {{mean: {rng.randint(1, 9)}}}, bandwidth: {{mean: {rng.randint(10, 700)} Mbit/s}},
  duration: {{mean: {rng.randint(1, 90)} min}}}}
"""


def audited(base: Path, experiment: Experiment) -> None:
    folder = RunFolder.create(base, "random", experiment.seed)
    with folder.open_events() as log:
        for event in dry_run(experiment, experiment.policies[0]):
            log(event)
    policy = experiment.policies[0].label
    folder.write_json(
        "spec.resolved.json", {**experiment.resolved, "policy": policy}
    )
    summary = conclude(folder, wall_s=0.0).summary
    checked = audit(folder.path)
    assert [
        str(f) for result in checked.results for f in result.findings
    ] == []
    assert checked.passed
    outcomes = (
        summary.finished,
        summary.rejected,
        summary.killed,
        summary.unfinished,
    )
    assert summary.jobs == sum(outcomes) == len(experiment.jobs)
    assert summary.unfinished == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "error", ERRORS, ids=["exact", "both-signs", "beyond-gamma"]
)
def test_every_run_of_every_policy_passes_the_audit(
    tmp_path: Path, policy: str, error: str
) -> None:
    rng = random.Random(f"{policy} {error}")
    for run in range(RUNS):
        path = tmp_path / f"{run}.yaml"
        path.write_text(text_of(rng, policy, error))
        experiment = load_experiment(path)
        audited(tmp_path, experiment)


def history(experiment: Experiment) -> list[events.Event]:
    """All but the first event, which carries the names."""
    return dry_run(experiment, experiment.policies[0])[1:]


@pytest.mark.parametrize("policy", POLICIES)
def test_renaming_servers_changes_no_decision(
    tmp_path: Path, policy: str
) -> None:
    rng = random.Random(policy)
    for run in range(RUNS):
        path = tmp_path / f"{run}.yaml"
        path.write_text(text_of(rng, policy, ERRORS[run % 2]))
        experiment = load_experiment(path)
        dc = experiment.datacentre
        names = [f"node-{rng.randrange(10**9)}" for _ in dc.names]
        renamed = replace(
            experiment, datacentre=replace(dc, names=tuple(names))
        )
        assert [without_reason(e) for e in history(renamed)] == [
            without_reason(e) for e in history(experiment)
        ]


def without_reason(event: events.Event) -> events.Event:
    """Reasons name servers."""
    return (
        replace(event, reason="")
        if isinstance(event, events.JobEnded)
        else event
    )


# Independent flows are recomputed once a minute: a fixed interval, which does not scale.
@pytest.mark.parametrize(
    "policy", [p for p in POLICIES if "independent" not in p]
)
def test_scaling_time_changes_no_decision(
    tmp_path: Path, policy: str
) -> None:
    rng = random.Random(f"time {policy}")
    for run in range(RUNS):
        path = tmp_path / f"{run}.yaml"
        path.write_text(text_of(rng, policy, ERRORS[run % 2]))
        experiment = load_experiment(path)
        slower = replace(
            experiment,
            jobs=tuple(
                replace(
                    job,
                    submit_s=4 * job.submit_s,
                    duration_s=4 * job.duration_s,
                    deadline_s=4 * (job.deadline_s or 0.0),
                    true_duration_s=None
                    if job.true_duration_s is None
                    else 4 * job.true_duration_s,
                )
                for job in experiment.jobs
            ),
        )
        ours, theirs = decided(slower), decided(experiment)
        assert [what for what, _ in ours] == [what for what, _ in theirs]
        times = [when for _, when in theirs]
        assert [[t / 4 for t in when] for _, when in ours] == [
            pytest.approx(t) for t in times
        ]


def decided(
    experiment: Experiment,
) -> list[tuple[tuple[object, ...], list[float]]]:
    """Decisions, and the times that belong to them."""
    found: list[tuple[tuple[object, ...], list[float]]] = []
    for event in history(experiment):
        if isinstance(event, events.JobReserved):
            ends = [] if event.end_s is None else [event.end_s]
            what = (event.job_id, event.rate_bps, event.root, event.vms_on)
            found.append((what, [event.start_s, *ends]))
        if isinstance(event, events.JobEnded):
            found.append(((event.job_id, event.outcome), [event.t]))
    return found


@pytest.mark.parametrize("by", ["oktopus", "exact"])
@pytest.mark.parametrize("reading", sorted(INTERPRETATIONS))
def test_where_deadlines_leave_no_room_dcloud_decides_as_vc(
    by: str, reading: str
) -> None:
    dc = tree([3, 4, 5], [6 * 10**9, 3 * 10**9, 10**9], 4)
    tenants = replace(
        interpretation(reading, vms=12, duration=1800.0),
        deadline_ratio=NormalDistribution(1.0, 0.0, 1.0),
    )
    jobs = tenants.requests(day_and_night(11, 30.0, span_s=4 * 3600.0), 11)
    runs: dict[str, list[events.Event]] = {"vc": [], "dcloud": []}
    for name, log in runs.items():
        policy = build_policy(name, embedder(by), {})
        Engine(dc, jobs, policy, SimulatedBackend(), log.append).run()
    ours, theirs = (
        [
            (e.t, e.job_id, e.outcome, e.reason)
            if isinstance(e, events.JobEnded)
            else (e.t, e.job_id, e.rate_bps, e.root, e.vms_on)
            for e in log
            if isinstance(e, events.JobEnded | events.JobReserved)
        ]
        for log in runs.values()
    )
    assert ours == theirs
    outcomes = {
        e.outcome for e in runs["vc"] if isinstance(e, events.JobEnded)
    }
    assert outcomes == {"finished", "rejected"}
