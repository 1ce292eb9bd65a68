"""Protocol between the engine and a backend: simulator, live network, or a
script in a test.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from jobs.request import JobRequest
from testbed.embedding.placement import Placement
from testbed.failures import Failure
from testbed.schedulers.actions import Tier


class Completion(NamedTuple):
    """A job left by itself. ``at_s`` is experiment time; ``measured_s`` its
    running time.

    ``outcome``: ``finished``, or ``killed`` when it failed, with the reason.
    ``detail`` holds raw metrics (bytes, first and last byte) for
    ``events.jsonl``.
    """

    job_id: str
    at_s: float
    outcome: str
    reason: str = ""
    measured_s: float | None = None
    detail: dict[str, Any] | None = None


class StartFailed(Exception):
    """A backend could not start a job; the message is the reason. The job is
    killed.
    """


class Backend(Protocol):
    """A place that jobs run in. Times are experiment seconds since the run
    began.
    """

    name: str

    def now_s(self) -> float:
        """The backend's time. It never runs backwards."""
        ...

    def wait(self, until_s: float | None) -> list[Completion]:
        """Lets time pass to ``until_s`` or to the next completions, whichever
        comes first.

        Completions at or before ``until_s``, by time, then by id; empty once
        ``until_s`` is reached. None waits for the next completion and returns
        empty only if there can be none.
        """
        ...

    def start(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
    ) -> None:
        """Starts a job at ``rate_bps`` per VM (experiment units). Raises
        StartFailed.
        """
        ...

    def rescale(self, job_id: str, rate_bps: int) -> None: ...

    def preempt(self, job_id: str) -> None:
        """Stops a job where it is; what it has done is kept."""
        ...

    def resume(self, job_id: str, cost_s: float, tier: Tier) -> None:
        """Resumes a preempted job on its nodes; its first ``cost_s`` there make
        no progress.
        """
        ...

    def migrate(
        self,
        job_id: str,
        placement: Placement,
        cost_s: float,
        tier: Tier,
        *,
        best_effort: bool = False,
    ) -> None:
        """Resumes a preempted or running job on (other) nodes; ``cost_s`` as for
        resuming. ``best_effort``: without its reservation of bandwidth.
        """
        ...

    def switch_tier(self, job_id: str, tier: Tier) -> None:
        """From now on the job's VMs have that tier's CPU priority."""
        ...

    def kill(self, job_id: str, reason: str) -> None:
        """Ends a job now, for a reason of ``events.jsonl``; no completion follows."""
        ...

    def fail(self, failure: Failure) -> None:
        """Brings a failure, or the end of one, about now."""
        ...

    def reroot(self, job_id: str, placement: Placement) -> None:
        """From now on a running job's traffic takes the paths of another root."""
        ...

    def cut(self, job_id: str) -> None:
        """Some of a running job's VMs do not reach others from now on."""
        ...

    def reconnect(self, job_id: str) -> None:
        """All VMs of a job that was cut reach each other again."""
        ...
