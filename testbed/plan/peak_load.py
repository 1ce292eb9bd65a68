"""Peaks of a plan, from the events of a dry run: port load, and VM namespaces per server. Pure.

A job with a reservation counts by it. One without may send as much as its application wants and
the links leave: max-min fair shares of that, as hoses (:func:`shares_bps`).

A VM that is preempted keeps its namespace, its connections and its limits while another VM uses
its slot, and a background VM runs beside the foreground's. A server that never sees either needs
one namespace a slot; others get what the dry run needed and one a slot more, as the live run's
order of events may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor

import numpy as np

from testbed import events
from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.reservation.maxmin import max_min_rates
from topologies.datacentre import DataCentre

_ROUNDING = 1e-6
"""A share that is whole but for the arithmetic, in bit/s."""


def peak(history: Iterable[events.Event], datacentre: DataCentre) -> tuple[events.JobReserved, ...]:
    """The jobs that run together when the switches are asked for most, by id.

    Those without a reservation are given as if they had one of their share.
    """
    wanted: dict[str, int] = {}
    booked: dict[str, events.JobReserved] = {}
    running: dict[str, events.JobReserved] = {}
    most = 0
    at_peak: tuple[events.JobReserved, ...] = ()
    for event in history:
        match event:
            case events.JobSubmitted(job=job):
                if job["kind"] != "compute" and job["n_vms"] > 1:
                    wanted[job["id"]] = job["bandwidth_bps"]
                continue
            case events.JobReserved(job_id=job_id):
                booked[job_id] = event
                continue
            case (
                events.JobEnded(job_id=job_id)
                | events.JobPreempted(job_id=job_id)
                | events.JobRequeued(job_id=job_id)
            ):
                running.pop(job_id, None)
                continue
            case events.JobRerooted(job_id=job_id, root=root, links=links):
                booked[job_id] = replace(booked[job_id], root=root, links=links)
                if job_id not in running:
                    continue
            case events.JobMigrated(job_id=job_id, root=root, vms_on=vms_on, links=links):
                booked[job_id] = replace(booked[job_id], root=root, vms_on=vms_on, links=links)
            case events.JobRescaled(job_id=job_id, rate_bps=rate_bps, links=links):
                booked[job_id] = replace(booked[job_id], rate_bps=rate_bps, links=links)
            case events.JobStarted(job_id=job_id) | events.JobResumed(job_id=job_id):
                pass
            case _:
                continue
        running[job_id] = booked[job_id]
        together = with_shares(datacentre, running, wanted)
        total = sum(map(reserved_port_load_bps, together))
        if total > most:
            most, at_peak = total, together
    return at_peak


def rings(histories: Iterable[Iterable[events.Event]]) -> frozenset[str]:
    """Ids of the jobs that play a ring: most of its transfers stay within a server."""
    submitted = (e.job for plan in histories for e in plan if isinstance(e, events.JobSubmitted))
    return frozenset(job["id"] for job in submitted if job["pattern"] == "ring")


def reserved_port_load_bps(reserved: events.JobReserved) -> int:
    """Summed port load of a job's hose, in bit/s: every VM's own two ports, and its links."""
    n_vms = sum(count for _, count in reserved.vms_on)
    return 2 * n_vms * reserved.rate_bps + sum(bps for _, bps in reserved.links)


def with_shares(
    datacentre: DataCentre, running: Mapping[str, events.JobReserved], wanted: Mapping[str, int]
) -> tuple[events.JobReserved, ...]:
    """Running jobs by id; those without a reservation have a share, ``wanted`` at most."""
    free_bps = [int(bps) for bps in datacentre.directed_capacity_bps]
    units: dict[str, Mapping[int, int]] = {}
    for job_id in sorted(running):
        reserved = running[job_id]
        if reserved.rate_bps == 0 and wanted.get(job_id, 0) > 0:
            vms_on = tuple((server, count) for server, count in reserved.vms_on)
            placement = Placement(reserved.root, vms_on)
            units[job_id] = hose_bps(tree_of(datacentre, reserved.root), placement, 1)
        for link, bps in reserved.links:
            free_bps[link] -= bps
    shares = shares_bps(units, wanted, free_bps) if units else {}
    shared = {
        job_id: replace(
            running[job_id],
            rate_bps=share_bps,
            links=[[link, vms * share_bps] for link, vms in units[job_id].items()],
        )
        for job_id, share_bps in shares.items()
    }
    return tuple(shared.get(job_id, running[job_id]) for job_id in sorted(running))


def shares_bps(
    units: Mapping[str, Mapping[int, int]], wanted: Mapping[str, int], free_bps: Sequence[int]
) -> dict[str, int]:
    """Max-min fair rates per VM, in whole bit/s: each has what it wants or crosses a full link.

    ``units``: on each link how many VMs' rates a job's hose takes there.
    """
    loads = [load for own in units.values() for load in own.items()]
    rates = max_min_rates(
        np.maximum(np.array(free_bps, dtype=np.float64), 0.0),
        np.cumsum([0, *map(len, units.values())]),
        np.array([link for link, _ in loads], dtype=np.int64),
        np.array([vms for _, vms in loads], dtype=np.float64),
        np.array([wanted[job_id] for job_id in units], dtype=np.float64),
    )
    return {job_id: floor(rate + _ROUNDING) for job_id, rate in zip(units, rates, strict=True)}


# ----------------------------------------------------------------- namespaces per server


def namespaces_per_server(
    histories: Iterable[Iterable[events.Event]], slots: Sequence[int]
) -> tuple[int, ...]:
    """VM namespaces per server that suffice for all of these runs; at least its slots."""
    most = list(slots)
    for history in histories:
        counts, beyond = _peak(history, len(slots))
        for server, (count, own) in enumerate(zip(counts, slots, strict=True)):
            most[server] = max(most[server], max(count, own) + own * beyond)
    return tuple(most)


def _peak(history: Iterable[events.Event], n_servers: int) -> tuple[list[int], bool]:
    """The most VMs that were on each server at a time, preempted ones included.

    And whether any was preempted or in the background.
    """
    booked: dict[str, list[list[int]]] = {}
    there: dict[str, list[list[int]]] = {}
    now, peak, beyond = [0] * n_servers, [0] * n_servers, False

    def move(job_id: str, vms_on: list[list[int]]) -> None:
        for server, count in there.pop(job_id, ()):
            now[server] -= count
        there[job_id] = vms_on
        for server, count in vms_on:
            now[server] += count
            peak[server] = max(peak[server], now[server])

    for event in history:
        match event:
            case events.JobReserved(job_id=job_id, vms_on=vms_on):
                booked[job_id] = vms_on
            case events.JobStarted(job_id=job_id, tier=tier):
                move(job_id, booked[job_id])
                beyond = beyond or tier == "background"
            case events.JobMigrated(job_id=job_id, vms_on=vms_on):
                move(job_id, vms_on)
            case events.JobEnded(job_id=job_id) | events.JobRequeued(job_id=job_id):
                move(job_id, [])
            case events.JobPreempted():
                beyond = True
            case _:
                pass
    return peak, beyond
