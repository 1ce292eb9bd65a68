from __future__ import annotations

from testbed import events
from testbed.plan.peak_load import namespaces_per_server


def run(
    job_id: str, *vms_on: list[int], tier: str = "foreground"
) -> list[events.Event]:
    where = [list(pair) for pair in vms_on]
    return [
        events.JobReserved(
            0.0, job_id, 0.0, None, 0, None, 9, where, [], tier
        ),
        events.JobStarted(0.0, job_id, 0, tier),
    ]


def end(job_id: str) -> events.Event:
    return events.JobEnded(1.0, job_id, "finished", "", 1.0, {})


def test_without_preemption_a_server_needs_its_slots() -> None:
    history = [*run("a", [0, 2]), end("a"), *run("b", [0, 2])]
    assert namespaces_per_server([history], [2, 2]) == (2, 2)


def test_a_preempted_vm_keeps_its_namespace_beside_the_next_one() -> None:
    history = [
        *run("a", [0, 1]),
        events.JobPreempted(0.5, "a", ""),
        *run("b", [0, 1]),
    ]
    # Two at a time there, and one a slot more wherever the live run may differ.
    assert namespaces_per_server([history], [1, 1]) == (3, 2)


def test_a_migrated_vm_is_in_one_place() -> None:
    away = events.JobMigrated(0.5, "a", "", 9, [[1, 1]], [])
    history = [*run("a", [0, 1]), away, *run("b", [0, 1])]
    assert namespaces_per_server([history], [1, 1]) == (1, 1)


def test_both_tiers_count_and_the_greatest_of_all_policies_wins() -> None:
    both = [*run("a", [0, 1]), *run("b", [0, 1], tier="background")]
    assert namespaces_per_server([both, run("a", [1, 1])], [1, 1]) == (3, 2)
