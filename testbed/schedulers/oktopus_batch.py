"""Oktopus over batches: virtual clusters ⟨N, B̄⟩ in order of arrival (JSA, Section V.A).

Unlike ``vc``, which turns away what does not fit on arrival, jobs wait.
"""

from __future__ import annotations

from testbed.embedding.base import Embedder
from testbed.schedulers.jsa_queue import COMPLETE, FixedDemand, Late, Queue, finder
from testbed.schedulers.queueing import by_arrival


def oktopus_batch(embedder: Embedder, late: Late, queue: Queue) -> FixedDemand:
    """The policy ``oktopus-batch``."""
    complete = embedder.name in COMPLETE
    return FixedDemand(
        "oktopus-batch", finder(embedder), by_arrival, late=late, queue=queue, complete=complete
    )
