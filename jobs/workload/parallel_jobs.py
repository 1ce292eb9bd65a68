"""Parallel jobs of traces and workload models as columns, a million of them at
need.

One row is one job; requests are made of rows one at a time (:class:`Requests`),
so that a large trace costs some 60 bytes a job until a job is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

import numpy as np
import numpy.typing as npt

from jobs.demand import Compute, Pattern, Transfer
from jobs.request import JobRequest, JobStream
from jobs.workload.distributions import Floats, Ints, Ints32, stream

SHORTEST_S = 1.0
CPU_STEPS = 10_000
_BLOCK = 4096

HoseRule = Literal["clip", "printed", "mean"]
CpuSteps = npt.NDArray[np.uint16]
"""CPU uses in 1/10,000 of a node."""

MEAN_OF_MAX = 0.55
"""Avg_B over Max_B: halfway between a tenth of it and the whole."""

CAP_BPS = 455_000_000
"""The cap of Max_B that gives the means of the paper's Table 1 (250 Mbit/s =
0.55 of it).
"""


class NoSpan(ValueError):
    """Jobs that are all submitted at once, or hold no work: they have no load
    to scale.
    """


@dataclass(frozen=True, eq=False)
class ParallelJobs:
    """Columns in order of submission, shapes ``(n,)``.

    ``number`` names a job. ``stated_s`` is NaN where no running time was
    stated; ``user`` and ``queue`` are -1 where unknown. ``cpu_steps`` are the
    CPU uses of all processes, job after job; None: each uses a whole node.
    ``stated_steps`` are the uses that schedulers see, where they differ from
    the true ones.
    """

    number: Ints
    submit_s: Floats
    processes: Ints32
    run_s: Floats
    stated_s: Floats
    bandwidth_bps: Ints
    user: Ints32
    queue: Ints32
    cpu_steps: CpuSteps | None = None
    stated_steps: CpuSteps | None = None

    def __len__(self) -> int:
        return len(self.number)

    @property
    def span_s(self) -> float:
        """From the first submission to the last."""
        if not len(self):
            return 0.0
        return float(self.submit_s[-1] - self.submit_s[0])

    @property
    def work_s(self) -> float:
        """Σ n·t: process-seconds."""
        return float(np.dot(self.processes.astype(np.float64), self.run_s))

    def load(self, slots: int) -> float:
        """System load Σ(n·t) / (slots·span); raises :class:`NoSpan`."""
        if self.span_s <= 0 or self.work_s <= 0:
            raise NoSpan(
                "all jobs are submitted at once: they have no load"
            )
        return self.work_s / (slots * self.span_s)

    def at_load(
        self,
        load: float,
        slots: int,
    ) -> ParallelJobs:
        """The same jobs with their arrivals stretched or squeezed, from 0 s on."""
        # At half the load the same work arrives in twice the time.
        factor = self.load(slots) / load
        since_s = self.submit_s - self.submit_s[0]
        return replace(self, submit_s=since_s * factor)

    def from_zero(self) -> ParallelJobs:
        """The same jobs with the first one submitted at 0 s."""
        if not len(self):
            return self
        return replace(self, submit_s=self.submit_s - self.submit_s[0])

    def in_vms(self, processes_per_vm: int) -> ParallelJobs:
        """The same jobs with that many processes in each VM; ⌈n/k⌉ VMs a job."""
        vms = -(-self.processes // processes_per_vm)
        return replace(self, processes=vms.astype(np.int32))

    def with_cpu_use(
        self,
        low: float,
        high: float,
        seed: int,
    ) -> ParallelJobs:
        """CPU use of every process: 100 % where a job has one, else uniform
        (CMBF, Section 5.2).
        """
        total = int(self.processes.sum())
        # A number for each process, also for those that need none: which
        # jobs are serial does not move those of the others.
        steps = _steps(stream(seed, "cpu use").uniform(low, high, total))
        ends = np.cumsum(self.processes)
        steps[ends[self.processes == 1] - 1] = CPU_STEPS
        return replace(self, cpu_steps=steps)

    def with_cpu_error(
        self,
        error: float,
        seed: int,
    ) -> ParallelJobs:
        """Adds a uniform error, at most ``error`` of a node, to the CPU uses
        that schedulers see.

        Needs :meth:`with_cpu_use` first.
        """
        if self.cpu_steps is None:
            return self
        wrong = stream(seed, "cpu told").uniform(
            -error, error, len(self.cpu_steps)
        )
        stated = self.cpu_steps / CPU_STEPS + wrong
        return replace(self, stated_steps=_steps(stated))

    def with_cpu_stated(self, use: float) -> ParallelJobs:
        """Hides the CPU uses: schedulers see ``use`` for every process."""
        if self.cpu_steps is None:
            return self
        stated = np.full(len(self.cpu_steps), use)
        return replace(self, stated_steps=_steps(stated))

    def overestimated(
        self,
        most: float,
        seed: int,
    ) -> ParallelJobs:
        """Stated running times: the true ones times a factor, uniform from 1 to
        ``most``.
        """
        factor = stream(seed, "overestimate").uniform(1.0, most, len(self))
        return replace(self, stated_s=self.run_s * factor)


def _steps(uses: Floats) -> CpuSteps:
    # At least one step: a use of 0 would be a process that does nothing,
    # which requests refuse.
    steps = np.clip(np.rint(uses * CPU_STEPS), 1, CPU_STEPS)
    return steps.astype(np.uint16)


@dataclass(frozen=True, eq=False)
class Requests(JobStream):
    """The jobs as requests, made when they are asked for. Ids sort as the
    numbers do.
    """

    jobs: ParallelJobs
    pattern: Pattern = "ring"

    def __len__(self) -> int:
        return len(self.jobs)

    @overload
    def __getitem__(self, index: int) -> JobRequest: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[JobRequest]: ...

    def __getitem__(
        self, index: int | slice
    ) -> JobRequest | Sequence[JobRequest]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return next(self._rows(row, row + 1))

    def __iter__(self) -> Iterator[JobRequest]:
        # In blocks: whoever stops early has converted no more than one.
        for start in range(0, len(self), _BLOCK):
            yield from self._rows(start, min(start + _BLOCK, len(self)))

    def _rows(
        self,
        start: int,
        end: int,
    ) -> Iterator[JobRequest]:
        jobs = self.jobs
        columns = (
            jobs.number,
            jobs.submit_s,
            jobs.processes,
            jobs.bandwidth_bps,
            jobs.run_s,
            jobs.stated_s,
            jobs.user,
            jobs.queue,
        )
        # Columns as lists: one conversion of thousands of numbers, where an
        # array's items are objects of numpy's one by one.
        lists = [column[start:end].tolist() for column in columns]
        demands = self._demands(start, end)
        digits = max(5, len(str(int(jobs.number.max(initial=0)))))
        for (
            number,
            submit_s,
            n_vms,
            bandwidth_bps,
            run_s,
            stated_s,
            user,
            queue,
            demand,
        ) in zip(*lists, demands, strict=True):
            yield JobRequest(
                id=f"job-{number:0{digits}}",
                submit_s=submit_s,
                n_vms=n_vms,
                bandwidth_bps=bandwidth_bps,
                duration_s=run_s,
                demand=demand,
                estimate_s=None if math.isnan(stated_s) else stated_s,
                user=_name(user),
                queue=_name(queue),
            )

    def _demands(
        self,
        start: int,
        end: int,
    ) -> Iterator[Transfer | Compute]:
        """Demands of rows; jobs with the same share one object."""
        jobs = self.jobs
        moving = Transfer(self.pattern)
        still = Compute()
        uses = self._shares(jobs.cpu_steps, start, end)
        estimates = self._shares(jobs.stated_steps, start, end)
        for bandwidth_bps in jobs.bandwidth_bps[start:end].tolist():
            use = next(uses) or 1.0
            estimate = next(estimates)
            demand: Transfer | Compute = moving if bandwidth_bps else still
            if use != 1.0 or estimate is not None:
                demand = replace(demand, cpu_use=use, cpu_estimate=estimate)
            yield demand

    def _shares(
        self,
        steps: CpuSteps | None,
        start: int,
        end: int,
    ) -> Iterator[tuple[float, ...] | None]:
        """The shares of each job's processes; None without the column."""
        processes = self.jobs.processes
        if steps is None:
            yield from [None] * (end - start)
            return
        # The first process of the block, as its jobs' processes follow
        # those of all jobs before.
        at = int(processes[:start].sum())
        for n in processes[start:end].tolist():
            yield tuple(
                step / CPU_STEPS for step in steps[at : at + n].tolist()
            )
            at += n


