"""Figures of a guest step, one JSON line each on standard output: of run folders, or of `measure`.

``guest_figures.py run STEP FOLDER`` reads every run below FOLDER, ``guest_figures.py measure STEP``
the JSON of ``testbed measure --json`` on standard input, ``guest_figures.py value STEP NAME UNIT
NUMBER`` writes one. ``guest_figures.py column FOLDER JOB NAME`` prints a job's value of jobs.csv.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

Figure = tuple[str, str, float]


def jobs(folder: str) -> Iterator[dict[str, str]]:
    for table in sorted(Path(folder).rglob("jobs.csv")):
        with table.open(newline="") as file:
            yield from csv.DictReader(file)


def of_runs(folder: str) -> Iterator[Figure]:
    for job in jobs(folder):
        if job["ratio"]:
            yield (
                f"{job['job_id']}: measured / estimated",
                "",
                float(job["ratio"]),
            )


def of_measure(text: str) -> Iterator[Figure]:
    for pair in json.loads(text)["pairs"]:
        between = f"{pair['sender']} to {pair['receiver']}"
        yield f"{between}: measured / reserved", "", float(pair["ratio"])
        if pair["rtt_ms"] is not None:
            yield f"{between}: round trip", "ms", float(pair["rtt_ms"])


def column(folder: str, job_id: str, name: str) -> str:
    (found,) = (
        job[name] for job in jobs(folder) if job["job_id"] == job_id
    )
    return found


def main(arguments: list[str]) -> int:
    verb, step, *rest = arguments
    if verb == "column":
        print(column(step, *rest))
        return 0
    if verb == "run":
        figures = [*of_runs(*rest)]
    elif verb == "measure":
        figures = [*of_measure(sys.stdin.read())]
    else:
        figures = [(rest[0], rest[1], float(rest[2]))]
    for name, unit, value in figures:
        print(
            json.dumps(
                {"step": step, "figure": name, "unit": unit, "value": value}
            )
        )
    return 0 if figures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
