"""DCloud-BS that scales every job as far as its deadline lets it."""

from __future__ import annotations

from jobs.request import JobRequest
from testbed.embedding.placement import Embedder
from testbed.schedulers.dcloud import GAMMA, DCloud, Reshaping
from testbed.schedulers.dcloud_search import Shape


class LeastBandwidth(DCloud):
    """Gives every job, at once, the least bandwidth that meets its deadline,
    whatever that does to U.
    """

    def __init__(self, embedder: Embedder, gamma: float = GAMMA) -> None:
        super().__init__(
            embedder, gamma=gamma, reshaping=Reshaping(slides=False)
        )

    def grid(self, job: JobRequest) -> list[list[Shape]]:
        (row,) = super().grid(job)
        return [[row[-1]]]
