"""JSA: elastic bandwidth reservation for batches of jobs with deadlines and rewards (Shen et al.).

At every instant at which something arrives or ends, the jobs that wait are scheduled anew: the
paper's t_k, event driven instead of slot by slot (docs/decisions/0432).
"""

from __future__ import annotations

from testbed.embedding.counts import Counts
from testbed.embedding.reasons import missed, refusal
from testbed.embedding.vmplace import most_localized
from testbed.schedulers.actions import Action, PolicyEvent, Reject, Start, Wait, Woken
from testbed.schedulers.jsa_phases import (
    Candidate,
    admit,
    options_of,
    raise_all,
    shorten_longest,
    why_late,
)
from testbed.schedulers.jsa_room import Room
from testbed.schedulers.jsa_rounds import Rounds
from testbed.schedulers.policy import PolicyKind, View
from testbed.units import human_bandwidth


class JSA:
    """Algorithm 1. ``speeds_up=False`` leaves out lines 21–33: that is SimpleJSA.

    Jobs keep what they got until they end by themselves; nothing that runs is changed.
    """

    def __init__(self, name: str = "jsa", *, speeds_up: bool = True) -> None:
        self.name = name
        self._speeds_up = speeds_up
        self._rounds = Rounds()
        self._candidates: dict[str, Candidate] = {}
        # Jobs whose reason to wait has been given: it is told once, for their first round.
        self._told: set[str] = set()

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if not isinstance(event, Woken):
            return self._rounds.ask(view, event)
        self._rounds.begin()
        return self._round(view)

    def _round(self, view: View) -> list[Action]:
        ready = [self._candidate(view, job_id) for job_id in view.waiting()]
        if not ready:
            return []
        room = Room(view.datacentre, view.residual(view.now_s, None), most_localized)
        found = admit(room, ready, view.now_s)
        waiting = explain(room, found.waiting, self._told)
        if self._speeds_up:
            shorten_longest(room, found.run)
            raise_all(room, found.run)
        return [
            *(Reject(late.job.id, why_late(late, view.now_s)) for late in found.late),
            *(Start(job.candidate.job.id, job.held.placement, job.rate_bps) for job in found.run),
            *waiting,
        ]

    def _candidate(self, view: View, job_id: str) -> Candidate:
        known = self._candidates.get(job_id)
        if known is None:
            job = view.job(job_id)
            known = Candidate(job, options_of(job), view.order(job_id))
            self._candidates[job_id] = known
        return known


def explain(room: Room, waiting: list[tuple[Candidate, int]], told: set[str]) -> list[Action]:
    """Reasons for jobs that found no place at a rate, each job's once; ``told`` is added to.

    A job that the idle data centre has no place for either is rejected: waiting, its deadline
    drawing nearer, it would ask for more bandwidth and not for less.
    """
    out: list[Action] = []
    idle = room.idle
    for candidate, rate_bps in waiting:
        job = candidate.job
        if job.id in told and not idle:
            continue
        told.add(job.id)
        if idle or not room.fits_when_empty(job.n_vms, rate_bps):
            what = f"{job.n_vms} VMs at {human_bandwidth(rate_bps)} each"
            what += "" if room.complete else " that this embedder finds"
            out.append(Reject(job.id, f"the idle data centre has no place for {what}"))
            continue
        counts = Counts(room.datacentre, room.free, job.n_vms, rate_bps)
        why = refusal(counts) if room.complete else missed(counts)
        out.append(Wait(job.id, why.reason))
    return out


POLICIES = (
    PolicyKind(
        "jsa",
        "JSA: elastic bandwidth, most reward per time left first",
        lambda _, __: JSA(),
        claims=("options-within-deadline", "no-preemption"),
    ),
    PolicyKind(
        "simple-jsa",
        "JSA at the least bandwidth that meets the deadline",
        lambda _, __: JSA("simple-jsa", speeds_up=False),
        claims=("options-within-deadline", "no-preemption"),
    ),
)
