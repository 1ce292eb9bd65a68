"""The audit of EASY: what the engine writes passes, a delayed head is found."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from jobs.request import JobRequest
from testbed import events
from testbed.audit import Audit, audit
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.policy_trials.jittered_backend import JitteredBackend
from testbed.record.conclusion import conclude
from testbed.record.folder import RunFolder
from testbed.record.topology_record import topology_record
from testbed.schedulers.actions import Action
from testbed.schedulers.easy import Easy
from testbed.schedulers.policy import View
from tests.support.examples import examples
from tests.unit.record.written import NOW, write_resolved
from tests.unit.schedulers.machine import job, jobs_with_estimates
from tests.unit.schedulers.queueing import Machine, Plain
from topologies.flat import flat


def played(
    policy: Easy,
    label: str,
    jobs: list[JobRequest],
    nodes: int,
    *,
    jittered: bool = False,
) -> list[events.Event]:
    machine = flat(nodes, 1)
    record = topology_record(machine)
    backend = SimulatedBackend(machine)
    if jittered:
        backend = JitteredBackend(machine)
    name = "emu" if jittered else "sim"
    stream: list[events.Event] = [
        events.RunStarted(0.0, "x", label, name, 1, record)
    ]
    Engine(machine, jobs, policy, backend, stream.append).run()
    return stream


def checked(base: Path, stream: list[events.Event]) -> Audit:
    folder = RunFolder.create(base, "x", 1, now=NOW)
    with folder.open_events() as log:
        for event in stream:
            log(event)
    write_resolved(folder, stream)
    conclude(folder, wall_s=0.0)
    return audit(folder.path)


def audited(
    base: Path, policy: Easy, label: str, jobs: list[JobRequest], nodes: int
) -> Audit:
    return checked(base, played(policy, label, jobs, nodes))


def delayed_heads(stream: list[events.Event], n_nodes: int) -> set[str]:
    """Jobs that start later than they could have as they came to the head, by
    the running jobs' ends: the slow twin, for jobs that keep to their plan.
    """
    machine = Machine(n_nodes, 0.0, {}, [])
    due_s: dict[str, float] = {}
    late = set()
    for event in stream:
        machine.now_s = event.t
        if isinstance(event, events.JobSubmitted):
            one = event.job
            runs_s = one["duration_s"]
            machine.queue.append(
                Plain(one["id"], event.t, one["n_vms"], runs_s, runs_s)
            )
        elif isinstance(event, events.JobStarted):
            (plain,) = (j for j in machine.queue if j.id == event.job_id)
            machine.start(plain)
            if event.t > due_s.get(plain.id, event.t) + 1e-6:
                late.add(plain.id)
        elif isinstance(event, events.JobEnded):
            del machine.running[event.job_id]
        if machine.queue:
            head = machine.queue[0]
            due_s.setdefault(head.id, machine.earliest_s(head))
    return late


def head_findings(audit: Audit) -> list[str]:
    """The audit's findings on heads of the queue."""
    (head,) = [r for r in audit.results if r.name == "head-not-delayed"]
    assert head.status != "not applicable"
    return [str(finding) for finding in head.findings]


class Reckless(Easy):
    """Backfills every job that fits, even one that delays the first."""

    def arrive(self, view: View, job: JobRequest) -> list[Action]:
        if self.queue:
            self.nodes.shadow.extra = 1000
        return super().arrive(view, job)

    def _backfill(self, now_s: float, actions: list[Action]) -> None:
        self.nodes.shadow.extra = 1000
        super()._backfill(now_s, actions)


JOBS = [job("a", 2, 10.0), job("b", 3, 5.0, 1.0), job("c", 1, 90.0, 2.0)]


def test_a_head_that_a_backfilled_job_delays_is_found(
    tmp_path: Path,
) -> None:
    assert head_findings(audited(tmp_path, Easy(), "easy", JOBS, 3)) == []
    (finding,) = head_findings(
        audited(tmp_path, Reckless(), "easy", JOBS, 3)
    )
    assert finding.endswith(
        "b, first in the queue, was due at 10 s and starts at 92 s:"
        " its nodes were held by c, which started before it"
    )


def test_a_head_that_waits_beside_free_nodes_is_found(
    tmp_path: Path,
) -> None:
    class Lazy(Easy):
        def schedule(self, view: View) -> list[Action]:
            if view.now_s == 10.0:
                return []
            return super().schedule(view)

    jobs = [job("a", 2, 10.0), job("e", 1, 50.0), job("b", 3, 5.0, 1.0)]
    (finding,) = head_findings(audited(tmp_path, Lazy(), "easy", jobs, 4))
    assert finding.endswith(
        "b, first in the queue, was due at 10 s and starts at 50 s:"
        " enough nodes were free"
    )


def test_a_head_that_waits_for_others_than_an_overdue_job_is_no_finding(
    tmp_path: Path,
) -> None:
    """At 20 s d leaves as planned, and b starts though a is overdue since 5 s."""
    jobs = [
        job("a", 2, 100.0, estimate_s=5.0),
        job("d", 2, 20.0),
        job("b", 2, 5.0, 1.0),
    ]
    label = "easy-estimates=user"
    assert (
        head_findings(audited(tmp_path, Easy("user"), label, jobs, 4)) == []
    )


