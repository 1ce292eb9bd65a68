"""FCFS, SBF, SDF, BgMBF and BgMBF-SDF: worked examples, a slow twin, and what must never happen."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.embedding.placement import Refusal, empty_residual
from testbed.engine.engine import Engine
from testbed.errors import BadInput
from testbed.reservation.capacity import HoseCapacity
from testbed.reservation.timeline import Footprint
from testbed.schedulers.registry import build_policy, known_policies
from tests.support.examples import examples
from tests.unit.schedulers.slow_queues import Run, Slow
from topologies.datacentre import DataCentre
from topologies.fat_tree import fat_tree
from topologies.flat import flat
from topologies.tree import tree

NAMES = ["fcfs", "sbf", "sdf", "bgmbf", "bgmbf-sdf"]
EMBEDDERS = ["adaba", "best-fit", "first-fit", "greedy", "oktopus", "exact"]
seeds = st.integers(0, 2**32)


def job(
    name: str, at: float, vms: int, duration: float, bps: int = 0
) -> JobRequest:
    return JobRequest(name, at, vms, bps, duration)


def play(
    dc: DataCentre,
    jobs: list[JobRequest],
    policy: str,
    embed: str = "first-fit",
    parameters: Mapping[str, Any] | None = None,
) -> list[events.Event]:
    """The events of a run; both ledgers are derived anew after every step."""
    history: list[events.Event] = []
    built = build_policy(policy, embedder(embed), parameters or {})
    engine = Engine(
        dc,
        jobs,
        built,
        SimulatedBackend(),
        history.append,
        lambda e: e.reservations.check(),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            HoseCapacity, "_change", checking(HoseCapacity._change)
        )
        engine.run()
    assert not engine.ledger.holdings()
    return history


def checking(change: Callable[..., None]) -> Callable[..., None]:
    """Every step of a transaction of free capacity, and then that nothing is over-committed."""

    def step(free: HoseCapacity, footprint: Footprint, sign: int) -> None:
        change(free, footprint, sign)
        residual = free.residual
        assert residual.free_slots.min() >= 0
        assert residual.free_bps.min(initial=0) >= 0
        assert free.idle == bool(
            (residual.free_slots == free._view.datacentre.slots).all()
        )

    return step


def lives(history: list[events.Event]) -> dict[str, Run]:
    """When each job was on nodes, from the events alone."""
    runs: dict[str, Run] = {}
    since: dict[str, float] = {}
    for event in history:
        match event:
            case events.JobSubmitted():
                runs[event.job["id"]] = Run(0)
            case (
                events.JobStarted()
                | events.JobResumed()
                | events.JobMigrated()
            ):
                since[event.job_id] = event.t
            case events.JobPreempted():
                runs[event.job_id].stints.append(
                    (since.pop(event.job_id), event.t)
                )  # type: ignore[arg-type]
            case events.JobEnded():
                if event.job_id in since:
                    runs[event.job_id].stints.append(
                        (since.pop(event.job_id), event.t)
                    )  # type: ignore[arg-type]
                runs[event.job_id].rejected = event.outcome == "rejected"
                assert event.outcome in ("finished", "rejected")
    assert not since
    return runs


def stints(history: list[events.Event]) -> dict[str, list[tuple[int, int]]]:
    return {name: run.stints for name, run in lives(history).items()}


def reasons(
    history: list[events.Event],
) -> list[tuple[float, str, str, list[str]]]:
    return [
        (e.t, e.job_id, e.reason, e.behind)
        for e in history
        if isinstance(e, events.JobWaits)
    ]


# ---------------------------------------------------------------------------------- worked examples

FOUR = flat(4, 1)
# long takes three of four nodes; wide needs all four; small and tiny fit beside long.
EXAMPLE = [
    job("long", 0, 3, 10, bps=3),
    job("wide", 1, 4, 5, bps=2),
    job("small", 2, 1, 100, bps=4),
    job("tiny", 3, 1, 6, bps=1),
]


def test_fcfs_lets_nobody_past_the_head() -> None:
    assert stints(play(FOUR, EXAMPLE, "fcfs")) == {
        "long": [(0, 10)],
        "wide": [(10, 15)],
        "small": [(15, 115)],
        "tiny": [(15, 21)],
    }


def test_sbf_and_sdf_block_at_the_head_of_their_own_order() -> None:
    # By bandwidth: tiny 1, wide 2, small 4. tiny heads the queue at 3 and fits; wide blocks small.
    assert stints(play(FOUR, EXAMPLE, "sbf")) == {
        "long": [(0, 10)],
        "wide": [(10, 15)],
        "small": [(15, 115)],
        "tiny": [(3, 9)],
    }
    # By duration: wide 5, tiny 6, small 100: wide blocks both.
    assert stints(play(FOUR, EXAMPLE, "sdf")) == {
        "long": [(0, 10)],
        "wide": [(10, 15)],
        "small": [(15, 115)],
        "tiny": [(15, 21)],
    }


def test_sdf_may_skip_its_head() -> None:
    assert stints(
        play(FOUR, EXAMPLE, "sdf", parameters={"skip": True})
    ) == {
        "long": [(0, 10)],
        "wide": [(102, 107)],
        "small": [(2, 102)],
        "tiny": [(10, 16)],
    }


def test_bgmbf_backfills_and_the_head_takes_its_place_back() -> None:
    history = play(FOUR, EXAMPLE, "bgmbf")
    assert stints(history) == {
        "long": [(0, 10)],
        "wide": [(10, 15)],
        "small": [(2, 10), (15, 107)],
        "tiny": [(15, 21)],
    }
    (evicted,) = (e for e in history if isinstance(e, events.JobPreempted))
    assert (evicted.job_id, evicted.reason) == (
        "small",
        "wide stands first and needs its place",
    )


def test_bgmbf_sdf_backfills_the_shortest_first() -> None:
    jobs = [
        job("long", 0, 3, 10),
        job("wide", 1, 4, 5),
        job("first", 2, 1, 4),
        job("slow", 3, 1, 100),
        job("quick", 4, 1, 2),
    ]
    # At 6 the node is free again: in order of arrival for slow, in order of duration for quick.
    assert stints(play(FOUR, jobs, "bgmbf"))["slow"] == [(6, 10), (15, 111)]
    by_duration = stints(play(FOUR, jobs, "bgmbf-sdf"))
    assert by_duration["quick"] == [(6, 8)]
    assert by_duration["slow"] == [(8, 10), (15, 113)]


def test_only_the_needed_ones_are_evicted_where_asked_for() -> None:
    jobs = [
        job("long", 0, 2, 10),
        job("wide", 1, 3, 5),
        job("b", 2, 1, 50),
        job("c", 3, 1, 50),
    ]
    evict = {"all": {}, "needed": {"evict": "needed"}}
    literal, spared = (
        stints(play(FOUR, jobs, "bgmbf", parameters=p))
        for p in evict.values()
    )
    # wide needs one of the two nodes. As printed both go, and b is backfilled again at once.
    assert literal["b"] == [(2, 10), (10, 52)]
    assert spared["b"] == [(2, 52)]
    assert literal["c"] == spared["c"] == [(3, 10), (15, 58)]


def test_whom_eviction_does_not_serve_is_not_evicted_for() -> None:
    # wide cannot start before long ends, whoever is evicted.
    history = play(FOUR, EXAMPLE[:3], "bgmbf")
    assert [e.t for e in history if isinstance(e, events.JobPreempted)] == [
        10
    ]


def test_the_latest_are_evicted_and_those_not_needed_spared() -> None:
    # The head needs three; d (latest) gives two, c one. Taking d and c suffices; b is spared.
    dc = flat(6, 1)
    jobs = [
        job("long", 0, 2, 10),
        job("head", 1, 5, 5),
        job("b", 2, 1, 50),
        job("c", 3, 1, 50),
        job("d", 4, 2, 50),
    ]
    history = play(dc, jobs, "bgmbf", parameters={"evict": "needed"})
    assert {
        e.job_id for e in history if isinstance(e, events.JobPreempted)
    } == {"c", "d"}


def test_resuming_elsewhere_is_a_migration_and_costs() -> None:
    jobs = [
        job("long", 0, 2, 10),
        job("wide", 1, 4, 20),
        job("moved", 2, 1, 50),
        job("stays", 3, 1, 50),
    ]
    history = play(
        flat(5, 1), jobs, "bgmbf", parameters={"migration_cost": 7.0}
    )
    # wide takes nodes 0 to 3, where both were; node 4 is left for the one that arrived first.
    first, *_ = (e for e in history if isinstance(e, events.JobMigrated))
    assert (first.t, first.job_id, first.vms_on, first.cost_s) == (
        10,
        "moved",
        [[4, 1]],
        7.0,
    )
    assert stints(history)["moved"] == [(2, 10), (10, 59)]


def test_going_on_where_it_was_is_no_migration_but_costs_as_well() -> None:
    jobs = [
        job("aside", 0, 2, 100),
        job("brief", 0, 1, 2),
        job("long", 0, 1, 10),
        job("wide", 1, 2, 5),
        job("back", 3, 1, 50),
    ]
    history = play(FOUR, jobs, "bgmbf", parameters={"migration_cost": 7.0})
    assert not [e for e in history if isinstance(e, events.JobMigrated)]
    (back,) = (e for e in history if isinstance(e, events.JobResumed))
    assert (back.t, back.job_id, back.cost_s) == (15, "back", 7.0)
    assert stints(history)["back"] == [(3, 10), (15, 65)]


def test_backfilled_jobs_of_an_earlier_head_keep_their_rank() -> None:
    # x arrived before y: y as head never evicts it, though x was backfilled once.
    jobs = [
        job("long", 0, 3, 10),
        job("wide", 1, 4, 5),
        job("x", 2, 1, 30),
        job("y", 3, 4, 5),
    ]
    assert stints(play(FOUR, jobs, "bgmbf")) == {
        "long": [(0, 10)],
        "wide": [(10, 15)],
        "x": [(2, 10), (15, 37)],
        "y": [(37, 42)],
    }


# --------------------------------------------------------------------------------- the slow twin


def workload(
    rng: random.Random, most_vms: int, most_bps: int, n: int = 14
) -> list[JobRequest]:
    """Whole seconds, so that ties are common: ends, arrivals, both."""
    at = 0
    jobs = []
    for number in range(n):
        at += rng.choice([0, 0, 1, 2, 5])
        jobs.append(
            job(
                f"j{number:02}",
                at,
                rng.randint(1, most_vms),
                rng.randint(1, 12),
                rng.choice([0, rng.randint(0, most_bps)]),
            )
        )
    return jobs


def datacentre(rng: random.Random) -> DataCentre:
    return rng.choice(
        [
            flat(5, 1),
            tree([2, 2], [6, 10], 2),
            tree([3], 10, 3),
            fat_tree(4, 10, 1),
            fat_tree(4, 10, 1, "pooled"),
            tree([2, 2], 10, [1, 3, 2, 4]),
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("policy", NAMES)
@given(seeds)
@examples(15)
def test_job_by_job_like_a_slow_twin(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    dc = datacentre(rng)
    name = rng.choice(EMBEDDERS)
    jobs = workload(rng, dc.total_slots, 12)
    skip = policy in ("sbf", "sdf") and rng.random() < 0.5
    expected = Slow(dc, policy, embedder(name), skip=skip).play(jobs)
    found = lives(
        play(dc, jobs, policy, name, {"skip": True} if skip else {})
    )
    assert {k: (r.stints, r.rejected) for k, r in found.items()} == {
        k: (r.stints, r.rejected) for k, r in expected.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("policy", NAMES)
@given(seeds)
@examples(15)
def test_every_job_ends_work_is_kept_and_nothing_starts_early(
    policy: str, seed: int
) -> None:
    rng = random.Random(seed)
    dc = datacentre(rng)
    jobs = workload(rng, dc.total_slots + 2, 12, n=20)
    parameters = (
        {"evict": rng.choice(["all", "needed"])}
        if policy.startswith("bgmbf")
        else {}
    )
    found = lives(play(dc, jobs, policy, rng.choice(EMBEDDERS), parameters))
    for each in jobs:
        run = found[each.id]
        if run.rejected:
            assert not run.stints
            continue
        assert (
            sum(end - start for start, end in run.stints) == each.duration_s
        )
        assert run.stints[0][0] >= each.submit_s


@pytest.mark.slow
@given(seeds)
@examples(30)
def test_fcfs_order_is_never_broken(seed: int) -> None:
    rng = random.Random(seed)
    dc = datacentre(rng)
    jobs = workload(rng, dc.total_slots, 12, n=20)
    found = lives(play(dc, jobs, "fcfs", rng.choice(EMBEDDERS)))
    starts = [
        found[j.id].stints[0][0] for j in jobs if not found[j.id].rejected
    ]
    assert starts == sorted(starts)


# --------------------------------------------------------------- known bugs of others stay out


@pytest.mark.parametrize("policy", NAMES)
def test_who_arrives_when_another_ends_takes_its_place_at_once(
    policy: str,
) -> None:
    jobs = [job("a", 0, 4, 10), job("b", 10, 4, 5), job("c", 15, 1, 1)]
    assert stints(play(FOUR, jobs, policy)) == {
        "a": [(0, 10)],
        "b": [(10, 15)],
        "c": [(15, 16)],
    }


def test_a_backfilled_job_that_ends_as_the_head_can_start_is_not_evicted() -> (
    None
):
    jobs = [
        job("long", 0, 3, 10),
        job("wide", 1, 4, 5),
        job("fits", 2, 1, 8),
    ]
    history = play(FOUR, jobs, "bgmbf")
    assert stints(history) == {
        "long": [(0, 10)],
        "wide": [(10, 15)],
        "fits": [(2, 10)],
    }
    assert not [e for e in history if isinstance(e, events.JobPreempted)]


def test_all_ends_of_an_instant_come_before_the_pass() -> None:
    # Were there a pass after each end, c (2 nodes) would take the first pair before b's is free.
    dc = tree([2, 2], 10, 1)
    jobs = [
        job("a", 0, 2, 10, 10),
        job("b", 0, 2, 10, 10),
        job("wide", 1, 4, 5, 1),
        job("c", 2, 2, 5, 10),
    ]
    assert stints(play(dc, jobs, "bgmbf"))["wide"] == [(10, 15)]
    assert stints(play(dc, jobs, "bgmbf"))["c"] == [(15, 20)]


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("embed", EMBEDDERS)
def test_what_cannot_fit_an_empty_data_centre_is_rejected_on_arrival(
    policy: str, embed: str
) -> None:
    dc = tree([2, 2], 10, 2)
    jobs = [
        job("a", 0, 8, 10),
        job("huge", 1, 9, 1),
        job("fast", 2, 3, 1, 11),
        job("b", 3, 1, 1),
    ]
    ended = [
        e
        for e in play(dc, jobs, policy, embed)
        if isinstance(e, events.JobEnded)
    ]
    recorded = {e.job_id: (e.t, e.outcome, e.reason) for e in ended}
    empty = "it does not fit even in an empty data centre: "
    assert recorded["huge"] == (
        1,
        "rejected",
        f"{empty}not enough slots: 9 asked, 8 free",
    )
    assert recorded["fast"][:2] == (2, "rejected")
    assert recorded["fast"][2].startswith(
        empty + "11 bit/s per VM is above every server's NIC"
    )
    assert recorded["a"][1] == recorded["b"][1] == "finished"


@pytest.mark.parametrize("policy", NAMES)
def test_a_job_that_its_embedder_no_longer_finds_a_place_for_runs_all_the_same(
    policy: str,
) -> None:
    # Servers of 1, 4 and 2 slots: once 100 bit/s were asked for, 5 bit/s count as little, and AdaBa
    # fills the small servers first, which leaves their links with too many VMs on either side.
    dc = tree([3], 10, [1, 4, 2])
    jobs = [
        job("now", 0, 7, 5),
        job("later", 1, 6, 5, 5),
        job("largest", 2, 1, 5, 100),
        job("last", 8, 1, 1),
    ]
    alone = embedder("adaba").embed(
        dc, empty_residual(dc), 6, 5, largest_bps=100
    )
    assert isinstance(alone, Refusal)
    ended = {
        e.job_id: e
        for e in play(dc, jobs, policy, "adaba")
        if isinstance(e, events.JobEnded)
    }
    assert [
        ended[name].outcome for name in ("now", "later", "largest", "last")
    ] == ["finished"] * 4


# ------------------------------------------------------------------------------ words and settings


def test_reasons_for_waiting_name_what_stands_in_the_way() -> None:
    assert reasons(play(FOUR, EXAMPLE, "fcfs")) == [
        (1, "wide", "not enough slots: 4 asked, 1 free", []),
        (2, "small", "behind wide, which waits", ["wide"]),
        (3, "tiny", "behind wide, which waits", ["wide"]),
        (10, "small", "not enough slots: 1 asked, 0 free", []),
    ]
    assert reasons(play(FOUR, EXAMPLE, "bgmbf")) == [
        (1, "wide", "not enough slots: 4 asked, 1 free", []),
        (3, "wide", "not enough slots: 4 asked, 0 free", []),
        (3, "tiny", "not enough slots: 1 asked, 0 free", ["wide"]),
        (10, "small", "not enough slots: 1 asked, 0 free", []),
    ]


def test_every_policy_takes_an_embedder_of_its_own() -> None:
    for name in NAMES:
        assert "embedder" in known_policies()[name].takes
        built = build_policy(
            name, embedder("oktopus"), {"embedder": "adaba"}
        )
        assert built._embedder.name == "adaba"  # type: ignore[attr-defined]
        assert built.name == name
    with pytest.raises(BadInput, match="bl has no parameter embedder"):
        build_policy("bl", embedder("oktopus"), {"embedder": "adaba"})


@pytest.mark.parametrize("policy", NAMES)
def test_the_same_jobs_give_the_same_events(policy: str) -> None:
    rng = random.Random(11)
    jobs = workload(rng, 6, 12, n=25)
    dc = tree([2, 2], [6, 10], 2)
    first, again = (play(dc, jobs, policy, "adaba") for _ in range(2))
    assert [e.to_json() for e in first] == [e.to_json() for e in again]
