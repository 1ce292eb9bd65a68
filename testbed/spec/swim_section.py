"""``workload: {kind: swim}``: elastic jobs of a Hadoop trace, in batches: JSA's
(Section V.A).

The trace has bytes and numbers of tasks. JSA's authors measured running times
and bandwidths on their own cluster; the section's keys replace those
measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from jobs.demand import Pattern, Transfer
from jobs.job_profile import STEEPEST, linear_profile
from jobs.request import JobRequest
from jobs.workload.distributions import (
    Floats,
    Ints,
    Sample,
    stratified,
    stream,
)
from jobs.workload.swim import BLOCK_BYTES, SwimJob, read_swim
from jobs.workload.traces import Trace
from testbed.spec.document import Location
from testbed.spec.topology_section import LoadContext
from testbed.spec.trace_sections import TraceWorkload
from testbed.spec.unit_types import (
    Duration,
    PositiveBandwidth,
    PositiveDuration,
)
from testbed.spec.workload_section import NO_JOBS, LoadedWorkload
from testbed.units import (
    human_bandwidth,
    human_duration,
    number_of,
)

_LEAST_LINK_BPS = 2

Number = Annotated[float, Field(ge=0, le=1e9)]
Ends = Annotated[list[Number], Field(min_length=2, max_length=2)]
Times = Annotated[list[Duration], Field(min_length=2, max_length=2)]


class SwimWorkload(TraceWorkload):
    """Jobs of a Hadoop trace with deadlines, rewards and a speed-up by
    bandwidth (JSA).
    """

    kind: Literal["swim"]
    jobs: Annotated[int, Field(ge=1, le=100_000)] = 2500
    """how many jobs are taken (default 2500)"""
    vms: Annotated[float, Field(ge=1, le=1e6)] | Literal["as-is"] = 25.0
    """VMs per job on average, by stratified sampling (default 25);
    as-is: a plain sample
    """
    largest: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """jobs with more VMs are left out (default 100)"""
    longest: PositiveDuration | None = None
    """jobs that run for longer at B̄ are left out (default: none)"""
    batches: Annotated[int, Field(ge=1, le=100_000)] = 5
    """in how many batches they arrive (default 5)"""
    spacing: Duration = 30.0
    """between two batches (default 30 s)"""
    start_up: PositiveDuration = 20.0
    """running time of a job whatever its bytes (default 20 s)"""
    vm_rate: PositiveBandwidth = 80_000_000
    """how fast one VM works through its bytes (default 80 Mbit/s)"""
    bandwidth: PositiveBandwidth = 200_000_000
    """B̄ on average, uniform from 0 (default 200 Mbit/s)"""
    least_bandwidth: PositiveBandwidth = 1_000_000
    """B̄ is no less than that (default 1 Mbit/s)"""
    reward: Ends = Field([100.0, 1000.0])
    """uniform (default [100, 1000])"""
    deadline_factor: Ends = Field([2.0, 7.0])
    """deadline over running time at B̄, uniform (default [2, 7])"""
    deadline_slack: Times | None = None
    """deadline less running time at B̄, uniform, in place of the factor
    (default: the factor)
    """
    speedup: Ends = Field([0.0, 0.14])
    """α, uniform (default [0, 0.14])"""
    pattern: Pattern = "all-to-all"
    """communication pattern (default all-to-all)"""
    volume: Literal["profile", "fixed"] = "profile"
    """bytes of a job that is given B: all that B carries in the time of its
    profile (default), or those of B̄ and its time, whatever it is given
    """

    def loaded(
        self, location: Location, context: LoadContext
    ) -> LoadedWorkload:
        self.with_defaults()._check(location)  # noqa: SLF001 - its own kind
        read = self.read(location, read_swim)
        if read is None or not location.is_sound():
            return NO_JOBS
        trace, path = read
        link_bps = _server_link_bps(context)
        if link_bps < _LEAST_LINK_BPS:
            half = "a job asks for half of a server's link at most, and for 1 bit/s at least"
            Location(location.document, ("topology", "links")).report(
                f"{half}: give one of them {_LEAST_LINK_BPS} bit/s"
            )
            return NO_JOBS
        try:
            jobs, sample = self.requests(trace, context.seed, link_bps)
        except ValueError as objection:
            bound = ""
            if self.longest is not None:
                bound = f", of those that run for {human_duration(self.longest)} at most"
            location.report(f"{objection}{bound}", "jobs")
            return NO_JOBS
        facts = {
            **self.provenance(path),
            **_facts(trace, jobs, sample),
            "parameters": self._parameters(link_bps),
        }
        return LoadedWorkload(
            jobs,
            facts=facts,
            notes=tuple(_swim_notes(facts)),
        )

    def _check(self, location: Location) -> None:
        if self.batches > self.jobs:
            location.report(
                f"{self.jobs} jobs cannot come in {self.batches} batches",
                "batches",
            )
        if self.vms != "as-is" and self.vms > self.largest:
            location.report(
                f"a mean of {self.vms:g} VMs with {self.largest} at most",
                "vms",
            )
        for key in ("reward", "deadline_factor"):
            low, high = self[key]
            if low > high:
                location.report(
                    "a range rises from a number of at least 0", key
                )
        slack = self.deadline_slack
        if slack is not None and slack[0] > slack[1]:
            location.report(
                "a range rises from a time of at least 0 s",
                "deadline_slack",
            )
        if not self.speedup[0] <= self.speedup[1] < STEEPEST:
            location.report(
                f"must rise, from at least 0 to below {STEEPEST}", "speedup"
            )

    def _parameters(self, link_bps: int) -> dict[str, Any]:
        """The keys as provenance names them."""
        bounds: dict[str, Any] = {}
        if self.longest is not None:
            bounds["longest_s"] = self.longest
        if self.deadline_slack is not None:
            bounds["slack_s"] = self.deadline_slack
        return {
            **bounds,
            "count": self.jobs,
            "vms": None if self.vms == "as-is" else self.vms,
            "largest": self.largest,
            "batches": self.batches,
            "spacing_s": self.spacing,
            "start_s": self.start_up,
            "vm_bytes_per_s": self.vm_rate / 8,
            "bandwidth_bps": float(self.bandwidth),
            "least_bps": float(self.least_bandwidth),
            "link_bps": link_bps,
            "value": self.reward,
            "deadline": self.deadline_factor,
            "speedup": self.speedup,
            "block_bytes": BLOCK_BYTES,
            "pattern": self.pattern,
            "volume": self.volume,
        }

    def requests(
        self, trace: Trace[SwimJob], seed: int, link_bps: int
    ) -> tuple[tuple[JobRequest, ...], Sample]:
        """The jobs, batch by batch, and the sample that they are. Raises
        ValueError where there is no such sample.

        No job asks for more than half of ``link_bps``.
        """
        sample = self._sample(trace, seed)
        draws = self._draws(len(trace.jobs), seed, link_bps)
        names = _names([trace.jobs[row].name for row in sample.chosen])
        # Shuffled, since the sample is in the trace's order.
        order = stream(seed, "swim", "order").permutation(
            len(sample.chosen)
        )
        jobs = []
        for batch, members in enumerate(self._batches(order)):
            for at in members.tolist():
                row = sample.chosen[at]
                values = {
                    name: float(column[row])
                    for name, column in draws.items()
                }
                jobs.append(
                    self._request(names[at], trace.jobs[row], values, batch)
                )
        return tuple(jobs), sample

    def _batches(self, order: Ints) -> Iterator[Ints]:
        """The members of each batch; batches are as equal as whole numbers can
        be.
        """
        bounds = np.linspace(0, len(order), self.batches + 1).round()
        for first, last in pairwise(bounds.astype(int)):
            yield order[first:last]

    def _sample(self, trace: Trace[SwimJob], seed: int) -> Sample:
        """The sample of jobs. Raises ValueError where the trace has too few for
        the wanted mean.
        """
        sizes = list(map(self._size, trace.jobs))
        if self.vms != "as-is":
            return stratified(
                sizes,
                count=self.jobs,
                mean=self.vms,
                largest=self.largest,
                seed=seed,
            )
        fit = np.flatnonzero(np.array(sizes) <= self.largest)
        if len(fit) < self.jobs:
            raise ValueError(
                f"{self.jobs} jobs asked, {len(fit)} have {self.largest} VMs or less"
            )
        order = stream(seed, "swim", "sample").permutation(len(fit))
        # Sorted, since a sample keeps the trace's order.
        chosen = np.sort(fit[order[: self.jobs]])
        mean_size = float(np.mean(np.array(sizes)[chosen]))
        return Sample(tuple(chosen.tolist()), mean_size, 0)

    def _size(self, job: SwimJob) -> int:
        """VMs of a job; a number above the largest leaves out a job that runs too
        long.
        """
        if self.longest is not None and self._run_s(job) > self.longest:
            return self.largest + 1
        return job.tasks

    def _run_s(self, job: SwimJob) -> float:
        """The running time at B̄, which the trace lacks, from start-up and rate."""
        return self.start_up + job.bytes_per_vm / (self.vm_rate / 8)

    def _draws(
        self, jobs: int, seed: int, link_bps: int
    ) -> dict[str, Floats]:
        """Draws for every job of the trace, so that a job has the same ones in any
        sample.

        Every quantity has a stream of quantiles: another range of one quantity
        changes no other, and keeps the order of the jobs.
        """
        ends: dict[str, Sequence[float]] = {
            "value": self.reward,
            # A slack takes the factor's quantiles: a job that has the most of
            # one has the most of the other.
            "deadline": self.deadline_slack or self.deadline_factor,
            "speedup": self.speedup,
            "bandwidth": (0.0, 2.0 * self.bandwidth),
        }
        draws = {}
        for name, (low, high) in ends.items():
            quantile = stream(seed, "swim", name).random(jobs)
            draws[name] = low + (high - low) * quantile
        most_bps = link_bps / 2
        least_bps = min(self.least_bandwidth, most_bps)
        # Bandwidths are whole bit/s.
        draws["bandwidth"] = np.clip(
            np.rint(draws["bandwidth"]), least_bps, most_bps
        )
        return draws

    def _request(
        self,
        name: str,
        job: SwimJob,
        values: Mapping[str, float],
        batch: int,
    ) -> JobRequest:
        took_s = self._run_s(job)
        bandwidth_bps = int(values["bandwidth"])
        profile = linear_profile(bandwidth_bps, took_s, values["speedup"])
        deadline_s = values["deadline"] * took_s
        if self.deadline_slack is not None:
            deadline_s = took_s + values["deadline"]
        return JobRequest(
            id=name,
            submit_s=batch * self.spacing,
            n_vms=job.tasks,
            bandwidth_bps=bandwidth_bps,
            duration_s=took_s,
            deadline_s=deadline_s,
            value=values["value"],
            tags=(("batch", str(batch + 1)),),
            demand=Transfer(
                self.pattern,
                profile=profile,
                keeps_volume=self.volume == "fixed",
            ),
        )


def _server_link_bps(context: LoadContext) -> int:
    """The fastest server's link; 1 Gbit/s where it cannot be read."""
    centre = context.datacentre
    if centre is None or not context.links_known or not centre.n_links:
        return 10**9
    return int(centre.nic_bps.max())


