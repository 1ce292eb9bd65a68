"""What a simulated day used and earned, summed up from its events (DCloud, Section IV.A)."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.request import JobRequest
from jobs.workload.tenants import HOUR_S
from testbed import events
from topologies.datacentre import DataCentre

DAY_S = 24 * HOUR_S
DEADLINE_SLACK = 1e-9
UNDISTURBED = 1.001
"""Running times up to this multiple of the stated one count as the stated one."""


class Meter:
    """An event sink, and a meter of what best-effort jobs send.

    Uses are shares of all VM slots and of the capacity of all servers' uplinks over 24 hours.
    ``*_day`` count what ran within the first 24 hours; the others all work, as if what runs later
    had run that day (decision 0311). Reserved jobs count with what they reserve and hold: it is
    what they send, for a reserved transfer is always limited by its bandwidth.
    """

    def __init__(self, datacentre: DataCentre, jobs: Iterable[JobRequest]) -> None:
        self._datacentre = datacentre
        self._jobs = {job.id: job for job in jobs}
        self._booked: dict[str, tuple[int, int]] = {}
        self._held: dict[str, tuple[float, int, int]] = {}
        self._outcomes = dict.fromkeys(("met", "late", "rejected", "killed", "unfinished"), 0)
        self._undisturbed = 0
        self._vm_s = self._vm_day_s = self._bits = self._bits_day = self._revenue = 0.0

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.JobReserved():
                n_vms = sum(count for _, count in event.vms_on)
                uplinks = sum(bps for link, bps in event.links if self._leaves_a_server(link))
                self._booked[event.job_id] = (n_vms, uplinks)
            case events.JobStarted():
                self._held[event.job_id] = (event.t, *self._booked.pop(event.job_id))
            case events.JobEnded():
                self._outcomes[self._outcome(event)] += 1
                self._revenue += float(event.detail.get("price", 0.0))
                self._undisturbed += self._ran_undisturbed(event)
                self._release(event)
            case _:
                pass

    def carried(self, since_s: float, until_s: float, bps: float) -> None:
        """What best-effort jobs sent up the servers' links."""
        self._bits += bps * (until_s - since_s)
        self._bits_day += bps * _within_day(since_s, until_s)

    def measures(self) -> dict[str, float]:
        """``success`` is the share of all jobs asked for that met their deadline; ``undisturbed``
        of those that ran in the time they stated, as if nobody else were there.
        """
        slots_s = self._datacentre.total_slots * DAY_S
        uplink_bits = float(self._datacentre.nic_bps.sum()) * DAY_S
        jobs = len(self._jobs)
        return {
            "jobs": jobs,
            **self._outcomes,
            "success": self._outcomes["met"] / jobs if jobs else 0.0,
            "undisturbed": self._undisturbed / jobs if jobs else 0.0,
            "vm_use": self._vm_s / slots_s,
            "vm_use_day": self._vm_day_s / slots_s,
            "link_use": self._bits / uplink_bits,
            "link_use_day": self._bits_day / uplink_bits,
            "revenue": self._revenue,
        }

    def _leaves_a_server(self, directed_link: int) -> bool:
        lower = int(self._datacentre.link_lower[directed_link // 2])
        return directed_link % 2 == 0 and lower < self._datacentre.n_servers

    def _outcome(self, event: events.JobEnded) -> str:
        if event.outcome != "finished":
            return event.outcome
        due_s = self._jobs[event.job_id].deadline_at_s
        late = due_s is not None and event.t > due_s + DEADLINE_SLACK * max(1.0, due_s)
        return "late" if late else "met"

    def _ran_undisturbed(self, event: events.JobEnded) -> bool:
        stated_s = self._jobs[event.job_id].duration_s
        return event.outcome == "finished" and (event.measured_s or 0.0) <= UNDISTURBED * stated_s

    def _release(self, event: events.JobEnded) -> None:
        if event.job_id not in self._held:
            return
        since_s, n_vms, uplinks = self._held.pop(event.job_id)
        self._vm_s += n_vms * (event.t - since_s)
        self._vm_day_s += n_vms * _within_day(since_s, event.t)
        self._bits += uplinks * (event.t - since_s)
        self._bits_day += uplinks * _within_day(since_s, event.t)


def _within_day(since_s: float, until_s: float) -> float:
    return max(0.0, min(until_s, DAY_S) - min(since_s, DAY_S))
