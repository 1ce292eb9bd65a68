"""AdaBa's and BgMBF's runs: their workloads, and runs small enough to check by sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reproductions.adaba.adaba_acceptance import EMBEDDERS
from reproductions.adaba.adaba_setup import (
    LOGS,
    NASA,
    Log,
    both_logs,
    one_log,
    random_jobs,
)
from reproductions.adaba.bgmbf_scheduling import POLICIES
from testbed.errors import MachineCannot
from testbed.spec.document import find_file

needs_logs = pytest.mark.skipif(
    any(find_file(log.file, Path.cwd()) is None for log in LOGS),
    reason="the KTH and NASA logs are not along TESTBED_DATA or in the cache",
)


def test_random_jobs_have_the_means_and_the_load_that_are_asked_for() -> (
    None
):
    jobs = random_jobs("adaba", 1, 300.0, jobs=4000).experiment().jobs
    vms = np.array([job.n_vms for job in jobs])
    bps = np.array([job.bandwidth_bps for job in jobs])
    assert vms.mean() == pytest.approx(8.0, rel=0.05)
    assert vms.min() >= 1
    assert bps.mean() == pytest.approx(300e6, rel=1e-6)
    work = sum(job.n_vms * job.duration_s for job in jobs)
    assert work / (
        432 * (jobs[-1].submit_s - jobs[0].submit_s)
    ) == pytest.approx(0.5)


def test_another_mean_scales_the_bandwidths_of_the_same_jobs() -> None:
    few, many = (
        random_jobs("adaba", 2, mbps, jobs=50).experiment().jobs
        for mbps in (100, 700)
    )
    for a, b in zip(few, many, strict=True):
        assert (a.submit_s, a.n_vms, a.duration_s) == (
            b.submit_s,
            b.n_vms,
            b.duration_s,
        )
        assert b.bandwidth_bps == pytest.approx(7 * a.bandwidth_bps, abs=4)


def test_an_acceptance_run_has_no_queue() -> None:
    found = random_jobs("adaba", 3, 500.0, jobs=60).run()
    assert 0 < found["acceptance"] <= 1
    assert found["wait_s"] == found["queued_s"] == 0.0
    assert found["preemptions"] == 0
    assert random_jobs("adaba", 3, 1.0, jobs=60).run()["acceptance"] == 1.0


@pytest.mark.parametrize("embedder", EMBEDDERS.values())
def test_equal_configurations_measure_the_same(embedder: str) -> None:
    one = random_jobs(embedder, 3, 500.0, jobs=60)
    first, second = (
        {k: v for k, v in one.run().items() if k != "cpu_s"}
        for _ in range(2)
    )
    assert first == second


@pytest.mark.slow
@needs_logs
@pytest.mark.parametrize("policy", POLICIES.values())
def test_schedulers_refuse_only_what_never_fits(policy: str) -> None:
    found = both_logs(policy, "adaba", 1, 0.5, jobs=60).run()
    for log in LOGS:
        assert found[f"{log.name}_acceptance"] == 1.0
        assert (
            found[f"{log.name}_queued_s"]
            >= found[f"{log.name}_wait_s"]
            >= 0.0
        )
        moved = found[f"{log.name}_migrations"]
        assert moved <= found[f"{log.name}_preemptions"]
        assert (
            policy.startswith("bgmbf")
            or moved == found[f"{log.name}_preemptions"] == 0
        )


@needs_logs
@pytest.mark.parametrize(
    ("log", "minutes"), [(LOGS[0], 72.4), (LOGS[1], 10.4)]
)
def test_the_first_thousand_jobs_are_those_of_table_1(
    log: Log, minutes: float
) -> None:
    jobs = (
        one_log(
            log=log,
            policy="vc",
            embedder="adaba",
            seed=1,
            load=0.5,
            jobs=1000,
        )
        .experiment()
        .jobs
    )
    assert sum(job.duration_s for job in jobs) / 1000 / 60 == pytest.approx(
        minutes, abs=0.05
    )
    mean_bps = sum(job.bandwidth_bps for job in jobs) / 1000
    assert mean_bps == pytest.approx(250e6, rel=0.03)


def test_a_log_that_is_not_there_is_named_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TESTBED_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(
        MachineCannot, match=r"no NASA-iPSC-1993-3\.1-cln"
    ) as caught:
        one_log(
            log=NASA,
            policy="vc",
            embedder="adaba",
            seed=1,
            load=0.5,
            jobs=7,
        ).experiment()
    assert caught.value.hint is not None
    assert "Parallel Workloads Archive" in caught.value.hint
