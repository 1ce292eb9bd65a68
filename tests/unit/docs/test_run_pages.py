"""The documentation lists what there is, all of it, and nothing else."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from testbed.audit import CHECKS
from testbed.events import EVENTS
from testbed.play import backend_trace
from testbed.record import (
    bandwidth_sweep,
    folder,
    link_rates,
    parquet_tables,
)
from testbed.record.metrics import JOB_COLUMNS, tally
from tests.unit.record import sample
from tests.unit.record.written import write_run

PAGE = Path(__file__).parents[3] / "docs" / "runs-and-fidelity.md"


def rows(heading: str | None) -> list[list[str]]:
    """The cells of the first table below a heading (of the page, for None)."""
    text = PAGE.read_text(encoding="utf-8")
    if heading is not None:
        text = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert table is not None
    lines = table.group(0).splitlines()[2:]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
    ]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_file_is_described(tmp_path: Path) -> None:
    described = {
        name.rstrip("/") for row in rows(None) for name in named(row[0])
    }
    constants = {
        folder.SPEC, folder.RESOLVED, folder.PROVENANCE, folder.EVENTS, folder.JOBS, folder.LINKS,
        folder.SUMMARY, folder.REPORT, "plan", folder.LOGS, folder.PLUGINS,
        bandwidth_sweep.PROFILE, bandwidth_sweep.PROFILE_RECORD,
        backend_trace.TRACE, *map(parquet_tables.parquet_name, ("jobs", "links", "events")),
    }  # fmt: skip
    assert described == constants


def test_every_event_and_its_fields_are_described() -> None:
    described = {
        named(row[0])[0]: named(row[1]) for row in rows("events.jsonl")
    }
    existing = {
        name: [f.name for f in fields(kind) if f.name != "t"]
        for name, kind in EVENTS.items()
    }
    assert described == existing


def test_every_column_is_described_in_order() -> None:
    assert [named(row[0])[0] for row in rows("jobs.csv")] == list(
        JOB_COLUMNS
    )
    text = PAGE.read_text(encoding="utf-8")
    assert f"`{', '.join(link_rates.LINK_COLUMNS)}`" in text


def test_every_key_of_the_summary_is_described(tmp_path: Path) -> None:
    described = [
        name for row in rows("summary.json") for name in named(row[0])
    ]
    _, results = write_run(tmp_path, sample.flat())
    assert sorted(described) == sorted(results.to_json())
    assert set(tally([]).summary().to_json()) < set(described)


def test_every_check_is_described_in_order() -> None:
    described = [named(row[0])[0] for row in rows("Audit")]
    assert described == [check.name for check in CHECKS]
