"""The most that a plan asks of the switches at one instant: from the events of a dry run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from testbed import events


def crossings_bps(job_rate_bps: int, n_vms: int, links: Iterable[tuple[int, int]]) -> int:
    """Bit/s over all ports that a job's hose can load: every VM's own two, and its links."""
    return 2 * n_vms * job_rate_bps + sum(bps for _, bps in links)


def peak_crossings_bps(history: Iterable[events.Event]) -> int:
    """The peak over time of Σ crossings of the jobs running, in experiment bit/s."""
    booked: dict[str, events.JobReserved] = {}
    running: dict[str, int] = {}
    peak = 0
    for event in history:
        if isinstance(event, events.JobReserved):
            booked[event.job_id] = event
        elif isinstance(event, events.JobStarted):
            running[event.job_id] = _crossings(booked[event.job_id])
            peak = max(peak, sum(running.values()))
        elif isinstance(event, events.JobEnded):
            running.pop(event.job_id, None)
    return peak


def _crossings(reserved: events.JobReserved) -> int:
    n_vms = sum(count for _, count in reserved.vms_on)
    return crossings_bps(reserved.rate_bps, n_vms, ((link, bps) for link, bps in reserved.links))


def by_job(history: Iterable[events.Event]) -> Mapping[str, events.JobReserved]:
    """Each job's reservation in a history."""
    return {e.job_id: e for e in history if isinstance(e, events.JobReserved)}
