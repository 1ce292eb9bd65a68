"""DCloud's second way for bad profiles: jobs that outlast their reservations move to
servers for best effort (Section VI).
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import Compute, Transfer
from jobs.request import SERVICE_TAG, JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.failures import Failure, OnFailure
from testbed.schedulers.dcloud import (
    DCloud,
    Reshaping,
    first_best_effort,
)
from tests.support.examples import examples
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

SMALL = tree([2, 2, 2], [20, 12, 10], 3)
FIRST = 6
"""A quarter of its eight servers: the last two, which are a rack."""
QUARTER = 0.25


def play(
    dc: DataCentre,
    jobs: list[JobRequest],
    policy: DCloud,
    failures: tuple[Failure, ...] = (),
    on_failure: OnFailure = "wait",
) -> list[events.Event]:
    history: list[events.Event] = []
    engine = Engine(
        dc,
        jobs,
        policy,
        SimulatedBackend(dc),
        history.append,
        after_step=lambda e: e.ledger.check(),
        failures=failures,
        on_failure=on_failure,
    )
    engine.run()
    assert not engine.ledger.holdings()
    return history


def policy(
    by: str = "oktopus",
    gamma: float = 0.0,
    share: float = QUARTER,
    reshaping: Reshaping | None = None,
) -> DCloud:
    return DCloud(embedder(by), gamma, reshaping, best_effort_servers=share)


def late(
    job_id: str, n: int, true_s: float, submit_s: float = 0.0
) -> JobRequest:
    """A transfer at 5 bit/s with a stated time of 100 s and no room."""
    return JobRequest(
        job_id,
        submit_s,
        n,
        5,
        100.0,
        100.0,
        true_duration_s=true_s,
        demand=Transfer("permutation"),
    )


def ended(history: list[events.Event]) -> dict[str, events.JobEnded]:
    return {e.job_id: e for e in history if isinstance(e, events.JobEnded)}


@pytest.mark.parametrize(
    ("n_servers", "share", "first"),
    [(8, 0.0, 8), (8, 0.25, 6), (8, 0.01, 7), (8000, 0.05, 7600),
     (20, 0.15, 17), (1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 1)],
)  # fmt: skip
def test_the_servers_are_the_last_ones(
    n_servers: int, share: float, first: int
) -> None:
    assert first_best_effort(n_servers, share) == first


def test_a_late_job_finishes_there_and_is_no_success() -> None:
    history = play(SMALL, [late("a", 2, 120.0)], policy())
    (rescaled,) = (e for e in history if isinstance(e, events.JobRescaled))
    (moved,) = (e for e in history if isinstance(e, events.JobMigrated))
    assert (rescaled.t, rescaled.rate_bps, rescaled.links) == (100.0, 0, [])
    assert (moved.t, moved.vms_on, moved.links) == (100.0, [[6, 2]], [])
    assert "reservation ended" in moved.reason
    ends = ended(history)["a"]
    assert (ends.outcome, ends.t) == ("finished", pytest.approx(120.0))
    assert "price" not in ends.detail


def test_one_that_has_time_left_meets_its_deadline_and_pays() -> None:
    job = JobRequest(
        "a", 0.0, 2, 0, 100.0, 150.0,
        demand=Compute(), true_duration_s=120.0,
    )  # fmt: skip
    narrow = Reshaping(slides=False, scales=False)
    ends = ended(play(SMALL, [job], policy(reshaping=narrow)))["a"]
    assert (ends.outcome, ends.t) == ("finished", pytest.approx(120.0))
    assert ends.detail["price"] > 0


def test_jobs_there_share_the_network_as_tcp_does() -> None:
    # Three VMs on one server and three on the other, whose uplinks carry 10
    # bit/s: flows that cross get a third of it at worst, instead of 5.
    jobs = [late("a", 6, 120.0)]
    alone = ended(play(SMALL, jobs, policy()))["a"]
    assert alone.outcome == "finished"
    assert 120.0 <= alone.t <= 100.0 + 20.0 * 5 / (10 / 3) + 1e-6


def test_where_they_are_full_it_is_killed_with_the_reason() -> None:
    jobs = [late("a", 4, 120.0), late("b", 4, 120.0)]
    ends = ended(play(SMALL, jobs, policy()))
    assert ends["a"].outcome == "finished"
    assert (ends["b"].outcome, ends["b"].t) == ("killed", 100.0)
    assert ends["b"].reason == (
        f"{events.OUTLASTED}; servers for best effort: 4 slots asked, 2 free"
    )
    assert not ends["b"].killed_by_policy


def uplink(dc: DataCentre, server: int, root: int) -> int:
    return int(dc.tree_by_root[root].uplink[server])


def names_of(
    history: list[events.Event], from_s: float
) -> list[tuple[float, str]]:
    return [
        (e.t, e.name)
        for e in history
        if isinstance(e, events.JobEvent) and e.t >= from_s
    ]


def test_where_a_link_is_lost_there_it_waits_for_it() -> None:
    lost = uplink(SMALL, FIRST, SMALL.trees[0].root)
    failures = (
        Failure(50.0, "link_failed", lost),
        Failure(150.0, "link_restored", lost),
    )
    jobs = [late("a", 6, 120.0)]
    alone = ended(play(SMALL, jobs, policy()))["a"]
    history = play(SMALL, jobs, policy(), failures)
    assert names_of(history, 50.0) == [
        (100.0, "job_rescaled"),
        (100.0, "job_migrated"),
        (100.0, "job_cut"),
        (150.0, "job_reconnected"),
        (pytest.approx(alone.t + 50.0), "job_ended"),
    ]


def test_where_a_link_is_lost_there_it_may_be_killed() -> None:
    lost = uplink(SMALL, FIRST, SMALL.trees[0].root)
    failures = (Failure(50.0, "link_failed", lost),)
    history = play(SMALL, [late("a", 6, 120.0)], policy(), failures, "kill")
    ends = ended(history)["a"]
    assert (ends.t, ends.outcome) == (100.0, "killed")
    assert ends.reason.startswith(f"{events.FAILED}: lost link ")


def test_where_a_link_is_lost_there_another_root_may_do() -> None:
    dc = fat_tree(4, 10, 2)
    jobs = [late("a", 5, 120.0)]
    moved = play(dc, jobs, policy())
    (there,) = (e for e in moved if isinstance(e, events.JobMigrated))
    rack_node = int(dc.tree_by_root[there.root].parent[there.vms_on[0][0]])
    lost = uplink(dc, rack_node, there.root)
    history = play(
        dc, jobs, policy(), (Failure(50.0, "link_failed", lost),)
    )
    assert names_of(history, 50.0)[:3] == [
        (100.0, "job_rescaled"),
        (100.0, "job_migrated"),
        (100.0, "job_rerooted"),
    ]
    assert ended(history)["a"].t == ended(moved)["a"].t


def test_a_service_and_a_refused_job_do_not_get_those_servers() -> None:
    whole = JobRequest("whole", 0.0, 19, 0, 10.0, 10.0, demand=Compute())
    service = JobRequest(
        "web", 0.0, 19, 0, 10.0, 10.0, tags=(SERVICE_TAG,), demand=Compute()
    )
    ends = ended(play(SMALL, [whole, service], policy()))
    assert {e.outcome for e in ends.values()} == {"rejected"}
    assert "18" in ends["whole"].reason


drawn_jobs = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.integers(1, 9),
        st.integers(0, 12),
        st.integers(1, 10),
        st.sampled_from([1.0, 1.05, 2.0, 5.0]),
        st.sampled_from([-2, 0, 1, 3, 30]),
    ),
    min_size=1,
    max_size=12,
)
Drawn = list[tuple[int, int, int, int, float, int]]


def requests(drawn: Drawn, *, computing: bool) -> list[JobRequest]:
    """Jobs that take so many seconds more than they state, one at least."""
    jobs = []
    for k, (at, n, b, p, r, more) in enumerate(drawn):
        demand = Compute() if computing else Transfer("permutation")
        job = JobRequest(
            f"j{k:02}",
            float(at),
            n,
            0 if computing else b,
            float(p),
            p * r,
            true_duration_s=float(max(1, p + more)),
            demand=demand,
        )
        jobs.append(job)
    return jobs


@dataclass
class Foretold:
    """Jobs that outlast their reservations, by arithmetic on integers alone:
    who finds enough slots, and when each ends.
    """

    free: int
    leaving: list[tuple[float, int]]
    ends: dict[str, tuple[str, float]]

    def outlasts(
        self, at_s: float, job_id: str, n: int, left_s: float
    ) -> None:
        staying = []
        for end_s, slots in self.leaving:
            if end_s <= at_s:
                self.free += slots
            else:
                staying.append((end_s, slots))
        self.leaving = staying
        if n > self.free:
            self.ends[job_id] = ("killed", at_s)
            return
        self.free -= n
        self.leaving.append((at_s + left_s, n))
        self.ends[job_id] = ("finished", at_s + left_s)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["oktopus", "exact"])
@examples(60)
@given(drawn=drawn_jobs)
def test_against_arithmetic_where_nothing_is_sent(
    by: str, drawn: Drawn
) -> None:
    jobs = requests(drawn, computing=True)
    # Without sliding all times are whole seconds.
    narrow = Reshaping(slides=False)
    history = play(SMALL, jobs, policy(by, reshaping=narrow))
    ends = ended(history)
    truth = {job.id: job for job in jobs}
    foretold = Foretold(2 * 3, [], {})
    late_ones = []
    for event in history:
        if isinstance(event, events.JobReserved):
            assert event.end_s is not None
            true_s = truth[event.job_id].true_s
            ran_s = event.end_s - event.start_s
            if true_s > ran_s:
                late_ones.append(
                    (event.end_s, event.job_id, true_s - ran_s)
                )
            else:
                foretold.ends[event.job_id] = (
                    "finished",
                    event.start_s + true_s,
                )
    for at_s, job_id, left_s in sorted(late_ones):
        foretold.outlasts(at_s, job_id, truth[job_id].n_vms, left_s)
    ran = {
        job_id: (e.outcome, e.t)
        for job_id, e in ends.items()
        if e.outcome != "rejected"
    }
    assert ran == foretold.ends


@pytest.mark.slow
@pytest.mark.parametrize(
    "dc",
    [SMALL, fat_tree(4, 10, 2), flat(8, 3)],
    ids=["tree", "fat-tree", "flat"],
)
@examples(25)
@given(drawn=drawn_jobs, gamma=st.sampled_from([0.0, 0.12]))
def test_where_and_when_transfers_run(
    dc: DataCentre, drawn: Drawn, gamma: float
) -> None:
    jobs = {job.id: job for job in requests(drawn, computing=False)}
    history = play(dc, list(jobs.values()), policy(gamma=gamma))
    first = dc.n_servers - dc.n_servers // 4
    due: dict[str, float] = {}
    done_bits: dict[str, float] = {}
    moved: set[str] = set()
    for event in history:
        if isinstance(event, events.JobReserved):
            assert max(server for server, _ in event.vms_on) < first
            assert event.end_s is not None
            due[event.job_id] = event.end_s
            held_s = event.end_s - event.start_s
            done_bits[event.job_id] = held_s * event.rate_bps
        elif isinstance(event, events.JobMigrated):
            assert event.t == due[event.job_id]
            assert min(server for server, _ in event.vms_on) >= first
            assert event.job_id not in moved
            moved.add(event.job_id)
    for job_id in moved:
        job = jobs[job_id]
        over = ended(history)[job_id]
        assert over.outcome == "finished"
        if job.bandwidth_bps == 0:
            continue
        # What the reservation did not carry goes at b at most.
        left_bits = job.true_s * job.bandwidth_bps - done_bits[job_id]
        least_s = due[job_id] + left_bits / job.bandwidth_bps
        assert over.t >= least_s - 1e-6


@pytest.mark.short("tree-oktopus", "flat-oktopus")
@pytest.mark.slow
@pytest.mark.parametrize("by", ["oktopus", "exact"])
@pytest.mark.parametrize("small", [True, False], ids=["tree", "flat"])
@examples(25)
@given(drawn=drawn_jobs, gamma=st.sampled_from([0.0, 0.12]))
def test_it_admits_as_if_those_servers_had_no_slots(
    by: str,
    small: bool,
    drawn: Drawn,
    gamma: float,
) -> None:
    jobs = requests([(*job[:5], 0) for job in drawn], computing=False)
    slots = [3] * FIRST + [0] * 2
    if small:
        whole = SMALL
        without = tree([2, 2, 2], [20, 12, 10], slots)
    else:
        whole = tree([8], [10], 3)
        without = tree([8], [10], slots)
    kept = play(whole, jobs, policy(by, gamma))
    fewer = play(without, jobs, policy(by, gamma, share=0.0))
    assert [event.to_json() for event in kept] == [
        event.to_json() for event in fewer
    ]
