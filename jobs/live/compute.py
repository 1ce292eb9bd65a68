"""The compute agent: a given amount of CPU time, at a given share of a core."""

from __future__ import annotations

import hashlib
import select
import time
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from jobs.live.agent import AgentFailure, Channel, Stopwatch, wait_for_start
from jobs.live.agent_protocol import AgentReport, Arrived, Plan, Progress, Ready
from jobs.live.json_decoding import Check, Positive, Share

# The share is kept over periods of this length; a backlog beyond the limit (a frozen or throttled
# VM) is not caught up at more than the share.
_PERIOD_S = 0.010
_BACKLOG_LIMIT_NS = 50_000_000


# A plan needs some work above 0.
LEAST_CPU_S = 1e-6


@dataclass(frozen=True)
class ComputePlan(Plan):
    """The agent of VM ``index`` uses ``cpu_s`` seconds of CPU at ``share`` of a core."""

    kind: ClassVar[str] = "compute"
    pinned: ClassVar[bool] = True
    cpu_s: Positive
    share: Annotated[Share, Check("a share of a core above 0", bool)] = 1.0
    start_at_ns: int | None = None
    timeout_s: Positive = 3600.0
    progress_every_s: Positive = 0.2

    def done_share(self, progress: Progress) -> float | None:
        return progress.cpu_s / self.cpu_s

    def remaining(self, report: AgentReport | None, arrived: Arrived) -> ComputePlan:  # noqa: ARG002
        """CPU time that was used is not used again."""
        used_s = 0.0 if report is None else report.cpu_s
        return replace(self, cpu_s=max(LEAST_CPU_S, self.cpu_s - used_s))


class ComputeAgent:
    """Runs one :class:`ComputePlan`."""

    def __init__(self, plan: ComputePlan, channel: Channel) -> None:
        self._plan = plan
        self._channel = channel
        self._watch = Stopwatch()

    def run(self) -> None:
        """Burn it all; raises AgentFailure when the time is over before."""
        plan = self._plan
        self._channel.say(Ready(plan.index, time.monotonic_ns()))
        self._watch.start(wait_for_start(self._channel, plan.start_at_ns))
        share_base_ns = time.monotonic_ns()
        share_base_cpu_ns = cpu_start_ns = time.thread_time_ns()
        cpu_end_ns = cpu_start_ns + round(plan.cpu_s * 1e9)
        while (cpu_ns := time.thread_time_ns()) < cpu_end_ns:
            now_ns = time.monotonic_ns()
            self._look_around(now_ns)
            target_ns = share_base_cpu_ns + round((now_ns - share_base_ns) * plan.share)
            if target_ns - cpu_ns > _BACKLOG_LIMIT_NS:
                share_base_ns, share_base_cpu_ns = now_ns, cpu_ns
            if plan.share == 1.0 or target_ns > cpu_ns:
                burn_until(cpu_end_ns, SLICE_NS)
            else:
                time.sleep(_PERIOD_S)

    def report(self, error: str | None) -> AgentReport:
        """CPU time used so far."""
        start_ns, end_ns = self._watch.start_ns, time.monotonic_ns()
        return AgentReport(
            self._plan.index, start_ns, end_ns, cpu_s=self._watch.cpu_s(), error=error
        )

    def _look_around(self, now_ns: int) -> None:
        plan = self._plan
        if select.select([self._channel], [], [], 0)[0]:
            self._channel.heard()
        self._watch.sample(self._channel, plan.index, plan.progress_every_s)
        if self._watch.elapsed_s(now_ns) > plan.timeout_s:
            raise AgentFailure(
                f"burnt {self._watch.cpu_s():.3f} of {plan.cpu_s} CPU seconds"
                f" when the time of {plan.timeout_s} s was over"
            )


# ---------------------------------------------------------------------------------------- burn


SLICE_NS = 1_000_000
_BLOCK = bytes(range(256)) * 64


def burn_until(cpu_ns: int, slice_ns: int = SLICE_NS) -> None:
    """Hash until this thread's CPU time reaches ``cpu_ns``, for one slice at most."""
    digest = hashlib.sha256()
    end_ns = min(cpu_ns, time.thread_time_ns() + slice_ns)
    while time.thread_time_ns() < end_ns:
        digest.update(_BLOCK)
