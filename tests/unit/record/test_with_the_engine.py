"""Runs of the engine and the simulator pass the audit: any jobs, any policy, any tree.

The other direction of the audit's tests: there lies are found, here the truth is not accused.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from jobs.request import JobRequest
from testbed import events
from testbed.audit import Audit, audit
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.play.playing import dry_run
from testbed.record.conclusion import conclude
from testbed.record.folder import RunFolder
from testbed.record.topology_record import topology_record
from testbed.schedulers.registry import build_policy
from testbed.spec.experiment_file import load_experiment
from tests.support.examples import examples
from tests.unit.record.written import NOW, write_resolved
from tests.unit.workload.traces import skip_without_traces_of
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.tree import tree

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
MBIT = 1_000_000


def check(base: Path, stream: list[events.Event]) -> Audit:
    folder = RunFolder.create(base, "x", 1, now=NOW)
    with folder.open_events() as log:
        for event in stream:
            log(event)
    write_resolved(folder, stream)
    conclude(folder, wall_s=0.0)
    return audit(folder.path)


def failures(checked: Audit) -> list[str]:
    return [str(f) for result in checked.results for f in result.findings]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", EXAMPLES, ids=[path.stem for path in EXAMPLES]
)
def test_every_example_passes(tmp_path: Path, path: Path) -> None:
    skip_without_traces_of(path.read_text("utf-8"))
    experiment = load_experiment(path)
    for policy in experiment.policies:
        checked = check(tmp_path, dry_run(experiment, policy))
        assert failures(checked) == []
        assert checked.passed


JOBS = st.lists(
    st.builds(
        dict,
        submit_s=st.integers(0, 40).map(lambda tenths: tenths / 10),
        n_vms=st.integers(1, 7),
        bandwidth_bps=st.integers(1, 12).map(lambda x: x * 100 * MBIT),
        duration_s=st.integers(1, 60).map(lambda tenths: tenths / 10),
        granted=st.integers(1, 12).map(lambda x: x * 100 * MBIT),
    ),
    max_size=12,
)
CENTRES = (
    tree([2, 2, 2], 1000 * MBIT, 2),
    tree([3, 3], [2000 * MBIT, 700 * MBIT], 3),
    fat_tree(4, 1000 * MBIT, 1),
)


def requests(
    drawn: list[dict[str, float]], policy: str
) -> list[JobRequest]:
    return [
        JobRequest(
            id=f"j{n}",
            submit_s=job["submit_s"],
            n_vms=int(job["n_vms"]),
            bandwidth_bps=int(job["bandwidth_bps"]),
            duration_s=job["duration_s"],
            granted_bps=int(job["granted"])
            if policy == "scripted"
            else None,
        )
        for n, job in enumerate(drawn)
    ]


def played(
    centre: DataCentre, jobs: list[JobRequest], policy: str, by: str
) -> list[events.Event]:
    stream: list[events.Event] = [
        events.RunStarted(
            0.0, "x", policy, "sim", 1, topology_record(centre)
        )
    ]
    built = build_policy(policy, embedder(by), {})
    Engine(centre, jobs, built, SimulatedBackend(), stream.append).run()
    return stream


@pytest.mark.slow
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn=JOBS,
    centre=st.sampled_from(CENTRES),
    policy=st.sampled_from(["vc", "scripted"]),
    by=st.sampled_from(["oktopus", "exact"]),
)
def test_any_run_passes(
    tmp_path: Path,
    drawn: list[dict[str, float]],
    centre: DataCentre,
    policy: str,
    by: str,
) -> None:
    checked = check(
        tmp_path, played(centre, requests(drawn, policy), policy, by)
    )
    assert failures(checked) == []
    assert checked.passed
