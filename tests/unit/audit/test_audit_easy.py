"""The audit of EASY: what the engine writes passes, a delayed head is found."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from jobs.demand import Compute
from jobs.request import JobRequest
from testbed import events
from testbed.audit import Audit, audit
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.record.conclusion import conclude
from testbed.record.folder import RunFolder
from testbed.record.topology_record import topology_record
from testbed.schedulers.actions import Action
from testbed.schedulers.easy import Easy
from tests.support.examples import examples
from tests.unit.record.written import NOW, write_resolved
from topologies.flat import flat


def audited(
    base: Path, policy: Easy, label: str, jobs: list[JobRequest], nodes: int
) -> Audit:
    machine = flat(nodes, 1)
    record = topology_record(machine)
    stream: list[events.Event] = [
        events.RunStarted(0.0, "x", label, "sim", 1, record)
    ]
    Engine(
        machine, jobs, policy, SimulatedBackend(machine), stream.append
    ).run()
    folder = RunFolder.create(base, "x", 1, now=NOW)
    with folder.open_events() as log:
        for event in stream:
            log(event)
    write_resolved(folder, stream)
    conclude(folder, wall_s=0.0)
    return audit(folder.path)


def job(
    name: str, nodes: int, runs_s: float, at: float = 0.0, **more: object
) -> JobRequest:
    return JobRequest(name, at, nodes, 0, runs_s, demand=Compute(), **more)  # type: ignore[arg-type]


class Reckless(Easy):
    """Backfills every job that fits, even one that delays the first."""

    def _backfill(self, now_s: float, actions: list[Action]) -> None:
        self.nodes.shadow.extra = 1000
        super()._backfill(now_s, actions)


JOBS = [job("a", 2, 10.0), job("b", 3, 5.0, 1.0), job("c", 1, 90.0, 2.0)]


def test_a_head_that_a_backfilled_job_delays_is_found(
    tmp_path: Path,
) -> None:
    good = audited(tmp_path, Easy(), "easy", JOBS, 3)
    assert good.passed
    (head,) = [r for r in good.results if r.name == "head-not-delayed"]
    assert head.status == "passed"
    bad = audited(tmp_path, Reckless(), "easy", JOBS, 3)
    assert [r.name for r in bad.results if r.status == "failed"] == [
        "head-not-delayed"
    ]
    (finding,) = next(
        r for r in bad.results if r.name == "head-not-delayed"
    ).findings
    assert (
        "b was due at 10 s when it came to the head of the queue, and starts at 92 s"
        in str(finding)
    )


def test_what_a_job_that_outran_its_plan_delayed_is_no_finding(
    tmp_path: Path,
) -> None:
    jobs = [job("a", 2, 10.0, estimate_s=5.0), job("b", 3, 5.0, 1.0)]
    assert audited(
        tmp_path, Easy("user"), "easy-estimates=user", jobs, 3
    ).passed


@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.lists(
        st.tuples(
            st.integers(1, 5), st.integers(1, 12), st.integers(0, 20)
        ),
        min_size=1,
        max_size=14,
    ),
    user=st.booleans(),
)
def test_all_that_easy_does_passes(
    tmp_path: Path, raw: list[tuple[int, int, int]], user: bool
) -> None:
    jobs = [
        job(f"j{k:02}", n, float(runs), float(at), estimate_s=2.0 * runs)
        for k, (n, runs, at) in enumerate(raw)
    ]
    label = "easy-estimates=user" if user else "easy"
    checked = audited(
        tmp_path, Easy("user" if user else "accurate"), label, jobs, 5
    )
    assert [str(f) for r in checked.results for f in r.findings] == []
