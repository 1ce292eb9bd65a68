"""Peaks of a plan, from the events of a dry run. Pure.

Three peaks are looked for: of port load, of processors that jobs compute on,
and of VM namespaces per server.

A job with a reservation counts by it. One without may send as much as its
application wants and the links leave: max-min fair shares of that, as hoses
(:func:`shares_bps`). The end of a job leaves it more, and may therefore raise
the port load: a bit/s that a job sends is counted at every port that it passes.

A VM that is preempted keeps its namespace, its connections and its limits while
another VM uses its slot, and a background VM runs beside the foreground's. A
server that never sees either needs one namespace a slot; others get what the
dry run needed and one a slot more, as the live run's order of events may
differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor
from typing import Any

import numpy as np

from testbed import events
from testbed.embedding.placement import Placement, hose_bps, tree_of
from testbed.reservation.maxmin import max_min_rates
from topologies.datacentre import DataCentre

# A share that is whole but for the arithmetic, in bit/s.
_ROUNDING_BPS = 1e-6


class _RunningJobs:
    """Jobs on the network, and their reservations, as the events change them."""

    def __init__(self) -> None:
        self.wanted_bps: dict[str, int] = {}
        self.running: dict[str, events.JobReserved] = {}
        self._booked: dict[str, events.JobReserved] = {}

    def take(self, event: events.Event) -> bool:
        """Follows an event; True where other jobs run than before, or at other
        rates.
        """
        match event:
            case events.JobSubmitted(job=job):
                if job["kind"] != "compute" and job["n_vms"] > 1:
                    self.wanted_bps[job["id"]] = job["bandwidth_bps"]
                return False
            case events.JobReserved(job_id=job_id):
                # It may be for later: the job runs from its start on.
                self._booked[job_id] = event
                return False
            case (
                events.JobEnded(job_id=job_id)
                | events.JobPreempted(job_id=job_id)
                | events.JobRequeued(job_id=job_id)
            ):
                return self.running.pop(job_id, None) is not None
            case (
                events.JobStarted(job_id=job_id)
                | events.JobResumed(job_id=job_id)
            ):
                self.running[job_id] = self._booked[job_id]
                return True
        return self._change(event)

    def _change(self, event: events.Event) -> bool:
        """Follows the change of a reservation: another tree, place or rate."""
        match event:
            case events.JobRerooted(job_id=job_id, root=root, links=links):
                changed = replace(
                    self._booked[job_id], root=root, links=links
                )
                self._booked[job_id] = changed
                # A reservation for later can move too.
                if job_id not in self.running:
                    return False
            case events.JobMigrated(
                job_id=job_id, root=root, vms_on=vms_on, links=links
            ):
                changed = replace(
                    self._booked[job_id],
                    root=root,
                    vms_on=vms_on,
                    links=links,
                )
            case events.JobRescaled(
                job_id=job_id, rate_bps=rate_bps, links=links
            ):
                changed = replace(
                    self._booked[job_id], rate_bps=rate_bps, links=links
                )
            case _:
                return False
        self._booked[job_id] = changed
        self.running[job_id] = changed
        return True


def peak(
    history: Iterable[events.Event], datacentre: DataCentre
) -> tuple[events.JobReserved, ...]:
    """The jobs that run together when the switches are asked for most, by id.

    Those without a reservation are given as if they had one of their share.
    """
    jobs = _RunningJobs()
    most_bps = 0
    at_peak: tuple[events.JobReserved, ...] = ()
    for event in history:
        if not jobs.take(event):
            continue
        together = with_shares(datacentre, jobs.running, jobs.wanted_bps)
        total_bps = sum(map(reserved_port_load_bps, together))
        if total_bps > most_bps:
            most_bps = total_bps
            at_peak = together
    return at_peak


def rings(histories: Iterable[Iterable[events.Event]]) -> frozenset[str]:
    """Ids of the jobs of pattern ring.

    Most transfers of such a job stay within a server.
    """
    ids = set()
    for history in histories:
        for event in history:
            if (
                isinstance(event, events.JobSubmitted)
                and event.job["pattern"] == "ring"
            ):
                ids.add(event.job["id"])
    return frozenset(ids)


def reserved_port_load_bps(reserved: events.JobReserved) -> int:
    """Summed port load of a job's hose: its VMs' own two ports, and its links."""
    n_vms = sum(count for _, count in reserved.vms_on)
    links_bps = sum(bps for _, bps in reserved.links)
    return 2 * n_vms * reserved.rate_bps + links_bps


def with_shares(
    datacentre: DataCentre,
    running: Mapping[str, events.JobReserved],
    wanted: Mapping[str, int],
) -> tuple[events.JobReserved, ...]:
    """Running jobs by id; those without a reservation have a fair share.

    ``wanted`` bounds the share of each, in bit/s per VM.
    """
    free_bps = list(map(int, datacentre.directed_capacity_bps))
    units: dict[str, Mapping[int, int]] = {}
    # By id, so that the arithmetic, and with it the rounding, is the same
    # whatever came first.
    for job_id in sorted(running):
        reserved = running[job_id]
        if reserved.rate_bps == 0 and wanted.get(job_id, 0) > 0:
            units[job_id] = _unit_hose(datacentre, reserved)
        for link, bps in reserved.links:
            free_bps[link] -= bps
    together = dict(running)
    if units:
        shares = shares_bps(units, wanted, free_bps)
        for job_id, share_bps in shares.items():
            together[job_id] = replace(
                running[job_id],
                rate_bps=share_bps,
                links=[
                    [link, vms * share_bps]
                    for link, vms in units[job_id].items()
                ],
            )
    return tuple(together[job_id] for job_id in sorted(together))


def _unit_hose(
    datacentre: DataCentre, reserved: events.JobReserved
) -> Mapping[int, int]:
    """A job's hose on each directed link at 1 bit/s a VM."""
    vms_on = tuple((server, count) for server, count in reserved.vms_on)
    placement = Placement(reserved.root, vms_on)
    return hose_bps(tree_of(datacentre, reserved.root), placement, 1)