def _facts(
    trace: Trace[SwimJob], jobs: Sequence[JobRequest], sample: Sample
) -> dict[str, Any]:
    """Facts on the trace and on the jobs taken of it."""
    mean_bps = sum(job.bandwidth_bps for job in jobs) / len(jobs)
    return {
        "lines_left_out": trace.skipped,
        "remarks": list(trace.remarks),
        "trace_jobs": len(trace.jobs),
        "jobs": len(jobs),
        "mean_vms": sample.mean,
        "large_jobs": sample.large,
        "taken_again": sample.again,
        "mean_run_s": sum(job.duration_s for job in jobs) / len(jobs),
        "mean_bandwidth_bps": mean_bps,
    }


def _names(chosen: Sequence[str]) -> list[str]:
    """Ids: a job's name, from its second occurrence on with a number."""
    last_number: dict[str, int] = {}
    taken = set(chosen)
    ids = []
    for name in chosen:
        if name not in last_number:
            last_number[name] = 1
            ids.append(name)
            continue
        job_id = name
        # A numbered name may be that of another job.
        while job_id in taken:
            last_number[name] += 1
            job_id = f"{name}-{last_number[name]}"
        taken.add(job_id)
        ids.append(job_id)
    return ids


def _swim_notes(facts: Mapping[str, Any]) -> list[str]:
    out = [
        f"{facts['path']}: {number_of(facts['trace_jobs'], 'job')} from {facts['file']}"
    ]
    if facts["is_the_published_file"] is False:
        out.append(
            "its checksum is not that of the published trace of this name"
        )
    if facts["lines_left_out"]:
        out.append(f"{number_of(facts['lines_left_out'], 'line')} left out")
    out.extend(facts["remarks"])
    parameters = facts["parameters"]
    jobs = number_of(facts["jobs"], "job")
    batches = number_of(parameters["batches"], "batch", "batches")
    out.append(
        f"{jobs} of {facts['mean_vms']:.1f} VMs on average ({_sampling(facts)}) in"
        f" {batches} {human_duration(parameters['spacing_s'])} apart;"
        f" {human_duration(facts['mean_run_s'])} at"
        f" {human_bandwidth(facts['mean_bandwidth_bps'])} on average"
    )
    return out


def _sampling(facts: Mapping[str, Any]) -> str:
    """The kind of sample, and how many jobs it has more than once."""
    mean = facts["parameters"]["vms"]
    how = "a plain sample"
    # The trace's median is one task: only a stratified sample has a large mean.
    if mean is not None:
        large = f"{facts['large_jobs']:,} of them of {mean:g}"
        how = f"a stratified sample, {large} or more"
    if facts["taken_again"]:
        how += f", {facts['taken_again']:,} of them again"
    return how
