"""Latencies that programs have printed: of a service they count, not its
running time.

In the logs of a live run a rank's line is ``latency: 0.0123 s``. Its job then
counts as a second application too, whose running time is the latency of the
slowest rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from testbed.record.metrics import JobRow

LOGS = "logs"
_LINE = re.compile(r"^(?:rank \d+: )?latency: (\d+(?:\.\d+)?) s$", re.M)


def latency_rows(rows: Iterable[JobRow], folder: Path) -> Iterator[JobRow]:
    """For each job that printed a latency, a row with that as its time."""
    for row in rows:
        if row.application is None:
            continue
        latency_s = _printed_s(folder / LOGS, row.job_id)
        if latency_s is not None:
            name = f"{row.application}-latency"
            yield replace(
                row,
                job_id=row.job_id.replace(row.application, name, 1),
                application=name,
                measured_s=latency_s,
            )


def _printed_s(logs: Path, job_id: str) -> float | None:
    latencies_s: list[float] = []
    # Another job's name may be this one's with a dot and more. An agent that
    # was started again has its number behind a colon.
    log_name = re.compile(rf"agent-{re.escape(job_id)}\.\d+(:\d+)?\.log")
    for path in logs.glob("agent-*.log"):
        if not log_name.fullmatch(path.name):
            continue
        text = path.read_text("utf-8", "replace")
        latencies_s += map(float, _LINE.findall(text))
    return max(latencies_s, default=None)
