"""Bandwidth scaling: the file that is run, p from its profiles, the bound's verdict, the folder."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.request import JobRequest
from testbed.cli import main
from testbed.errors import BadInput, RunFailed
from testbed.record.metrics import JobRow, Tally
from testbed.spec.document import SpecErrors, read_text
from testbed.spec.experiment_file import parse_experiment
from testbed.sweeps.measured_scaling import (
    Repetition,
    ScaledRun,
    measured_scaling,
    repetitions_of,
)
from testbed.sweeps.result_store import events_digest
from testbed.sweeps.scaling_file import ScalingFile, scaling_file
from testbed.sweeps.scaling_run import _recorded
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run

MBPS = 1_000_000
FILE = """\
name: pair
seed: 3
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [fcfs]
workload:
  kind: jobs
  jobs:
    - {id: sort, vms: 3, bandwidth: 100 Mbit/s, duration: 4 s, at: 5 s, deadline: 60 s}
    - id: count
      vms: 2
      bandwidth: 100 Mbit/s
      duration: 4 s
      demand: [{until: 50 %, at: 20 Mbit/s}, {until: 100 %, at: 100 Mbit/s}]
      sweep: {granted: [50 Mbit/s]}
expect: {estimate_ratio: {max: 1.01}, fidelity: suspect}
"""
COMPUTING = """
    - {id: spin, vms: 2, kind: compute, duration: 4 s}
