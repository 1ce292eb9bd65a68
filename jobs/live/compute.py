"""The compute agent: a given amount of CPU time, at a given share of a core."""

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

# Longest sleep: the share is kept over periods of this length.
_PERIOD_S = 0.010
# A larger backlog, as of a throttled VM, is counted as lost.
_BACKLOG_LIMIT_NS = 50_000_000
# An agent that did not look at the clock for longer was frozen.
_LONGEST_STEP_NS = 200_000_000


# Above 0: the share that is done is a quotient by it.
_LEAST_CPU_S = 1e-6


@dataclass(frozen=True)
class ComputePlan(Plan):
    """VM ``index`` uses ``cpu_s`` of CPU time, at a share (0..1] of a core."""

    pinned: ClassVar[bool] = True
    cpu_s: float
    share: float = 1.0

    def done_share(self, progress: AgentProgress) -> float | None:
        # The process's other threads use a little more than is planned.
        return min(1.0, progress.cpu_s / self.cpu_s)

    def remaining(
        self,
        report: AgentReport | None,
        arrived: ArrivedBytes,  # noqa: ARG002
    ) -> ComputePlan:
        """The plan for the CPU time that is left."""
        used_s = 0.0 if report is None else report.cpu_s
        return replace(self, cpu_s=max(_LEAST_CPU_S, self.cpu_s - used_s))


class Pacing:
    """Keeps the CPU time that is due at a share of a core.

    The pacing loop uses CPU time, too. At a small share that alone is more
    than the time due. The work therefore ends when its time is used and also
    due.
    """

    def __init__(
        self,
        share: float,
        now_ns: int,
    ) -> None:
        self._share = share
        self._seen_ns = now_ns
        self.due_ns = 0.0
        self.lost_ns = 0.0
        """Time that it fell behind, beyond what is caught up."""

    def advance(
        self,
        now_ns: int,
        used_ns: int,
    ) -> None:
        """Updates by the present instant and the CPU time used so far."""
        passed_ns = now_ns - self._seen_ns
        step_ns = min(passed_ns, _LONGEST_STEP_NS)
        self._seen_ns = now_ns
        self.lost_ns += passed_ns - step_ns
        self.due_ns += step_ns * self._share
        if self.due_ns - used_ns > _BACKLOG_LIMIT_NS:
            self.lost_ns += (self.due_ns - used_ns) / self._share
            self.due_ns = float(used_ns)

    def end(self, work_ns: int) -> None:
        """Records that work of this CPU time is done, perhaps late."""
        self.lost_ns += max(0.0, self.due_ns - work_ns) / self._share

    def sleep_s(self, work_ns: int) -> float:
        """Time to sleep until the work is due, at most a period."""
        left_s = (work_ns - self.due_ns) / self._share / 1e9
        return max(0.0, min(_PERIOD_S, left_s))


class ComputeAgent(Agent):
    """Runs one :class:`ComputePlan`."""

    _plan: ComputePlan
    _pacing: Pacing | None = None

    def run(self) -> None:
        """Uses the plan's CPU time."""
        self._start_together()
        # CPU time, not the clock: a VM that gets less of its node computes
        # for longer, which is what the node's quota and weights are for.
        began_ns = time.thread_time_ns()
        work_ns = round(self._plan.cpu_s * 1e9)
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
            behind = not paced or pacing.due_ns > used_ns
            if behind and used_ns < work_ns:
                burn_until(began_ns + work_ns)
            else:
                time.sleep(pacing.sleep_s(work_ns))

    def report(self, error: str | None) -> AgentReport:
        """The report, with the time by which the pace fell behind."""
        lost_s = 0.0
        if self._pacing is not None:
            lost_s = self._pacing.lost_ns / 1e9
        return replace(super().report(error), lost_s=lost_s)

    def _cpu_s(self) -> float:
        """CPU seconds of the work, without those of pacing."""
        used_s = super()._cpu_s()
        if self._pacing is None:
            return used_s
        return min(used_s, self._pacing.due_ns / 1e9)


# ---------------------------------------------------------------------------------------- burn


SLICE_NS = 1_000_000
_BLOCK = bytes(range(256)) * 64


def burn_until(cpu_ns: int) -> None:
    """Hashes until the thread's CPU time is ``cpu_ns``, SLICE_NS at most."""
    # Work that no interpreter leaves out, and that takes no memory.
    digest = hashlib.sha256()
    end_ns = min(cpu_ns, time.thread_time_ns() + SLICE_NS)
    while time.thread_time_ns() < end_ns:
        digest.update(_BLOCK)
