"""MBFCBS, case by case as Algorithm 1 has them; its baselines beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobs.demand import Lease
from jobs.request import JobRequest
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.schedulers.mbfcbs import Mbfcbs, Settings
from testbed.schedulers.policy import Policy
from testbed.schedulers.priority import priority_vector
from testbed.schedulers.registry import build_policy
from topologies.datacentre import DataCentre
from topologies.flat import flat
from topologies.tree import tree


def be(
    name: str, at_s: float, length_s: float, cores: int, **given: Any
) -> JobRequest:
    asked = {"lease_type": "best-effort"}
    asked |= {
        key: given.pop(key)
        for key in ("lease_type", "wanted_s", "memory_mib") & given.keys()
    }
    n_vms = given.pop("n_vms", 1)
    return JobRequest(
        name,
        at_s,
        n_vms,
        0,
        length_s,
        demand=Lease(cores=cores, **asked),
        **given,
    )


def im(
    name: str, at_s: float, length_s: float, cores: int, **given: Any
) -> JobRequest:
    return be(name, at_s, length_s, cores, lease_type="immediate", **given)


def ar(
    name: str,
    at_s: float,
    start_s: float,
    length_s: float,
    cores: int,
    **given: Any,
) -> JobRequest:
    return be(
        name,
        at_s,
        length_s,
        cores,
        lease_type="advance",
        wanted_s=start_s,
        **given,
    )


def play(
    jobs: list[JobRequest],
    policy: Policy | None = None,
    dc: DataCentre | None = None,
) -> list[events.Event]:
    stream: list[events.Event] = []
    dc = dc or flat(2, 4)
    policy = policy or Mbfcbs(Settings(slot_s=10.0))
    look = lambda engine: engine.reservations.check()  # noqa: E731 a hook
    Engine(dc, jobs, policy, SimulatedBackend(), stream.append, look).run()
    return stream


def baseline(name: str) -> Policy:
    return build_policy(name, embedder("oktopus"), {})


def fate(stream: list[events.Event]) -> dict[str, tuple[str, float]]:
    return {
        e.job_id: (e.outcome, e.t)
        for e in stream
        if isinstance(e, events.JobEnded)
    }


def host_of(stream: list[events.Event], name: str) -> int:
    return next(
        e.vms_on[0][0]
        for e in stream
        if isinstance(e, events.JobReserved) and e.job_id == name
    )


def reasons(stream: list[events.Event], name: str) -> list[str]:
    return [
        e.reason
        for e in stream
        if isinstance(e, events.JobWaits) and e.job_id == name
    ]


@pytest.mark.slow
def test_the_most_used_host_that_fits_is_taken() -> None:
    stream = play(
        [
            im("a", 0, 50, 2),
            im("b", 1, 50, 3),
            im("c", 2, 9, 1),
            im("d", 3, 9, 2),
        ]
    )
    assert [host_of(stream, name) for name in "abcd"] == [0, 1, 1, 0]


@pytest.mark.slow
def test_best_effort_joins_the_queue_of_the_host_that_is_free_first() -> (
    None
):
    stream = play(
        [
            im("a", 0, 30, 4),
            im("b", 0, 20, 4),
            be("c", 1, 10, 3),
            be("d", 2, 10, 3),
        ]
    )
    assert fate(stream)["c"] == ("finished", 30.0)
    assert fate(stream)["d"] == ("finished", 40.0)
    assert reasons(stream, "c") == [
        "3 cores asked; the first room for good is on server 1, at 20 s"
    ]


@pytest.mark.slow
def test_a_queue_that_gets_room_earlier_moves_up() -> None:
    dc = flat(1, 4)
    stream = play(
        [im("a", 0, 30, 4, true_duration_s=5.0), be("b", 1, 10, 3)], dc=dc
    )
    assert fate(stream) == {"a": ("finished", 5.0), "b": ("finished", 15.0)}


@pytest.mark.parametrize("name", ["mbfcbs", "v-mct"])
@pytest.mark.parametrize(
    ("cores", "memory_mib"), [(4, 0), (1, 900)], ids=["cores", "memory"]
)
def test_a_plan_on_several_hosts_moves_up_once_all_have_room(
    name: str, cores: int, memory_mib: int
) -> None:
    size = {"cores": cores, "memory_mib": memory_mib}
    jobs = [
        be("b", 0, 100, **size, true_duration_s=10.0),
        be("c", 0, 100, **size, true_duration_s=20.0),
        be("d", 1, 5, 3, n_vms=2, memory_mib=600),
    ]
    stream = play(jobs, baseline(name), flat(2, 4, memory_mib=1000))
    assert fate(stream)["d"] == ("finished", 25.0)


def test_best_effort_does_not_queue_at_a_host_with_an_advance_reservation() -> (
    None
):
    dc = flat(1, 4)
    stream = play(
        [ar("r", 0, 50, 10, 1), im("a", 1, 20, 4), be("b", 2, 10, 3)], dc=dc
    )
    assert reasons(stream, "b") == [
        "3 cores asked; no host has them free now, or every host has an advance reservation"
    ]
    assert fate(stream)["b"] == ("finished", 31.0)  # backfilled when a ends


def test_an_immediate_lease_takes_the_place_of_a_best_effort_one_which_resumes_later() -> (
    None
):
    dc = flat(1, 4)
    stream = play([be("b", 0, 20, 3), im("i", 5, 10, 2)], dc=dc)
    assert fate(stream) == {
        "i": ("finished", 15.0),
        "b": ("finished", 30.0),
    }
    (preempted,) = [e for e in stream if isinstance(e, events.JobPreempted)]
    assert (preempted.job_id, preempted.t, preempted.reason) == (
        "b",
        5.0,
        "immediate lease i",
    )


@pytest.mark.parametrize("taker", [im("t", 5, 10, 2), ar("t", 3, 5, 10, 2)])
def test_a_preempted_lease_is_planned_with_what_is_left_of_it(
    taker: JobRequest,
) -> None:
    stream = play(
        [be("b", 0, 20, 3), taker, be("c", 16, 9, 4)], dc=flat(1, 4)
    )
    assert fate(stream)["b"] == ("finished", 30.0)
    (waits,) = [
        e
        for e in stream
        if isinstance(e, events.JobWaits) and e.job_id == "c"
    ]
    assert (waits.t, waits.until_s) == (16.0, 30.0)


def test_a_best_effort_lease_is_preempted_once() -> None:
    dc = flat(1, 4)
    stream = play(
        [be("b", 0, 20, 3), im("i", 5, 10, 2), im("j", 16, 5, 2)], dc=dc
    )
    assert fate(stream)["b"] == ("finished", 30.0)
    assert fate(stream)["j"] == ("rejected", 16.0)


def test_one_lease_that_makes_room_by_itself_is_preempted_before_several() -> (
    None
):
    dc = flat(1, 6)
    stream = play(
        [
            be("b", 0, 90, 1),
            be("c", 0, 90, 1),
            be("d", 0, 90, 4),
            im("i", 5, 5, 3),
        ],
        dc=dc,
    )
    assert [
        e.job_id for e in stream if isinstance(e, events.JobPreempted)
    ] == ["d"]
    stream = play(
        [
            be("b", 0, 90, 2),
            be("c", 0, 90, 2),
            be("d", 0, 90, 2),
            im("i", 5, 5, 4),
        ],
        dc=dc,
    )
    assert [
        e.job_id for e in stream if isinstance(e, events.JobPreempted)
    ] == [
        "b",
        "c",
    ]


def test_a_best_effort_lease_runs_until_the_advance_reservation_that_preempts_it() -> (
    None
):
    dc = flat(1, 4)
    stream = play([be("b", 0, 40, 3), ar("r", 5, 20, 10, 2)], dc=dc)
    assert fate(stream) == {
        "r": ("finished", 30.0),
        "b": ("finished", 50.0),
    }
    (short,) = [e for e in stream if isinstance(e, events.JobShortened)]
    assert (short.t, short.job_id, short.until_s) == (5.0, "b", 20.0)


def test_a_planned_best_effort_lease_is_preempted_too_and_is_then_left_alone() -> (
    None
):
    dc = flat(1, 4)
    jobs = [
        im("a", 0, 20, 4),
        be("b", 1, 10, 4),
        ar("r", 2, 20, 10, 4),
        ar("s", 3, 31, 10, 4),
    ]
    stream = play(jobs, dc=dc)
    assert reasons(stream, "b")[1] == "its place went to lease r"
    # It waits without a place, for room that lasts: after both reservations.
    assert fate(stream) == {
        "a": ("finished", 20.0), "r": ("finished", 30.0), "s": ("finished", 41.0),
        "b": ("finished", 51.0),
    }  # fmt: skip
    assert not [e for e in stream if isinstance(e, events.JobPreempted)]


@pytest.mark.slow
def test_an_advance_reservation_is_rejected_with_what_is_left() -> None:
    dc = flat(1, 4)
    stream = play(
        [
            ar("r", 0, 20, 10, 3),
            ar("s", 1, 25, 10, 2),
            ar("t", 2, 30, 5, 2),
        ],
        dc=dc,
    )
    assert fate(stream)["s"] == ("rejected", 1.0)
    assert fate(stream)["t"] == ("finished", 35.0)
    (why,) = [
        e.reason
        for e in stream
        if isinstance(e, events.JobEnded) and e.job_id == "s"
    ]
    assert why == (
        "2 cores asked, from 25 s to 35 s advance, immediate and once preempted leases leave"
        " 1 core on server 0, the emptiest host"
    )


def test_a_start_that_has_passed_is_rejected() -> None:
    stream = play([ar("r", 5, 4, 10, 3)])
    assert [e.reason for e in stream if isinstance(e, events.JobEnded)] == [
        "its start, 4 s, has passed"
    ]


@pytest.mark.parametrize("name", ["mbfcbs", "v-mct", "priority"])
def test_what_can_never_fit_is_rejected_with_its_reason(name: str) -> None:
    policy = baseline(name)
    dc = flat(2, 4, memory_mib=1000)
    jobs = [
        be("a", 0, 5, 5), be("b", 0, 5, 2, memory_mib=1001), be("c", 0, 5, 3, n_vms=3),
        ar("d", 0, 9, 5, 5), im("e", 0, 5, 2, n_vms=3, memory_mib=600),
    ]  # fmt: skip
    stream = play(jobs, policy, dc)
    assert {
        e.job_id: (e.outcome, e.reason)
        for e in stream
        if isinstance(e, events.JobEnded)
    } == {
        "a": ("rejected", "5 cores asked, no host has more than 4"),
        "b": (
            "rejected",
            "2 cores and 1001 MiB asked, no host has more than 1000 MiB",
        ),
        "c": (
            "rejected",
            "3 × 3 cores asked, the empty hosts hold 2 of them",
        ),
        "d": ("rejected", "5 cores asked, no host has more than 4"),
        "e": (
            "rejected",
            "3 × 2 cores and 600 MiB asked, the empty hosts hold 2 of them",
        ),
    }


def test_leases_ask_for_no_bandwidth_where_there_is_a_network() -> None:
    job = JobRequest("a", 0.0, 1, 1000, 5.0)
    stream = play([job], dc=tree([2], 10**9, 4))
    assert [e.reason for e in stream if isinstance(e, events.JobEnded)] == [
        "it asks for bandwidth, and leases have cores and memory alone"
    ]


def test_the_default_of_haizea_preempts_nobody_and_keeps_its_queue_in_order() -> (
    None
):
    dc = flat(1, 4)
    jobs = [
        be("a", 0, 20, 3),
        be("b", 1, 10, 4),
        be("c", 2, 3, 1),
        im("i", 3, 5, 2),
    ]
    stream = play(
        jobs,
        Mbfcbs(Settings(preemption=False, earliest=False, depth=1)),
        dc,
    )
    assert fate(stream) == {
        "i": ("rejected", 3.0), "a": ("finished", 20.0), "b": ("finished", 30.0),
        "c": ("finished", 33.0),
    }  # fmt: skip


def test_the_default_of_haizea_starts_all_that_fit_up_to_the_first_that_does_not() -> (
    None
):
    jobs = [
        be("a", 0, 20, 4),
        be("b", 1, 10, 2),
        be("c", 2, 10, 1),
        be("d", 3, 10, 4),
        be("e", 4, 10, 1),
    ]
    stream = play(
        jobs,
        Mbfcbs(Settings(preemption=False, earliest=False, depth=1)),
        flat(1, 4),
    )
    # At 20 s both b and c start; e fits beside them, and waits behind d.
    assert fate(stream) == {
        "a": ("finished", 20.0), "b": ("finished", 30.0), "c": ("finished", 30.0),
        "d": ("finished", 40.0), "e": ("finished", 50.0),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["mbfcbs", "priority"])
def test_what_waits_takes_room_before_a_lease_that_arrives_at_that_instant(
    name: str,
) -> None:
    policy = build_policy(name, embedder("oktopus"), {})
    if name == "mbfcbs":
        policy = Mbfcbs(Settings(earliest=False, slot_s=10.0))
    jobs = [be("a", 0, 20, 4), be("w", 1, 10, 4), be("n", 20, 10, 4)]
    stream = play(jobs, policy, flat(1, 4))
    assert fate(stream)["w"] == ("finished", 30.0)
    assert fate(stream)["n"] == ("finished", 40.0)


def test_a_rejected_lease_moves_no_plan_of_v_mct() -> None:
    # Host 0: p is planned for 30 s, and q behind it, though two cores are free
    # before. A plan moves when a lease that ran on its host has left: one that
    # is rejected at 23 s never ran.
    quiet = [
        be("a", 0, 30, 2),
        be("b", 0, 20, 2),
        be("x", 0, 24, 4),
        be("y", 0.5, 76, 4),
        be("p", 1, 10, 4),
        be("q", 22, 5, 2),
    ]
    disturbed = [*quiet, im("i", 23, 50, 4)]
    dc = flat(2, 4)
    without = fate(play(quiet, baseline("v-mct"), dc))
    beside = fate(play(disturbed, baseline("v-mct"), dc))
    assert beside.pop("i") == ("rejected", 23.0)
    assert beside == without
    assert without["q"] == ("finished", 45.0)


def test_v_mct_rejects_what_it_cannot_start_in_time_and_reserves_nothing_ahead() -> (
    None
):
    jobs = [
        ar("r", 0, 20, 10, 4),
        be("b", 1, 30, 4),
        be("c", 1, 30, 4),
        im("i", 2, 5, 1),
    ]
    stream = play(jobs, baseline("v-mct"))
    assert fate(stream) == {
        "r": ("rejected", 20.0), "b": ("finished", 31.0), "c": ("finished", 31.0),
        "i": ("rejected", 2.0),
    }  # fmt: skip
    assert [host_of(stream, name) for name in "bc"] == [0, 1]


def test_v_mct_gives_a_lease_to_the_host_that_completes_it_first() -> None:
    jobs = [
        be("a", 0, 30, 4),
        be("b", 0, 20, 4),
        be("c", 1, 10, 4),
        be("d", 2, 10, 4),
    ]
    stream = play(jobs, baseline("v-mct"))
    assert fate(stream)["c"] == ("finished", 30.0)
    assert fate(stream)["d"] == ("finished", 40.0)


@pytest.mark.parametrize("name", ["mbfcbs", "v-mct"])
def test_a_plan_starts_once_memory_is_free_too(name: str) -> None:
    # Server 0 keeps three cores free throughout, server 1 none before 100 s.
    jobs = [
        be("b", 0, 10, 1, memory_mib=900),
        be("c", 0, 100, 4),
        be("d", 1, 20, 1, memory_mib=600),
        be("e", 2, 5, 1, memory_mib=500),
    ]
    stream = play(jobs, baseline(name), flat(2, 4, memory_mib=1000))
    assert fate(stream) == {
        "b": ("finished", 10.0), "d": ("finished", 30.0), "e": ("finished", 35.0),
        "c": ("finished", 100.0),
    }  # fmt: skip
    assert [host_of(stream, job) for job in "bcde"] == [0, 1, 0, 0]


@pytest.mark.parametrize("name", ["mbfcbs", "v-mct"])
def test_several_vms_start_once_memory_is_free_on_their_hosts(
    name: str,
) -> None:
    jobs = [
        be("b", 0, 10, 1, memory_mib=900),
        be("c", 0, 20, 1, memory_mib=300),
        be("d", 0, 100, 4, memory_mib=100),
        be("e", 1, 5, 1, n_vms=3, memory_mib=400),
    ]
    stream = play(jobs, baseline(name), flat(3, 4, memory_mib=1000))
    # Two beside nobody on server 0 from 10 s on, one beside c.
    assert fate(stream)["e"] == ("finished", 15.0)
    (placed,) = [
        e.vms_on
        for e in stream
        if isinstance(e, events.JobReserved) and e.job_id == "e"
    ]
    assert placed == [[0, 2], [1, 1]]


def test_priority_preempts_the_lower_as_often_as_it_takes() -> None:
    dc = flat(1, 4)
    jobs = [
        be("b", 0, 20, 4),
        im("i", 5, 5, 1),
        im("j", 12, 5, 1),
        ar("r", 0, 14, 3, 4),
    ]
    stream = play(jobs, baseline("priority"), dc)
    kinds = [
        (e.job_id, e.t)
        for e in stream
        if isinstance(e, events.JobPreempted)
    ]
    assert kinds == [("b", 5.0), ("b", 12.0)]
    assert fate(stream) == {
        "i": ("finished", 10.0), "j": ("killed", 14.0), "r": ("finished", 17.0),
        "b": ("finished", 30.0),
    }  # fmt: skip


def test_priority_by_work_puts_the_smaller_before_its_type() -> None:
    dc = flat(1, 4)
    jobs = [im("long", 0, 20, 4), im("short", 5, 2, 4), be("b", 6, 1, 4)]
    by_type = fate(play(jobs, baseline("priority"), dc))
    assert by_type["long"] == ("finished", 20.0)
    assert by_type["short"][0] == "rejected"
    by_work = {"criterion": "work"}
    policy = build_policy("priority", embedder("oktopus"), by_work)
    found = fate(play(jobs, policy, dc))
    assert found["long"] == ("killed", 5.0)
    assert found["short"] == ("finished", 7.0)
    assert found["b"] == ("finished", 8.0)


def test_the_priority_vector_is_the_eigenvector_of_the_comparison_matrix() -> (
    None
):
    priorities: np.ndarray[tuple[int], np.dtype[np.float64]] = np.array(
        [3.0, 1.0, 2.0, 2.0, 9.0]
    )
    matrix = priorities[:, None] / priorities[None, :]
    assert np.allclose(matrix * matrix.T, 1.0)  # pg_if = 1 / pg_fi
    values, vectors = np.linalg.eig(matrix)
    principal = np.real(vectors[:, np.argmax(np.real(values))])
    assert np.allclose(
        priority_vector(priorities.tolist()), principal / principal.sum()
    )
