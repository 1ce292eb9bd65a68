"""What workload models of parallel jobs have in common: how many, how loaded, how calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from jobs.workload.parallel import Floats, ParallelJobs
from jobs.workload.streams import stream

SHORTEST_S = 1.0


@dataclass(frozen=True)
class Calibration:
    """One figure of a model: what its law was set to, and what was drawn."""

    what: str
    wanted: float
    drawn: float
    unit: str = ""


class Model(Protocol):
    """A model: draws jobs whose natural load on so many slots is about ``load``."""

    def draw(self, seed: int, slots: int, load: float) -> ParallelJobs: ...

    def calibration(self, jobs: ParallelJobs) -> tuple[Calibration, ...]: ...


def in_order(
    submit_s: Floats, processes: npt.NDArray[np.int64], run_s: Floats, count: int
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


def choose(seed: int, names: Sequence[str], values: Floats, weights: Floats, count: int) -> Floats:
    """``count`` of the values, each with probability as its weight; a prefix never changes."""
    ends = np.cumsum(weights / weights.sum())
    drawn = stream(seed, *names).random(count)
    return values[np.minimum(np.searchsorted(ends, drawn, side="right"), len(values) - 1)]


@dataclass(frozen=True)
class ExponentialJobs:
    """Poisson arrivals, exponential running times, sizes uniform from 1 to 2·``mean_vms`` - 1.

    The random jobs of AdaBa's Fig. 4, whose paper gives the mean size alone. Other seeds give other
    jobs; their load is set by stretching the arrivals.
    """

    jobs: int = 1000
    mean_vms: int = 8
    mean_run_s: float = 3600.0

    def draw(self, seed: int, slots: int, load: float) -> ParallelJobs:  # noqa: ARG002
        """The jobs, a second apart on average: the load is the caller's to set."""
        vms = stream(seed, "sizes").integers(1, 2 * self.mean_vms, self.jobs)
        run_s = stream(seed, "running times").exponential(self.mean_run_s, self.jobs)
        submit_s = np.cumsum(stream(seed, "arrivals").exponential(1.0, self.jobs))
        return in_order(submit_s, vms, run_s, self.jobs)

    def calibration(self, jobs: ParallelJobs) -> tuple[Calibration, ...]:
        """Mean size and running time, as set and as they came out."""
        return (
            Calibration("mean VMs", self.mean_vms, float(jobs.processes.mean())),
            Calibration("mean running time", self.mean_run_s, float(jobs.run_s.mean()), "s"),
        )
