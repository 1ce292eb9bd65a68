"""MBFCBS's runs: their measures are what the events say, and the same for equal configurations."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace

import pytest

from jobs.demand import Lease, LeaseType
from jobs.request import JobRequest
from reproductions import catalogue
from reproductions.configuration import (
    FOLDER,
    RunConfiguration,
    Variant,
    settings,
)
from reproductions.extractors import LEASE_METRICS, lease_measures
from reproductions.grid_quantities import BetweenMeasures, Grid
from reproductions.mbfcbs import FIGURES
from reproductions.mbfcbs.mbfcbs_interpretations import (
    BACKGROUND,
    SETS,
    TYPES,
    haizea_leases,
)
from reproductions.mbfcbs.mbfcbs_leases import (
    AR,
    FIGURE_7,
    IM,
    MBFCBS,
    POLICIES,
    SMALL_POLICIES,
)
from reproductions.occupancy import Occupancy
from testbed import events
from testbed.play.playing import tee
from testbed.record.metrics import Tally
from testbed.spec.document import find_file

HOSTS = (("topology.nodes", "4"),)
SMALL = Variant(
    "mbfcbs/mbfcbs-large.yaml",
    "mbfcbs",
    (*HOSTS, *settings(jobs=60, load=1.5)),
)
RUN = RunConfiguration(SMALL, 1, LEASE_METRICS)


def lease(
    name: str,
    at_s: float,
    kind: LeaseType,
    cores: int,
    wanted_s: float | None = None,
) -> events.JobSubmitted:
    demand = Lease(cores=cores, lease_type=kind, wanted_s=wanted_s)
    return events.JobSubmitted(
        at_s,
        JobRequest(
            id=name,
            submit_s=at_s,
            n_vms=1,
            bandwidth_bps=0,
            duration_s=10.0,
            demand=demand,
        ).to_json(),
    )


def test_shares_core_time_and_times_to_completion_are_counted_by_hand() -> (
    None
):
    tally, held = Tally(), Occupancy()
    sink = tee(tally, held)
    for event in (
        lease("a", 0.0, "advance", 2, wanted_s=20.0),
        lease("b", 1.0, "immediate", 1),
        events.JobEnded(
            t=1.0,
            job_id="b",
            outcome="rejected",
            reason="no room",
            measured_s=None,
            detail={},
        ),
        lease("c", 2.0, "best-effort", 4),
        events.JobStarted(2.0, "c", 0),
        events.JobPreempted(8.0, "c", "a"),
        lease("d", 10.0, "immediate", 1),
        events.JobStarted(10.0, "d", 0),
        events.JobStarted(20.0, "a", 0),
        events.JobEnded(
            t=20.0,
            job_id="d",
            outcome="finished",
            reason="",
            measured_s=10.0,
            detail={},
        ),
        events.JobEnded(
            t=30.0,
            job_id="a",
            outcome="finished",
            reason="",
            measured_s=10.0,
            detail={},
        ),
        events.JobResumed(30.0, "c"),
        events.JobEnded(
            t=40.0,
            job_id="c",
            outcome="finished",
            reason="",
            measured_s=16.0,
            detail={},
        ),
    ):
        sink(event)
    found = lease_measures(tally.rows(), tally.requests, held, 8)
    assert (found["accepted"], found["success"], found["preemptions"]) == (
        3,
        0.75,
        1,
    )
    assert [found[f"success_{kind}"] for kind in ("ar", "im", "be")] == [
        1.0,
        0.5,
        1.0,
    ]
    core_s = 4 * 6 + 1 * 10 + 2 * 10 + 4 * 10
    assert found["use"] == pytest.approx(core_s / (8 * 40.0))
    assert found["use_early"] == pytest.approx(4 * 6 / (8 * 10.0))
    assert found["makespan_h"] == 40.0 / 3600.0
    # From the wanted start, or the arrival: 10 s, 10 s and 38 s.
    assert found["completion_h"] == pytest.approx(58.0 / 3 / 3600.0)


def test_a_requeued_job_holds_no_slots_while_it_waits() -> None:
    held = Occupancy()
    for event in (
        lease("a", 0.0, "best-effort", 4),
        events.JobStarted(0.0, "a", 0),
        events.JobRequeued(6.0, "a", "server 0 is lost"),
        events.JobStarted(20.0, "a", 0),
        events.JobEnded(
            t=30.0,
            job_id="a",
            outcome="finished",
            reason="",
            measured_s=10.0,
            detail={},
        ),
    ):
        held(event)
    assert held.slot_s() == 4 * (6 + 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [*SMALL_POLICIES.values(), *POLICIES.values()]
)
def test_equal_configurations_give_equal_results(policy: str) -> None:
    one = replace(RUN, variant=replace(SMALL, policy=policy))
    first, second = (
        {key: value for key, value in one.run().items() if key != "cpu_s"}
        for _ in range(2)
    )
    assert first == second
    assert first["leases"] == 60


def test_all_policies_meet_the_same_leases_and_more_of_them_begin_alike() -> (
    None
):
    def leases(
        policy: str = "mbfcbs", **values: object
    ) -> list[JobRequest]:
        changed = settings(jobs=values.get("jobs", 60), load=1.5)
        variant = replace(SMALL, policy=policy, settings=(*HOSTS, *changed))
        return list(variant.experiment(1).jobs)

    assert leases() == leases("v-mct")
    kinds = [asdict(job.demand)["lease_type"] for job in leases()]
    assert [asdict(job.demand)["lease_type"] for job in leases(jobs=80)][
        :60
    ] == kinds


def test_every_figure_of_the_evaluation_is_there_under_its_name() -> None:
    names = [figure.name for figure in FIGURES]
    assert names[:8] == [f"mbfcbs-fig{n}" for n in range(4, 12)]
    others = ["mbfcbs-priority", "mbfcbs-haizea", "mbfcbs-shares"]
    assert names[8:] == others
    for figure in FIGURES:
        assert catalogue.FIGURES[figure.name].claims
        for own in figure.configurations(1, quick=True).values():
            assert own[0].cost() <= 1000.0


def test_types_are_compared_under_one_policy() -> None:
    runs = {
        (MBFCBS, x): ({"success_ar": 1.0, "success_im": 0.75},)
        for x in FIGURE_7.xs
    }
    quantity = BetweenMeasures(AR, IM, MBFCBS, 800.0)
    assert quantity.values(Grid(runs)) == (25.0,)
    assert str(quantity) == "success rate of AR − success rate of IM at 800"


@pytest.mark.slow
def test_haizea_s_traces_have_immediate_leases_interleaved() -> None:
    for injected in SETS.values():
        for name in (BACKGROUND, injected):
            if find_file(name, FOLDER) is None:
                pytest.skip(f"there is no {name} here")
        leases = haizea_leases(injected, 1)
        kinds = Counter(lease.kind for lease in leases)
        assert sum(kinds.values()) == 1000
        assert kinds["IM"] == 400
        assert kinds["AR"] > 30
        arrivals = [lease.arrival_s for lease in leases]
        assert arrivals == sorted(arrivals)
        assert {(lease.cores, lease.memory_mb) for lease in leases} == set(
            TYPES
        )
        assert leases == haizea_leases(injected, 1)
        others = haizea_leases(injected, 2)
        for kind in ("AR", "BE"):
            # The traces are what they are; a seed draws the immediate leases.
            of_kind = [
                [lease.name for lease in drawn if lease.kind == kind]
                for drawn in (leases, others)
            ]
            assert of_kind[0] == of_kind[1]
        assert [x.arrival_s for x in leases if x.kind == "IM"] != [
            x.arrival_s for x in others if x.kind == "IM"
        ]
