"""What two VMs on a node do to each other, from a run of ``examples/cmbf-interference.yaml``.

Three jobs: ``alone``, the same once more as ``front``, and behind it ``rear``, which could use the
whole processor. What ``rear`` got follows from when it ended: after ``front`` has gone it has the
processor to itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reproductions.quantities import Measure
from testbed import events
from testbed.results.metrics import JobRow
from testbed.results.reading import Run

LOSS = Measure("loss", "what the process in front loses", "%", 100.0, 2)
SHARE = Measure("share", "what one behind it gets of the CPU", "%", 100.0, 1)
IDLE_USED = Measure("idle_used", "share of the idle cycles that one behind makes use of", "%",
                    100.0, 1)  # fmt: skip

LEAST_IDLE = 0.01


def measures(run: Run) -> dict[str, float]:
    """Loss in front, and the CPU that the background VM made use of while it was behind."""
    rows = {row.job_id: row for row in run.rows}
    alone, front, rear = rows["alone"], rows["front"], rows["rear"]
    if not alone.measured_s or front.measured_s is None:
        return dict.fromkeys((LOSS.name, SHARE.name, IDLE_USED.name), math.nan)
    # What its bursts took of the time that it was there: its waits are never to the point.
    idle = 1.0 - _use(run) * front.duration_s / front.measured_s
    share = share_behind(front, rear)
    return {
        LOSS.name: front.measured_s / alone.measured_s - 1.0,
        SHARE.name: share,
        # Of next to nothing no share can be told.
        IDLE_USED.name: share / idle if idle > LEAST_IDLE else math.nan,
    }


def share_behind(front: JobRow, rear: JobRow) -> float:
    """What ``rear`` has done while ``front`` was there, over the time that this took."""
    if front.end_s is None or rear.end_s is None or rear.start_s is None:
        return math.nan
    behind_s = front.end_s - rear.start_s
    done_s = rear.duration_s - (rear.end_s - front.end_s)
    return done_s / behind_s


def _use(run: Run) -> float:
    """The CPU use that the jobs in front are said to have when alone."""
    for event in run.file.events:
        if isinstance(event, events.JobSubmitted):
            job: Mapping[str, Any] = event.to_json()["job"]
            if job["id"] == "front":
                return float(job["cpu_use"])
    return math.nan