"""


def written(text: str = FILE, *bandwidths_bps: int) -> ScalingFile:
    return scaling_file(Path("pair.yaml"), text, {}, bandwidths_bps)


def jobs_of(file: ScalingFile) -> list[JobRequest]:
    return list(parse_experiment(file.text, file.path).jobs)


def test_each_job_is_profiled_and_then_run_at_each_bandwidth_one_at_a_time() -> (
    None
):
    jobs = jobs_of(written())
    assert [job.id for job in jobs] == [
        "sort-profile",
        "sort-100",
        "sort-80",
        "sort-60",
        "sort-40",
        "sort-20",
        "count-profile",
        "count-50",
    ]
    assert [job.after for job in jobs] == [
        None,
        *(job.id for job in jobs[:-1]),
    ]
    assert {job.submit_s for job in jobs} == {0.0}
    assert {job.deadline_s for job in jobs} == {None}
    assert [job.granted_bps for job in jobs[-2:]] == [None, 50 * MBPS]


def test_bandwidths_of_the_command_line_come_before_the_files() -> None:
    jobs = jobs_of(written(FILE, 40 * MBPS, 70 * MBPS, 40 * MBPS))
    names = [job.id for job in jobs if job.application == "count"]
    assert names == ["count-profile", "count-70", "count-40"]


def test_the_file_keeps_what_is_not_about_jobs() -> None:
    experiment = parse_experiment(written().text, Path("pair.yaml"))
    assert experiment.seed == 3
    assert experiment.name == "pair-scaling"
    assert [policy.name for policy in experiment.policies] == ["scripted"]
    assert experiment.expect.fidelity == "suspect"
    assert experiment.expect.estimate_ratio is None


def test_the_application_of_a_profile_is_scaled_up_to_its_own_bandwidth() -> (
    None
):
    path = Path("examples/profile-exchange.yaml")
    jobs = jobs_of(scaling_file(path, read_text(path), {}))
    assert [job.id for job in jobs] == [
        "exchange-profile",
        "exchange-300",
        "exchange-200",
        "exchange-150",
        "exchange-100",
    ]


def test_the_time_of_a_repetition_is_that_of_its_jobs() -> None:
    # sort: 4 and 4·(1 + 1/0.8 + 1/0.6 + 1/0.4 + 5); count: 4 and 8.
    jobs_s = 4 + 4 * (1 + 1.25 + 1 / 0.6 + 2.5 + 5) + 4 + 8
    assert written().repetition_s == pytest.approx(12.0 + jobs_s)


def test_a_job_that_sends_nothing_is_refused_at_its_line() -> None:
    text = FILE.replace("\nexpect:", f"{COMPUTING}expect:", 1)
    with pytest.raises(
        BadInput, match=r"pair.yaml:\d+:\d+: spin sends nothing"
    ):
        written(text)


def test_more_than_a_job_asks_for_is_refused_at_its_line() -> None:
    with pytest.raises(
        BadInput, match=r"pair.yaml:8:7: sort asks for 100 Mbit/s"
    ):
        written(FILE, 200 * MBPS)


def test_errors_of_the_file_are_those_of_the_file() -> None:
    with pytest.raises(SpecErrors, match=r"pair.yaml:8"):
        written(FILE.replace("vms: 3", "vms: none"))


def test_another_workload_is_refused() -> None:
    text = FILE.partition("workload:")[0]
    text += (
        "workload: {kind: exponential, jobs: 2, mean_vms: 2, load: 0.5}\n"
    )
    with pytest.raises(
        BadInput, match="scaling needs kind: jobs or kind: ladder"
    ):
        written(text)


def repetition(p_s: float, at_half_s: float) -> Repetition:
    runs = {100 * MBPS: ScaledRun(p_s), 50 * MBPS: ScaledRun(at_half_s)}
    return Repetition("sort", 100 * MBPS, p_s, runs)


def verdict(*pairs: tuple[float, float]) -> str:
    repetitions = [repetition(*pair) for pair in pairs]
    (found,) = measured_scaling(repetitions)
    assert found.points[0].verdict == "reference"
    return found.points[1].verdict


@pytest.mark.slow
def test_the_bound_is_judged_by_the_whole_interval() -> None:
    assert verdict((4.0, 7.9), (4.1, 8.1), (4.0, 7.95)) == "close"
    assert verdict((4.0, 7.0), (4.0, 7.1), (4.0, 7.05)) == "holds"
    # Close only where all of the interval is.
    assert verdict((4.0, 7.2), (4.0, 7.4), (4.0, 7.1)) == "holds"
    assert verdict((4.0, 8.4), (4.1, 8.7), (4.0, 8.5)) == "violated"
    assert verdict((4.0, 7.9), (4.0, 8.1)) == "undecided"
    assert verdict((4.0, 7.0)) == "undecided"


def test_the_ratio_is_to_the_repetitions_own_profile() -> None:
    repetitions = [repetition(4.0, 8.0), repetition(5.0, 10.0)]
    (found,) = measured_scaling(repetitions)
    assert found.points[1].ratios == (1.0, 1.0)
    assert found.points[1].estimated.mean == 9.0
    assert found.profiled.mean == 4.5


def played(out: Path, file: Path, *options: str) -> int:
    return main.run(
        [
            "scaling",
            str(file),
            "--simulated",
            "--repetitions",
            "2",
            "--out",
            str(out),
            *options,
        ]
    )


@pytest.mark.slow
def test_a_simulated_scaling_is_written_down_and_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(FILE)
    assert played(tmp_path / "runs", file, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    sort, count = record["applications"]
    assert sort["profiled_s"] == 4.0
    ratios = [point["ratio"] for point in sort["points"]]
    assert ratios == pytest.approx([1.0] * 5)
    # τ = 4 s; half the work at 20, half at 100 of 50 Mbit/s: 2 + 4 of 8 s.
    assert count["points"][0]["ratio"] == pytest.approx(0.75)
    folder = Path(record["folder"])
    with (folder / "scaling.csv").open() as lines:
        table = list(csv.DictReader(lines))
    assert len(table) == 12
    assert (folder / "scaling.svg").read_bytes().startswith(b"<?xml")
    assert played(tmp_path / "runs", file, "--json") == 0
    again = Path(json.loads(capsys.readouterr().out)["folder"])
    cells = json.loads((again / "sweep.json").read_text())["cells"]
    assert (cells["computed"], cells["kept"]) == (0, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_table_says_what_became_of_the_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(FILE)
    assert played(tmp_path / "runs", file, "--strict") == 0
    printed = capsys.readouterr().out
    assert (
        "count: p = 4.000 ± 0.000 s at 100 Mbit/s, 2 repetitions" in printed
    )
    assert "0.7500 ± 0.0000  holds" in printed


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_several_files_have_their_folders_and_one_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair, other = tmp_path / "pair.yaml", tmp_path / "other.yaml"
    pair.write_text(FILE)
    text = FILE.replace("name: pair", "name: other")
    other.write_text(text.replace("id: sort", "id: sort-two"))
    out = tmp_path / "runs"
    assert played(out, pair, str(other), "--json") == 0
    record = json.loads(capsys.readouterr().out)
    names = [each["application"] for each in record["applications"]]
    assert names == ["sort", "count", "sort-two", "count"]
    folder = Path(record["folder"])
    with (folder / "scaling.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == 24
    assert (folder / "scaling.svg").is_file()
    folders = {path.parent for path in out.glob("*/scaling.json")}
    assert len(folders) == 3
    # A bad one is told of before the first is run.
    other.write_text(text.replace("vms: 3", "vms: none"))
    assert played(tmp_path / "none", pair, str(other)) == 2
    assert not list(tmp_path.glob("none/*"))


def test_bandwidths_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(FILE)
    assert played(tmp_path / "runs", file, "--bandwidths", "fast") == 2
    assert played(tmp_path / "runs", file, "--bandwidths", "0 bit/s") == 2


def rows_of(file: ScalingFile, seed: int = 1) -> list[JobRow]:
    from testbed.play.playing import play, simulated

    experiment = parse_experiment(file.text, file.path, {"seed": seed})
    (policy,) = experiment.policies
    tally = Tally()
    play(experiment, policy, simulated(experiment, policy), tally)
    return list(tally.rows())


def test_the_share_of_the_network_is_the_median_repetitions() -> None:
    from dataclasses import replace

    repetitions = []
    for share in (0.25, 0.5, 1.0, None):
        rows = rows_of(written())
        changed = [replace(row, network_share=share) for row in rows]
        repetitions += repetitions_of(changed)
    sort, _ = measured_scaling(repetitions)
    assert sort.points[0].network_share == 0.5
    assert sort.points[0].to_json()["network_share"] == 0.5
    (unknown, _) = measured_scaling(repetitions_of(rows))
    assert unknown.points[0].network_share is None


def test_a_job_that_did_not_finish_leaves_no_ratio() -> None:
    from dataclasses import replace

    rows = rows_of(written())
    assert [each.application for each in repetitions_of(rows)] == [
        "sort",
        "count",
    ]
    rows[2] = replace(rows[2], outcome="killed", reason="its time is over")
    with pytest.raises(RunFailed, match="sort-80 killed: its time is over"):
        repetitions_of(rows)


def test_of_several_attempts_that_of_the_result_counts(
    tmp_path: Path,
) -> None:
    place = tmp_path / "cell"
    place.mkdir()
    measured = write_run(place, sample.main_example(), FIG10)[0].path
    digest = events_digest(measured)
    # Of a later attempt that was interrupted.
    later = place / "later"
    later.mkdir()
    lines = (
        (measured / "events.jsonl").read_text().splitlines(keepends=True)
    )
    (later / "events.jsonl").write_text("".join(lines[:3]))
    cell = SimpleNamespace(key="cell")
    result = {"events_sha256": digest}
    run: Any = SimpleNamespace(
        keep=tmp_path,
        cells=SimpleNamespace(of=lambda _: [cell]),
        result_of=lambda _: result,
    )
    (recorded,) = _recorded(run)
    assert recorded.path == measured
    shutil.rmtree(measured)
    with pytest.raises(RunFailed, match="no run with the events"):
        _recorded(run)
