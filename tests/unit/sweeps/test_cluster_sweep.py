"""The same sweep in one process here, and on a cluster that loses a worker: the same bytes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testbed.sweeps import sweep_folder
from testbed.sweeps.result_store import SweepProgress
from testbed.sweeps.sweep_folder import SweepOptions, run_sweep
from tests.support.dask_processes import DaskProcesses
from tests.support.scripted_tasks import DONE_AGAIN
from tests.unit.sweeps.small_sweep import done, planned

pytestmark = [pytest.mark.slow]


@pytest.mark.long
def test_a_lost_worker_leaves_no_trace_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four workers, two of which offer the live network; one is killed with cells that it has."""
    monkeypatch.setattr(sweep_folder, "sweep_pictures", lambda *_: {})
    plan = planned("seed=1..200")
    alone = done(plan, tmp_path / "alone", processes=1)
    said: list[str] = []
    with DaskProcesses(tmp_path) as dask:
        for name in "abcd":
            dask.worker(
                name,
                *(("--resources", "testbed=1") if name in "cd" else ()),
            )
        dask.wait_for_workers()
        pid = dask.workers["b"].pid

        def lose_one(progress: SweepProgress) -> None:
            if progress.done == 1:
                os.kill(
                    pid, signal.SIGSTOP
                )  # from now on it answers nothing, whatever it is sent
            if progress.done == 20:
                dask.kill("b")

        options = SweepOptions(tmp_path / "cluster", cluster=dask.address)
        spread = run_sweep(plan, options, lose_one, said.append)
    assert [sentence for sentence in said if DONE_AGAIN.search(sentence)]
    assert written(spread.folder) == written(alone.folder)
    assert stored(tmp_path / "cluster") == stored(tmp_path / "alone")
    assert len(stored(tmp_path / "cluster")) == 400
    assert "cells.csv" in written(alone.folder)


def written(folder: Path) -> dict[str, bytes]:
    """The files of a sweep's results."""
    return {path.name: path.read_bytes() for path in folder.glob("*.csv")}


def stored(out: Path) -> dict[str, str]:
    """Results in the store, without their provenance."""
    store = out / ".cells"
    return {
        path.name: path.read_text("utf-8").splitlines()[0]
        for path in store.glob("??/*.jsonl")
    }
