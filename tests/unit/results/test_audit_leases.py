"""The audit's checks of leases: memory, starts on time, one preemption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed import events
from testbed.results.audit import audit
from tests.unit.results import sample
from tests.unit.results.written import write_run

TOPOLOGY: dict[str, Any] = {
    "kind": "flat",
    "names": ["server 0", "server 1", "cluster 0"],
    "level": [0, 0, 1],
    "slots": [4, 4],
    "memory_mib": [1000, 1000],
    "links": {"lower": [], "upper": [], "capacity_bps": []},
    "trees": [{"root": 2, "parent": [2, 2, -1], "uplink": [-1, -1, -1]}],
}


def lease(job_id: str, submit_s: float = 0.0, **given: Any) -> dict[str, Any]:
    asked = {"cores": 1, "memory_mib": 0, "lease": "best-effort", "wanted_s": None, **given}
    n_vms = asked.pop("n_vms", 1)
    return {
        **sample.request(
            job_id, submit_s, n_vms=n_vms, bandwidth_bps=0, kind="compute", duration_s=20.0
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


def run(*inside: events.Event, policy: str = "mbfcbs") -> list[events.Event]:
    end_s = max(event.t for event in inside)
    return [
        events.RunStarted(0.0, "leases", policy, "sim", 1, TOPOLOGY),
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
    assert found["slots"][0] == ("at 5 s 6 VM slots run on server 0, which has 4 slots (jobs a, b)")
