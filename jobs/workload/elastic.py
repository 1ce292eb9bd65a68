"""Elastic jobs out of a Hadoop trace, in batches: JSA's workload (Section V.A).

The trace gives bytes, and tasks by them; JSA's authors measured running times and bandwidths on a
cluster of their own. What stands in for those measurements, and every draw, is a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jobs.demand import Pattern, Transfer
from jobs.job_profile import STEEPEST, linear_profile
from jobs.request import JobRequest
from jobs.workload.distributions import Floats, Sample, stratified, stream
from jobs.workload.swim import BLOCK_BYTES, Swim, SwimJob

MBIT = 1_000_000

Range = tuple[float, float]
"""The ends of a uniform distribution; equal ends are that number."""


@dataclass(frozen=True)
class ElasticJobs:
    """Parameters of elastic jobs out of a trace. Defaults are JSA's, or ours where it names none.

    ``count`` jobs of ``vms`` VMs on average (None: whatever a plain sample has), none larger than
    ``largest``, in ``batches`` that arrive ``spacing_s`` apart. A job's time at B̄ is ``start_s``
    and its bytes per VM over ``vm_bytes_per_s``; B̄ is uniform up to twice ``bandwidth_bps``, at
    least ``least_bps`` and at most half of ``link_bps``. ``value``, ``deadline`` (in running
    times) and ``speedup`` are uniform.
    """

    count: int = 2500
    vms: float | None = 25.0
    largest: int = 100
    batches: int = 5
    spacing_s: float = 30.0
    start_s: float = 20.0
    vm_bytes_per_s: float = 1e7
    bandwidth_bps: float = 200e6
    least_bps: float = MBIT
    link_bps: int = 1000 * MBIT
    value: Range = (100.0, 1000.0)
    deadline: Range = (2.0, 7.0)
    speedup: Range = (0.0, 0.14)
    block_bytes: int = BLOCK_BYTES
    pattern: Pattern = "all-to-all"

    def objections(self) -> list[tuple[str, str]]:
        """Errors of these parameters, each with the field it concerns."""
        out = []
        if not 1 <= self.batches <= self.count:
            out.append(("batches", f"{self.count} jobs cannot come in {self.batches} batches"))
        if self.vms is not None and not 1 <= self.vms <= self.largest:
            out.append(("vms", f"a mean of {self.vms:g} VMs with {self.largest} at most"))
        for name, (low, high) in (("value", self.value), ("deadline", self.deadline)):
            if not 0 <= low <= high:
                out.append((name, "a range rises from a number of at least 0"))
        if not 0 <= self.speedup[0] <= self.speedup[1] < STEEPEST:
            out.append(("speedup", f"must rise, from at least 0 to below {STEEPEST}"))
        return out

    def sample(self, trace: Swim, seed: int) -> Sample:
        """Which jobs. Raises ValueError where the trace has not enough for the wanted mean."""
        sizes = [job.tasks(self.block_bytes) for job in trace.jobs]
        if self.vms is not None:
            return stratified(sizes, self.count, self.vms, self.largest, seed, repeat=True)
        fit = np.flatnonzero(np.array(sizes) <= self.largest)
        if len(fit) < self.count:
            raise ValueError(f"{self.count} jobs asked, {len(fit)} have {self.largest} VMs or less")
        order = stream(seed, "swim", "sample").permutation(len(fit))
        chosen = np.sort(fit[order[: self.count]]).tolist()
        return Sample(tuple(chosen), float(np.mean([sizes[k] for k in chosen])), 0)

    def requests(self, trace: Swim, seed: int) -> tuple[tuple[JobRequest, ...], Sample]:
        """The jobs, batch by batch, and the sample they are. ValueError where that cannot be."""
        wrong = self.objections()
        if wrong:
            raise ValueError("; ".join(f"{field}: {message}" for field, message in wrong))
        sample = self.sample(trace, seed)
        draws = _Draws.of(self, len(trace.jobs), seed)
        names = _names([trace.jobs[row].name for row in sample.chosen])
        order = stream(seed, "swim", "order").permutation(len(sample.chosen)).tolist()
        bounds = np.linspace(0, len(order), self.batches + 1).round().astype(int).tolist()
        jobs = [
            self._request(names[k], trace.jobs[sample.chosen[k]], draws, sample.chosen[k], batch)
            for batch in range(self.batches)
            for k in order[bounds[batch] : bounds[batch + 1]]
        ]
        return tuple(jobs), sample

    def _request(self, name: str, job: SwimJob, draws: _Draws, row: int, batch: int) -> JobRequest:
        n_vms = job.tasks(self.block_bytes)
        took_s = self.start_s + bytes_per_vm(job, n_vms) / self.vm_bytes_per_s
        bandwidth_bps = int(draws.bandwidth_bps[row])
        profile = linear_profile(bandwidth_bps, took_s, float(draws.speedup[row]))
        return JobRequest(
            id=name,
            submit_s=batch * self.spacing_s,
            n_vms=n_vms,
            bandwidth_bps=bandwidth_bps,
            duration_s=took_s,
            deadline_s=float(draws.deadline[row]) * took_s,
            value=float(draws.value[row]),
            tags=(("batch", str(batch + 1)),),
            demand=Transfer(self.pattern, profile=profile),
        )


def _names(chosen: Sequence[str]) -> list[str]:
    """Ids: a job's name, and with a number from its second time on."""
    times: dict[str, int] = {}
    out = []
    for name in chosen:
        times[name] = times.get(name, 0) + 1
        out.append(name if times[name] == 1 else f"{name}-{times[name]}")
    return out


def bytes_per_vm(job: SwimJob, n_vms: int) -> float:
    """Bytes that one VM reads, shuffles and writes."""
    return (job.map_bytes + job.shuffle_bytes + job.output_bytes) / n_vms


@dataclass(frozen=True, eq=False)
class _Draws:
    """Draws for every job of the trace, chosen or not: a job keeps its draws in any sample.

    Every quantity has a stream of its own, and draws quantiles: changing one distribution, or its
    range, changes nothing else and keeps the jobs' order.
    """

    value: Floats
    deadline: Floats
    speedup: Floats
    bandwidth_bps: Floats

    @classmethod
    def of(cls, recipe: ElasticJobs, jobs: int, seed: int) -> _Draws:
        def uniform(name: str, ends: Sequence[float]) -> Floats:
            low, high = ends
            return low + (high - low) * stream(seed, "swim", name).random(jobs)

        most_bps = recipe.link_bps / 2
        wanted = uniform("bandwidth", (0.0, 2.0 * recipe.bandwidth_bps))
        return cls(
            uniform("value", recipe.value),
            uniform("deadline", recipe.deadline),
            uniform("speedup", recipe.speedup),
            np.clip(np.rint(wanted), min(recipe.least_bps, most_bps), most_bps),
        )
