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
