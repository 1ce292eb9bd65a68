"""The busiest instant of a plan: who runs together, and what those may send who reserve nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.events import (
    Event,
    JobEnded,
    JobEvent,
    JobMigrated,
    JobPreempted,
    JobRequeued,
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
from tests.support.examples import examples
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


def hose(vms_on: list[list[int]], root: int) -> dict[int, int]:
    """VMs whose rates a job takes of each directed link."""
    tree_links = CENTRE.tree_by_root[root]
    below: Counter[int] = Counter()
    for server, n in vms_on:
        for node in tree_links.path_to_root(server)[:-1]:
            below[int(tree_links.uplink[node])] += n
    n_vms = sum(n for _, n in vms_on)
    crossing = {link: min(n, n_vms - n) for link, n in below.items()}
    return {
        2 * link + way: n
        for link, n in crossing.items()
        for way in (0, 1)
        if n
    }


@pytest.mark.parametrize("wide_bps", [0, 100])
def test_the_end_of_a_job_may_raise_the_load(wide_bps: int) -> None:
    """The end of "wide" leaves its part of a link to "far", whose bit/s pass more ports."""
    core = max(CENTRE.tree_by_root)
    everywhere = [[server, 2] for server in range(4)]
    wide = replace(
        best_effort("wide", everywhere, core),
        rate_bps=wide_bps,
        links=[
            [link, n * wide_bps]
            for link, n in hose(everywhere, core).items()
        ],
    )
    far = best_effort("far", [[0, 3], [1, 2], [3, 1]], core)
    history: list[Event] = [
        wants("wide", 1000, n_vms=8),
        wants("far", 1000, n_vms=6),
        wide,
        far,
        JobStarted(0, "wide", wide_bps),
        JobStarted(0, "far", 0),
    ]
    # Four VMs of "wide" and one of "far" share a rack's 500.
    assert {one.rate_bps for one in peak(history, CENTRE)} == {100}
    # Three VMs of "far" share the 1000 of their server.
    (alone,) = peak([*history, ended("wide")], CENTRE)
    assert (alone.job_id, alone.rate_bps) == ("far", 333)


def slow_shares(
    units: dict[str, dict[int, int]],
    wanted: dict[str, int],
    free: list[int],
) -> dict[str, Fraction]:
    """Rates that all rise together, each until it has what it wants or a link is full."""
    rates = dict.fromkeys(units, Fraction(0))
    rising = set(units)
    while rising:
        steps = [wanted[job] - rates[job] for job in rising]
        full = {}
        for link, room in enumerate(free):
            weight = sum(units[job].get(link, 0) for job in rising)
            used = sum(
                rates[job] * own.get(link, 0) for job, own in units.items()
            )
            if weight:
                full[link] = (max(room, 0) - used) / weight
        step = min([*steps, *full.values()])
        for job in rising:
            rates[job] += step
        rising = {
            job
            for job in rising
            if rates[job] < wanted[job]
            and all(full[link] > step for link in units[job])
        }
    return rates


def slow_load(history: Sequence[Event]) -> int:
    """Load of the ports after the last event, from each job's own events alone."""
    free = [int(bps) for bps in CENTRE.directed_capacity_bps]
    total = 0
    units = {}
    wanted = {}
    sizes = {}
    for job in {e.job_id for e in history if isinstance(e, JobEvent)}:
        own = [e for e in history if getattr(e, "job_id", None) == job]
        runs = [
            isinstance(e, (JobStarted, JobResumed, JobMigrated))
            for e in own
            if not isinstance(e, (JobReserved, JobRescaled))
        ]
        if not runs or not runs[-1]:
            continue
        vms_on, root = [
            (e.vms_on, e.root) for e in own if hasattr(e, "root")
        ][-1]
        rate = [e.rate_bps for e in own if hasattr(e, "rate_bps")][-1]
        wants_bps = next(
            e.job["bandwidth_bps"]
            for e in history
            if isinstance(e, JobSubmitted) and e.job["id"] == job
        )
        for link, n in hose(vms_on, root).items():
            free[link] -= n * rate
            total += n * rate
        n_vms = sum(n for _, n in vms_on)
        total += 2 * n_vms * rate
        if rate == 0 and n_vms > 1:
            units[job] = hose(vms_on, root)
            wanted[job] = wants_bps
            sizes[job] = n_vms
    for job, share in slow_shares(units, wanted, free).items():
        total += floor(share) * (2 * sizes[job] + sum(units[job].values()))
    return total


PLACES = st.lists(st.integers(0, 3), min_size=4, max_size=4).filter(any)
SKETCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 40, 90]), st.integers(1, 700), PLACES
    ),
    min_size=1,
    max_size=5,
)
STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9), PLACES), max_size=20
)
NEXT = {
    "waiting": ("reserved",),
    "reserved": ("started",),
    "running": ("preempted", "ended", "requeued", "migrated", "rescaled"),
    "preempted": ("resumed", "migrated", "ended"),
    "ended": (),
}
"""Events that may come next in each phase of a job."""
PHASES = {
    "requeued": "waiting",
    "reserved": "reserved",
    "preempted": "preempted",
    "ended": "ended",
}
"""Phases after events; after the others a job runs."""


def happened(
    sketches: list[tuple[int, int, list[int]]],
    steps: list[tuple[int, int, list[int]]],
) -> list[Event]:
    """A history in which each step lets a job have the next event that it may have."""
    core = max(CENTRE.tree_by_root)
    history: list[Event] = []
    phases = []
    places = []
    rates = []
    for k, (rate, bps, place) in enumerate(sketches):
        history.append(wants(f"j{k}", bps, n_vms=sum(place)))
        phases.append("waiting")
        places.append(place)
        rates.append(rate)
    for at_s, (number, choice, counts) in enumerate(steps):
        k = number % len(sketches)
        if not NEXT[phases[k]]:
            continue
        name = NEXT[phases[k]][choice % len(NEXT[phases[k]])]
        phases[k] = PHASES.get(name, "running")
        # As many VMs as before, on the servers in another order.
        if name == "migrated":
            turn = counts[0]
            places[k] = [*places[k][turn:], *places[k][:turn]]
        if name == "rescaled" and rates[k]:
            rates[k] += 10
        vms_on = [[s, n] for s, n in enumerate(places[k]) if n]
        links = [
            [link, n * rates[k]]
            for link, n in sorted(hose(vms_on, core).items())
            if rates[k]
        ]
        job = f"j{k}"
        known: dict[str, Event] = {
            "reserved": JobReserved(
                at_s, job, at_s, None, rates[k], None, core, vms_on, links
            ),
            "started": JobStarted(at_s, job, rates[k]),
            "preempted": JobPreempted(at_s, job, ""),
            "ended": ended(job),
            "requeued": JobRequeued(at_s, job, ""),
            "migrated": JobMigrated(at_s, job, "", core, vms_on, links),
            "rescaled": JobRescaled(at_s, job, rates[k], links),
            "resumed": JobResumed(at_s, job),
        }
        history.append(known[name])
    return history


@examples(200)
@given(SKETCHES, STEPS)
def test_the_peak_is_the_most_after_any_event(
    sketches: list[tuple[int, int, list[int]]],
    steps: list[tuple[int, int, list[int]]],
) -> None:
    history = happened(sketches, steps)
    loads = [slow_load(history[: k + 1]) for k in range(len(history))]
    found = sum(map(reserved_port_load_bps, peak(history, CENTRE)))
    assert found == max(loads)


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
