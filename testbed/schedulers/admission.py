"""Admission: a job that does not fit in the empty data centre is refused at once."""

from __future__ import annotations

from jobs.request import JobRequest
from testbed.embedding.base import Embedder
from testbed.embedding.placement import Refusal, Residual, empty_residual
from testbed.schedulers.actions import Reject
from testbed.schedulers.policy import View
from topologies.datacentre import DataCentre


class Admission:
    """Looks at every job once, in the empty data centre."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._empty: tuple[DataCentre, Residual] | None = None

    def refuse(self, view: View, job: JobRequest) -> Reject | None:
        """The rejection of a job that can never fit; None for all others."""
        answer = self._embedder.embed(
            view.datacentre,
            self._residual(view.datacentre),
            job.n_vms,
            job.bandwidth_bps,
            largest_bps=view.largest_bps,
        )
        if not isinstance(answer, Refusal):
            return None
        return Reject(job.id, f"it does not fit even in an empty data centre: {answer.reason}")

    def _residual(self, datacentre: DataCentre) -> Residual:
        if self._empty is None or self._empty[0] is not datacentre:
            self._empty = (datacentre, empty_residual(datacentre))
        return self._empty[1]
