"""FCFS and EASY once more, slow and obvious: for the tests to compare with.

Nothing is remembered from one decision to the next, nothing is skipped, and EASY asks its question
literally: does starting this job now make the head of the queue start later?
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Plain:
    """A job: ``runs_s`` it will run, ``planned_s`` the scheduler believes."""

    id: str
    submit_s: float
    nodes: int
    runs_s: float
    planned_s: float


@dataclass
class Machine:
    """``running``: planned end and nodes by job."""

    nodes: int
    now_s: float
    running: dict[str, tuple[float, int]]
    queue: list[Plain]

    @property
    def free(self) -> int:
        return self.nodes - sum(n for _, n in self.running.values())

    def start(self, job: Plain) -> None:
        self.running[job.id] = (self.now_s + job.planned_s, job.nodes)
        self.queue.remove(job)

    def earliest_s(self, job: Plain, also: Plain | None = None) -> float:
        """When there will be enough nodes for ``job``, if ``also`` starts now."""
        free = self.free - (also.nodes if also else 0)
        # Who has run longer than planned may end at any moment.
        ends = [
            (max(end_s, self.now_s), n)
            for end_s, n in self.running.values()
        ]
        if also:
            ends.append((self.now_s + also.planned_s, also.nodes))
        at_s = self.now_s
        for end_s, n in sorted(ends):
            if free >= job.nodes:
                break
            at_s, free = end_s, free + n
        return at_s


def fcfs(machine: Machine) -> None:
    """Nobody overtakes anybody."""
    while machine.queue and machine.queue[0].nodes <= machine.free:
        machine.start(machine.queue[0])


def easy(machine: Machine) -> None:
    """Whoever fits and does not delay the head may overtake it."""
    fcfs(machine)
    if not machine.queue:
        return
    head = machine.queue[0]
    for job in machine.queue[1:]:
        if job.nodes <= machine.free and (
            machine.earliest_s(head, job) <= machine.earliest_s(head) + 1e-6
        ):
            machine.start(job)


def starts(
    jobs: Sequence[Plain], nodes: int, decide: Callable[[Machine], None]
) -> dict[str, float]:
    """When each job starts: at an instant all ends and one decision, then arrival by arrival."""
    machine = Machine(nodes, 0.0, {}, [])
    runs_s = {job.id: job.runs_s for job in jobs}
    coming = sorted(
        jobs, key=lambda job: (job.submit_s, job.id), reverse=True
    )
    ends: list[tuple[float, str]] = []
    begun: dict[str, float] = {}

    def decided() -> None:
        decide(machine)
        for name in [name for name in machine.running if name not in begun]:
            begun[name] = machine.now_s
            heapq.heappush(ends, (machine.now_s + runs_s[name], name))

    while coming or ends:
        if ends and (not coming or ends[0][0] <= coming[-1].submit_s):
            machine.now_s = ends[0][0]
            while ends and ends[0][0] <= machine.now_s:
                del machine.running[heapq.heappop(ends)[1]]
        else:
            machine.now_s = coming[-1].submit_s
            machine.queue.append(coming.pop())
        decided()
    assert not machine.queue
    return begun