def _name(number: int) -> str | None:
    """A user's or queue's; -1 is unknown."""
    return None if number < 0 else str(number)


@dataclass(frozen=True)
class HoseDemand:
    """Bandwidth for logs that record none, as AdaBa's evaluation assigns it
    (Section 5.2).

    ``Max_B`` is what a job's VMs could get were every server's link there for
    them alone: link · servers / VMs. ``B`` is normal around 0.55·Max_B and
    clipped to ``[Max_B/10, Max_B]``. The printed ``max(min(Min_B, x), Max_B)``
    is Max_B whatever x is. ``cap_bps`` limits Max_B (None: nothing does),
    ``sigma`` is a share of Avg_B. By the rule ``mean`` the distribution is that
    of one size of job, scaled such that the mean of all is exactly ``mean_bps``
    (AdaBa, Fig. 4).
    """

    link_bps: int
    servers: int
    cap_bps: int | None = CAP_BPS
    sigma: float = 0.2
    rule: HoseRule = "clip"
    mean_bps: int | None = None

    def draw(
        self,
        seed: int,
        vms: Ints32,
    ) -> Ints:
        """B of each job in bit/s, at least 1. Job k's normal number depends on
        seed and k alone.
        """
        noise = stream(seed, "bandwidth").standard_normal(len(vms))
        factor = 1.0 + self.sigma * noise
        if self.rule == "mean" and self.mean_bps is not None:
            scaled = np.clip(MEAN_OF_MAX * factor, 0.1, 1.0)
            # After clipping, which has moved the mean: the mean is then exact,
            # and the bounds move with it.
            scaled *= self.mean_bps / scaled.mean()
            return _whole_bps(scaled)
        most = self.link_bps * self.servers / vms.astype(np.float64)
        if self.cap_bps is not None:
            most = np.minimum(most, self.cap_bps)
        if self.rule == "printed":
            return _whole_bps(most)
        asked = MEAN_OF_MAX * most * factor
        return _whole_bps(np.clip(asked, most / 10.0, most))


def _whole_bps(rates_bps: Floats) -> Ints:
    return np.maximum(np.rint(rates_bps), 1).astype(np.int64)


def in_order(
    submit_s: Floats,
    processes: Ints,
    run_s: Floats,
    count: int,
) -> ParallelJobs:
    """The first ``count`` jobs by submission (ties: as drawn), numbered from 1."""
    order = np.argsort(submit_s, kind="stable")[:count]
    n = len(order)
    unknown = np.full(n, -1, dtype=np.int32)
    return ParallelJobs(
        number=np.arange(1, n + 1, dtype=np.int64),
        submit_s=submit_s[order],
        processes=processes[order].astype(np.int32),
        run_s=np.maximum(run_s[order], SHORTEST_S),
        stated_s=np.full(n, np.nan),
        bandwidth_bps=np.zeros(n, dtype=np.int64),
        user=unknown,
        queue=unknown,
    )
