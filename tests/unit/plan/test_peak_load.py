"""The busiest instant of a plan: who runs together, and what those may send who reserve nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.events import (
    Event,
    JobEnded,
    JobMigrated,
    JobPreempted,
    JobRescaled,
    JobReserved,
    JobResumed,
    JobStarted,
    JobSubmitted,
)
from testbed.plan.peak_load import (
    computing_processors,
    peak,
    reserved_port_load_bps,
    rings,
    shares_bps,
    with_shares,
)
from topologies.tree import tree

# Servers 0 to 3 in two racks; links 2 and 3 are those of the racks, half as wide as the servers'.
CENTRE = tree([2, 2], [500, 1000], 4)


def reserved(job: str, rate: int, links: list[list[int]]) -> JobReserved:
    return JobReserved(
        0.0, job, 0.0, None, rate, 1.0, 6, [[0, 1], [1, 1]], links
    )


A = reserved("a", 10, [[0, 10], [1, 10]])
B = reserved("b", 7, [])


def ended(job: str) -> JobEnded:
    return JobEnded(1.0, job, "finished", "", 1.0, {})


def test_a_job_crosses_each_vms_two_ports_and_its_links() -> None:
    assert reserved_port_load_bps(A) == 2 * 2 * 10 + 20
    assert reserved_port_load_bps(B) == 28


def computing(job: str, vms: int, **keys: object) -> JobSubmitted:
    usual = {
        "kind": "compute",
        "cpu_share": 1.0,
        "cpu_use": 1.0,
        "cores": 1,
    }
    about = {"id": job, "n_vms": vms, "bandwidth_bps": 0}
    return JobSubmitted(0.0, usual | about | keys)


def test_processors_are_those_of_jobs_that_run_together() -> None:
    history: list[Event] = [
        computing("a", 6),
        computing("b", 2, cpu_use=[0.5, 0.25]),
        A,
        B,
        JobStarted(0, "a", 0),
        ended("a"),
        JobStarted(1, "b", 0),
    ]
    assert computing_processors(history, 10, 0.1) == pytest.approx(0.6)
    # No VM computes on more than one processor, no node on more than its own.
    assert computing_processors(history, 10, 3.0) == pytest.approx(6.0)
    assert computing_processors(history, 4, 0.1) == pytest.approx(0.4)


def test_jobs_that_only_send_compute_nothing() -> None:
    job = computing("a", 4, kind="transfer", cpu_share=0.0)
    history: list[Event] = [job, A, JobStarted(0, "a", 10)]
    assert computing_processors(history, 10, 1.0) == 0.0


def test_the_peak_is_who_runs_together_not_who_is_reserved() -> None:
    c = reserved("c", 1000, [])
    history: list[Event] = [
        A,
        B,
        c,
        JobStarted(0, "b", 7),
        JobStarted(0, "a", 10),
        ended("b"),
    ]
    assert peak(history, CENTRE) == (A, B)
    history += [JobStarted(2, "c", 1000), ended("a")]
    assert peak(history, CENTRE) == (A, c)


def test_a_preempted_job_asks_nothing_until_it_resumes() -> None:
    history: list[Event] = [
        A,
        B,
        JobStarted(0, "b", 7),
        JobPreempted(1, "b", "for a"),
    ]
    history += [JobStarted(1, "a", 10)]
    assert peak(history, CENTRE) == (A,)
    assert peak(
        [*history, JobResumed(2, "b", "foreground", 0.0)], CENTRE
    ) == (
        A,
        B,
    )
    # Elsewhere it needs two links; its place is the new one.
    moved = JobMigrated(
        2, "b", "room", 7, [[2, 1], [3, 1]], [[4, 7], [5, 7]]
    )
    there = replace(
        B, root=7, vms_on=[[2, 1], [3, 1]], links=[[4, 7], [5, 7]]
    )
    assert peak([*history, moved], CENTRE) == (A, there)


def test_who_gets_more_asks_more() -> None:
    history: list[Event] = [
        A,
        JobStarted(0, "a", 10),
        JobRescaled(1, "a", 20, [[0, 20], [1, 20]]),
    ]
    assert peak(history, CENTRE) == (
        replace(A, rate_bps=20, links=[[0, 20], [1, 20]]),
    )


def test_nothing_runs_nothing_peaks() -> None:
    assert peak([A], CENTRE) == ()


def best_effort(
    job: str, vms_on: list[list[int]], root: int
) -> JobReserved:
    return replace(reserved(job, 0, []), vms_on=vms_on, root=root)


def test_rings_are_the_jobs_that_play_one_in_any_of_the_plans() -> None:
    patterns = {
        "a": "ring",
        "b": "permutation",
        "c": "ring",
        "d": "all-to-all",
    }
    plans = [
        [JobSubmitted(0.0, {"id": k, "pattern": v})]
        for k, v in patterns.items()
    ]
    assert rings([*plans, [A]]) == {"a", "c"}


def wants(
    job: str, bps: int, n_vms: int = 2, kind: str = "transfer"
) -> JobSubmitted:
    return JobSubmitted(
        0.0, {"id": job, "kind": kind, "n_vms": n_vms, "bandwidth_bps": bps}
    )


def test_who_reserves_nothing_counts_by_what_the_links_leave_it() -> None:
    core = max(CENTRE.tree_by_root)
    far = best_effort("far", [[0, 1], [3, 1]], core)
    also = best_effort("also", [[1, 1], [2, 1]], core)
    firm = replace(
        reserved("firm", 100, []), vms_on=[[0, 1], [2, 1]], root=core
    )
    firm = with_links(firm)
    history: list[Event] = [
        wants("far", 400),
        wants("also", 150),
        wants("firm", 100),
    ]
    history += [far, also, firm]
    history += [JobStarted(0, job, 0) for job in ("firm", "also", "far")]
    shown = {one.job_id: one.rate_bps for one in peak(history, CENTRE)}
    # A rack's 500 less the 100 reserved: "also" takes the 150 it wants, "far" the 250 left.
    assert shown == {"far": 250, "also": 150, "firm": 100}
    (alone,) = peak(
        [wants("far", 400), far, JobStarted(0, "far", 0)], CENTRE
    )
    assert alone == with_links(replace(far, rate_bps=400))


def with_links(one: JobReserved) -> JobReserved:
    """With what its hose takes of every link; two VMs that are apart need their rate once each."""
    servers = {server for server, _ in one.vms_on}
    tree_links = CENTRE.tree_by_root[one.root]
    crossed = {
        int(tree_links.uplink[n])
        for s in servers
        for n in tree_links.path_to_root(s)
    }
    up_and_down = sorted(
        2 * link + way for link in crossed - {-1} for way in (0, 1)
    )
    return replace(
        one, links=[[link, one.rate_bps] for link in up_and_down]
    )


def test_who_computes_or_has_nobody_to_send_to_asks_nothing() -> None:
    core = max(CENTRE.tree_by_root)
    for submitted in (
        wants("a", 400, kind="compute"),
        wants("a", 400, n_vms=1),
    ):
        job = best_effort("a", [[0, 1], [3, 1]], core)
        assert peak([submitted, job, JobStarted(0, "a", 0)], CENTRE) == ()


UNITS = st.dictionaries(st.integers(0, 4), st.integers(1, 3), max_size=3)


@given(
    st.lists(st.tuples(UNITS, st.integers(1, 300)), min_size=1, max_size=5),
    st.lists(st.integers(0, 400), min_size=5, max_size=5),
)
def test_shares_are_max_min_fair(
    jobs: list[tuple[dict[int, int], int]], free: list[int]
) -> None:
    units = {f"j{k}": own for k, (own, _) in enumerate(jobs)}
    wanted = {f"j{k}": bps for k, (_, bps) in enumerate(jobs)}
    rates = shares_bps(units, wanted, list(free))
    used = [
        sum(rates[j] * own.get(link, 0) for j, own in units.items())
        for link in range(5)
    ]
    assert all(use <= room for use, room in zip(used, free, strict=True))
    for job, own in units.items():
        assert rates[job] <= wanted[job]
        # Who wants more crosses a link that is full but for rounding, where nobody has more.
        assert rates[job] == wanted[job] or any(
            free[link] - used[link]
            < sum(other.get(link, 0) for other in units.values())
            and all(
                rates[job] >= rates[o]
                for o, other in units.items()
                if link in other
            )
            for link in own
        )


def test_nobody_without_a_reservation_changes_nothing() -> None:
    assert with_shares(CENTRE, {"b": B, "a": A}, {"a": 99, "b": 99}) == (
        A,
        B,
    )
