from __future__ import annotations

from dataclasses import replace

from testbed.events import (
    Event,
    JobEnded,
    JobMigrated,
    JobPreempted,
    JobRescaled,
    JobReserved,
    JobResumed,
    JobStarted,
)
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


def test_who_is_preempted_asks_nothing_until_it_goes_on() -> None:
    history: list[Event] = [A, B, JobStarted(0, "b", 7), JobPreempted(1, "b", "for a")]
    history += [JobStarted(1, "a", 10)]
    assert peak(history) == (A,)
    assert peak([*history, JobResumed(2, "b", "foreground", 0.0)]) == (A, B)
    # Elsewhere it needs two links; its place is the new one.
    moved = JobMigrated(2, "b", "room", 7, [[2, 1], [3, 1]], [[4, 7], [5, 7]])
    there = replace(B, root=7, vms_on=[[2, 1], [3, 1]], links=[[4, 7], [5, 7]])
    assert peak([*history, moved]) == (A, there)


def test_who_gets_more_asks_more() -> None:
    history: list[Event] = [A, JobStarted(0, "a", 10), JobRescaled(1, "a", 20, [[0, 20], [1, 20]])]
    assert peak(history) == (replace(A, rate_bps=20, links=[[0, 20], [1, 20]]),)


def test_nothing_runs_nothing_peaks() -> None:
    assert peak([A]) == ()
