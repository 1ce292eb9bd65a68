"""How many VM namespaces each server needs: from the events of a dry run. Pure.

A VM that is preempted keeps its namespace, its connections and its limits while another VM uses
its slot, and a background VM runs beside the foreground's. A server that never sees either needs
one namespace a slot; others get what the dry run needed and one a slot more, as the live run's
order of events may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed import events


def berths(histories: Iterable[Iterable[events.Event]], slots: Sequence[int]) -> tuple[int, ...]:
    """Namespaces per server that all of these runs can do with; at least its slots."""
    most = list(slots)
    for history in histories:
        peak, beyond = _peak(history, len(slots))
        for server, count in enumerate(peak):
            spare = slots[server] if beyond else 0
            most[server] = max(most[server], max(count, slots[server]) + spare)
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
        for server, count in vms_on:
            now[server] += count
            peak[server] = max(peak[server], now[server])
        there[job_id] = vms_on

    for event in history:
        match event:
            case events.JobReserved():
                booked[event.job_id] = event.vms_on
            case events.JobStarted():
                move(event.job_id, booked[event.job_id])
                beyond = beyond or event.tier == "background"
            case events.JobPreempted():
                beyond = True
            case events.JobMigrated():
                move(event.job_id, event.vms_on)
            case events.JobEnded():
                move(event.job_id, [])
            case _:
                pass
    return peak, beyond
