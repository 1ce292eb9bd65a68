"""The benchmark of a whole run: its parts, its ratio, its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.whole_run import EXPERIMENT, PARTS, TARGET, results, timed

SMALL = EXPERIMENT.format(
    workload="{kind: exponential, jobs: 20, mean_vms: 4}"
)


@pytest.mark.slow
def test_every_part_of_a_run_is_timed(tmp_path: Path) -> None:
    taken_s = timed(SMALL, tmp_path)
    assert set(taken_s) == set(PARTS)
    inner_s = sum(taken_s[part] for part in PARTS if part != "whole")
    assert inner_s <= taken_s["whole"]
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert {"jobs.csv", "summary.json", "report.html"} <= {
        path.name for path in folder.iterdir()
    }


@pytest.mark.parametrize(
    ("whole_s", "judged", "meets"),
    [
        (TARGET, True, True),
        (TARGET + 0.1, True, False),
        (TARGET + 0.1, False, None),
    ],
)
def test_the_median_ratio_decides(
    whole_s: float, judged: bool, meets: bool | None
) -> None:
    taken_s = dict.fromkeys(PARTS, 1.0)
    runs = [{**taken_s, "whole": s} for s in (1.0, whole_s, 9.0)]
    *_, ratio = results(runs, judged=judged)
    assert ratio.samples == (1.0, whole_s, 9.0)
    assert ratio.meets is meets
