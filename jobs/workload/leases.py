"""Synthetic leases as in MBFCBS's evaluation (Section 5.2), and leases as requests.

The paper names the sizes and the shares of the three types; when leases arrive, how long they last
and how far ahead they are booked it does not say: these are parameters here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jobs.demand import Lease, LeaseType
from jobs.request import JobRequest
from jobs.workload.distributions import stream
from jobs.workload.lwf import LeaseKind, LeaseRecord

SIZES: dict[str, tuple[int, int]] = {
    "small": (1, 1920),
    "medium": (2, 3840),
    "large": (4, 7680),
    "x-large": (6, 11520),
}
"""Cores and memory in MiB of the VM types (Table 2); x-large is named there, but not defined."""

Mix = Literal["main", "equal"]
"""The shares of types: 20 % advance and the others alike (main comparison), or all alike."""

_TYPES: dict[LeaseKind, LeaseType] = {"AR": "advance", "IM": "immediate", "BE": "best-effort"}
_NAME = "leases"


@dataclass(frozen=True)
class LeaseMix:
    """Parameters of synthetic leases.

    Durations and lead times are exponential; no lease lasts less than ``shortest_s``.
    ``advance`` and ``immediate`` are shares of all leases; the rest is best effort. ``sizes`` are
    names in :data:`SIZES`, all as likely. Arrivals are Poisson, scaled to the load.
    """

    count: int = 1000
    advance: float = 0.2
    immediate: float = 0.4
    sizes: tuple[str, ...] = tuple(SIZES)
    mean_duration_s: float = 3600.0
    mean_lead_s: float = 7200.0
    shortest_s: float = 60.0

    def draw(self, seed: int, slots: int, load: float) -> tuple[LeaseRecord, ...]:
        """The leases in order of arrival: Σ(cores · duration) / (slots · span) is ``load``."""
        count = self.count
        gaps = stream(seed, _NAME, "gap").standard_exponential(count)
        gaps[0] = 0.0
        duration_s = self.mean_duration_s * stream(seed, _NAME, "duration").standard_exponential(
            count
        )
        duration_s = np.maximum(duration_s, self.shortest_s)
        lead_s = self.mean_lead_s * stream(seed, _NAME, "lead").standard_exponential(count)
        size = stream(seed, _NAME, "size").integers(0, len(self.sizes), count)
        cores = np.array([SIZES[name][0] for name in self.sizes])[size]
        kind = stream(seed, _NAME, "type").random(count)
        clock = np.cumsum(gaps)
        if count > 1:
            clock *= float(cores @ duration_s) / (slots * load) / float(clock[-1])
        digits = max(5, len(str(count)))
        rows = zip(
            clock.tolist(), duration_s.tolist(), lead_s.tolist(), size.tolist(), kind.tolist(),
            strict=True,
        )  # fmt: skip
        return tuple(self._lease(f"lease-{k:0{digits}}", *row) for k, row in enumerate(rows, 1))

    def _lease(
        self,
        name: str,
        arrival_s: float,
        duration_s: float,
        lead_s: float,
        size: int,
        quantile: float,
    ) -> LeaseRecord:
        cores, memory_mb = SIZES[self.sizes[size]]
        kind: LeaseKind = "BE"
        if quantile < self.advance:
            kind = "AR"
        elif quantile < self.advance + self.immediate:
            kind = "IM"
        start_s = {"AR": arrival_s + lead_s, "IM": arrival_s, "BE": None}[kind]
        return LeaseRecord(
            name, kind, arrival_s, start_s, duration_s, 1, cores, memory_mb, None, kind == "BE"
        )


def requests_of(
    leases: Sequence[LeaseRecord], *, memory: bool = True, margin_s: float = 0.0
) -> tuple[JobRequest, ...]:
    """Leases as requests: each node a VM that computes; ``memory`` False asks for none.

    A lease's real duration is the truth behind its stated one, where it is known. It is booked for
    ``margin_s`` more than it states, as its VMs take a moment to start and to end.
    """
    return tuple(
        JobRequest(
            id=lease.name,
            submit_s=lease.arrival_s,
            n_vms=lease.nodes,
            bandwidth_bps=0,
            duration_s=lease.duration_s,
            demand=Lease(
                cores=lease.cores,
                memory_mib=lease.memory_mb if memory else 0,
                lease_type=_TYPES[lease.kind],
                wanted_s=lease.start_s if lease.kind == "AR" else None,
            ),
            true_duration_s=lease.real_s,
            estimate_s=lease.duration_s + margin_s if margin_s else None,
        )
        for lease in leases
    )
