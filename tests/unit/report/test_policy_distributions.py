"""The page above several policies: its sentence and its distributions."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.record.reading import load_run, policy_folders
from testbed.report.policy_distributions import (
    QUANTITIES,
    _curves,
    distributions,
    policies_sentence,
)

# With vc, which does not queue, the second job is rejected.
EXPERIMENT = """\
name: two
seed: 1
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, dcloud-ts]
workload:
  kind: jobs
  jobs:
    - {id: a, at: 0 s, vms: 4, bandwidth: 100 Mbit/s, duration: 6 s, deadline: 90 s}
    - {id: b, at: 1 s, vms: 4, bandwidth: 100 Mbit/s, duration: 8 s, deadline: 90 s}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    file = tmp_path / "two.yaml"
    file.write_text(EXPERIMENT)
    assert (
        run(["simulate", str(file), "--out", str(tmp_path / "runs")]) == 0
    )
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


def test_the_sentence_says_which_finished_most_and_who_waited(
    folder: Path,
) -> None:
    runs = [load_run(policy) for policy in policy_folders(folder)]
    sentence = policies_sentence(runs)
    assert sentence.startswith("dcloud-ts finished most of 2 jobs: 2; ")
    assert "waited least with vc (0 ms on average)" in sentence
    assert "longest with dcloud-ts (4.05 s)" in sentence


def test_of_equal_policies_it_says_so(folder: Path) -> None:
    first = load_run(policy_folders(folder)[0])
    assert policies_sentence([first, first]).startswith(
        "Every policy finished "
    )
    assert policies_sentence([first, first]).endswith(" of 2 jobs.")


def test_distributions_are_of_the_jobs_that_have_the_value(
    folder: Path,
) -> None:
    runs = [load_run(policy) for policy in policy_folders(folder)]
    wait, response, ratio = QUANTITIES
    for quantity, column in ((wait, "wait_s"), (response, "response_s")):
        for policy, values in _curves(runs, quantity):
            with (folder / policy / "jobs.csv").open() as file:
                cells = [row[column] for row in csv.DictReader(file)]
            assert values == sorted(float(cell) for cell in cells if cell)
    assert len(dict(_curves(runs, wait))["vc"]) == 1
    assert dict(_curves(runs, ratio))["vc"] == pytest.approx([1.0])
    titles = [shown.quantity.title for shown in distributions(runs)]
    # Simulated, all ratios are 1.
    assert titles == [wait.title, response.title]


def test_the_page_has_them_with_units(folder: Path) -> None:
    page = (folder / "report.html").read_text("utf-8")
    assert "finished most of 2 jobs" in page
    assert "wait [s]" in page
    assert "share of jobs [%]" in page
    assert run(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text("utf-8") == page
