"""Elastic jobs out of a trace: sizes, distributions, batches, streams; and the file's section."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.workload.distributions import stratified
from jobs.workload.swim import SwimJob
from jobs.workload.traces import Trace
from testbed.errors import BadInput
from testbed.spec.experiment_file import load_experiment
from testbed.spec.swim_section import SwimWorkload

RECIPE = SwimWorkload.model_validate(
    {
        "kind": "swim",
        "path": "t.tsv",
        "jobs": 60,
        "vms": 20.0,
        "largest": 50,
        "batches": 5,
        "spacing": "40 s",
    }
)
LINK_BPS = 10**9


def changed(**keys: Any) -> SwimWorkload:
    return RECIPE.model_copy(update=keys)


def trace(jobs: int = 200) -> Trace[SwimJob]:
    """Every third job has 30 to 49 tasks, the others one."""
    made = [
        SwimJob(
            f"job{k}",
            k,
            64_000_000 * (30 + k % 20 if k % 3 == 0 else 1),
            0,
            1_000_000 * k,
            k + 1,
        )
        for k in range(jobs)
    ]
    return Trace(Path("t.tsv"), tuple(made))


def test_batches_arrive_together_and_are_equally_large() -> None:
    jobs, _ = RECIPE.requests(trace(), 1, LINK_BPS)
    times = [job.submit_s for job in jobs]
    assert times == sorted(times)
    assert {at: times.count(at) for at in times} == {
        40.0 * k: 12 for k in range(5)
    }
    assert len({job.id for job in jobs}) == 60


@pytest.mark.parametrize("vms", [20.0, "as-is"])
def test_jobs_that_run_for_too_long_are_left_out(vms: object) -> None:
    plain, _ = changed(vms=vms).requests(trace(), 1, LINK_BPS)
    longest_s = float(np.median([job.duration_s for job in plain]))
    bounded = changed(vms=vms, longest=longest_s)
    jobs, sample = bounded.requests(trace(), 1, LINK_BPS)
    assert len(jobs) == len(plain)
    assert max(job.duration_s for job in jobs) <= longest_s
    if vms == 20.0:
        assert sample.mean == pytest.approx(20.0, rel=0.1)


def test_every_distribution_is_kept() -> None:
    recipe = changed(
        reward=[5.0, 6.0], deadline_factor=[2.0, 3.0], speedup=[0.1, 0.11]
    )
    source = trace()
    by_name = {job.name: job for job in source.jobs}
    for job in recipe.requests(source, 3, LINK_BPS)[0]:
        line = by_name[job.id]
        assert job.n_vms == line.tasks
        assert job.duration_s == pytest.approx(
            20.0 + line.bytes_per_vm / 1e7
        )
        assert 5.0 <= job.value <= 6.0
        assert job.deadline_s is not None
        assert 2.0 <= job.deadline_s / job.duration_s <= 3.0
        assert 1_000_000 <= job.bandwidth_bps <= 400_000_000
        assert job.demand.profile is not None
        assert job.demand.profile.duration_s(
            job.bandwidth_bps
        ) == pytest.approx(job.duration_s)
        assert (
            0.5 - 1e-6
            <= 1 - job.demand.profile.options[-1][1] / job.duration_s
            <= 0.55 + 1e-6
        )


def test_a_slack_is_what_is_left_beyond_the_running_time() -> None:
    by_factor, _ = RECIPE.requests(trace(), 3, LINK_BPS)
    by_slack, _ = changed(deadline_slack=[10.0, 60.0]).requests(
        trace(), 3, LINK_BPS
    )
    for job, same in zip(by_slack, by_factor, strict=True):
        assert job.deadline_s is not None
        assert same.deadline_s is not None
        # By the same quantile as the factor, and nothing else changes.
        factor = same.deadline_s / same.duration_s
        slack_s = 10.0 + 50.0 * (factor - 2.0) / 5.0
        assert job.deadline_s - job.duration_s == pytest.approx(slack_s)
        assert job.duration_s == same.duration_s
        assert job.value == same.value


def test_a_fixed_volume_is_that_of_the_measured_bandwidth() -> None:
    by_profile, _ = RECIPE.requests(trace(), 1, LINK_BPS)
    fixed, _ = changed(volume="fixed").requests(trace(), 1, LINK_BPS)
    for job, same in zip(fixed, by_profile, strict=True):
        demand = job.demand
        for times in (0.2, 1.0, 2.0):
            rate_bps = times * job.bandwidth_bps
            bits = job.duration_s * job.bandwidth_bps
            assert demand.volume_bits(job, rate_bps) == bits
            # Faster than at B̄, too, where there is more.
            took_s = demand.duration_s(job, rate_bps)
            assert took_s == pytest.approx(job.duration_s / times)
            # Schedulers know no more than the profile.
            told_s = demand.estimate_s(job, rate_bps)
            assert told_s == same.demand.estimate_s(same, rate_bps)
        most = 2.0 * job.bandwidth_bps
        moved = same.demand.volume_bits(same, most)
        assert moved == same.demand.duration_s(same, most) * most


def test_changing_one_distribution_leaves_the_others_draws_alone() -> None:
    before, _ = RECIPE.requests(trace(), 7, LINK_BPS)
    after, _ = changed(
        deadline_factor=[2.0, 3.0], bandwidth=50_000_000
    ).requests(trace(), 7, LINK_BPS)
    assert [(j.id, j.value, j.submit_s) for j in before] == [
        (j.id, j.value, j.submit_s) for j in after
    ]
    assert [j.deadline_s for j in before] != [j.deadline_s for j in after]


def test_a_job_keeps_its_reward_in_every_sample() -> None:
    small, _ = changed(jobs=30).requests(trace(), 7, LINK_BPS)
    large, _ = changed(jobs=90).requests(trace(), 7, LINK_BPS)
    values = {job.id: job.value for job in large}
    shared = [job for job in small if job.id in values]
    assert shared
    assert all(job.value == values[job.id] for job in shared)


def test_jobs_are_taken_again_only_when_their_class_has_run_out() -> None:
    sizes = [1] * 50 + [40] * 5
    sample = stratified(sizes, 40, 20.0, 50, 1)
    assert sample.again == sample.large - 5
    counts = np.bincount(sample.chosen, minlength=55)
    assert counts[:50].max() == 1
    assert counts[50:].max() - counts[50:].min() <= 1
    jobs, _ = changed(jobs=90, vms=35.0).requests(trace(120), 1, LINK_BPS)
    assert len({job.id for job in jobs}) == 90
    assert any("-" in job.id for job in jobs)


def test_a_job_that_is_taken_again_gets_no_name_of_another_job() -> None:
    source = trace(120)
    named = list(source.jobs)
    named[9] = replace(named[9], name="job6-2")
    jobs, sample = changed(jobs=90, vms=35.0).requests(
        replace(source, jobs=tuple(named)), 1, LINK_BPS
    )
    taken = [named[row].name for row in sample.chosen]
    assert taken.count("job6") > 1
    assert "job6-2" in taken
    assert len({job.id for job in jobs}) == 90


def test_the_same_seed_gives_the_same_jobs() -> None:
    assert RECIPE.requests(trace(), 4, LINK_BPS) == RECIPE.requests(
        trace(), 4, LINK_BPS
    )
    assert RECIPE.requests(trace(), 4, LINK_BPS) != RECIPE.requests(
        trace(), 5, LINK_BPS
    )


EXPERIMENT = """\
name: elastic
seed: 1
topology: {kind: tree, fanout: [2, 4], links: [4 Gbit/s, 1 Gbit/s], slots_per_server: 4}
policies: [jsa]
workload:
  kind: swim
  path: t.tsv
  jobs: 4
