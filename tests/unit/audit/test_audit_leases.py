"""The audit's checks of leases: memory, starts on time, one preemption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed import events
from testbed.audit import audit
from tests.unit.record import sample
from tests.unit.record.written import write_run

TOPOLOGY: dict[str, Any] = {
    "kind": "flat",
    "names": ["server 0", "server 1", "cluster 0"],
    "level": [0, 0, 1],
    "slots": [4, 4],
    "memory_mib": [1000, 1000],
    "links": {"lower": [], "upper": [], "capacity_bps": []},
    "trees": [{"root": 2, "parent": [2, 2, -1], "uplink": [-1, -1, -1]}],
}


def lease(
    job_id: str, submit_s: float = 0.0, **given: Any
) -> dict[str, Any]:
    asked = {
        "cores": 1,
        "memory_mib": 0,
        "lease": "best-effort",
        "wanted_s": None,
        **given,
    }
    n_vms = asked.pop("n_vms", 1)
    return {
        **sample.request(
            job_id,
            submit_s,
            n_vms=n_vms,
            bandwidth_bps=0,
            kind="compute",
            duration_s=20.0,
        ),
        **asked,
    }


def failed(base: Path, stream: list[events.Event]) -> dict[str, list[str]]:
    folder, _ = write_run(base, stream)
    return {
        r.name: [finding.message for finding in r.findings]
        for r in audit(folder.path).results
        if r.status == "failed"
    }


def run(
    *inside: events.Event, policy: str = "mbfcbs", backend: str = "sim"
) -> list[events.Event]:
    end_s = max(event.t for event in inside)
    return [
        events.RunStarted(0.0, "leases", policy, backend, 1, TOPOLOGY),
        *inside,
        events.RunEnded(end_s, "completed", ""),
    ]


def side_by_side(**given: Any) -> list[events.Event]:
    return run(
        events.JobSubmitted(0.0, lease("a", **given)),
        events.JobReserved(0.0, "a", 0.0, 20.0, 0, 20.0, 2, [[0, 1]], []),
        events.JobStarted(0.0, "a", 0),
        events.JobSubmitted(5.0, lease("b", 5.0, **given)),
        events.JobReserved(5.0, "b", 5.0, 25.0, 0, 20.0, 2, [[0, 1]], []),
        events.JobStarted(5.0, "b", 0),
        events.JobEnded(20.0, "a", "finished", "", 20.0, {}),
        events.JobEnded(25.0, "b", "finished", "", 20.0, {}),
    )


def test_leases_that_fit_pass(tmp_path: Path) -> None:
    assert failed(tmp_path, side_by_side(cores=2, memory_mib=500)) == {}


def test_memory_beyond_capacity_is_found(tmp_path: Path) -> None:
    found = failed(tmp_path, side_by_side(memory_mib=501))
    assert list(found) == ["memory"]
    assert found["memory"] == [
        "at 5 s 1002 MiB run on server 0, which has 1000 MiB (jobs a, b)",
        "at 5 s 1002 MiB are booked on server 0, which has 1000 MiB (jobs a, b)",
    ]


def test_cores_beyond_capacity_are_found(tmp_path: Path) -> None:
    found = failed(tmp_path, side_by_side(cores=3))
    assert found["slots"][0] == (
        "at 5 s 6 VM slots run on server 0, which has 4 slots (jobs a, b)"
    )


def advance(
    start_s: float,
    *,
    accepted: bool = True,
    backend: str = "sim",
    **end: Any,
) -> list[events.Event]:
    """An advance lease that wants to start at 10 s."""
    over = {"outcome": "finished", "measured_s": 20.0, "reason": "", **end}
    at_s = over.pop("t", start_s + 20.0)
    ended = events.JobEnded(
        at_s, "a", over["outcome"], over["reason"], over["measured_s"], {}
    )
    reserved = events.JobReserved(
        0.0, "a", start_s, start_s + 20.0, 0, 20.0, 2, [[0, 1]], []
    )
    started = events.JobStarted(start_s, "a", 0)
    ran = over["measured_s"] is not None
    return run(
        events.JobSubmitted(
            0.0, lease("a", lease="advance", wanted_s=10.0)
        ),
        *([reserved] if accepted else []),
        *([started] if ran else []),
        ended,
        backend=backend,
    )


def test_an_accepted_advance_lease_starts_on_time(tmp_path: Path) -> None:
    assert failed(tmp_path, advance(10.0)) == {}


def test_a_late_start_is_found(tmp_path: Path) -> None:
    found = failed(tmp_path, advance(12.0))
    assert found == {
        "lease-starts": [
            "advance lease a starts at 12 s, was to start at 10 s"
        ]
    }


def test_a_live_start_takes_a_moment_and_is_never_early(
    tmp_path: Path,
) -> None:
    # The run is 31 s long: a second and one per cent of it.
    assert failed(tmp_path, advance(11.3, backend="live")) == {}
    for name, start_s in (("late", 11.4), ("early", 9.9)):
        stream = advance(start_s, backend="live")
        # What `arrivals` says of a start before the reservation is its own affair.
        (found,) = failed(tmp_path / name, stream)["lease-starts"]
        assert (
            found
            == f"advance lease a starts at {start_s:g} s, was to start at 10 s"
        )


def test_a_broken_guarantee_is_found(tmp_path: Path) -> None:
    never = {"outcome": "killed", "measured_s": None, "reason": "no room"}
    found = failed(tmp_path, advance(10.0, t=15.0, **never))
    assert found == {
        "lease-starts": [
            "advance lease a was killed and never started at 10 s"
        ]
    }
    changed = {**never, "outcome": "rejected", "t": 5.0}
    found = failed(tmp_path, advance(10.0, **changed))
    assert found == {
        "lease-starts": [
            "advance lease a was rejected after it had been accepted"
        ]
    }


def test_a_rejection_on_arrival_breaks_no_guarantee(tmp_path: Path) -> None:
    never = {
        "outcome": "rejected",
        "measured_s": None,
        "reason": "no room",
        "t": 0.0,
    }
    assert failed(tmp_path, advance(10.0, accepted=False, **never)) == {}


def preempted(times: int, **given: Any) -> list[events.Event]:
    inside: list[events.Event] = [
        events.JobSubmitted(0.0, lease("a", **given)),
        events.JobReserved(0.0, "a", 0.0, 20.0, 0, 20.0, 2, [[0, 1]], []),
        events.JobStarted(0.0, "a", 0),
    ]
    for number in range(times):
        at_s = 2.0 * number + 1.0
        inside += [
            events.JobPreempted(at_s, "a", "b"),
            events.JobResumed(at_s + 1.0, "a", "foreground", 0.0, 30.0),
        ]
    return run(
        *inside,
        events.JobEnded(20.0 + times, "a", "finished", "", 20.0, {}),
    )


def test_one_preemption_of_a_best_effort_lease_is_allowed(
    tmp_path: Path,
) -> None:
    assert failed(tmp_path, preempted(1)) == {}


def test_a_second_one_is_found(tmp_path: Path) -> None:
    found = failed(tmp_path, preempted(2))
    assert found == {
        "best-effort-preempted-once": [
            "a is preempted a second time, at 3 s"
        ]
    }


def test_a_preempted_immediate_lease_is_found(tmp_path: Path) -> None:
    found = failed(tmp_path, preempted(1, lease="immediate"))
    assert found == {
        "best-effort-preempted-once": [
            "a is preempted though it is immediate, at 1 s"
        ]
    }


def test_a_shortened_booking_ends_where_it_was_shortened_to(
    tmp_path: Path,
) -> None:
    def shortened(until_s: float) -> list[events.Event]:
        return run(
            events.JobSubmitted(0.0, lease("a", cores=4)),
            events.JobReserved(
                0.0, "a", 0.0, 20.0, 0, 20.0, 2, [[0, 1]], []
            ),
            events.JobStarted(0.0, "a", 0),
            events.JobSubmitted(
                1.0, lease("b", 1.0, cores=4, lease="advance", wanted_s=8.0)
            ),
            events.JobShortened(1.0, "a", until_s, "b"),
            events.JobReserved(
                1.0, "b", 8.0, 28.0, 0, 20.0, 2, [[0, 1]], []
            ),
            events.JobPreempted(8.0, "a", "b"),
            events.JobMigrated(
                8.0, "a", "on", 2, [[1, 1]], [], "foreground", 0.0, 20.0
            ),
            events.JobStarted(8.0, "b", 0),
            events.JobEnded(20.0, "a", "finished", "", 20.0, {}),
            events.JobEnded(28.0, "b", "finished", "", 20.0, {}),
        )

    assert failed(tmp_path, shortened(8.0)) == {}
    assert failed(tmp_path, shortened(6.0)) == {
        "overstays": ["a runs until 8 s, is booked until 6 s"]
    }
