"""Random small experiments with failures: every policy that plays them, each of its ways.

A slow twin without the ledger decides by connectivity of a graph who has to move, wait or stop.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import networkx as nx
import pytest

from testbed import events
from testbed.audit import audit
from testbed.embedding.base import embedder, embedder_names
from testbed.engine.engine import Engine
from testbed.plan.peak_load import peak
from testbed.play.planned import planned
from testbed.play.playing import simulated
from testbed.record.conclusion import conclude
from testbed.record.folder import RunFolder
from testbed.record.job_history import explained
from testbed.record.topology_record import topology_record
from testbed.schedulers.registry import known_policies
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from tests.support.whole_lives import lives_of
from topologies.datacentre import DataCentre

pytestmark = pytest.mark.slow

WAYS = [
    (name, way)
    for name, kind in known_policies().items()
    for way in kind.on_failure
]
TOPOLOGIES = (
    "{kind: tree, fanout: [2, 2, 3], links: [2 Gbit/s, 1.5 Gbit/s, 1 Gbit/s], slots_per_server: 4}",
    "{kind: tree, fanout: [3, 4], links: [777 Mbit/s, 333 Mbit/s], slots_per_server: 7}",
    *("{kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 2}",) * 3,
)
RUNS = max(2, int(os.environ.get("HOSENET_TEST_CASES", "60")) // 20)
"""Experiments of each way of each policy."""


def failures(
    rng: random.Random, centre: DataCentre, span_min: int
) -> Iterator[str]:
    """Entries of the section; parts that fail twice do so one after the other."""
    for part in rng.sample(
        range(len(centre.link_lower)), min(rng.randint(1, 6), 6)
    ):
        at_min = rng.randint(0, span_min)
        for _ in range(rng.randint(1, 2)):
            lasts = rng.randint(1, span_min)
            ends = centre.link_name(2 * part).split(" -> ")
            rng.shuffle(ends)
            yield f"{{at: {at_min} min, link: '{' - '.join(ends)}', lasts: {lasts} min}}"
            at_min += lasts + rng.choice([0, 0, 5])
    for server in rng.sample(
        centre.names[: centre.n_servers], rng.randint(0, 3)
    ):
        lasts = rng.choice(["", f", lasts: {rng.randint(1, span_min)} min"])
        yield f"{{at: {rng.randint(0, span_min)} min, server: {server}{lasts}}}"
    for link in (
        rng.sample(range(len(centre.link_lower)), 1)
        if rng.random() < 0.2
        else ()
    ):
        yield f"{{at: {3 * span_min} min, link: '{centre.link_name(2 * link)}'}}"
    yield f"{{at: {span_min} min, switch: {rng.choice(centre.names[centre.n_servers :])}}}"
    yield f"{{at: {rng.randint(0, span_min)} min, controller: killed}}"


def text_of(rng: random.Random, policy: str, way: str, base: Path) -> str:
    arrivals = rng.choice(
        [
            f"kind: poisson, per_hour: {rng.randint(4, 30)}, hours: {rng.randint(1, 3)}",
            f"kind: batch, jobs: {rng.randint(5, 20)}",
        ]
    )
    deadlines = rng.choice(
        ["deadline_ratio: {mean: 20}, ", "deadline_ratio: {mean: 2}, "]
    )
    by = rng.choice(sorted(embedder_names()))
    options, errors = "", ""
    if policy.startswith("dcloud"):
        # Some jobs outlast their reservations and move.
        options = rng.choice(["", ", best_effort_servers: 40 %"])
        errors = "profiling_error: {low: -10 %, high: 80 %}, "
    text = f"""\
name: random
seed: {rng.randint(0, 10**6)}
topology: {rng.choice(TOPOLOGIES)}
embedder: {by}
policies: [{{name: {policy}, on_failure: {way}{options}}}]
workload: {{{arrivals}, {deadlines}{errors}
  vms: {{mean: {rng.randint(2, 9)}}}, bandwidth: {{mean: {rng.randint(10, 300)} Mbit/s}},
  duration: {{mean: {rng.randint(5, 60)} min}}}}
