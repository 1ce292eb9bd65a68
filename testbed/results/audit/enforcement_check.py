"""Enforcement of reservations on the live network, by the mode that the resolved experiment names.

``strict``: tenants send no more than they reserve. ``work-conserving``: they may, and a reservation
is kept all the same. ``none``: no reservation was enforced, and there is nothing to prove.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed import events
from testbed.results.audit.capacity_check import SAMPLE_SLACK, packet_bits, sampled
from testbed.results.audit.history import Found, History
from testbed.results.audit.summary_check import due_by_reservation, expected
from testbed.results.audit.tables_check import facts

BUCKET_PACKETS = 2
"""Packets of a VM beyond its rate: one that counts whole in a sample, and one in the bucket."""


def mode_of(history: History) -> str:
    """The run's enforcement; folders of earlier versions do not say, and were strict."""
    named = history.resolved.get("enforcement") if isinstance(history.resolved, dict) else None
    return str(named) if named in ("work-conserving", "none") else "strict"


def applies(mode: str) -> Callable[[History], str | None]:
    """Condition of the check of one mode."""

    def why_not(history: History) -> str | None:
        found = mode_of(history)
        if history.started.backend != "live":
            return "only a live network enforces"
        if found == "none":
            return "enforcement is none: no reservation was enforced"
        if found != mode:
            return f"enforcement is {found}"
        sampled_too = mode != "strict" or history.each(events.LinkSample)
        return None if sampled_too else "no link was sampled"

    return why_not


def strict(history: History) -> Found:
    """On no directed link do tenants send more than they reserve, over two samples in a row.

    One sample may be a bucket's. Nothing is proved of samples in which a reservation was changed.
    """
    before: dict[int, tuple[float, float]] = {}
    for event, vms, rescaled in sampled(history):
        length_s = event.interval_s
        now = {int(k): (sent * length_s, held * length_s) for k, sent, held in event.links}
        for link in [] if rescaled else sorted(before.keys() & now.keys()):
            sent_bits, most_bits = map(sum, zip(before[link], now[link], strict=True))
            beside = BUCKET_PACKETS * vms.get(link, 0.0) * packet_bits(history)
            if sent_bits > most_bits * (1 + SAMPLE_SLACK) + beside:
                where = f"on {history.topology.link(link)}, over two samples"
                yield event, f"{sent_bits:.0f} bits sent of {most_bits:.0f} reserved {where}"
        before = {} if rescaled else now


def work_conserving(history: History) -> Found:
    """No job whose reservation was to be kept is late: what is lent only makes it end earlier.

    A file that accepts an invalid emulation accepts late jobs.
    """
    expect = expected(history) or {}
    if expect.get("fidelity") == "invalid":
        return
    for job_id, job in facts(history).items():
        if due_by_reservation(history, expect.get("late_above"), job) == "late":
            ended = history.jobs[job_id].all(events.JobEnded)[-1]
            yield ended, f"{job_id}: measured/estimate {job['ratio']:.4f}, its reservation was lent"
