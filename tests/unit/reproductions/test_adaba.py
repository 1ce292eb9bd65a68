"""AdaBa's and BgMBF's cells: their workloads, and runs small enough to check by sums."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from jobs.workload.parallel_jobs import HoseDemand
from reproductions.adaba.acceptance import EMBEDDERS
from reproductions.adaba.cell import DrawnCell, LogsCell
from reproductions.adaba.scheduling import POLICIES
from reproductions.adaba.workloads import FILES, LOGS, Demand, Sizes, drawn, from_log
from testbed.errors import MachineCannot
from testbed.spec.document import find_file

GBPS = 10**9
SMALL = DrawnCell("adaba", 3, 500e6, jobs=60)

needs_logs = pytest.mark.skipif(
    any(find_file(name, Path.cwd()) is None for name in FILES.values()),
    reason="the KTH and NASA logs are not along TESTBED_DATA or in the cache",
)


@pytest.mark.parametrize("sizes", get_args(Sizes))
@pytest.mark.parametrize("demand", get_args(Demand))
def test_random_jobs_have_the_means_and_the_load_that_are_asked_for(
    sizes: Sizes, demand: Demand
) -> None:
    jobs = drawn(4000, 300e6, 8, 0.5, 432, sizes, demand, 1)
    vms = np.array([job.n_vms for job in jobs])
    bps = np.array([job.bandwidth_bps for job in jobs])
    assert vms.mean() == pytest.approx(8.0, rel=0.05)
    assert vms.min() >= 1
    assert bps.mean() == pytest.approx(300e6, rel=1e-6)
    work = sum(job.n_vms * job.duration_s for job in jobs)
    assert work / (432 * (jobs[-1].submit_s - jobs[0].submit_s)) == pytest.approx(0.5)
    falls = np.corrcoef(vms, bps)[0, 1] if sizes != "fixed" else -1.0
    assert falls < -0.3 if demand == "inverse" else True


def test_another_mean_scales_the_bandwidths_of_the_same_jobs() -> None:
    few, many = (drawn(50, mean, 8, 0.5, 432, "uniform", "normal", 2) for mean in (1e8, 7e8))
    for a, b in zip(few, many, strict=True):
        assert (a.submit_s, a.n_vms, a.duration_s) == (b.submit_s, b.n_vms, b.duration_s)
        assert b.bandwidth_bps == pytest.approx(7 * a.bandwidth_bps, abs=4)


def test_an_acceptance_run_has_no_queue() -> None:
    found = SMALL.run()
    assert 0 < found["acceptance"] <= 1
    assert found["wait_s"] == found["queued_s"] == 0.0
    assert found["preemptions"] == 0
    assert replace(SMALL, mean_bps=1e6).run()["acceptance"] == 1.0


@pytest.mark.parametrize("embedder", EMBEDDERS.values())
def test_the_same_cell_measures_the_same(embedder: str) -> None:
    cell = replace(SMALL, embedder=embedder)
    first, second = ({k: v for k, v in cell.run().items() if k != "cpu_s"} for _ in range(2))
    assert first == second


@needs_logs
@pytest.mark.parametrize("policy", POLICIES.values())
def test_schedulers_refuse_only_what_never_fits(policy: str) -> None:
    cell = LogsCell(policy, "adaba", 1, 0.5, jobs=60)
    found = cell.run()
    for log in LOGS:
        assert found[f"{log}_acceptance"] == 1.0
        assert found[f"{log}_queued_s"] >= found[f"{log}_wait_s"] >= 0.0
        moved = found[f"{log}_migrations"]
        assert moved <= found[f"{log}_preemptions"]
        assert policy.startswith("bgmbf") or moved == found[f"{log}_preemptions"] == 0


@needs_logs
@pytest.mark.parametrize(("log", "minutes"), [("kth", 72.4), ("nasa", 10.4)])
def test_the_first_thousand_jobs_are_those_of_table_1(log: str, minutes: float) -> None:
    jobs = from_log(log, 1000, 0.5, 432, HoseDemand(GBPS, 54), 1)  # type: ignore[arg-type]
    assert sum(job.duration_s for job in jobs) / 1000 / 60 == pytest.approx(minutes, abs=0.05)
    mean_bps = sum(job.bandwidth_bps for job in jobs) / 1000
    assert mean_bps == pytest.approx(250e6, rel=0.03)


def test_a_log_that_is_not_there_is_named_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TESTBED_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MachineCannot, match=r"no NASA-iPSC-1993-3\.1-cln") as caught:
        from_log("nasa", 7, 0.5, 432, HoseDemand(GBPS, 54), 1)
    assert caught.value.hint is not None
    assert "Parallel Workloads Archive" in caught.value.hint
