"""The compute agent: a given amount of CPU time, at a given share of a core."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import ClassVar

from jobs.live.agent import Agent
from jobs.live.agent_protocol import AgentReport, Arrived, Plan, Progress

# The share is kept over periods of this length; a backlog beyond the limit (a
# frozen or throttled VM) is not caught up at more than the share.
_PERIOD_S = 0.010
_BACKLOG_LIMIT_NS = 50_000_000


# A plan needs some work above 0.
_LEAST_CPU_S = 1e-6


@dataclass(frozen=True)
class ComputePlan(Plan):
    """The agent of VM ``index`` uses ``cpu_s`` seconds of CPU at ``share``
    (0..1] of a core.
    """

    pinned: ClassVar[bool] = True
    cpu_s: float
    share: float = 1.0

    def done_share(self, progress: Progress) -> float | None:
        return progress.cpu_s / self.cpu_s

    def remaining(
        self,
        report: AgentReport | None,
        arrived: Arrived,  # noqa: ARG002
    ) -> ComputePlan:
        """CPU time that was used is not used again."""
        used_s = 0.0 if report is None else report.cpu_s
        return replace(self, cpu_s=max(_LEAST_CPU_S, self.cpu_s - used_s))


class ComputeAgent(Agent):
    """Runs one :class:`ComputePlan`."""

    _plan: ComputePlan

    def run(self) -> None:
        """Burn it all."""
        plan = self._plan
        self._start_together()
        share_base_ns = time.monotonic_ns()
        share_base_cpu_ns = cpu_start_ns = time.thread_time_ns()
        cpu_end_ns = cpu_start_ns + round(plan.cpu_s * 1e9)
        while (cpu_ns := time.thread_time_ns()) < cpu_end_ns:
            self._channel.heard()
            self._sample_when_due()
            now_ns = time.monotonic_ns()
            target_ns = share_base_cpu_ns + round(
                (now_ns - share_base_ns) * plan.share
            )
            if target_ns - cpu_ns > _BACKLOG_LIMIT_NS:
                share_base_ns, share_base_cpu_ns = now_ns, cpu_ns
            if plan.share == 1.0 or target_ns > cpu_ns:
                burn_until(cpu_end_ns)
            else:
                time.sleep(_PERIOD_S)


# ---------------------------------------------------------------------------------------- burn


SLICE_NS = 1_000_000
_BLOCK = bytes(range(256)) * 64


def burn_until(cpu_ns: int) -> None:
    """Hash until this thread's CPU time reaches ``cpu_ns``, for one slice at
    most.
    """
    digest = hashlib.sha256()
    end_ns = min(cpu_ns, time.thread_time_ns() + SLICE_NS)
    while time.thread_time_ns() < end_ns:
        digest.update(_BLOCK)
