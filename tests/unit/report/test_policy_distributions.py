"""The page above several policies: its sentence and its distributions."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.record.folder import RunFolder
from testbed.record.metrics import Fidelity, JobRow, Summary, tally
from testbed.record.reading import load_run, policy_folders
from testbed.report.page import write_report
from testbed.report.policy_distributions import (
    QUANTITIES,
    _curves,
    distributions,
    policies_sentence,
)
from tests.unit.record import failing, sample
from tests.unit.record.written import NOW, write_run

TAKEN = tally(sample.main_example())


@dataclass(frozen=True)
class PolicyRun:
    """A policy's run without a folder."""

    rows: tuple[JobRow, ...]
    summary: Summary


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two policies, which no test changes."""
    base = tmp_path_factory.mktemp("two")
    file = base / "two.yaml"
    file.write_text(EXPERIMENT)
    assert run(["simulate", str(file), "--out", str(base / "runs")]) == 0
    (folder,) = (base / "runs").iterdir()
    return folder


@pytest.mark.slow
def test_the_sentence_says_which_finished_most_and_who_waited(
    folder: Path,
) -> None:
    runs = [load_run(policy) for policy in policy_folders(folder)]
    sentence = policies_sentence(runs)
    assert sentence.startswith(
        "dcloud-ts finished the most jobs: 2 of 2; vc the fewest: 1. "
    )
    assert "waited least with vc (0 s on average)" in sentence
    assert "longest with dcloud-ts (4.05 s)" in sentence
    assert sentence.endswith(" Simulated, seed 1 only.")


@pytest.mark.slow
def test_of_equal_policies_it_says_so(folder: Path) -> None:
    first = load_run(policy_folders(folder)[0])
    assert policies_sentence([first, first]).startswith(
        "Every policy finished "
    )
    assert " of 2 jobs. Simulated" in policies_sentence([first, first])


def policy(name: str, **changes: object) -> PolicyRun:
    """A live policy's run of the sample's ten jobs."""
    summary = TAKEN.summary()
    return PolicyRun(
        tuple(TAKEN.rows()), replace(summary, policy=name, **changes)
    )


def test_ties_are_named_together() -> None:
    runs = [
        policy("a", finished=8, wait_mean_s=0.0),
        policy("b", finished=9, wait_mean_s=0.001),
        policy("c", finished=9, wait_mean_s=0.0),
        policy("d", finished=8, wait_mean_s=70.0),
    ]
    sentence = policies_sentence(runs)
    assert (
        "b and c finished the most jobs: 9 of 10; a and d the fewest: 8."
        in sentence
    )
    assert (
        "waited least with a and c (0 s on average), longest with d"
        in sentence
    )


def test_fidelity_of_live_runs_comes_first_where_it_is_bad() -> None:
    ok = Fidelity("ok")
    good = policies_sentence([policy("a", fidelity=ok)] * 2)
    assert good.startswith("The fidelity of every policy's run is ok. ")
    assert good.endswith("Live, seed 7 only.")
    runs = [
        policy("a", fidelity=Fidelity("suspect", ("busy",))),
        policy("b", fidelity=ok),
        policy("c", fidelity=Fidelity("invalid", ("late",))),
    ]
    assert policies_sentence(runs).startswith(
        "Fidelity is invalid for c, suspect for a, ok for b. "
    )


@pytest.mark.slow
def test_distributions_are_of_the_jobs_that_have_the_value(
    folder: Path,
) -> None:
    runs = [load_run(policy) for policy in policy_folders(folder)]
    wait, response, ratio = QUANTITIES
    for quantity, column in ((wait, "wait_s"), (response, "response_s")):
        for curve in _curves(runs, quantity):
            with (folder / curve.policy / "jobs.csv").open() as file:
                cells = [row[column] for row in csv.DictReader(file)]
            values = sorted(float(cell) for cell in cells if cell)
            assert list(curve.values) == values
            assert curve.n_jobs == len(cells) == 2
    (of_vc,) = [c for c in _curves(runs, wait) if c.policy == "vc"]
    assert len(of_vc.values) == 1
    # Half of all jobs started: there its curve ends.
    assert of_vc.shares == [0.5]
    (of_vc,) = [c for c in _curves(runs, ratio) if c.policy == "vc"]
    assert of_vc.values == pytest.approx([1.0])
    titles = [shown.quantity.title for shown in distributions(runs)]
    # Simulated, all ratios are 1.
    assert titles == [wait.title, response.title]


@pytest.mark.slow
def test_the_page_has_them_with_units(folder: Path) -> None:
    page = (folder / "report.html").read_text("utf-8")
    assert "finished the most jobs: 2 of 2" in page
    assert "wait [s]" in page
    assert "share of all jobs [%]" in page
    assert "Measured/estimate (median)" in page
    assert ", simulated, seed 1<" in page
    assert "Killed</th>" not in page
    assert "Not ended</th>" not in page
    # Of one job and of two: the usual median, the mean of both.
    assert "dcloud-ts 4.05 s (2 of 2 jobs)" in page
    assert "vc 0 s (1 of 2 jobs)" in page
    assert "larger mark, with the last of the jobs that started." in page
    assert run(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text("utf-8") == page


@pytest.mark.slow
def test_tables_and_pictures_have_shares_of_all_jobs(folder: Path) -> None:
    runs = [
        load_run(path) for path in map(folder.joinpath, ("vc", "dcloud-ts"))
    ]
    wait, _ = distributions(runs)
    headings, *rows = wait.rows()
    assert headings == ("policy", "value", "share")
    shares = {(name, share) for name, _, share in rows}
    assert shares == {("vc", 0.5), ("dcloud-ts", 0.5), ("dcloud-ts", 1.0)}
    (axes,) = wait.draw().axes
    of_vc, end_of_vc, of_dcloud, end_of_dcloud = axes.get_lines()
    assert max(of_vc.get_ydata()) == 50.0
    assert list(end_of_vc.get_ydata()) == [50.0]
    assert max(of_dcloud.get_ydata()) == 100.0
    assert of_vc.get_marker() != of_dcloud.get_marker()
    assert of_vc.get_linestyle() != of_dcloud.get_linestyle()
    assert end_of_dcloud.get_marker() == of_dcloud.get_marker()
    assert -1.0 < axes.get_xlim()[0] <= 0.0
    # A key is long enough for its dashes beside its mark.
    legend = axes.get_legend()
    assert legend is not None
    assert legend.handlelength > 4


@pytest.mark.slow
def test_killed_and_unfinished_jobs_have_columns(tmp_path: Path) -> None:
    above = RunFolder.create(tmp_path, "failing", 1, now=NOW)
    moving = failing.moving()
    for name, stream in (("a", moving), ("b", moving[:-3])):
        write_run(above, stream, name=name)
    page = write_report(above).read_text("utf-8")
    assert "Killed</th>" in page
    assert "Not ended</th>" in page
    assert ">no expectations<" in page
