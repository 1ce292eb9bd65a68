"""``workload: {kind: ladder}``: one application, the same work at each bandwidth."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.demand import DemandCurve, Transfer
from jobs.request import JobRequest
from testbed.spec.bandwidth_sweep_section import at_bandwidth
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import parse_experiment

MBIT = 10**6
HEAD = """\
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
workload:
  kind: ladder
  application: {id: sort, vms: 4, bandwidth: 100 Mbit/s, duration: 8 s, pattern: all-to-all}
"""


def parsed(more: str = "") -> Experiment:
    return parse_experiment(HEAD + more, Path("app.yaml"))


def test_without_bandwidths_it_is_the_published_sweep_three_times() -> None:
    experiment = parsed()
    assert experiment.sweep is not None
    assert experiment.sweep.bandwidths_bps == tuple(
        20 * step * MBIT for step in range(1, 11)
    )
    assert experiment.sweep.repetitions == 3
    assert len(experiment.jobs) == 30
    assert [policy.name for policy in experiment.policies] == ["scripted"]


def test_the_default_sweep_ends_where_the_data_centre_can_give_no_more() -> (
    None
):
    experiment = parse_experiment(
        HEAD.replace("100 Mbit/s", "400 Mbit/s"), Path("app.yaml")
    )
    assert experiment.sweep is not None
    # Two of the four VMs stand on one server, whose link carries twice their bandwidth.
    assert experiment.sweep.bandwidths_bps[-1] == 480 * MBIT
    (note,) = experiment.workload_notes
    assert (
        note
        == "the sweep ends at 480 Mbit/s: rack 0 -> core 0: 1.12 Gbit/s asked, 1 Gbit/s free"
    )


def test_runs_come_one_after_another_round_by_round() -> None:
    jobs = parsed(
        "  bandwidths: [50 Mbit/s, 200 Mbit/s]\n  repetitions: 2\n"
    ).jobs
    assert [job.id for job in jobs] == [
        "sort-200-1",
        "sort-50-1",
        "sort-200-2",
        "sort-50-2",
    ]
    assert jobs[0].after is None
    assert all(after.after == before.id for before, after in pairwise(jobs))
    assert {job.application for job in jobs} == {"sort"}
    assert {job.demand.pattern for job in jobs} == {"all-to-all"}


def test_a_transfer_is_expected_to_take_as_long_as_its_bytes() -> None:
    jobs = parsed(
        "  bandwidths: [50 Mbit/s, 200 Mbit/s]\n  repetitions: 1\n"
    ).jobs
    assert [(job.bandwidth_bps, job.duration_s) for job in jobs] == [
        (200 * MBIT, 4.0),
        (50 * MBIT, 16.0),
    ]


def test_nothing_is_known_of_a_command_but_what_it_takes() -> None:
    command = HEAD.replace(
        "pattern: all-to-all", 'command: [sh, -c, "sleep 1"]'
    )
    experiment = parse_experiment(
        command + "  bandwidths: [50 Mbit/s, 200 Mbit/s]\n", Path("a")
    )
    assert experiment.sweep is not None
    assert not experiment.sweep.modelled
    # p·b/b' below its bandwidth and p above it.
    assert [job.duration_s for job in experiment.jobs[:2]] == [8.0, 16.0]
    ours = parsed()
    assert ours.sweep is not None
    assert ours.sweep.modelled


@pytest.mark.parametrize(
    ("old", "new", "place", "why"),
    [
        (
            "{kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}",
            "{kind: flat, nodes: 4}",
            "app.yaml:3:9: workload.kind",
            "no bandwidth to try",
        ),
        (
            "pattern: all-to-all",
            "command: [./none.py]",
            "app.yaml:4:83: workload.application.command[0]",
            "there is no file ./none.py",
        ),
        (
            "pattern: all-to-all",
            "command: [sh], pattern: ring",
            "app.yaml:4:88: workload.application.pattern",
            "means nothing to a job that runs a command",
        ),
    ],
)
def test_what_a_sweep_cannot_mean_is_named_with_its_place(
    old: str, new: str, place: str, why: str
) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(HEAD.replace(old, new), Path("app.yaml"))
    (problem,) = caught.value.problems
    where = problem.place
    assert (
        f"{where.source}:{where.line}:{where.column}: {problem.path}"
        == place
    )
    assert why in problem.message


def test_what_the_run_depends_on_is_in_its_resolved_form() -> None:
    sweep = parsed("  tolerance: 5 %\n").resolved["ladder"]
    assert (sweep["application"], sweep["tolerance"]) == ("sort", 0.05)


CURVES = st.lists(st.integers(0, 900), min_size=1, max_size=4).filter(any)


@given(CURVES, st.integers(1, 900), st.integers(1, 900))
def test_an_applications_work_is_the_same_at_every_bandwidth(
    demands: list[int], asked: int, point: int
) -> None:
    steps = tuple(
        (k / len(demands), c * MBIT) for k, c in enumerate(demands, 1)
    )
    for demand in (Transfer(), DemandCurve(steps)):
        job = JobRequest("a", 0.0, 2, asked * MBIT, 10.0, demand=demand)
        moved = demand.volume_bits(at_bandwidth(job, point * MBIT))
        assert moved == pytest.approx(demand.volume_bits(job), rel=1e-9)


def test_bandwidths_that_round_to_the_same_bit_are_one() -> None:
    head = HEAD.replace("bandwidth: 100 Mbit/s", "bandwidth: 2 bit/s")
    experiment = parse_experiment(head, Path("app.yaml"))
    assert experiment.sweep is not None
    assert experiment.sweep.bandwidths_bps == (1, 2, 3, 4)
    assert len({job.id for job in experiment.jobs}) == len(experiment.jobs)
