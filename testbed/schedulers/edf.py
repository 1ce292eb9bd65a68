"""EDF: the earliest deadline first, each job at its fixed demand B̄ (JSA, Section V.A)."""

from __future__ import annotations

from testbed.embedding.base import Embedder
from testbed.schedulers.jsa_queue import COMPLETE, FixedDemand, Late, Queue, by_deadline, finder


def edf(embedder: Embedder, late: Late, queue: Queue) -> FixedDemand:
    """The policy ``edf``."""
    complete = embedder.name in COMPLETE
    return FixedDemand(
        "edf", finder(embedder), by_deadline, late=late, queue=queue, complete=complete
    )
