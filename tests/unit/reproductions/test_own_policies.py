"""The embedders and the policy that figures on causes have of their own."""

from __future__ import annotations

import numpy as np

from jobs.request import JobRequest
from reproductions.adaba.anywhere import BestFit, FirstFit, Greedy
from reproductions.dcloud.least_bandwidth import LeastBandwidth
from testbed.embedding.base import embedder
from testbed.embedding.placement import (
    Placement,
    Refusal,
    Residual,
    empty_residual,
)
from testbed.schedulers.dcloud import DCloud, Reshaping
from topologies.tree import tree

GBIT = 10**9
# Two racks of two servers with four slots each.
DATACENTRE = tree([2, 2], GBIT, 4)
FREE_BPS = empty_residual(DATACENTRE).free_bps


def vms_on(answer: Placement | Refusal) -> dict[int, int]:
    assert isinstance(answer, Placement)
    return dict(answer.vms_on)


def test_best_fit_anywhere_fills_the_fullest_servers_of_all_racks() -> None:
    free = Residual(np.array([4, 1, 4, 1]), FREE_BPS)
    local = embedder("best-fit").embed(DATACENTRE, free, 2, 1)
    anywhere = BestFit().embed(DATACENTRE, free, 2, 1)
    # The first rack has room: the search by subtrees never leaves it.
    assert vms_on(local) == {1: 1, 0: 1}
    assert vms_on(anywhere) == {1: 1, 3: 1}


def test_all_fill_any_servers_where_no_subtree_has_room() -> None:
    for own in (BestFit(), Greedy(), FirstFit()):
        placed = vms_on(
            own.embed(DATACENTRE, empty_residual(DATACENTRE), 16, 1)
        )
        assert placed == dict.fromkeys(range(4), 4)


def test_what_fits_nowhere_is_refused_with_a_reason() -> None:
    for own in (BestFit(), Greedy(), FirstFit()):
        answer = own.embed(DATACENTRE, empty_residual(DATACENTRE), 17, 1)
        assert isinstance(answer, Refusal)
        assert answer.reason


def test_the_least_bandwidth_is_the_last_of_the_grid_and_ends_at_the_deadline() -> (
    None
):
    job = JobRequest("job", 0.0, 4, 100_000_000, 100.0, 400.0)
    oktopus = embedder("oktopus")
    every = DCloud(oktopus, reshaping=Reshaping(slides=False)).grid(job)
    ((only,),) = LeastBandwidth(oktopus).grid(job)
    assert only == every[0][-1]
    assert only.delay_s == 0.0
    # Of the relaxed running time, 112 s, at b, over the 400 s to the deadline.
    assert only.rate_bps == 28_000_000
    assert only.duration_s == 400.0


def test_without_room_a_job_keeps_its_bandwidth() -> None:
    job = JobRequest("job", 0.0, 4, 100_000_000, 100.0, 100.0)
    ((only,),) = LeastBandwidth(embedder("oktopus")).grid(job)
    assert only.rate_bps == 100_000_000
    assert only.duration_s == 100.0
