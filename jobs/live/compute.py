"""The compute agent: a given amount of CPU time, at a given share of a core."""

from __future__ import annotations

import hashlib
import select
import time

from jobs.live.agent import AgentFailure, Channel, Stopwatch, wait_for_start
from jobs.live.agent_protocol import AgentReport, ComputePlan, Progress, Ready

# The share is kept over periods of this length; a backlog beyond the limit (a frozen or throttled
# VM) is not caught up at more than the share.
_PERIOD_S = 0.010
_BACKLOG_LIMIT_NS = 50_000_000


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
        """What has been burnt so far."""
        return AgentReport(
            index=self._plan.index,
            start_ns=self._watch.start_ns,
            end_ns=time.monotonic_ns(),
            received=(),
            sent=(),
            cpu_s=self._watch.cpu_s(),
            congestion_control=None,
            error=error,
        )

    def _look_around(self, now_ns: int) -> None:
        plan = self._plan
        if select.select([self._channel], [], [], 0)[0]:
            self._channel.heard()
        if self._watch.sample_due(now_ns, plan.progress_every_s):
            self._channel.say(Progress(plan.index, now_ns, 0, 0, self._watch.cpu_s()))
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
