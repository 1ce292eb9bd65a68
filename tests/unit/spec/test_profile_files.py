"""Profiles in files, and the jobs that name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.job_profile import Profile, linear_profile
from testbed.errors import BadInput
from testbed.spec.experiment_file import load_experiment
from testbed.spec.job_entries import profile_text, read_profile

HEAD = """\
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [jsa]
workload:
  kind: jobs
  jobs:
"""


def experiment(folder: Path, jobs: str, profile: str = "") -> Path:
    (folder / "p.yaml").write_text(profile, "utf-8")
    path = folder / "e.yaml"
    path.write_text(HEAD + jobs, "utf-8")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    profile = linear_profile(150_000_000, 42.0, 0.07)
    path = tmp_path / "p.yaml"
    path.write_text(profile_text(profile, "sort"), "utf-8")
    read, document = read_profile(path)
    assert document.problems == []
    assert read is not None
    assert [bps for bps, _ in read.options] == [
        bps for bps, _ in profile.options
    ]
    assert [s for _, s in read.options] == pytest.approx(
        [s for _, s in profile.options]
    )


@pytest.mark.parametrize(
    "application", ["2024", "1e3", "0x1F", "true", "no", "null", "NaN"]
)
def test_a_label_that_looks_like_a_number_is_read_again(
    tmp_path: Path, application: str
) -> None:
    path = tmp_path / "p.yaml"
    profile = linear_profile(150_000_000, 42.0, 0.07)
    path.write_text(profile_text(profile, application), "utf-8")
    read, document = read_profile(path)
    assert document.problems == []
    assert read is not None


def test_jobs_get_their_profile_from_a_file_or_the_model(
    tmp_path: Path,
) -> None:
    path = experiment(
        tmp_path,
        "    - {id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 30 s, reward: 7, profile: p.yaml}\n"
        "    - {id: b, vms: 2, bandwidth: 100 Mbit/s, duration: 30 s, speedup: 0.1}\n",
        "options: [{bandwidth: 50 Mbit/s, time: 40 s}, {bandwidth: 100 Mbit/s, time: 30 s}]\n",
    )
    a, b = load_experiment(path).jobs
    assert a.demand.profile == Profile(
        ((50_000_000, 40.0), (100_000_000, 30.0))
    )
    assert (a.value, b.value) == (7.0, 0.0)
    assert b.demand.profile == linear_profile(100_000_000, 30.0, 0.1)


def test_all_errors_are_reported_at_once_with_their_place(
    tmp_path: Path,
) -> None:
    path = experiment(
        tmp_path,
        "    - {id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 30 s, profile: p.yaml}\n"
        "    - {id: b, vms: 2, bandwidth: 100 Mbit/s, duration: 30 s, profile: none.yaml}\n"
        "    - {id: c, vms: 2, bandwidth: 100 Mbit/s, duration: 30 s, speedup: 0.3}\n"
        "    - {id: d, vms: 2, kind: compute, duration: 30 s, speedup: 0.1}\n",
        "options:\n  - {bandwidth: 100 Mbit/s, time: 40 s}\n  - {bandwidth: 200, time: 40 s}\n"
        "  - {bandwidth: 300 Mbit/s, tiem: 20 s}\n",
    )
    with pytest.raises(BadInput) as caught:
        load_experiment(path)
    said = str(caught.value)
    for wanted in (
        "p.yaml:3:17: options[1].bandwidth: 200 is a bare number",
        "p.yaml:4:29: options[2].tiem",
        "e.yaml:7:",
        "there is no file 'none.yaml'",
        "e.yaml:8:71: workload.jobs[2].speedup: must be at least 0 and below 0.2",
        "workload.jobs[3].speedup: belongs to jobs of kind transfer",
    ):
        assert wanted in said


def test_options_that_do_not_get_faster_are_named(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "options:\n  - {bandwidth: 1 Mbit/s, time: 4 s}\n  - {bandwidth: 2 Mbit/s, time: 4 s}\n",
        "utf-8",
    )
    read, document = read_profile(path)
    assert read is None
    (problem,) = document.problems
    assert (
        problem.place.line,
        "no-elongation threshold" in str(problem),
    ) == (
        3,
        True,
    )