def test_delays_beside_jobs_that_are_early_or_overdue_are_found(
    tmp_path: Path,
) -> None:
    """c takes a node for 90 s. Without it b could start as a has left, whether
    that is earlier or later than planned.
    """
    for runs_s in (5.0, 10.0, 15.0):
        jobs = [
            job("a", 2, runs_s, estimate_s=10.0),
            job("b", 3, 5.0, 1.0),
            job("c", 1, 90.0, 2.0),
        ]
        label = "easy-estimates=user"
        (finding,) = head_findings(
            audited(tmp_path, Reckless("user"), label, jobs, 3)
        )
        assert f"was due at {runs_s:g} s and starts at 92 s" in finding


def test_a_job_that_starts_as_another_comes_to_the_head_may_not_delay_it(
    tmp_path: Path,
) -> None:
    """At 10 s x starts, which makes b the first, and c at b's expense."""
    jobs = [
        job("a", 4, 10.0),
        job("x", 3, 5.0, 1.0),
        job("b", 4, 5.0, 2.0),
        job("c", 1, 90.0, 3.0),
    ]
    assert head_findings(audited(tmp_path, Easy(), "easy", jobs, 4)) == []
    (finding,) = head_findings(
        audited(tmp_path, Reckless(), "easy", jobs, 4)
    )
    assert "b, first in the queue, was due at 15 s" in finding


def test_a_second_job_delays_what_a_first_one_has_delayed(
    tmp_path: Path,
) -> None:
    """c moves b from 10 s to 92 s; d, until 53 s, is no less to blame."""
    jobs = [
        job("a", 2, 10.0),
        job("b", 4, 5.0, 1.0),
        job("c", 1, 90.0, 2.0),
        job("d", 1, 50.0, 3.0),
    ]
    (finding,) = head_findings(
        audited(tmp_path, Reckless(), "easy", jobs, 4)
    )
    assert (
        "was due at 10 s and starts at 92 s: its nodes were held by c, d,"
        in finding
    )


def test_what_a_live_machine_takes_to_start_jobs_delays_nobody(
    tmp_path: Path,
) -> None:
    """All are decided on at 0 s; a takes 40 s to start, x is not to be started."""
    stream: list[events.Event] = [
        events.RunStarted(
            0.0, "x", "easy", "emu", 1, topology_record(flat(3, 1))
        )
    ]
    jobs = [job("a", 1, 100.0), job("x", 1, 60.0), job("b", 1, 60.0)]
    stream += [events.JobSubmitted(0.0, job=one.to_json()) for one in jobs]
    for name, t in (("a", 0.0), ("x", 40.0), ("b", 70.0)):
        stream.append(
            events.JobReserved(t, name, t, None, 0, None, 3, [[0, 1]], [])
        )
        if name == "x":
            reason = f"{events.NOT_STARTED}: no program"
            stream.append(
                events.JobEnded(70.0, "x", "killed", reason, None, {})
            )
        else:
            stream.append(events.JobStarted(t + 40.0, name, 0))
    stream.append(events.JobEnded(110.0, "b", "finished", "", None, {}))
    stream.append(events.JobEnded(140.0, "a", "finished", "", None, {}))
    stream.append(events.RunEnded(140.0, "completed", ""))
    assert head_findings(checked(tmp_path, stream)) == []


def test_what_a_job_that_outran_its_plan_delayed_is_no_finding(
    tmp_path: Path,
) -> None:
    jobs = [job("a", 2, 10.0, estimate_s=5.0), job("b", 3, 5.0, 1.0)]
    assert audited(
        tmp_path, Easy("user"), "easy-estimates=user", jobs, 3
    ).passed


JOBS_OF_ANY_KIND = jobs_with_estimates(
    most_nodes=5, latest_s=20, factors=[0.3, 0.7, 1.0, 2.0], most=14
)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jobs=JOBS_OF_ANY_KIND,
    estimates=st.sampled_from(["user", "accurate"]),
    jittered=st.booleans(),
)
def test_all_that_easy_does_passes(
    tmp_path: Path,
    jobs: list[JobRequest],
    estimates: str,
    jittered: bool,
) -> None:
    """Also where jobs end before or after what EASY plans with."""
    stream = played(
        Easy(estimates),
        f"easy-estimates={estimates}",
        jobs,
        5,
        jittered=jittered,
    )
    assert head_findings(checked(tmp_path, stream)) == []


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=JOBS_OF_ANY_KIND)
def test_the_delays_found_are_those_of_the_slow_twin(
    tmp_path: Path, jobs: list[JobRequest]
) -> None:
    stream = played(Reckless(), "easy", jobs, 5)
    found = {
        finding.split()[1].rstrip(",")
        for finding in head_findings(checked(tmp_path, stream))
    }
    assert found == delayed_heads(stream, 5)
