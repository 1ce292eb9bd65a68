from __future__ import annotations

from dataclasses import replace

from testbed import events
from testbed.record.comparison import decisions, first_difference


def started(job_id: str, at_s: float, server: int = 0) -> list[events.Event]:
    return [
        events.JobReserved(
            at_s, job_id, at_s, None, 5, 1.0, 4, [[server, 2]], [[0, 5]]
        ),
        events.JobStarted(at_s, job_id, 5),
    ]


HISTORY: list[events.Event] = [
    *started("a", 1.0),
    events.JobProgress(1.5, "a", 10, 0.5),
    *started("b", 2.0, 1),
    events.JobEnded(3.0, "a", "finished", "", 2.0, {"rate": 1}),
    events.JobEnded(4.0, "c", "rejected", "no room", None, {}),
    events.JobRescaled(5.0, "b", 7, []),
    events.JobEnded(
        6.0, "b", "killed", "its reservation ended before it did", None, {}
    ),
]


def test_times_ends_and_progress_are_no_decisions() -> None:
    later = [replace(event, t=event.t + 0.3) for event in HISTORY]
    named = [(d.job_id, d.name) for d in decisions(HISTORY)]
    assert named == [
        ("a", "reserved"), ("a", "started"), ("b", "reserved"), ("b", "started"),
        ("c", "rejected"), ("b", "rescaled"), ("b", "killed"),
    ]  # fmt: skip
    assert first_difference(decisions(HISTORY), decisions(later)) is None


def test_another_place_is_the_first_difference() -> None:
    other = [*started("a", 1.0), *started("b", 2.0, 3), *HISTORY[5:]]
    found = first_difference(decisions(HISTORY), decisions(other))
    assert found is not None
    assert found.place == 3
    assert "vms_on ((1, 2),)" in str(found.first)
    assert "vms_on ((3, 2),)" in str(found.second)


def test_a_run_that_stops_earlier_differs_where_it_stops() -> None:
    found = first_difference(decisions(HISTORY), decisions(HISTORY[:-1]))
    assert found is not None
    assert (found.place, found.second) == (7, None)


def test_a_kill_by_the_backend_is_no_decision() -> None:
    broken = events.JobEnded(
        6.0, "b", "killed", "VM 1: its port is gone", None, {"vms": []}
    )
    assert decisions([broken]) == []
