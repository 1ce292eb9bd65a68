"""Interference of two VMs on a node: CMBF's parameters (Sections 3 and 5.1), or
others.

Generated once per process, from streams named after the job: the same under
every policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jobs.workload.distributions import stream

if TYPE_CHECKING:
    from jobs.request import JobRequest


@dataclass(frozen=True)
class Interference:
    """The published parameters. ``eff`` of several processes is a truncated
    normal distribution.

    ``loss_max``: the most that a foreground process loses, uniformly from 0;
    ``eff``: how well one in the background uses the CPU that it gets;
    ``idle_min``: the least that the foreground leaves of a CPU.
    """

    loss_max: float = 0.037
    eff_single: tuple[float, float] = (0.8, 1.0)
    eff_mean: float = 0.428
    eff_sigma: float = 0.144
    eff_range: tuple[float, float] = (0.2, 0.8)
    idle_min: float = 0.04

    def losses(
        self,
        job: JobRequest,
        seed: int,
    ) -> list[float]:
        """Loss of each process beside a background VM."""
        values = stream(seed, "foreground loss", job.id).uniform(
            0.0, self.loss_max, job.n_vms
        )
        return list(map(float, values))

    def effs(
        self,
        job: JobRequest,
        seed: int,
    ) -> list[float]:
        """Efficiency of each process with the CPU that it gets in the
        background.
        """
        rng = stream(seed, "background efficiency", job.id)
        if job.n_vms == 1:
            return [float(rng.uniform(*self.eff_single))]
        low, high = self.eff_range
        values = rng.normal(self.eff_mean, self.eff_sigma, job.n_vms)
        # Drawn again, not clipped: the distribution is a truncated one, and
        # clipping would heap up 6 % of the processes at its ends.
        while np.any(outside := (values < low) | (values > high)):
            n_outside = int(outside.sum())
            values[outside] = rng.normal(
                self.eff_mean, self.eff_sigma, n_outside
            )
        return list(map(float, values))
