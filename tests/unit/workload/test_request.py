from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from jobs.profile import Profile
from jobs.request import DemandCurve, JobRequest

PLAIN = JobRequest("a", 0.0, 3, 0, 60.0)


def test_what_the_user_stated_stands_beside_the_running_time() -> None:
    assert PLAIN.stated_s == 60.0
    assert replace(PLAIN, estimate_s=3600.0).stated_s == 3600.0


def test_one_cpu_use_holds_for_every_process() -> None:
    assert PLAIN.cpu_uses == (1.0, 1.0, 1.0)
    assert replace(PLAIN, cpu_use=(0.5, 0.4, 1.0)).cpu_uses == (0.5, 0.4, 1.0)


@pytest.mark.parametrize("use", [0.0, 1.1, (0.5, 0.5), (0.5, 0.5, 0.0), ()])
def test_cpu_uses_are_shares_of_a_node_one_for_each_process(use: float) -> None:
    with pytest.raises(ValueError, match="CPU use"):
        replace(PLAIN, cpu_use=use)


@pytest.mark.parametrize("stated", [0.0, -1.0, float("nan")])
def test_a_stated_running_time_is_above_zero(stated: float) -> None:
    with pytest.raises(ValueError, match="stated running time"):
        replace(PLAIN, estimate_s=stated)


def test_its_record_is_what_dataclasses_would_make_of_it() -> None:
    curve = DemandCurve(((0.5, 10), (1.0, 20)))
    profile = Profile(((10, 60.0), (20, 30.0)))
    for job in (
        PLAIN,
        replace(PLAIN, cpu_use=(0.5, 0.4, 1.0), tags=(("class", "service"),)),
        replace(PLAIN, bandwidth_bps=20, kind="demand", demand=curve),
        replace(PLAIN, bandwidth_bps=10, profile=profile),
    ):
        assert job.to_json() == asdict(job)
