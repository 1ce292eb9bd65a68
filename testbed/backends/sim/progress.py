"""How a job's progress follows its bandwidth: DCloud's Eq. 1, piece by piece. Pure.

Progress x runs from 0 to 1. Over an infinitely fast network a job takes τ; where its demand c(x)
is above the bandwidth b it has, it advances b/c(x) as fast.
"""

from __future__ import annotations

import math

from jobs.estimate import modelled_duration_s, unconstrained_duration_s
from jobs.request import JobRequest


def remaining_s(job: JobRequest, done: float, rate_bps: float) -> float:
    """Time from progress ``done`` to the end at a constant ``rate_bps``; infinite at 0 bit/s.

    From progress 0 it is exactly :func:`jobs.estimate.modelled_duration_s`.
    """
    if done >= 1.0:
        return 0.0
    if rate_bps <= 0 and job.kind != "compute" and job.bandwidth_bps > 0:
        return _without_bandwidth(job, done)
    if done <= 0.0:
        return modelled_duration_s(job, rate_bps)
    if job.demand is None or job.kind == "compute":
        return (1.0 - done) * modelled_duration_s(job, rate_bps)
    tau_s = unconstrained_duration_s(job)
    return sum(
        (end - max(start, done)) * tau_s * max(1.0, demand / rate_bps)
        for start, end, demand in _pieces(job)
        if end > done
    )


def advanced(job: JobRequest, done: float, rate_bps: float, elapsed_s: float) -> float:
    """The progress after ``elapsed_s`` more at a constant ``rate_bps``, at most 1."""
    if job.demand is None or job.kind == "compute":
        whole_s = remaining_s(job, 0.0, rate_bps)
        return done if whole_s == math.inf else min(1.0, done + elapsed_s / whole_s)
    tau_s = unconstrained_duration_s(job)
    left_s = elapsed_s
    for start, end, demand in _pieces(job):
        if end <= done:
            continue
        begin = max(start, done)
        slowdown = max(1.0, demand / rate_bps) if rate_bps > 0 else math.inf if demand else 1.0
        need_s = (end - begin) * tau_s * slowdown
        if need_s > left_s:
            return begin + left_s / (tau_s * slowdown)
        done, left_s = end, left_s - need_s
    return done


def _without_bandwidth(job: JobRequest, done: float) -> float:
    """At 0 bit/s only an application that wants none for the rest of its course ends."""
    if job.demand is None or any(c > 0 for _, end, c in _pieces(job) if end > done):
        return math.inf
    return (1.0 - done) * unconstrained_duration_s(job)


def _pieces(job: JobRequest) -> list[tuple[float, float, int]]:
    """``(start, end, demand)`` of the demand curve's steps; none without a curve."""
    steps = () if job.demand is None else job.demand.steps
    starts = [0.0, *(end for end, _ in steps)]
    return [(start, end, c) for start, (end, c) in zip(starts, steps, strict=False)]
