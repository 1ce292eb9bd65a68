"""Claim ``moved-at-reservation-end``: proved of a run, and each lie about it found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.audit import audit
from testbed.cli import main
from tests.support.undrawn import nothing_drawn
from tests.unit.audit.test_audit import failed
from tests.unit.record.written import Record, mutate

FILE = """
name: moved
seed: 3
topology: {kind: tree, fanout: [4, 2], links: [40 Mbit/s, 20 Mbit/s], slots_per_server: 2}
policies: [{name: dcloud, gamma: 0 %, best_effort_servers: 25 %}]
workload:
  kind: batch
  jobs: 6
  vms: {mean: 2, sigma: 0}
  bandwidth: {mean: 3 Mbit/s, sigma: 0 Mbit/s}
  duration: {mean: 60 s, sigma: 0 s}
  deadline_ratio: {mean: 3, sigma: 0}
  profiling_error: {low: 0.05, high: 0.2}
"""
CLAIM = "moved-at-reservation-end"


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("moved")
    file = base / "moved.yaml"
    file.write_text(FILE)
    with nothing_drawn():
        code = main.run(["simulate", str(file), "--out", str(base)])
    assert code == 0
    (run,) = (path for path in base.iterdir() if path.is_dir())
    return run


def first(records: list[Record], event: str) -> Record:
    return next(r for r in records if r["event"] == event)


@pytest.mark.slow
def test_a_run_that_moves_jobs_passes(moved: Path) -> None:
    checked = audit(moved)
    assert failed(checked) == {}
    (claim,) = (r for r in checked.results if r.name == CLAIM)
    assert claim.status == "passed"
    assert "job_migrated" in (moved / "events.jsonl").read_text()


def _later(records: list[Record]) -> None:
    record = first(records, "job_migrated")
    records.remove(record)
    records.insert(-2, {**record, "t": records[-2]["t"]})


def _to_a_reserved_server(records: list[Record]) -> None:
    booked = first(records, "job_reserved")
    first(records, "job_migrated")["vms_on"] = booked["vms_on"]


def _with_bandwidth(records: list[Record]) -> None:
    first(records, "job_migrated")["links"] = [[0, 1]]


def _twice(records: list[Record]) -> None:
    record = first(records, "job_migrated")
    records.insert(records.index(record) + 1, dict(record))


def _preempted(records: list[Record]) -> None:
    record = first(records, "job_migrated")
    out: Any = {
        "t": record["t"],
        "event": "job_preempted",
        "job_id": record["job_id"],
        "reason": "so",
    }
    records.insert(records.index(record), out)


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (_later, "its reservation ends at"),
        (_to_a_reserved_server, "reserved by"),
        (_with_bandwidth, "keeps bandwidth"),
        (_twice, "has no reservation that ends"),
        (_preempted, "job_preempted of"),
    ],
)
def test_each_lie_is_found(
    moved: Path,
    tmp_path: Path,
    lie: Callable[[list[Record]], None],
    says: str,
) -> None:
    folder = tmp_path / "lie"
    shutil.copytree(moved, folder)
    mutate(folder, lie)
    messages = failed(audit(folder)).get(CLAIM, [])
    assert any(says in message for message in messages), messages
