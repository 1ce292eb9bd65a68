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
from jobs.workload.distributions import Floats, Ints, stream
from jobs.workload.traces import whole_number

SHORTEST_S = 1.0
CPU_STEPS = 10_000
_BLOCK = 4096

HoseRule = Literal["clip", "printed", "mean"]

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

    ``number`` names a job, ``line`` is where a file asks for it (0: nowhere).
    ``stated_s`` is NaN where no running time was stated; ``user`` and ``queue``
    are -1 where unknown. ``cpu_steps`` are the CPU uses of all processes, job
    after job, in 1/10,000 of a node; None: all of it. ``stated_steps`` are the
    uses that schedulers see, where they differ from the true ones.
    """

    number: Ints
    submit_s: Floats
    processes: npt.NDArray[np.int32]
    run_s: Floats
    stated_s: Floats
    bandwidth_bps: Ints
    user: npt.NDArray[np.int32]
    queue: npt.NDArray[np.int32]
    line: npt.NDArray[np.int32]
    cpu_steps: npt.NDArray[np.uint16] | None = None
    stated_steps: npt.NDArray[np.uint16] | None = None

    def __len__(self) -> int:
        return len(self.number)

    @property
    def span_s(self) -> float:
        """From the first submission to the last."""
        return (
            float(self.submit_s[-1] - self.submit_s[0])
            if len(self)
            else 0.0
        )

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

    def at_load(self, load: float, slots: int) -> ParallelJobs:
        """The same jobs with their arrivals stretched or squeezed, from 0 s on."""
        factor = self.load(slots) / load
        return replace(
            self, submit_s=(self.submit_s - self.submit_s[0]) * factor
        )

    def from_zero(self) -> ParallelJobs:
        """The same jobs with the first one submitted at 0 s."""
        return (
            replace(self, submit_s=self.submit_s - self.submit_s[0])
            if len(self)
            else self
        )

    def in_vms(self, processes_per_vm: int) -> ParallelJobs:
        """The same jobs with that many processes in each VM; ⌈n/k⌉ VMs a job."""
        vms = -(-self.processes // processes_per_vm)
        return replace(self, processes=vms.astype(np.int32))

    def with_cpu_use(
        self, low: float, high: float, seed: int
    ) -> ParallelJobs:
        """CPU use of every process: 100 % where a job has one, else uniform
        (CMBF, Section 5.2).
        """
        total = int(self.processes.sum())
        steps = _steps(stream(seed, "cpu use").uniform(low, high, total))
        ends = np.cumsum(self.processes)
        steps[ends[self.processes == 1] - 1] = CPU_STEPS
        return replace(self, cpu_steps=steps)

    def with_cpu_error(self, error: float, seed: int) -> ParallelJobs:
        """Adds a uniform error, at most ``error`` of a node, to the CPU uses
        that schedulers see.

        Needs :meth:`with_cpu_use` first.
        """
        if self.cpu_steps is None:
            return self
        wrong = stream(seed, "cpu told").uniform(
            -error, error, len(self.cpu_steps)
        )
        return replace(
            self, stated_steps=_steps(self.cpu_steps / CPU_STEPS + wrong)
        )

    def with_cpu_stated(self, use: float) -> ParallelJobs:
        """Hides the CPU uses: schedulers see ``use`` for every process."""
        if self.cpu_steps is None:
            return self
        return replace(
            self, stated_steps=_steps(np.full(len(self.cpu_steps), use))
        )

    def overestimated(self, most: float, seed: int) -> ParallelJobs:
        """Stated running times: the true ones times a factor, uniform from 1 to
        ``most``.
        """
        factor = stream(seed, "overestimate").uniform(1.0, most, len(self))
        return replace(self, stated_s=self.run_s * factor)


def _steps(uses: Floats) -> npt.NDArray[np.uint16]:
    return np.clip(np.rint(uses * CPU_STEPS), 1, CPU_STEPS).astype(
        np.uint16
    )


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
        for start in range(0, len(self), _BLOCK):
            yield from self._rows(start, min(start + _BLOCK, len(self)))

    def id_of(self, row: int) -> str:
        """The name of the job in a row."""
        return f"job-{int(self.jobs.number[row]):0{self._digits}}"

    def row_of(self, job_id: str) -> int | None:
        """The row of a job by its name; None where there is none. O(n)."""
        number = whole_number(job_id.removeprefix("job-"), 18)
        rows = (
            np.flatnonzero(self.jobs.number == number)
            if number is not None
            else ()
        )
        return next(
            (int(row) for row in rows if self.id_of(int(row)) == job_id),
            None,
        )

    @property
    def _digits(self) -> int:
        return max(5, len(str(int(self.jobs.number.max(initial=0)))))

    def _rows(self, start: int, end: int) -> Iterator[JobRequest]:
        jobs = self.jobs
        part = slice(start, end)
        digits = self._digits
        uses = self._shares(jobs.cpu_steps, 1.0, start, end)
        stated = self._shares(jobs.stated_steps, None, start, end)
        columns = (
            jobs.number,
            jobs.submit_s,
            jobs.processes,
            jobs.run_s,
            jobs.stated_s,
            jobs.bandwidth_bps,
            jobs.user,
            jobs.queue,
        )
        moving = Transfer(self.pattern)
        still = Compute()
        rows = zip(
            *(column[part].tolist() for column in columns), strict=True
        )
        for (
            number,
            submit_s,
            n,
            run_s,
            stated_s,
            bandwidth_bps,
            user,
            queue,
        ) in rows:
            use = next(uses) or 1.0
            estimate = next(stated)
            demand: Transfer | Compute = moving if bandwidth_bps else still
            if use != 1.0 or estimate is not None:
                demand = replace(demand, cpu_use=use, cpu_estimate=estimate)
            yield JobRequest(
                id=f"job-{number:0{digits}}",
                submit_s=submit_s,
                n_vms=n,
                bandwidth_bps=bandwidth_bps,
                duration_s=run_s,
                demand=demand,
                estimate_s=None if math.isnan(stated_s) else stated_s,
                user=None if user < 0 else str(user),
                queue=None if queue < 0 else str(queue),
            )

    def _shares(
        self,
        steps: npt.NDArray[np.uint16] | None,
        absent: float | None,
        start: int,
        end: int,
    ) -> Iterator[float | tuple[float, ...] | None]:
        """The shares of each job's processes, from the columns of all of them."""
        processes = self.jobs.processes
        at = int(processes[:start].sum()) if steps is not None else 0
        for n in processes[start:end].tolist():
            if steps is None:
                yield absent
            else:
                yield tuple(
                    step / CPU_STEPS for step in steps[at : at + n].tolist()
                )
                at += n


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
        self, seed: int, vms: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int64]:
        """B of each job in bit/s, at least 1. Job k's normal number depends on
        seed and k alone.
        """
        if self.rule == "mean" and self.mean_bps is not None:
            return self._of_mean(seed, len(vms), self.mean_bps)
        most = self.link_bps * self.servers / vms.astype(np.float64)
        if self.cap_bps is not None:
            most = np.minimum(most, self.cap_bps)
        if self.rule == "printed":
            asked = most
        else:
            noise = stream(seed, "bandwidth").standard_normal(len(vms))
            mean = MEAN_OF_MAX * most
            asked = np.clip(
                mean * (1.0 + self.sigma * noise), most / 10.0, most
            )
        return np.maximum(np.rint(asked), 1).astype(np.int64)

    def _of_mean(
        self, seed: int, count: int, mean_bps: int
    ) -> npt.NDArray[np.int64]:
        noise = stream(seed, "bandwidth").standard_normal(count)
        scaled = np.clip(MEAN_OF_MAX * (1.0 + self.sigma * noise), 0.1, 1.0)
        scaled *= mean_bps / scaled.mean()
        return np.maximum(np.rint(scaled), 1).astype(np.int64)


def in_order(
    submit_s: Floats,
    processes: npt.NDArray[np.int64],
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
        line=np.zeros(n, dtype=np.int32),
    )
