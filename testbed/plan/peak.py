"""The most that a plan asks of the switches at one instant: from the events of a dry run. Pure."""

from __future__ import annotations

from collections.abc import Iterable

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
        if isinstance(event, events.JobReserved):
            booked[event.job_id] = event
        elif isinstance(event, events.JobStarted):
            running[event.job_id] = booked[event.job_id]
            total = sum(map(reserved_crossings_bps, running.values()))
            if total > most:
                most, at_peak = total, tuple(running[job_id] for job_id in sorted(running))
        elif isinstance(event, events.JobEnded):
            running.pop(event.job_id, None)
    return at_peak


def reserved_crossings_bps(reserved: events.JobReserved) -> int:
    """:func:`crossings_bps` of a reservation."""
    n_vms = sum(count for _, count in reserved.vms_on)
    links = [(link, bps) for link, bps in reserved.links]
    return crossings_bps(reserved.rate_bps, n_vms, links)
