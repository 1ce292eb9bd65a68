"""CMBF's cells: the workloads that the text describes, and runs small enough to check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reproductions.cmbf.cell import NodesCell
from reproductions.cmbf.grid import POLICIES, USE, Largest
from reproductions.cmbf.studies import ERRORS, MEANS
from reproductions.quantities import Gain, Grid
from reproductions.registry import FIGURES

SMALL = NodesCell("feitelson", "easy", 3, 0.8, jobs=120)


@pytest.mark.parametrize("model", ["feitelson", "jann"])
def test_jobs_of_one_process_use_a_whole_cpu_and_others_from_40_percent(model: str) -> None:
    jobs = replace(SMALL, model=model, jobs=400).workload()  # type: ignore[arg-type]
    assert jobs.cpu_steps is not None
    assert jobs.load(320) == pytest.approx(0.8)
    assert 1 <= jobs.processes.min() <= jobs.processes.max() <= 256
    at = 0
    for n in jobs.processes.tolist():
        uses = jobs.cpu_steps[at : at + n] / 10_000
        at += n
        assert uses.min() >= (1.0 if n == 1 else 0.4)
        assert uses.max() <= 1.0


@pytest.mark.parametrize("policy", POLICIES.values())
def test_every_job_finishes_and_a_run_repeats_itself(policy: str) -> None:
    cell = replace(SMALL, policy=policy)
    first, second = ({k: v for k, v in cell.run().items() if k != "cpu_s"} for _ in range(2))
    assert first == second
    assert first["slowdown"] >= 1.0
    assert 0 < first["utilisation"] <= 1.0
    assert first["busy"] >= first["utilisation"] * (1 - 1e-9)
    assert first["migrations"] == 0 or policy not in ("fcfs", "easy")


def test_policies_meet_the_same_work() -> None:
    done = [replace(SMALL, policy=policy).workload() for policy in POLICIES.values()]
    assert all((jobs.run_s == done[0].run_s).all() for jobs in done)
    assert all((jobs.submit_s == done[0].submit_s).all() for jobs in done)


def test_what_schedulers_are_told_differs_from_the_truth_by_the_error() -> None:
    jobs = replace(SMALL, cpu_error=0.2).workload()
    assert jobs.cpu_steps is not None
    assert jobs.stated_steps is not None
    wrong = abs(jobs.stated_steps.astype(float) - jobs.cpu_steps) / 10_000
    assert 0.1 < wrong.max() <= 0.2 + 1e-4


def test_a_study_varies_what_it_says_and_nothing_of_easy_but_the_jobs() -> None:
    errors = FIGURES["cmbf-cpu-estimate"]
    series = {c: errors.cell(c, ERRORS[1], 1, False) for c in errors.series}  # noqa: FBT003
    assert {c.cpu_error for c in series.values()} == {0.0, 0.1, None}  # type: ignore[attr-defined]
    capacity = FIGURES["cmbf-capacity"]
    lows = {capacity.cell(capacity.series[1], x, 1, False).cpu_low for x in MEANS}  # type: ignore[attr-defined]  # noqa: FBT003
    assert lows == {0.2, 0.4, 0.6, 0.8, 0.9, 1.0}


def test_the_largest_gain_is_found_seed_by_seed() -> None:
    runs = {
        ("a", 1.0): ({"utilisation": 0.5}, {"utilisation": 0.6}),
        ("b", 1.0): ({"utilisation": 0.5}, {"utilisation": 0.5}),
        ("a", 2.0): ({"utilisation": 0.55}, {"utilisation": 0.5}),
        ("b", 2.0): ({"utilisation": 0.5}, {"utilisation": 0.5}),
    }
    largest = Largest(USE, tuple(Gain(USE, "a", "b", x) for x in (1.0, 2.0)))
    assert largest.values(Grid(runs)) == pytest.approx((10.0, 20.0))
