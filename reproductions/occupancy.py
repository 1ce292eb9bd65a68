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


class Occupancy:
    """Event sink that records every stay, and a meter of what best-effort jobs
    send.

    Reserved jobs count with what they reserve on the servers' own uplinks: a
    reserved transfer is always limited by its bandwidth, so that is what they
    send. Memory: a stay per start and per resumption.
    """

    def __init__(self) -> None:
        self.stays: list[Stay] = []
        self._sent: list[tuple[float, float, float]] = []
        self._exchanged: list[tuple[float, float, float]] = []
        self._vms: dict[str, int] = {}
        self._rates: dict[str, int] = {}
        self._lower: Sequence[int] = ()
        self._n_servers = 0
        self._slots: dict[str, int] = {}
        self._uplinks: dict[str, int] = {}
        self._since: dict[str, float] = {}

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.RunStarted(topology=topology):
                self._lower, self._n_servers = (
                    topology["links"]["lower"],
                    len(topology["slots"]),
                )
            case events.JobSubmitted(job=job):
                self._slots[str(job["id"])] = int(job["n_vms"]) * int(
                    job.get("cores", 1)
                )
                self._vms[str(job["id"])] = int(job["n_vms"])
            case events.JobReserved() | events.JobRescaled():
                self._reserve(event)
            case events.JobStarted() | events.JobResumed():
                self._enter(event.job_id, event.t)
            case events.JobMigrated():
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
        job_id = event.job_id
        running = job_id in self._since
        self._leave(job_id, event.t)
        self._uplinks[job_id] = self._uplink_bps(event.links)
        n_vms = self._vms[job_id]
        # A single VM has nobody to send to.
        self._rates[job_id] = event.rate_bps * n_vms if n_vms > 1 else 0
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
        stays = self.stays
        return sum(
            s.n_slots * _before(s.since_s, s.until_s, until_s)
            for s in stays
        )

    def uplink_bits(self, until_s: float = math.inf) -> float:
        """Bits that left servers by their uplinks before ``until_s``."""
        stays = self.stays
        reserved = sum(
            s.uplink_bps * _before(s.since_s, s.until_s, until_s)
            for s in stays
        )
        return reserved + sum(
            bps * _before(a, b, until_s) for a, b, bps in self._sent
        )

    def between_vms_bits(self, until_s: float = math.inf) -> float:
        """Bits that VMs sent each other before ``until_s``, inside servers too."""
        reserved = sum(
            s.between_vms_bps * _before(s.since_s, s.until_s, until_s)
            for s in self.stays
        )
        return reserved + sum(
            bps * _before(a, b, until_s) for a, b, bps in self._exchanged
        )

    def _uplink_bps(self, links: Iterable[Sequence[int]]) -> int:
        """Directed links with an even number lead up; a server's own has it at
        its lower end.
        """
        lower, servers = self._lower, self._n_servers
        return sum(
            bps
            for link, bps in links
            if link % 2 == 0 and lower[link // 2] < servers
        )

    def _enter(self, job_id: str, now_s: float) -> None:
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