"""
    path = base / "without.yaml"
    path.write_text(text)
    found = "".join(
        f"  - {entry}\n"
        for entry in failures(rng, load_experiment(path).datacentre, 60)
    )
    return f"{text}failures:\n{found}"


def played(experiment: Experiment) -> list[events.Event]:
    policy = experiment.policies[0]
    kind, values = policy.kind, dict(policy.parameters)
    history: list[events.Event] = [
        events.RunStarted(
            0.0,
            experiment.name,
            policy.label,
            "sim",
            experiment.seed,
            topology_record(experiment.datacentre),
        )
    ]
    engine = Engine(
        experiment.datacentre,
        experiment.jobs,
        kind.make(embedder(experiment.embedder), values),
        simulated(experiment, policy),
        history.append,
        lambda e: e.reservations.check(),
        experiment.failures,
        kind.on_failure_of(values),
    )
    engine.run()
    assert not engine.running
    assert not any(
        ledger.holdings() for ledger in engine.reservations.ledgers.values()
    )
    return history


@dataclass
class Job:
    root: int
    servers: list[int]
    links: dict[int, int]
    network: bool
    runs: bool = False
    cut: bool = False


@dataclass
class Twin:
    """Reachability by networkx, and free bandwidth below other roots by summing up."""

    centre: DataCentre
    sums_up: bool
    jobs: dict[str, Job] = field(default_factory=dict)
    network: dict[str, bool] = field(default_factory=dict)
    links: set[int] = field(default_factory=set)
    servers: set[int] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def whole(self, job: Job, root: int) -> bool:
        """True if a job's VMs all reach each other below a root."""
        if not job.network:
            return True
        (tree,) = (tree for tree in self.centre.trees if tree.root == root)
        graph = nx.Graph()
        graph.add_nodes_from(job.servers)
        for node, (parent, link) in enumerate(
            zip(tree.parent, tree.uplink, strict=True)
        ):
            if parent >= 0 and int(link) not in self.links:
                graph.add_edge(node, int(parent))
        return set(job.servers) <= nx.node_connected_component(
            graph, job.servers[0]
        )

    def room(self, job: Job, root: int) -> bool:
        """True if the links of another root have room for a job, on top of all the others'."""
        free = {
            k: int(bps)
            for k, bps in enumerate(self.centre.link_capacity_bps)
        }
        for other in self.jobs.values():
            for directed, bps in (
                other.links.items() if other is not job else ()
            ):
                if directed % 2 == 0:
                    free[directed // 2] -= bps
        below, total = self.below(job, root), len(job.servers)
        here = self.below(job, job.root)
        rates = (
            bps // min(x, total - x)
            for d, bps in job.links.items()
            if (x := here[d // 2])
        )
        rate = max(rates, default=0)
        return all(
            min(x, total - x) * rate <= free[link]
            for link, x in below.items()
        )

    def below(self, job: Job, root: int) -> dict[int, int]:
        """VMs of a job below each link on their ways to a root."""
        (tree,) = (tree for tree in self.centre.trees if tree.root == root)
        found: Counter[int] = Counter()
        for node in job.servers:
            while int(tree.parent[node]) >= 0:
                found[int(tree.uplink[node])] += 1
                node = int(tree.parent[node])  # noqa: PLW2901 - up to the root
        return found

    def elsewhere(self, job: Job) -> bool:
        """True if a job could run below another root."""
        roots = [
            tree.root for tree in self.centre.trees if tree.root != job.root
        ]
        return any(
            self.whole(job, root) and self.room(job, root) for root in roots
        )

    def instant(self) -> None:
        """At the end of an instant nobody is left where it cannot be, or cut without need."""
        for name, job in self.jobs.items():
            if not job.runs:
                continue
            assert not self.servers & set(job.servers), name
            assert self.whole(job, job.root) != job.cut, name
            if job.cut and self.sums_up:
                assert not self.elsewhere(job), name

    def take(self, event: events.Event) -> None:
        job = self.jobs.get(getattr(event, "job_id", ""))
        match event:
            case events.LinkFailed():
                self.links.add(event.link)
            case events.LinkRestored():
                self.links.remove(event.link)
            case events.ServerFailed():
                self.servers.add(event.server)
            case events.ServerRestored():
                self.servers.remove(event.server)
            case events.JobSubmitted():
                self.network[str(event.job["id"])] = (
                    event.job["kind"] != "compute"
                )
            case events.JobReserved() | events.JobMigrated():
                on = [
                    server for server, n in event.vms_on for _ in range(n)
                ]
                runs, network = (
                    job is not None and job.runs,
                    self.network[event.job_id],
                )
                runs = runs or isinstance(event, events.JobMigrated)
                self.jobs[event.job_id] = Job(
                    event.root, on, dict(event.links), network, runs
                )
            case _ if job is not None:
                self.of_job(event, job)

    def of_job(self, event: events.Event, job: Job) -> None:
        whole = self.whole(job, job.root)
        self.seen.add(event.name)
        match event:
            case events.JobStarted() | events.JobResumed():
                job.runs = True
            case events.JobPreempted():
                job.runs = job.cut = False
            case events.JobRescaled():
                job.links = dict(event.links)
            case events.JobRerooted():
                assert not whole
                job.root = event.root
                assert self.whole(job, job.root)
                job.links = dict(event.links)
            case events.JobCut():
                assert not whole
                assert not job.cut
                job.cut = True
            case events.JobReconnected():
                assert whole
                assert job.cut
                job.cut = False
            case events.JobRequeued() | events.JobEnded():
                stopped = event.reason.removeprefix(f"{events.FAILED}: ")
                if stopped.endswith((" is lost", " are lost")):
                    assert self.servers & set(job.servers)
                elif stopped.startswith(("lost link", "cut off for good")):
                    assert not whole
                    assert not (self.sums_up and self.elsewhere(job))
                del self.jobs[event.job_id]
            case _:
                pass


def follow(centre: DataCentre, history: Sequence[events.Event]) -> set[str]:
    """Holds a run against the twin; the kinds of events that it had."""
    later = any(
        isinstance(e, events.JobReserved) and e.start_s > e.t
        for e in history
    )
    tiers = any(isinstance(e, events.JobPreempted) for e in history)
    twin = Twin(centre, sums_up=not later and not tiers)
    for event, after in zip(history, [*history[1:], None], strict=True):
        twin.take(event)
        if after is None or after.t > event.t:
            twin.instant()
    assert twin.jobs == {}
    return twin.seen


def told(experiment: Experiment, history: Sequence[events.Event]) -> None:
    """The plan, the preflight's peak, the explanations and the page's stretches agree with it."""
    started = {
        e.job_id for e in history if isinstance(e, events.JobStarted)
    }
    plan = planned(experiment, experiment.policies[0])
    assert {tenant.job_id for tenant in plan.tenants} == started
    assert {
        booked.job_id for booked in peak(history, experiment.datacentre)
    } <= started
    stretches = lives_of(history).stretches()
    for job in experiment.jobs:
        found = explained(history, job.id)
        own = [span for span in stretches if span.job_id == job.id]
        cut_s = sum(
            span.end_s - span.start_s for span in own if span.phase == "cut"
        )
        assert found.cut_s == pytest.approx(cut_s)
        assert (found.start_s is not None) == (job.id in started)
        assert found.end_s is not None
        assert found.steps[-1].event == "job_ended"


@pytest.mark.slow
@pytest.mark.short("first")
@pytest.mark.parametrize(("policy", "way"), WAYS)
@pytest.mark.parametrize(
    "runs", [range(1), range(1, RUNS)], ids=["first", "others"]
)
def test_any_failures_leave_a_run_that_the_audit_and_the_twin_agree_with(
    tmp_path: Path, policy: str, way: str, runs: range
) -> None:
    rng = random.Random(f"{policy} {way}")
    for run in range(runs.stop):
        path = tmp_path / f"{run}.yaml"
        path.write_text(text_of(rng, policy, way, tmp_path))
        if run not in runs:
            continue
        experiment = load_experiment(path)
        history = played(experiment)
        folder = RunFolder.create(tmp_path, "random", experiment.seed)
        with folder.open_events() as log:
            for event in history:
                log(event)
        folder.write_json(
            "spec.resolved.json",
            {**experiment.resolved, "policy": experiment.policies[0].label},
        )
        summary = conclude(folder, wall_s=0.0).summary
        checked = audit(folder.path)
        assert [
            str(f) for result in checked.results for f in result.findings
        ] == [], path
        outcomes = (
            summary.finished,
            summary.rejected,
            summary.killed,
            summary.unfinished,
        )
        assert summary.jobs == sum(outcomes) == len(experiment.jobs)
        follow(experiment.datacentre, history)
        told(experiment, history)
