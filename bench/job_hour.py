"""200 jobs of 8 VMs spread over an hour, and the machine's growth by them.

``job-start`` runs the same jobs at five a second. The switch remembers flows
for ten seconds: there it holds those of fifty jobs, and grows until it does.
Over an hour it has forgotten each job's flows before the next job starts.
"""

from __future__ import annotations

import sys

from bench.job_start import JOBS, one_by_one
from bench.samples import Result

HOUR_S = 3600.0


def run(quick: bool) -> list[Result]:
    """Jobs at equal distances over an hour; with ``quick`` 25, a second apart."""
    n_jobs = JOBS
    every_s = HOUR_S / JOBS
    if quick:
        n_jobs = 25
        every_s = 1.0

    def say(done: int) -> None:
        left_s = (n_jobs - done) * every_s
        sys.stderr.write(
            f"\r{done} of {n_jobs} jobs, some {left_s:.0f} s left "
        )

    try:
        return one_by_one(n_jobs, every_s, say)
    finally:
        sys.stderr.write("\n")
