"""DCloud's simulations with tenants whose deadline is the duration they state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.request import JobRequest
from reproductions.dcloud.cell import DCloudCell


@dataclass(frozen=True)
class UnextendedCell(DCloudCell):
    """Nobody grants more time than p: d = p for every job."""

    def requests(self) -> tuple[JobRequest, ...]:
        """The same jobs, with their deadlines moved up."""
        return tuple(replace(job, deadline_s=job.duration_s) for job in super().requests())
