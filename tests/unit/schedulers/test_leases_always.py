"""Invariants of leases, under every policy and for any mix of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from jobs.demand import Lease, LeaseType
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.record.topology_record import topology_record
from testbed.schedulers.mbfcbs import Mbfcbs, Settings
from testbed.schedulers.policy import Policy
from testbed.schedulers.registry import build_policy
from tests.support.calendar_check import check_calendar
from tests.support.examples import examples
from tests.support.ledger_use import in_use
from tests.unit.record.test_with_the_engine import check, failures
from topologies.flat import flat

DC = flat(3, [2, 4, 6], memory_mib=[2000, 5000, 6000])


@st.composite
def leases(draw: st.DrawFn) -> list[JobRequest]:
    out = []
    clock = 0.0
    for number in range(draw(st.integers(1, 22))):
        clock += draw(st.sampled_from([0.0, 0.0, 1.0, 3.0, 12.5]))
        kind: LeaseType | None = draw(
            st.sampled_from(
                ["advance", "advance", "immediate", "best-effort", None]
            )
        )
        length = draw(st.sampled_from([1.0, 4.0, 10.0, 33.3]))
        out.append(
            JobRequest(
                f"l{number:02}",
                clock,
                draw(st.sampled_from([1, 1, 1, 2, 5])),
                0,
                length,
                demand=Lease(
                    cores=draw(st.integers(1, 4)),
                    memory_mib=draw(st.sampled_from([0, 500, 1900, 4000])),
                    lease_type=kind,
                    wanted_s=clock
                    + draw(st.sampled_from([0.0, 2.0, 9.9, 40.0]))
                    if kind == "advance"
                    else None,
                ),
                true_duration_s=length
                * draw(st.sampled_from([1.0, 1.0, 0.3, 0.77])),
            )
        )
    return out


POLICIES = {
    "mbfcbs": lambda: Mbfcbs(Settings(slot_s=10.0)),
    "greedy": lambda: Mbfcbs(
        Settings(preemption=False, earliest=False, depth=1)
    ),
    "v-mct": lambda: build_policy("v-mct", embedder("oktopus"), {}),
    "priority": lambda: build_policy("priority", embedder("oktopus"), {}),
    "priority by work": lambda: build_policy(
        "priority", embedder("oktopus"), {"criterion": "work"}
    ),
}


def play(jobs: list[JobRequest], policy: Policy) -> list[events.Event]:
    """The run's events; the ledger and the calendar are derived anew after every step."""
    stream: list[events.Event] = []

    def look(engine: Engine) -> None:
        engine.reservations.check()
        if isinstance(policy, Mbfcbs) and policy.begun:
            check_calendar(policy.capacity.calendar)
            agrees_with_the_ledger(engine, policy)

    sink = stream.append
    Engine(DC, jobs, policy, SimulatedBackend(), sink, look).run()
    head = events.RunStarted(
        0.0, "x", policy.name, "sim", 1, topology_record(DC)
    )
    return [head, *stream]


def agrees_with_the_ledger(engine: Engine, policy: Mbfcbs) -> None:
    """Now the calendar holds at least what the ledger does: plans that are due come on top."""
    usage = in_use(engine.ledger, engine.now_s)
    calendar = policy.capacity.calendar
    now_s = engine.now_s
    for host in range(DC.n_servers):
        assert (
            calendar.used(host, now_s, now_s + 1e-9).cores
            >= usage.free_slots[host]
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
@given(jobs=leases())
@examples(10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_run_passes_the_audit_and_no_lease_vanishes(
    tmp_path: Path, name: str, jobs: list[JobRequest]
) -> None:
    stream = play(jobs, POLICIES[name]())
    checked = check(tmp_path, stream)
    assert failures(checked) == []
    ends = [event for event in stream if isinstance(event, events.JobEnded)]
    assert sorted(event.job_id for event in ends) == sorted(
        job.id for job in jobs
    )
    kinds = {job.id: job.demand.lease_type for job in jobs}
    outcomes = {event.job_id: event.outcome for event in ends}
    assert "unfinished" not in outcomes.values()
    for job_id, outcome in outcomes.items():
        if kinds[job_id] not in ("advance", "immediate"):
            assert outcome in ("finished", "rejected")
            if outcome == "rejected":
                job = next(job for job in jobs if job.id == job_id)
                assert cannot_ever_fit(job)


def cannot_ever_fit(job: JobRequest) -> bool:
    assert DC.memory_mib is not None
    fit = DC.slots // job.demand.cores
    if job.demand.memory_mib:
        fit = np.minimum(fit, DC.memory_mib // job.demand.memory_mib)
    return int(fit.sum()) < job.n_vms


@pytest.mark.slow
@given(jobs=leases())
@examples(5)
def test_the_same_leases_give_the_same_events(
    jobs: list[JobRequest],
) -> None:
    first, second = (
        play(jobs, Mbfcbs(Settings(slot_s=10.0))) for _ in range(2)
    )
    assert first == second
