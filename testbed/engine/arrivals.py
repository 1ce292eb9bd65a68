"""Jobs in order of submission, read one after the other, and those that follow others."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace

from jobs.request import JobRequest, JobStream
from testbed.engine.job_states import EventPriority


class Arrivals:
    """Jobs by time of submission, then by id; ``next`` is the first of them, None at the end.

    A job with ``after`` comes when that one has left, and not before its own time. The jobs of a
    :class:`~jobs.request.JobStream` or an iterator are read one by one during the run; any
    other jobs may be in any order.
    """

    def __init__(self, jobs: Iterable[JobRequest]) -> None:
        self.next: JobRequest | None = None
        self.followers: dict[str, list[JobRequest]] = {}
        # Followers whose time has been set.
        self._set: list[tuple[float, str, JobRequest]] = []
        if isinstance(jobs, JobStream | Iterator):
            self._ahead = _in_order(jobs)
        else:
            self._ahead = iter(self._sorted(list(jobs)))
        self._first = next(self._ahead, None)
        self._choose()

    def before(self, at_s: float, priority: int, key: str) -> bool:
        """True where ``next`` comes before something else that is due."""
        job = self.next
        return job is not None and (job.submit_s, int(EventPriority.ARRIVAL), job.id) < (
            at_s,
            priority,
            key,
        )

    def step(self) -> None:
        """``next`` has arrived: on to the one after it."""
        if not self._set:
            self.next = self._first = next(self._ahead, None)
            return
        if self.next is self._first:
            self._first = next(self._ahead, None)
        else:
            heapq.heappop(self._set)
        self._choose()

    def after(self, job_id: str, now_s: float) -> None:
        """A job has left: those that follow it may come."""
        for job in self.followers.pop(job_id, ()):
            at_s = max(now_s, job.submit_s)
            heapq.heappush(self._set, (at_s, job.id, replace(job, submit_s=at_s)))
        self._choose()

    def _choose(self) -> None:
        first = self._first
        if self._set:
            at_s, job_id, job = self._set[0]
            if first is None or (at_s, job_id) < (first.submit_s, first.id):
                first = job
        self.next = first

    def _sorted(self, jobs: list[JobRequest]) -> list[JobRequest]:
        """Those that follow nobody, in order; the others are set aside."""
        known = {job.id for job in jobs}
        free = []
        for job in jobs:
            if job.after is None:
                free.append(job)
            elif job.after in known:
                self.followers.setdefault(job.after, []).append(job)
            else:
                raise ValueError(
                    f"job {job.id} follows {job.after!r}, which is not in the workload"
                )
        return sorted(free, key=lambda job: (job.submit_s, job.id))


def _in_order(jobs: Iterable[JobRequest]) -> Iterator[JobRequest]:
    """The jobs, those of one instant by id. Raises ValueError where one comes too late."""
    together: list[JobRequest] = []
    for job in jobs:
        if together and job.submit_s != together[0].submit_s:
            if job.submit_s < together[0].submit_s:
                raise ValueError(f"job {job.id} of a stream is out of order")
            if len(together) > 1:
                together.sort(key=lambda each: each.id)
            yield from together
            together.clear()
        if job.after is not None:
            raise ValueError(f"job {job.id} of a stream waits for another")
        together.append(job)
    together.sort(key=lambda each: each.id)
    yield from together
