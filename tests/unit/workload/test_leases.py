"""Leases as requests, drawn or read; samples of a wanted mean size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.workload.distributions import stratified
from jobs.workload.lwf import LeaseRecord, requests_of
from jobs.workload.swim import read_swim
from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import parse_experiment
from testbed.spec.generated_sections import SIZES, SyntheticLeases
from tests.support.examples import examples
from tests.unit.workload.traces import trace

SITE = "topology: {kind: flat, nodes: 10, slots_per_server: 6}\n"


def drawn(count: int, **keys: str) -> tuple[LeaseRecord, ...]:
    section = {"kind": "leases", "jobs": count, "load": 0.8, **keys}
    return SyntheticLeases.model_validate(section).draw(1, 300)


def test_shares_sizes_and_load_are_those_wanted() -> None:
    leases = drawn(6000)
    kinds = Counter(lease.kind for lease in leases)
    assert kinds["AR"] / 6000 == pytest.approx(0.2, abs=0.02)
    assert kinds["IM"] / 6000 == pytest.approx(0.4, abs=0.02)
    assert {(lease.cores, lease.memory_mb) for lease in leases} == set(
        SIZES.values()
    )
    work = sum(lease.cores * lease.duration_s for lease in leases)
    assert work / (300 * leases[-1].arrival_s) == pytest.approx(0.8)
    assert [lease.arrival_s for lease in leases] == sorted(
        lease.arrival_s for lease in leases
    )
    assert leases == drawn(6000)
    for lease in leases:
        assert lease.duration_s >= 60
        assert (lease.start_s is None) == (lease.kind == "BE")
        assert lease.start_s is None or lease.start_s >= lease.arrival_s


def test_no_lease_lasts_less_than_the_shortest() -> None:
    usual = [lease.duration_s for lease in drawn(500)]
    longer = [lease.duration_s for lease in drawn(500, shortest="15 min")]
    assert min(usual) < 900.0
    assert longer == [max(900.0, duration_s) for duration_s in usual]


def test_a_lease_is_a_request_that_knows_its_type_and_hides_its_real_duration() -> (
    None
):
    ahead = LeaseRecord("a", "AR", 5.0, 50.0, 100.0, 3, 2, 512, 80.0)
    (job,) = requests_of([ahead])
    assert (job.n_vms, job.demand.cores, job.demand.memory_mib) == (
        3,
        2,
        512,
    )
    assert (job.demand.lease_type, job.submit_s, job.demand.wanted_s) == (
        "advance",
        5.0,
        50.0,
    )
    assert (job.duration_s, job.true_duration_s) == (100.0, 80.0)
    others = requests_of(
        [
            LeaseRecord("b", "IM", 1, 1, 9, 1),
            LeaseRecord("c", "BE", 2, None, 9, 1),
        ]
    )
    assert [job.demand.lease_type for job in others] == [
        "immediate",
        "best-effort",
    ]
    assert [job.demand.wanted_s for job in others] == [None, None]
    assert requests_of([ahead], memory=False)[0].demand.memory_mib == 0


def test_leases_in_an_experiment_file(tmp_path: Path) -> None:
    text = f"{SITE}workload: {{kind: leases, jobs: 90, mix: equal, sizes: [small, x-large]}}\n"
    experiment = parse_experiment(text, tmp_path / "x.yaml")
    assert len(experiment.jobs) == 90
    assert {job.demand.cores for job in experiment.jobs} == {1, 6}
    assert sum(experiment.workload_facts["types"].values()) == 90
    assert experiment.workload_notes[0].startswith("90 leases (")


def test_a_lease_workload_in_an_experiment_file(tmp_path: Path) -> None:
    (tmp_path / "x.lwf").write_text(
        "0 60 30 30 2 1 512 0 x 9\n9 -1 60 50 4 2 512 0 x 9\nzzz\n"
    )
    workload = f"{SITE}workload: {{kind: lwf, path: x.lwf, lenient: %s}}\n"
    with pytest.raises(
        SpecErrors, match=r"x\.lwf:3:1: 'zzz' is no line of this format"
    ):
        parse_experiment(workload % "false", tmp_path / "x.yaml")
    experiment = parse_experiment(workload % "true", tmp_path / "x.yaml")
    assert [
        (j.id, j.demand.lease_type, j.n_vms, j.demand.cores, j.duration_s)
        for j in experiment.jobs
    ] == [
        ("lease-00001", "advance", 2, 1, 30.0),
        ("lease-00002", "best-effort", 4, 2, 60.0),
    ]
    assert experiment.workload_facts["lines_left_out"] == 1


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (
            "kind: leases, advance: 70 %",
            "advance and immediate together are more than 100 %",
        ),
        (
            "kind: leases, sizes: [tiny]",
            "must be one of small, medium, large, x-large",
        ),
        (
            "kind: lwf, path: inj1.lwf",
            "its origin: Haizea traces, inj1.lwf",
        ),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workload: str,
    said: str,
) -> None:
    monkeypatch.setenv("TESTBED_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SpecErrors, match=said):
        parse_experiment(
            f"{SITE}workload: {{{workload}}}\n", tmp_path / "x.yaml"
        )


@examples(40)
@given(
    st.lists(st.integers(1, 60), min_size=4, max_size=60),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_a_sample_has_the_wanted_number_of_jobs_none_too_large(
    sizes: list[int], count: int, seed: int
) -> None:
    try:
        sample = stratified(sizes, count, 20.0, 50, seed)
    except ValueError:
        return
    assert len(sample.chosen) == count
    assert sample.again or len(set(sample.chosen)) == count
    assert all(sizes[k] <= 50 for k in sample.chosen)
    assert sum(sizes[k] >= 20 for k in sample.chosen) == sample.large
    assert sample.mean == pytest.approx(
        sum(sizes[k] for k in sample.chosen) / count
    )


@pytest.mark.parametrize("mean", [15, 20, 25, 30, 35])
def test_the_facebook_sample_holds_jobs_for_every_mean_of_the_evaluation(
    mean: int,
) -> None:
    jobs = read_swim(trace("FB-2009_samples_24_times_1hr_0.tsv.gz")).jobs
    sizes = [job.tasks for job in jobs]
    means = [
        stratified(sizes, 500, mean, 200, seed).mean for seed in range(5)
    ]
    assert sum(means) / 5 == pytest.approx(mean, rel=0.1)
