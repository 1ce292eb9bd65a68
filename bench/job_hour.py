"""200 jobs of 8 VMs in an hour of wall time: what the machine has more of after
them.

``job-start`` has the same jobs one right after another, five a second: the
switch then remembers the flows of the last ten seconds' fifty jobs, and it
takes those ten seconds until it does. At an hour's pace it has forgotten each
job's before the next one comes.
"""

from __future__ import annotations

import sys

from bench.job_start import JOBS, one_by_one
from bench.samples import Result

HOUR_S = 3600.0


def run(quick: bool) -> list[Result]:
    """As many jobs as an hour is to have; with ``quick`` 25 of them, a second
    apart.
    """
    n_jobs, every_s = (25, 1.0) if quick else (JOBS, HOUR_S / JOBS)

    def say(done: int) -> None:
        left_s = (n_jobs - done) * every_s
        sys.stderr.write(
            f"\r{done} of {n_jobs} jobs, some {left_s:.0f} s left "
        )

    results = one_by_one(n_jobs, every_s, say)
    sys.stderr.write("\n")
    return results
