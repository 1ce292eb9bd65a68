"""Mistakes do not hide each other: any set of independent ones is reported, and nothing else."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import parse_experiment
from tests.support.examples import examples

GOOD = """\
name: base
seed: 7
topology:
  kind: tree
  fanout: [4, 2, 2]
  links: [4 Gbit/s, 2 Gbit/s, 1 Gbit/s]
  slots_per_server: 2
scale: {rate: 0.1, time: 1}
embedder: oktopus
policies: [scripted]
workload:
  kind: jobs
  jobs:
    - id: a
      at: 0 s
      vms: 4
      bandwidth: 750 Mbit/s
      granted: 600 Mbit/s
      duration: 6 s
      deadline: 60 s
      pattern: ring
      application: sort
    - id: b
      after: a
      vms: 3
      bandwidth: 700 Mbit/s
      duration: 5 s
      demand: [{until: 70 %, at: 120 Mbit/s}, {until: 100 %, at: 800 Mbit/s}]
      cpu: 12 %
      application: count
expect:
  estimate_ratio: {min: 0.9, max: 1.1}
  applications:
    sort: {scaled_down_below: 0.95}
  fidelity: ok
"""

# (text, what replaces it, the place of the problem, its path): none changes what another means.
MISTAKES = [
    ("name: base", "name: base line", 1, "name"),
    ("seed: 7", "seed: 1e3", 2, "seed"),
    ("scale: {rate: 0.1", "scale: {rate: -1", 8, "scale.rate"),
    ("time: 1}", "tome: 1}", 8, "scale.tome"),
    ("embedder: oktopus", "embedder: octopus", 9, "embedder"),
    ("[scripted]", "[scripted, vv]", 10, "policies[1]"),
    (
        "  slots_per_server: 2",
        "  slots_per_server: 2\n  colour: red",
        8,
        "topology.colour",
    ),
    ("at: 0 s", "at: 0", 15, "workload.jobs[0].at"),
    ("vms: 4", "vms: 400", 16, "workload.jobs[0].vms"),
    (
        "granted: 600 Mbit/s",
        "granted: 800 Mbit/s",
        18,
        "workload.jobs[0].granted",
    ),
    ("deadline: 60 s", "deadline: 5 s", 20, "workload.jobs[0].deadline"),
    ("pattern: ring", "pattern: rnig", 21, "workload.jobs[0].pattern"),
    ("after: a", "after: c", 24, "workload.jobs[1].after"),
    ("vms: 3", "vms: 0", 25, "workload.jobs[1].vms"),
    (
        "bandwidth: 700 Mbit/s",
        "bandwidth: 7 Gbit/s",
        26,
        "workload.jobs[1].bandwidth",
    ),
    ("duration: 5 s", "duration: 1:05", 27, "workload.jobs[1].duration"),
    ("until: 70 %", "until: 170 %", 28, "workload.jobs[1].demand[0].until"),
    ("cpu: 12 %", "cpu: no", 29, "workload.jobs[1].cpu"),
    ("min: 0.9", "min: 1.9", 32, "expect.estimate_ratio.min"),
    ("    sort: {", "    srot: {", 34, "expect.applications.srot"),
    ("fidelity: ok", "fidelity: fine", 35, "expect.fidelity"),
]


def problems_of(text: str) -> list[tuple[int, str]]:
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(text, Path("x.yaml"))
    return [
        (problem.place.line, problem.path)
        for problem in caught.value.problems
    ]


def test_the_base_is_good() -> None:
    assert parse_experiment(GOOD, Path("x.yaml")).name == "base"


@pytest.mark.parametrize(
    ("old", "new", "line", "path"), MISTAKES, ids=[m[3] for m in MISTAKES]
)
def test_one_mistake_is_one_problem(
    old: str, new: str, line: int, path: str
) -> None:
    assert GOOD.count(old) == 1
    assert problems_of(GOOD.replace(old, new)) == [(line, path)]


@pytest.mark.slow
@examples(60)
@given(st.sets(st.sampled_from(range(len(MISTAKES))), min_size=2))
def test_any_mistakes_are_all_reported(chosen: set[int]) -> None:
    text = GOOD
    expected = []
    added_line = any(
        MISTAKES[index][3] == "topology.colour" for index in chosen
    )
    for index in sorted(chosen):
        old, new, line, path = MISTAKES[index]
        text = text.replace(old, new)
        moved = added_line and line >= 8 and path != "topology.colour"
        expected.append((line + moved, path))
    assert sorted(problems_of(text)) == sorted(expected)


def test_an_impossible_topology_does_not_hide_the_jobs_mistakes() -> None:
    text = GOOD.replace("[4, 2, 2]", "[4, 0, 2]").replace(
        "links: [4 Gbit/s,", "links: [4000,"
    )
    text = text.replace("slots_per_server: 2", "slots_per_server: -1")
    text = text.replace("granted: 600", "granted: 900").replace(
        "after: a", "after: b"
    )
    assert problems_of(text) == [
        (5, "topology.fanout[1]"),
        (6, "topology.links[0]"),
        (7, "topology.slots_per_server"),
        (18, "workload.jobs[0].granted"),
        (24, "workload.jobs[1].after"),
    ]


def test_problems_cross_processes() -> None:
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(GOOD.replace("seed: 7", "seed: x"), Path("x.yaml"))
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made on the line itself
    assert isinstance(again, SpecErrors)
    assert (again.problems, str(again)) == (
        caught.value.problems,
        str(caught.value),
    )
