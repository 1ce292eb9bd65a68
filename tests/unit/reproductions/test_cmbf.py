"""CMBF's runs: the workloads that the text describes, and runs small enough to check."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from jobs.workload.parallel_jobs import ParallelJobs, Requests
from reproductions.catalogue import FIGURES
from reproductions.cmbf.cmbf_setup import POLICIES, USE, ModelName, nodes
from reproductions.cmbf.cmbf_studies import ERRORS, MEANS
from reproductions.configuration import RunConfiguration, settings
from reproductions.grid_quantities import Gain, Grid, Largest


def small(
    series: str = "EASY",
    jobs: int = 120,
    model: ModelName = "feitelson",
    error: float = 0.0,
) -> RunConfiguration:
    made = nodes(model, series, 3, 0.8, quick=True, cpu_error=error)
    variant = made.variant
    fewer = (*variant.settings, *settings(jobs=jobs))
    return replace(made, variant=replace(variant, settings=fewer))


def workload(one: RunConfiguration) -> ParallelJobs:
    requests = one.experiment().jobs
    assert isinstance(requests, Requests)
    return requests.jobs


@pytest.mark.parametrize("model", get_args(ModelName))
def test_jobs_of_one_process_use_a_whole_cpu_and_others_from_40_percent(
    model: ModelName,
) -> None:
    jobs = workload(small(jobs=400, model=model))
    assert jobs.cpu_steps is not None
    assert jobs.load(320) == pytest.approx(0.8)
    assert 1 <= jobs.processes.min() <= jobs.processes.max() <= 256
    at = 0
    for n in jobs.processes.tolist():
        uses = jobs.cpu_steps[at : at + n] / 10_000
        at += n
        assert uses.min() >= (1.0 if n == 1 else 0.4)
        assert uses.max() <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("series", POLICIES)
def test_every_job_finishes_and_a_run_repeats_itself(series: str) -> None:
    one = small(series)
    first, second = (
        {k: v for k, v in one.run().items() if k != "cpu_s"}
        for _ in range(2)
    )
    assert first == second
    assert first["slowdown"] >= 1.0
    assert 0 < first["utilisation"] <= 1.0
    assert first["busy"] >= first["utilisation"] * (1 - 1e-9)
    assert first["migrations"] == 0 or series not in ("FCFS", "EASY")


def test_policies_meet_the_same_work() -> None:
    done = [workload(small(series)) for series in POLICIES]
    assert all((jobs.run_s == done[0].run_s).all() for jobs in done)
    assert all((jobs.submit_s == done[0].submit_s).all() for jobs in done)


def test_what_schedulers_know_differs_from_the_truth_by_the_error() -> None:
    jobs = workload(small(error=0.2))
    assert jobs.cpu_steps is not None
    assert jobs.stated_steps is not None
    wrong = abs(jobs.stated_steps.astype(float) - jobs.cpu_steps) / 10_000
    assert 0.1 < wrong.max() <= 0.2 + 1e-4


def cpu_rules(figure: str, xs: tuple[float, ...]) -> set[tuple[str, str]]:
    """Policies with the file's CPU rule."""
    whole = FIGURES[figure]
    found = set()
    for series in whole.series:
        for x in xs:
            one = whole.configuration(series, x, 1, False)  # noqa: FBT003
            assert isinstance(one, RunConfiguration)
            found.add(
                (
                    one.variant.policy,
                    dict(one.variant.settings)["workload.cpu"],
                )
            )
    return found


def test_a_study_varies_what_it_says_and_nothing_of_easy_but_the_jobs() -> (
    None
):
    known = "{name: amcbf, migration_cost: 20 s}"
    unknown = "{name: amcbf, migration_cost: 20 s, cpu: unknown}"
    assert cpu_rules("cmbf-cpu-estimate", (ERRORS[1],)) == {
        ("easy", "{low: 0.4}"), (known, "{low: 0.4, error: 0.1}"), (unknown, "{low: 0.4}"),
    }  # fmt: skip
    lows = {
        rule
        for policy, rule in cpu_rules("cmbf-capacity", MEANS)
        if policy == known
    }
    assert lows == {
        f"{{low: {low}}}" for low in (0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
    }


def test_the_largest_gain_is_found_seed_by_seed() -> None:
    runs = {
        ("a", 1.0): ({"utilisation": 0.5}, {"utilisation": 0.6}),
        ("b", 1.0): ({"utilisation": 0.5}, {"utilisation": 0.5}),
        ("a", 2.0): ({"utilisation": 0.55}, {"utilisation": 0.5}),
        ("b", 2.0): ({"utilisation": 0.5}, {"utilisation": 0.5}),
    }
    largest = Largest(
        USE, tuple(Gain(USE, "a", "b", x) for x in (1.0, 2.0))
    )
    assert largest.values(Grid(runs)) == pytest.approx((10.0, 20.0))
