"""The most that a plan asks of the switches at one instant: from the events of a dry run. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from testbed import events


def crossings_bps(job_rate_bps: int, n_vms: int, links: Iterable[tuple[int, int]]) -> int:
    """Bit/s over all ports that a job's hose can load: every VM's own two, and its links."""
    return 2 * n_vms * job_rate_bps + sum(bps for _, bps in links)


def peak(history: Iterable[events.Event]) -> tuple[events.JobReserved, ...]:
    """The jobs that run together when the switches are asked for most, by id."""
    booked: dict[str, events.JobReserved] = {}
    running: dict[str, events.JobReserved] = {}
    most = 0
    at_peak: tuple[events.JobReserved, ...] = ()
    for event in history:
        match event:
            case events.JobReserved():
                booked[event.job_id] = event
                continue
            case events.JobMigrated(job_id=job_id):
                booked[job_id] = replace(
                    booked[job_id], root=event.root, vms_on=event.vms_on, links=event.links
                )
                running[job_id] = booked[job_id]
            case events.JobRescaled(job_id=job_id):
                booked[job_id] = replace(booked[job_id], rate_bps=event.rate_bps, links=event.links)
                running[job_id] = booked[job_id]
            case events.JobStarted(job_id=job_id) | events.JobResumed(job_id=job_id):
                running[job_id] = booked[job_id]
            case events.JobEnded(job_id=job_id) | events.JobPreempted(job_id=job_id):
                running.pop(job_id, None)
                continue
            case _:
                continue
        total = sum(map(reserved_crossings_bps, running.values()))
        if total > most:
            most, at_peak = total, tuple(running[job_id] for job_id in sorted(running))
    return at_peak


def reserved_crossings_bps(reserved: events.JobReserved) -> int:
    """:func:`crossings_bps` of a reservation."""
    n_vms = sum(count for _, count in reserved.vms_on)
    links = [(link, bps) for link, bps in reserved.links]
    return crossings_bps(reserved.rate_bps, n_vms, links)
