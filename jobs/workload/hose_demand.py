"""Bandwidth for logs that record none, as AdaBa's evaluation assigns it (Section 5.2).

``Max_B`` is what a job's VMs could get were every server's link there for them alone: link ·
servers / VMs. ``B`` is normal around 0.55·Max_B and clipped to ``[Max_B/10, Max_B]``. The printed
``max(min(Min_B, x), Max_B)`` is Max_B whatever x is (docs/decisions/0404).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from jobs.workload.streams import stream

Rule = Literal["clip", "printed", "mean"]
RULES: tuple[Rule, ...] = get_args(Rule)

MEAN_OF_MAX = 0.55
"""Avg_B over Max_B: halfway between a tenth of it and the whole."""

CAP_BPS = 455_000_000
"""The cap of Max_B that gives the means of the paper's Table 1 (250 Mbit/s = 0.55 of it)."""


@dataclass(frozen=True)
class HoseDemand:
    """The rule. ``cap_bps`` limits Max_B (None: nothing does), ``sigma`` is a share of Avg_B.

    By the rule ``mean`` the law is that of one size of job, scaled such that the mean of all jobs
    is exactly ``mean_bps`` (AdaBa, Fig. 4).
    """

    link_bps: int
    servers: int
    cap_bps: int | None = CAP_BPS
    sigma: float = 0.2
    rule: Rule = "clip"
    mean_bps: int | None = None

    def draw(self, seed: int, vms: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """B of each job in bit/s, at least 1. Job k's normal number depends on seed and k alone."""
        if self.rule == "mean" and self.mean_bps is not None:
            return self._of_mean(seed, len(vms), self.mean_bps)
        most = self.link_bps * self.servers / vms.astype(np.float64)
        if self.cap_bps is not None:
            most = np.minimum(most, self.cap_bps)
        if self.rule == "printed":
            drawn = most
        else:
            noise = stream(seed, "bandwidth").standard_normal(len(vms))
            mean = MEAN_OF_MAX * most
            drawn = np.clip(mean * (1.0 + self.sigma * noise), most / 10.0, most)
        return np.maximum(np.rint(drawn), 1).astype(np.int64)

    def _of_mean(self, seed: int, count: int, mean_bps: int) -> npt.NDArray[np.int64]:
        noise = stream(seed, "bandwidth").standard_normal(count)
        drawn = np.clip(MEAN_OF_MAX * (1.0 + self.sigma * noise), 0.1, 1.0)
        drawn *= mean_bps / drawn.mean()
        return np.maximum(np.rint(drawn), 1).astype(np.int64)
