"""Workload models: their distributions, their jobs, and that a seed decides all of it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from jobs.workload.parallel_jobs import ParallelJobs
from testbed.spec.workload_models import (
    ExponentialWorkload,
    FeitelsonWorkload,
    HyperErlang,
    JannWorkload,
    ModelWorkload,
)
from tests.support.examples import examples

feitelson = partial(FeitelsonWorkload, kind="feitelson")
jann = partial(JannWorkload, kind="jann")
MODELS: list[ModelWorkload] = [
    feitelson(jobs=3000),
    jann(jobs=3000),
]


def columns(jobs: ParallelJobs) -> list[list[float]]:
    return [
        jobs.submit_s.tolist(),
        jobs.processes.tolist(),
        jobs.run_s.tolist(),
    ]


@pytest.mark.parametrize(
    "model", MODELS, ids=lambda model: type(model).__name__
)
def test_a_seed_settles_the_jobs_and_another_one_changes_them(
    model: ModelWorkload,
) -> None:
    one = model.draw(1, 320, 0.7)
    assert columns(one) == columns(model.draw(1, 320, 0.7))
    assert columns(one) != columns(model.draw(2, 320, 0.7))


@pytest.mark.parametrize(
    "model", MODELS, ids=lambda model: type(model).__name__
)
def test_jobs_are_in_order_numbered_and_within_the_sizes(
    model: ModelWorkload,
) -> None:
    jobs = model.draw(3, 320, 0.7)
    assert len(jobs) == 3000
    assert jobs.number.tolist() == list(range(1, 3001))
    assert (np.diff(jobs.submit_s) >= 0).all()
    assert jobs.submit_s[0] >= 0
    assert jobs.processes.min() >= 1
    assert jobs.processes.max() <= 256
    assert jobs.run_s.min() >= 1.0


@pytest.mark.parametrize(
    ("model", "tolerances"),
    [
        # Mean over ten seeds; a tolerance is four times the scatter of such means.
        (feitelson(jobs=4000), (0.10, 0.10, 0.08, 0.02, 0.03)),
        (jann(jobs=4000), (0.04, 0.02, 0.01, 0.05, 0.10)),
    ],
    ids=["feitelson", "jann"],
)
def test_jobs_have_the_metrics_that_the_distributions_were_set_to(
    model: ModelWorkload, tolerances: tuple[float, ...]
) -> None:
    drawn = [
        model.calibration(model.draw(seed, 320, 0.7)) for seed in range(10)
    ]
    for k, tolerance in enumerate(tolerances):
        mean = np.mean([figures[k].found for figures in drawn])
        assert mean == pytest.approx(drawn[0][k].wanted, rel=tolerance), (
            drawn[0][k].what
        )


@pytest.mark.parametrize(
    "model", MODELS, ids=lambda model: type(model).__name__
)
def test_arrivals_are_drawn_near_the_load(model: ModelWorkload) -> None:
    loads = [model.draw(seed, 320, 0.7).load(320) for seed in range(10)]
    assert np.mean(loads) == pytest.approx(0.7, rel=0.15)


def test_the_defaults_are_the_facts_that_the_paper_tells() -> None:
    jobs_of_jann, jobs_of_feitelson = jann(), feitelson()
    small = sum(
        jobs_of_jann.shares[k] * jobs_of_jann._share_below_20(k)
        for k in range(len(jobs_of_jann.classes))
    )
    assert jobs_of_jann.shares.sum() == pytest.approx(1.0)
    assert jobs_of_jann.shares[0] == 0.40
    assert small == pytest.approx(0.86)
    assert jobs_of_jann.shares @ jobs_of_jann.run_means_s == pytest.approx(
        11_250
    )
    assert jobs_of_feitelson.mean_run_time == 2500
    assert float(jobs_of_feitelson.size_shares[:19].sum()) < 0.86
    assert [high for _, high in jobs_of_jann.classes] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
    ]
    assert [low for low, _ in jobs_of_jann.classes] == [
        1,
        2,
        3,
        5,
        9,
        17,
        33,
        65,
        129,
    ]


def test_repeated_runs_follow_each_other_at_the_distance_of_their_running_time() -> (
    None
):
    model = FeitelsonWorkload(
        kind="feitelson",
        jobs=500,
        repeat_exponent=0.0,
        most_repeats=3,
        largest=1,
    )
    submit_s, sizes, run_s = model._runs(5, 1000.0, 50_000.0)
    groups = np.flatnonzero(np.diff(run_s, prepend=-1.0) != 0)
    lengths = np.diff(np.append(groups, len(run_s)))
    assert set(lengths.tolist()) == {1, 2, 3}
    assert set(sizes.tolist()) == {1}
    for start, length in zip(
        groups.tolist(), lengths.tolist(), strict=True
    ):
        gaps = np.diff(submit_s[start : start + length])
        assert gaps == pytest.approx(run_s[start : start + length - 1])


@examples(15)
@given(st.floats(1, 1e5), st.floats(0, 6), st.integers(1, 4))
def test_a_hyper_erlang_distribution_has_the_moments_it_is_given(
    mean: float, extra: float, order: int
) -> None:
    distribution = HyperErlang(mean, 1 / order + extra, order)
    ratio = (1 + distribution.cv2) * order / (order + 1)
    first = 0.5 * (1 + np.sqrt(max(0.0, (ratio - 1) / ratio)))
    factorial = float(np.prod(np.arange(1, order)))

    def density(x: float) -> float:
        total = 0.0
        for share in (first, 1 - first):
            rate = order * 2 * share
            total += (
                share
                * rate**order
                * x ** (order - 1)
                * np.exp(-rate * x)
                / factorial
            )
        return total

    moments = [
        quad(lambda x, k=k: x**k * density(x), 0, np.inf, limit=200)[0]
        for k in range(3)
    ]
    assert moments == pytest.approx(
        [1.0, 1.0, 1.0 + distribution.cv2], rel=1e-4
    )


def test_hyper_erlang_draws_have_those_moments_too() -> None:
    drawn = HyperErlang(10.0, 2.5, 2).draw(1, "x", 200_000)
    assert drawn.mean() == pytest.approx(10.0, rel=0.02)
    assert drawn.var() / drawn.mean() ** 2 == pytest.approx(2.5, rel=0.05)


@pytest.mark.parametrize(
    "wrong",
    [{"serial": 0.9}, {"serial": 0.0}, {"largest": 16}, {"run_cv2": 0.2}],
)
def test_parameters_that_fit_no_distribution_are_refused(
    wrong: dict[str, float],
) -> None:
    with pytest.raises(ValueError, match=r"below_20|hyper-Erlang"):
        jann(**wrong).draw(1, 320, 0.7)  # type: ignore[arg-type]


def exponential(**keys: str) -> ExponentialWorkload:
    return ExponentialWorkload.model_validate(
        {"kind": "exponential", "mean_run_time": "1 h", **keys}
    )


def test_exponential_running_times_begin_at_the_shortest() -> None:
    short_s, mean_s = 1_200.0, 3_600.0
    plain = exponential().draw(1, 64, 0.7)
    jobs = exponential(shortest="20 min").draw(1, 64, 0.7)
    # The same draws, squeezed: the mean stays where it was.
    squeezed_s = short_s + plain.run_s * (1 - short_s / mean_s)
    assert jobs.run_s == pytest.approx(squeezed_s, abs=1.0)
    assert jobs.run_s.min() >= short_s
    assert jobs.run_s.mean() == pytest.approx(mean_s, rel=0.1)
    with pytest.raises(ValueError, match="below mean_run_time"):
        exponential(shortest="1 h").draw(1, 64, 0.7)


def test_shares_that_leave_no_room_are_refused() -> None:
    with pytest.raises(ValueError, match="leave no room"):
        _ = JannWorkload(
            kind="jann",
            serial=0.85,
            below_20=0.86,
            power_of_two=0.0,
            decay=0.01,
        ).shares
