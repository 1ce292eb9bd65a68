"""DRU by its definition, over the whole data centre: what the differences are tested against."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from testbed.schedulers.dru import Candidate, FloatArray, Utilisation


def integral(
    utilisation: Utilisation, reservations: Iterable[Candidate], start_s: float, end_s: float
) -> FloatArray:
    """U in ``[start_s, end_s)`` by full integration over the whole data centre; shape (levels,)."""
    dc = utilisation.datacentre
    held = list(reservations)
    marks = {start_s, end_s} | {c.start_s for c in held} | {c.end_s for c in held}
    times = sorted(t for t in marks if start_s <= t <= end_s)
    total = np.zeros(len(utilisation.levels))
    for since_s, until_s in pairwise(times):
        used = np.zeros(dc.n_servers + dc.n_links, dtype=np.int64)
        for candidate in held:
            if candidate.start_s <= since_s < candidate.end_s:
                used[candidate.footprint.objects] += candidate.footprint.amounts
        dru, _ = utilisation.nodes(used)
        total += utilisation.by_level(dru) * (until_s - since_s)
    return total
