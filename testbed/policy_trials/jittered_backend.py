"""The simulator with the irregularities of a live network: for recording a run
and replaying it.
"""

from __future__ import annotations

from dataclasses import replace

from jobs.request import JobRequest
from jobs.workload.distributions import stream
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.placement import Placement
from testbed.schedulers.actions import Tier

SHORTEST, LONGEST = 0.8, 1.3
"""The least and the greatest of a job's real time over its stated one."""
LATE_S = 0.05
"""The engine hears of an instant later than it is, by less than this."""


class JitteredBackend(SimulatedBackend):
    """Jobs end earlier or later than estimated, and time passes while the
    backend is asked.

    ``seed`` and a job's name determine its time.
    """

    name = "jittered"
    _seen_s = 0.0
    _calls = 0

    def now_s(self) -> float:
        self._calls += 1
        # A fixed sequence that jumps about: 7 has no divisor in common with
        # 10, so each tenth comes once in ten calls.
        late_s = LATE_S * (self._calls * 7 % 10) / 10
        # Never backwards, like the clock that it stands for.
        self._seen_s = max(self._seen_s, super().now_s() + late_s)
        return self._seen_s

    def start(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
    ) -> None:
        share = stream(self._seed, "jitter", job.id).uniform(
            SHORTEST, LONGEST
        )
        # What schedulers know of the job, its stated time, stays as it was.
        jittered = replace(job, true_duration_s=job.true_s * float(share))
        super().start(jittered, placement, rate_bps, tier)
