"""Parallel jobs of traces and workload models as columns, for up to millions.

One row is one job and takes some 60 bytes. :class:`Requests` makes the request
of a row only when it is needed.
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

# Running times below it are raised to it, in seconds.
SHORTEST_S = 1.0
# Steps of CPU use from none to a whole node.
CPU_STEPS = 10_000
# As of a link; much more overflows the integers of a column.
_MOST_BPS = 10**15
# Rows that are converted to requests together.
_BLOCK = 4096

HoseRule = Literal["clip", "printed", "mean"]
CpuSteps = npt.NDArray[np.uint16]
"""CPU uses of processes, in 1/CPU_STEPS of a node."""

MEAN_OF_MAX = 0.55
"""Avg_B / Max_B: the middle of the range from 0.1 to 1 (AdaBa, Section 5.2)."""

CAP_BPS = 455_000_000
"""Limit of Max_B in bit/s that reproduces the means of AdaBa's Table 1: 0.55 of
it are 250 Mbit/s.
"""


class NoSpan(ValueError):
    """The jobs have no load to scale: all are submitted at once, or they hold
    no work.
    """


@dataclass(frozen=True, eq=False)
class ParallelJobs:
    """Columns in order of submission, shapes ``(n,)``.

    - ``number``: part of a job's id.
    - ``stated_s``: running time that the user stated; NaN without one.
    - ``user``, ``queue``: -1 where unknown.
    - ``cpu_steps``, ``(processes.sum(),)``: CPU uses of all processes, job by
      job; None if each uses a whole node.
    - ``stated_steps``: CPU uses that schedulers see, like ``cpu_steps``; None
      if they see the true ones.
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
        """Time from the first submission to the last."""
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
        """The same jobs at another load: submission times are scaled and begin
        at 0 s. Raises :class:`NoSpan`.
        """
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
        """The same jobs in VMs that hold k processes: a job of n processes has
        ⌈n/k⌉ VMs, which are the result's ``processes``.
        """
        vms = -(-self.processes // processes_per_vm)
        return replace(self, processes=vms.astype(np.int32))

    def with_cpu_use(
        self,
        low: float,
        high: float,
        seed: int,
    ) -> ParallelJobs:
        """The same jobs with CPU uses (CMBF, Section 5.2).

        The process of a serial job uses a whole node; that of a parallel job a
        share of it, uniform from ``low`` to ``high``.
        """
        total = int(self.processes.sum())
        # Serial jobs take a random number too, so that the numbers of the
        # other jobs do not depend on which jobs are serial.
        steps = _steps(stream(seed, "cpu use").uniform(low, high, total))
        ends = np.cumsum(self.processes)
        steps[ends[self.processes == 1] - 1] = CPU_STEPS
        return replace(self, cpu_steps=steps)

    def with_cpu_error(
        self,
        error: float,
        seed: int,
    ) -> ParallelJobs:
        """The same jobs with errors in the CPU uses that schedulers see.

        An error is uniform, of at most ``error`` of a node. Without CPU uses
        (:meth:`with_cpu_use`) nothing changes.
        """
        if self.cpu_steps is None:
            return self
        errors = stream(seed, "cpu told").uniform(
            -error, error, len(self.cpu_steps)
        )
        stated = self.cpu_steps / CPU_STEPS + errors
        return replace(self, stated_steps=_steps(stated))

    def with_cpu_stated(self, use: float) -> ParallelJobs:
        """The same jobs, of whose processes schedulers see the CPU use ``use``.

        Without CPU uses (:meth:`with_cpu_use`) nothing changes.
        """
        if self.cpu_steps is None:
            return self
        stated = np.full(len(self.cpu_steps), use)
        return replace(self, stated_steps=_steps(stated))

    def overestimated(
        self,
        most: float,
        seed: int,
    ) -> ParallelJobs:
        """The same jobs with stated running times: the true time times a factor
        that is uniform from 1 to ``most``.
        """
        factor = stream(seed, "overestimate").uniform(1.0, most, len(self))
        return replace(self, stated_s=self.run_s * factor)


def _steps(uses: Floats) -> CpuSteps:
    """CPU uses as steps, from shares of a node."""
    # At least one step, since requests refuse a CPU use of 0.
    steps = np.clip(np.rint(uses * CPU_STEPS), 1, CPU_STEPS)
    return steps.astype(np.uint16)


@dataclass(frozen=True, eq=False)
class Requests(JobStream):
    """The jobs as requests, each made when it is read.

    Ids have leading zeros, so they sort in the order of the jobs' numbers.
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
        # In blocks, so that a caller that stops early converts few rows.
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
        # Converting a column at once is much faster than reading an array's
        # items, each of which becomes an object of numpy's.
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
        """The demand of each row: Transfer if it has bandwidth, else Compute.

        Rows without CPU uses refer to common objects.
        """
        jobs = self.jobs
        transfer = Transfer(self.pattern)
        compute = Compute()
        uses = self._cpu_uses(jobs.cpu_steps, start, end)
        estimates = self._cpu_uses(jobs.stated_steps, start, end)
        for bandwidth_bps in jobs.bandwidth_bps[start:end].tolist():
            use = next(uses) or 1.0
            estimate = next(estimates)
            demand: Transfer | Compute = (
                transfer if bandwidth_bps else compute
            )
            if use != 1.0 or estimate is not None:
                demand = replace(demand, cpu_use=use, cpu_estimate=estimate)
            yield demand

    def _cpu_uses(
        self,
        steps: CpuSteps | None,
        start: int,
        end: int,
    ) -> Iterator[tuple[float, ...] | None]:
        """CPU uses of each job's processes, as shares of a node; None for each
        job without the column.
        """
        processes = self.jobs.processes
        if steps is None:
            yield from [None] * (end - start)
            return
        # The processes of all jobs before the block come first.
        at = int(processes[:start].sum())
        for n in processes[start:end].tolist():
            yield tuple(
                step / CPU_STEPS for step in steps[at : at + n].tolist()
            )
            at += n


def _name(number: int) -> str | None:
    """The name of a user or a queue from its number; None if it is unknown."""
    return None if number < 0 else str(number)


@dataclass(frozen=True)
class HoseDemand:
    """Bandwidth B for logs that record none, as AdaBa's evaluation assigns it
    (Section 5.2).

    ``Max_B`` = link · servers / VMs is the share of a job's VM if the job has
    every server's link to itself, at most ``cap_bps`` (None: no limit). Avg_B
    is 0.55·Max_B, and ``sigma`` the standard deviation as a share of Avg_B. B
    depends on ``rule``:

    - ``clip``: normal around Avg_B, clipped to ``[Max_B/10, Max_B]``.
    - ``printed``: Max_B, as the printed ``max(min(Min_B, x), Max_B)`` is Max_B
      for any x.
    - ``mean``: distributed as by ``clip`` with one Max_B for all jobs, which
      makes their mean exactly ``mean_bps`` (AdaBa, Fig. 4).
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
        """B of each job in bit/s, at least 1, shape ``(n,)``.

        The random number of job k depends on ``seed`` and k alone.
        """
        noise = stream(seed, "bandwidth").standard_normal(len(vms))
        factor = 1.0 + self.sigma * noise
        if self.rule == "mean" and self.mean_bps is not None:
            scaled = np.clip(MEAN_OF_MAX * factor, 0.1, 1.0)
            # Clipping has moved the mean, so the scale follows it. It scales
            # the bounds too.
            scaled *= self.mean_bps / scaled.mean()
            return _whole_bps(scaled)
        max_bps = self.link_bps * self.servers / vms.astype(np.float64)
        if self.cap_bps is not None:
            max_bps = np.minimum(max_bps, self.cap_bps)
        if self.rule == "printed":
            return _whole_bps(max_bps)
        normal_bps = MEAN_OF_MAX * max_bps * factor
        return _whole_bps(np.clip(normal_bps, max_bps / 10.0, max_bps))


def _whole_bps(rates_bps: Floats) -> Ints:
    """Rates as whole numbers from 1 bit/s to 1000 Tbit/s."""
    whole_bps = np.clip(np.rint(rates_bps), 1, _MOST_BPS)
    return whole_bps.astype(np.int64)


def in_order(
    submit_s: Floats,
    processes: Ints,
    run_s: Floats,
    count: int,
) -> ParallelJobs:
    """The first ``count`` jobs by submission, numbered from 1.

    Jobs of the same time keep their order. Arguments have shape ``(n,)``.
    """
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