"""


def written(folder: Path, section: str, lines: str) -> Path:
    (folder / "t.tsv").write_text(lines, "utf-8")
    path = folder / "e.yaml"
    path.write_text(EXPERIMENT + section, "utf-8")
    return path


def test_a_section_becomes_jobs(
    tmp_path: Path,
) -> None:
    lines = "".join(
        f"job{k}\t{k}\t1\t{10**9 * (k % 2)}\t{5 * (k % 2)}\t7\n"
        for k in range(20)
    )
    loaded = load_experiment(
        written(tmp_path, "  vms: 9\n  batches: 2\n", lines)
    )
    assert len(loaded.jobs) == 4
    assert loaded.workload_facts["mean_vms"] == pytest.approx(9.0)


def test_errors_of_the_section_and_of_the_trace_are_reported_together(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path, "  batches: 9\n  spacing: 10\n", "job0\t1\t1\t5\n"
    )
    with pytest.raises(BadInput) as caught:
        load_experiment(path)
    said = f"{caught.value.message}\n" + "\n".join(
        str(one) for one in caught.value.args
    )
    text = (
        said + str(getattr(caught.value, "details", "")) + str(caught.value)
    )
    assert (
        "e.yaml:9:12: workload.batches: 4 jobs cannot come in 9 batches"
        in text
    )
    assert "e.yaml:10:12: workload.spacing: 10 is a bare number" in text
    assert "t.tsv:1:" in text


def test_where_no_job_is_short_enough_the_bound_is_named(
    tmp_path: Path,
) -> None:
    lines = "".join(f"job{k}\t{k}\t1\t1000\t5\t7\n" for k in range(20))
    section = "  vms: as-is\n  batches: 2\n  longest: 10 s\n"
    path = written(tmp_path, section, lines)
    with pytest.raises(BadInput) as caught:
        load_experiment(path)
    assert "of those that run for 10 s at most" in str(caught.value)


def test_all_errors_in_the_distributions_are_reported_at_once(
    tmp_path: Path,
) -> None:
    keys = (
        "  batches: 9\n  vms: 200\n  speedup: [0.1, 0.3]\n"
        "  deadline_factor: [5, 2]\n  deadline_slack: [1 min, 5 s]\n"
    )
    with pytest.raises(
        BadInput,
        match=r"(?s)batches.*vms.*speedup.*deadline_factor.*deadline_slack",
    ):
        load_experiment(written(tmp_path, keys, "job0\t1\t1\t5\t5\t5\n"))
