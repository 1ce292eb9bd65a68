"""Jobs met one by one and forgotten when they have left, so that a million of them fit."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.request import JobRequest, JobStream
from testbed.engine.state import JobState


class ArrivalStream:
    """The jobs of a stream that are still to come, and those that left in this step."""

    def __init__(self, jobs: JobStream) -> None:
        self._jobs = iter(jobs)
        self._next = next(self._jobs, None)
        self._met = 0
        self._left: list[str] = []

    def next_ones(self, arrived: int) -> Iterator[JobRequest]:
        """All jobs of the next instant of submission, if the last of those met arrives now.

        ``arrived`` have come before. At one instant the order is by id, so they are met together.
        """
        if self._next is None or arrived + 1 < self._met:
            return
        at_s = self._next.submit_s
        while self._next is not None and self._next.submit_s <= at_s:
            if self._next.submit_s < at_s:
                raise ValueError(f"job {self._next.id} of a stream is out of order")
            self._met += 1
            yield self._next
            self._next = next(self._jobs, None)

    def left(self, job_id: str) -> None:
        """Note a job that has ended: its step may still speak of it."""
        self._left.append(job_id)

    def forget(self, jobs: dict[str, JobState]) -> None:
        """Drop the jobs that ended in the step that is now over."""
        for job_id in self._left:
            del jobs[job_id]
        self._left.clear()
