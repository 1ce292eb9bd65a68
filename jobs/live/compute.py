"""The compute agent: uses an amount of CPU time, at a share of a core."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import ClassVar

from jobs.live.agent import Agent
from jobs.live.agent_protocol import (
    AgentProgress,
    AgentReport,
    ArrivedBytes,
    Plan,
)

# The longest sleep, and so the time over which the share is kept.
_LONGEST_SLEEP_S = 0.010
# A VM that is throttled falls behind its share. It catches up with at most
# this much CPU time; a larger backlog is lost.
_BACKLOG_LIMIT_NS = 50_000_000
# More time than this between two looks at the clock: the agent was frozen.
_LONGEST_STEP_NS = 200_000_000
# A plan's CPU time stays above 0, because progress is divided by it.
_LEAST_CPU_S = 1e-6


@dataclass(frozen=True)
class ComputePlan(Plan):
    """``cpu_s`` of CPU time at ``share`` (0..1] of a core, in VM ``index``."""

    pinned: ClassVar[bool] = True
    cpu_s: float
    share: float = 1.0

    def done_share(self, progress: AgentProgress) -> float | None:
        # At most 1: the process's other threads use CPU time beyond the plan.
        return min(1.0, progress.cpu_s / self.cpu_s)

    def remaining(
        self,
        report: AgentReport | None,
        arrived: ArrivedBytes,  # noqa: ARG002
    ) -> ComputePlan:
        """The plan for the CPU time that is not used yet."""
        used_s = 0.0 if report is None else report.cpu_s
        return replace(self, cpu_s=max(_LEAST_CPU_S, self.cpu_s - used_s))


class Pacing:
    """The CPU time that is due at ``share`` of a core, ``due_ns``.

    Work ends when its CPU time is used and also due. Used alone is not enough:
    at a small share the pacing loop itself uses more CPU time than is due.
    """

    def __init__(
        self,
        share: float,
        now_ns: int,
    ) -> None:
        self._share = share
        self._last_ns = now_ns
        self.due_ns = 0.0
        self.lost_ns = 0.0
        """Time by which the work ends late: frozen, throttled, or late at its
        end.
        """

    def advance(
        self,
        now_ns: int,
        used_ns: int,
    ) -> None:
        """Advances ``due_ns`` to the instant ``now_ns``.

        ``used_ns``: the CPU time used so far.
        """
        passed_ns = now_ns - self._last_ns
        step_ns = min(passed_ns, _LONGEST_STEP_NS)
        self._last_ns = now_ns
        self.lost_ns += passed_ns - step_ns
        self.due_ns += step_ns * self._share
        if self.due_ns - used_ns > _BACKLOG_LIMIT_NS:
            self.lost_ns += (self.due_ns - used_ns) / self._share
            self.due_ns = float(used_ns)

    def end(self, work_ns: int) -> None:
        """Adds to ``lost_ns`` how late work of ``work_ns`` ends now."""
        self.lost_ns += max(0.0, self.due_ns - work_ns) / self._share

    def sleep_s(self, work_ns: int) -> float:
        """Seconds to sleep until ``work_ns`` are due, cut to the longest sleep."""
        left_s = (work_ns - self.due_ns) / self._share / 1e9
        return max(0.0, min(_LONGEST_SLEEP_S, left_s))


class ComputeAgent(Agent):
    """Runs one :class:`ComputePlan`."""

    _plan: ComputePlan
    _pacing: Pacing | None = None

    def run(self) -> None:
        """Uses the plan's CPU time."""
        self._start_together()
        # By CPU time, not by the clock: a VM to which the node's quota and
        # weights give less CPU has to compute for longer.
        began_ns = time.thread_time_ns()
        work_ns = round(self._plan.cpu_s * 1e9)
        # A whole core needs no pacing: it is used without sleeping.
        paced = self._plan.share < 1.0
        pacing = Pacing(self._plan.share, time.monotonic_ns())
        if paced:
            self._pacing = pacing
        while True:
            used_ns = time.thread_time_ns() - began_ns
            pacing.advance(time.monotonic_ns(), used_ns)
            is_due = not paced or pacing.due_ns >= work_ns
            if is_due and used_ns >= work_ns:
                pacing.end(work_ns)
                return
            self._channel.heard()
            self._sample_when_due()
            may_work = not paced or pacing.due_ns > used_ns
            if may_work and used_ns < work_ns:
                burn_until(began_ns + work_ns)
            else:
                time.sleep(pacing.sleep_s(work_ns))

    def report(self, error: str | None) -> AgentReport:
        """The base's report, with the time that pacing lost."""
        lost_s = 0.0
        if self._pacing is not None:
            lost_s = self._pacing.lost_ns / 1e9
        return replace(super().report(error), lost_s=lost_s)

    def _cpu_s(self) -> float:
        """CPU seconds of the work, at most those due: the rest is the pacing
        loop's.
        """
        used_s = super()._cpu_s()
        if self._pacing is None:
            return used_s
        return min(used_s, self._pacing.due_ns / 1e9)


# ---------------------------------------------------------------------------------------- burn


SLICE_NS = 1_000_000
_BLOCK = bytes(range(256)) * 64


def burn_until(cpu_ns: int) -> None:
    """Hashes until the thread's CPU time is ``cpu_ns``, for at most
    :data:`SLICE_NS` of CPU time.
    """
    # No interpreter optimises hashing away, and it takes no memory.
    digest = hashlib.sha256()
    end_ns = min(cpu_ns, time.thread_time_ns() + SLICE_NS)
    while time.thread_time_ns() < end_ns:
        digest.update(_BLOCK)
