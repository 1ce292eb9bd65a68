"""FCFS on the whole KTH trace against its slow twin, job by job."""

from __future__ import annotations

import pytest

from jobs.workload.parallel_jobs import Requests
from jobs.workload.swf import jobs_of, read_swf
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.registry import build_policy
from tests.unit.schedulers import queueing
from tests.unit.workload.traces import trace
from topologies.flat import flat


@pytest.mark.slow
def test_every_job_of_kth_starts_when_the_slow_twin_says() -> None:
    jobs = Requests(
        jobs_of(
            read_swf(trace("KTH-SP2-1996-2.1-cln.swf.gz"))
        ).jobs.from_zero()
    )
    begun: dict[str, float] = {}

    def note(event: events.Event) -> None:
        if isinstance(event, events.JobStarted):
            begun[event.job_id] = event.t

    machine = flat(100, 1)
    policy = build_policy("fcfs", embedder("first-fit"), {})
    Engine(machine, jobs, policy, SimulatedBackend(machine), note).run()
    asked = [
        queueing.Plain(
            one.id, one.submit_s, one.n_vms, one.duration_s, one.duration_s
        )
        for one in jobs
    ]
    twin = queueing.starts(asked, 100, queueing.fcfs)
    assert len(twin) == 28_476
    assert begun == twin