def shares_bps(
    units: Mapping[str, Mapping[int, int]],
    wanted: Mapping[str, int],
    free_bps: Sequence[int],
) -> dict[str, int]:
    """Max-min fair rates per VM, in whole bit/s.

    Each job has what it wants or crosses a full link. ``units``: on each link
    how many VMs' rates a job's hose takes there.
    """
    links: list[int] = []
    vms: list[int] = []
    first_of_job = [0]
    for load in units.values():
        links += load.keys()
        vms += load.values()
        first_of_job.append(len(links))
    rates = max_min_rates(
        # Where reservations exceed a link nothing is left of it, and no less.
        capacity=np.maximum(np.array(free_bps, dtype=np.float64), 0.0),
        start=np.array(first_of_job),
        link=np.array(links, dtype=np.int64),
        weight=np.array(vms, dtype=np.float64),
        cap=np.array(
            [wanted[job_id] for job_id in units], dtype=np.float64
        ),
    )
    return {
        job_id: floor(rate_bps + _ROUNDING_BPS)
        for job_id, rate_bps in zip(units, rates, strict=True)
    }


# -- processors ----------------------------------------------------------------


def computing_processors(
    history: Iterable[events.Event], slots: int, core_share: float
) -> float:
    """Processors of this machine that jobs which run together compute on, at
    most.

    ``core_share`` of one stands for each of the data centre's, one a slot. What
    a command really takes nobody knows: it counts as its entry says.
    """
    jobs = _RunningJobs()
    computes: dict[str, float] = {}
    most = 0.0
    for event in history:
        if isinstance(event, events.JobSubmitted):
            computes[event.job["id"]] = _processors(event.job, core_share)
        if jobs.take(event):
            together = sum(computes[job_id] for job_id in jobs.running)
            most = max(most, together)
    # Two VMs of a node, in the foreground and behind it, share its quota.
    return min(most, slots * core_share)


def _processors(job: Mapping[str, Any], core_share: float) -> float:
    """Of a job's VMs, each on one processor at most."""
    uses = job["cpu_use"]
    if not isinstance(uses, Sequence):
        uses = [uses] * job["n_vms"]
    of_full_use: float = job["cpu_share"] * job["cores"] * core_share
    total = 0.0
    for use in uses:
        total += min(1.0, of_full_use * use)
    return total


# -- namespaces per server -----------------------------------------------------


def namespaces_per_server(
    histories: Iterable[Iterable[events.Event]], slots: Sequence[int]
) -> tuple[int, ...]:
    """VM namespaces per server that suffice for all of these runs.

    At least one a slot.
    """
    most = list(slots)
    for history in histories:
        presence = _Presence(len(slots))
        for event in history:
            presence.take(event)
        for server, n_slots in enumerate(slots):
            needed = max(presence.peak[server], n_slots)
            if presence.beyond_slots:
                needed += n_slots
            most[server] = max(most[server], needed)
    return tuple(most)


class _Presence:
    """VMs on each server, preempted ones included, and the most so far.

    ``beyond_slots``: a VM was preempted or in the background, so that a server
    may have more VMs than slots.
    """

    def __init__(self, n_servers: int) -> None:
        self.peak = [0] * n_servers
        self.beyond_slots = False
        self._count = [0] * n_servers
        self._booked: dict[str, list[list[int]]] = {}
        self._vms_on: dict[str, list[list[int]]] = {}

    def take(self, event: events.Event) -> None:
        match event:
            case events.JobReserved(job_id=job_id, vms_on=vms_on):
                self._booked[job_id] = vms_on
            case events.JobStarted(job_id=job_id, tier=tier):
                self._move(job_id, self._booked[job_id])
                if tier == "background":
                    self.beyond_slots = True
            case events.JobMigrated(job_id=job_id, vms_on=vms_on):
                self._move(job_id, vms_on)
            case (
                events.JobEnded(job_id=job_id)
                | events.JobRequeued(job_id=job_id)
            ):
                self._move(job_id, [])
            case events.JobPreempted():
                self.beyond_slots = True

    def _move(self, job_id: str, vms_on: list[list[int]]) -> None:
        for server, count in self._vms_on.pop(job_id, ()):
            self._count[server] -= count
        # Left before it comes: a job that returns to a server is not there
        # twice.
        self._vms_on[job_id] = vms_on
        for server, count in vms_on:
            self._count[server] += count
            self.peak[server] = max(self.peak[server], self._count[server])
