"""Slots and servers' uplinks in use over time, from a run's events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed import events


@dataclass(frozen=True, slots=True)
class Stay:
    """A job's time on its servers without a break: slots (VMs times cores),
    uplink bandwidth, and what its VMs send each other under a reservation.
    """

    job_id: str
    since_s: float
    until_s: float
    n_slots: int
    uplink_bps: int
    between_vms_bps: int

    def before_s(self, limit_s: float) -> float:
        """The part of the stay before a moment, in seconds."""
        return _before(self.since_s, self.until_s, limit_s)


class Occupancy:
    """Event sink that records every stay, and a meter of what best-effort jobs
    send.

    Reserved jobs count with what they reserve on the servers' own uplinks, and
    those without a reservation with what they send there. A permutation may keep
    flows inside a server, so that a reserved job sends less than it reserves
    (decision 20). Memory: a stay per start and per resumption.
    """

    def __init__(self) -> None:
        self.stays: list[Stay] = []
        # Since, until, and bit/s of best-effort jobs: up the servers'
        # links, and among all VMs.
        self._sent: list[tuple[float, float, float]] = []
        self._exchanged: list[tuple[float, float, float]] = []
        # The lower end of each link.
        self._lower: Sequence[int] = ()
        self._n_servers = 0
        # By job: its VMs and slots, the bit/s that it reserves among its
        # VMs and on servers' uplinks, and the beginning of its present
        # stay.
        self._vms: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._rates: dict[str, int] = {}
        self._uplinks: dict[str, int] = {}
        self._since: dict[str, float] = {}

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.RunStarted(topology=topology):
                self._lower = topology["links"]["lower"]
                self._n_servers = len(topology["slots"])
            case events.JobSubmitted(job=job):
                job_id = str(job["id"])
                n_vms = int(job["n_vms"])
                # A VM holds a slot for each of its cores.
                self._slots[job_id] = n_vms * int(job.get("cores", 1))
                self._vms[job_id] = n_vms
            # A reservation may begin before or after the job runs.
            case events.JobReserved() | events.JobRescaled():
                self._reserve(event)
            case events.JobStarted() | events.JobResumed():
                self._enter(event.job_id, event.t)
            case events.JobMigrated():
                # Its slots are as many as before, its links are others.
                self._leave(event.job_id, event.t)
                self._uplinks[event.job_id] = self._uplink_bps(event.links)
                self._enter(event.job_id, event.t)
            case (
                events.JobPreempted()
                | events.JobRequeued()
                | events.JobEnded()
            ):
                self._leave(event.job_id, event.t)
            case _:
                pass

    def _reserve(
        self, event: events.JobReserved | events.JobRescaled
    ) -> None:
        """Takes a job's links and rate from now on."""
        # A stay has one rate: that of a running job ends, and another
        # begins.
        job_id = event.job_id
        running = job_id in self._since
        self._leave(job_id, event.t)
        self._uplinks[job_id] = self._uplink_bps(event.links)
        n_vms = self._vms[job_id]
        self._rates[job_id] = event.rate_bps * n_vms
        if n_vms == 1:
            # It has no other VM to send to.
            self._rates[job_id] = 0
        if running:
            self._enter(job_id, event.t)

    def sent(
        self,
        since_s: float,
        until_s: float,
        uplink_bps: float,
        between_vms_bps: float,
    ) -> None:
        """Records what best-effort jobs sent in a stretch of time: up the
        servers' links, and in all.
        """
        self._sent.append((since_s, until_s, uplink_bps))
        self._exchanged.append((since_s, until_s, between_vms_bps))

    def slot_s(self, until_s: float = math.inf) -> float:
        """Slot seconds held before ``until_s``."""
        held = 0.0
        for stay in self.stays:
            held += stay.n_slots * stay.before_s(until_s)
        return held

    def uplink_bits(self, until_s: float = math.inf) -> float:
        """Bits that left servers by their uplinks before ``until_s``."""
        reserved = 0.0
        for stay in self.stays:
            reserved += stay.uplink_bps * stay.before_s(until_s)
        return reserved + _bits_before(until_s, self._sent)

    def between_vms_bits(self, until_s: float = math.inf) -> float:
        """Bits that VMs sent each other before ``until_s``, inside servers too."""
        reserved = 0.0
        for stay in self.stays:
            reserved += stay.between_vms_bps * stay.before_s(until_s)
        return reserved + _bits_before(until_s, self._exchanged)

    def _uplink_bps(self, links: Iterable[Sequence[int]]) -> int:
        """The bandwidth of a job on its servers' own links, upwards.

        ``links``: pairs of a directed link and its bandwidth in bit/s.
        """
        uplinks_bps = 0
        for link, bps in links:
            # Even numbers are the upward directions; servers have the
            # lowest numbers of all nodes.
            lower_end = self._lower[link // 2]
            if link % 2 == 0 and lower_end < self._n_servers:
                uplinks_bps += bps
        return uplinks_bps

    def _enter(self, job_id: str, now_s: float) -> None:
        # A job that was there already begins another stay.
        self._leave(job_id, now_s)
        self._since[job_id] = now_s

    def _leave(self, job_id: str, now_s: float) -> None:
        since_s = self._since.pop(job_id, None)
        if since_s is not None:
            self.stays.append(
                Stay(
                    job_id=job_id,
                    since_s=since_s,
                    until_s=now_s,
                    n_slots=self._slots[job_id],
                    uplink_bps=self._uplinks.get(job_id, 0),
                    between_vms_bps=self._rates.get(job_id, 0),
                )
            )


def _before(since_s: float, until_s: float, limit_s: float) -> float:
    """The part of an interval before a moment, in seconds."""
    return min(until_s, limit_s) - min(since_s, limit_s)


def _bits_before(
    limit_s: float, sent: Iterable[tuple[float, float, float]]
) -> float:
    """The bits that were sent before a moment; ``sent``: since, until, bit/s."""
    bits = 0.0
    for since_s, until_s, bps in sent:
        bits += bps * _before(since_s, until_s, limit_s)
    return bits
