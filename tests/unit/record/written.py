"""Puts a sample run on the disk, whole, as a finished command would leave it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from testbed import events
from testbed.events import Event, JobSubmitted, RunStarted
from testbed.expectations import ApplicationExpectation, Band, Expectation
from testbed.failures import FailureKind
from testbed.record.conclusion import Results, conclude
from testbed.record.folder import RunFolder

NOW = datetime(2026, 11, 20, 14, 15, 0, tzinfo=UTC)
FIG10 = Expectation(
    applications={
        "sort": ApplicationExpectation(Band(0.98, 1.01)),
        "index": ApplicationExpectation(
            Band(None, 1.01), scaled_down_below=0.97
        ),
    },
    fidelity="ok",
)

Record = dict[str, Any]
Mutation = Callable[[list[Record]], None]


def write_run(
    base: Path | RunFolder,
    stream: Sequence[Event],
    expect: Expectation | None = None,
    name: str = "bandwidth-scaling",
) -> tuple[RunFolder, Results]:
    """A run below ``base``; or, below a run's folder, one policy of it, called ``name``."""
    if isinstance(base, RunFolder):
        folder = base.policy(name)
    else:
        folder = RunFolder.create(base, name, 7, now=NOW)
    with folder.open_events() as log:
        for event in stream:
            log(event)
    write_resolved(folder, stream, expect)
    return folder, conclude(folder, expect, wall_s=51.3)


def write_resolved(
    folder: RunFolder,
    stream: Sequence[Event],
    expect: Expectation | None = None,
) -> None:
    """The resolved experiment of a run, as far as the run itself tells it."""
    started = next(
        event for event in stream if isinstance(event, RunStarted)
    )
    jobs = [
        dict(event.job)
        for event in stream
        if isinstance(event, JobSubmitted)
    ]
    record = {
        "name": started.run,
        "seed": started.seed,
        "topology": declared(started.topology),
        "jobs": jobs,
        "expect": asdict(expect or Expectation()),
        "overrides": {},
        "policy": started.policy,
    }
    kinds = tuple(events.EVENTS[kind] for kind in get_args(FailureKind))
    if failed := [event for event in stream if isinstance(event, kinds)]:
        record["failures"] = [
            {
                "at_s": event.t,
                "kind": event.name,
                "part": [*vars(event).values(), 0][1],
            }
            for event in failed
        ]
    if started.policy == "scripted":
        record["claims"] = ["every-job-starts"]
    folder.write_json("spec.resolved.json", record)


def declared(topology: Record) -> Record:
    """A run's data centre as an experiment declares one of named parts."""
    names, slots, links = (
        topology["names"],
        topology["slots"],
        topology["links"],
    )
    if not links["lower"]:
        memory = (
            {"memory_mib": topology["memory_mib"]}
            if "memory_mib" in topology
            else {}
        )
        return {"kind": "flat", "slots": slots, **memory}
    ends = zip(
        links["lower"], links["upper"], links["capacity_bps"], strict=True
    )
    return {
        "kind": "custom",
        "servers": [
            {"name": names[i], "slots": n} for i, n in enumerate(slots)
        ],
        "switches": names[len(slots) :],
        "roots": [names[tree["root"]] for tree in topology["trees"]],
        "links": [
            {
                "lower": names[lower],
                "upper": names[upper],
                "capacity_bps": bps,
            }
            for lower, upper, bps in ends
        ],
    }


def mutate(path: Path, change: Mutation) -> None:
    """Rewrite ``events.jsonl`` with its records changed in place."""
    file = path / "events.jsonl"
    records = [
        json.loads(line)
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    change(records)
    file.write_text(
        "".join(json.dumps(record) + "\n" for record in records),
        encoding="utf-8",
    )


def one(
    records: list[Record],
    event: str,
    job_id: str | None = None,
    nth: int = 0,
) -> Record:
    """The nth record of an event (of a job)."""
    return [
        r
        for r in records
        if r["event"] == event and (job_id is None or job_of(r) == job_id)
    ][nth]


def job_of(record: Record) -> str | None:
    return record["job"]["id"] if "job" in record else record.get("job_id")
