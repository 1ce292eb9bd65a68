from __future__ import annotations

from testbed.events import Event, JobEnded, JobReserved, JobStarted
from testbed.plan.peak import peak, reserved_crossings_bps


def reserved(job: str, rate: int, links: list[list[int]]) -> JobReserved:
    return JobReserved(0.0, job, 0.0, None, rate, 1.0, 6, [[0, 1], [1, 1]], links)


A = reserved("a", 10, [[0, 10], [1, 10]])
B = reserved("b", 7, [])


def ended(job: str) -> JobEnded:
    return JobEnded(1.0, job, "finished", "", 1.0, {})


def test_a_job_crosses_each_vms_two_ports_and_its_links() -> None:
    assert reserved_crossings_bps(A) == 2 * 2 * 10 + 20
    assert reserved_crossings_bps(B) == 28


def test_the_peak_is_who_runs_together_not_who_is_reserved() -> None:
    c = reserved("c", 1000, [])
    history: list[Event] = [A, B, c, JobStarted(0, "b", 7), JobStarted(0, "a", 10), ended("b")]
    assert peak(history) == (A, B)
    history += [JobStarted(2, "c", 1000), ended("a")]
    assert peak(history) == (A, c)


def test_nothing_runs_nothing_peaks() -> None:
    assert peak([A]) == ()
