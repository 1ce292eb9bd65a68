"""A ladder from file to profile and back into a job, simulated; what the verb refuses."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.errors import RunFailed
from testbed.results.folder import RunFolder
from testbed.results.read import load_run
from testbed.runs.profiled import profiled
from testbed.runs.record import Recorded
from testbed.runs.simulated import run_simulated
from testbed.spec.experiment import Experiment
from testbed.spec.load import load_experiment

APPLICATION = """\
name: wordcount
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
workload:
  kind: ladder
  application:
    id: wordcount
    vms: 3
    bandwidth: 400 Mbit/s
    duration: 5 s
    demand: [{until: 70 %, at: 60 Mbit/s}, {until: 100 %, at: 240 Mbit/s}]
  bandwidths: [60 Mbit/s, 120 Mbit/s, 240 Mbit/s, 300 Mbit/s]
  repetitions: 2
"""
# τ = 5 s; 30 % of it four times and twice as long at a quarter and half of 240 Mbit/s.
OPTIONS = ((60_000_000, 9.5), (120_000_000, 6.5), (240_000_000, 5.0))


def simulated(path: Path) -> tuple[Experiment, Recorded]:
    experiment = load_experiment(path)
    top = RunFolder.create(path.parent / "runs", experiment.name, experiment.seed)
    (recorded,) = run_simulated(
        experiment, top, lambda *_: nullcontext(lambda _: None), ["testbed", "profile"]
    )
    return experiment, recorded


@pytest.fixture
def application(tmp_path: Path) -> Path:
    path = tmp_path / "wordcount.yaml"
    path.write_text(APPLICATION, "utf-8")
    return path


def test_the_profile_of_a_modelled_application_is_the_models(application: Path) -> None:
    experiment, recorded = simulated(application)
    found = profiled(experiment, recorded, None)
    assert found.measured.profile.options == OPTIONS
    assert found.measured.found
    assert found.file == recorded.folder.path / "profile.yaml"
    assert found.to_json()["threshold_bps"] == 240_000_000


def test_a_job_with_the_written_profile_takes_the_measured_times(application: Path) -> None:
    experiment, recorded = simulated(application)
    target = application.with_name("profile-of-it.yaml")
    profiled(experiment, recorded, target)
    lines = [
        f"    - {{id: j{bps}, vms: 3, bandwidth: 240 Mbit/s, granted: {bps} bit/s, duration: 5 s,"
        f" at: {20 * number} s, profile: {target.name}}}\n"
        for number, (bps, _) in enumerate(OPTIONS)
    ]
    again = application.with_name("again.yaml")
    head = APPLICATION.split("workload:", maxsplit=1)[0]
    again.write_text(
        f"{head}policies: [scripted]\nworkload:\n  kind: jobs\n  jobs:\n{''.join(lines)}", "utf-8"
    )
    _, played = simulated(again)
    taken = {row.granted_bps: row.measured_s for row in played.results.rows}
    assert taken == {bps: pytest.approx(time_s) for bps, time_s in OPTIONS}


def test_the_page_shows_it_and_is_made_again_from_the_folder(application: Path) -> None:
    experiment, recorded = simulated(application)
    profiled(experiment, recorded, None)
    page = (recorded.folder.path / "report.html").read_text("utf-8")
    assert "What bandwidth gains the application" in page
    assert "no-elongation threshold: 240 Mbit/s" in page
    assert main.run(["report", str(recorded.folder.path)]) == 0
    assert (recorded.folder.path / "report.html").read_text("utf-8").count(
        "<h2>What bandwidth"
    ) == 1


def test_a_run_cut_short_leaves_its_folder_and_no_profile(application: Path) -> None:
    experiment, recorded = simulated(application)
    results = replace(recorded.results, rows=recorded.results.rows[:-1])
    with pytest.raises(RunFailed, match="never started") as caught:
        profiled(experiment, replace(recorded, results=results), None)
    assert str(recorded.folder.path) in str(caught.value.mend)
    assert not (recorded.folder.path / "profile.yaml").exists()
    assert load_run(recorded.folder.path).rows


def test_a_file_without_a_ladder_is_refused(
    application: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = "  kind: jobs\n  jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 1 s}]\n"
    application.write_text(APPLICATION.split("  kind:", maxsplit=1)[0] + jobs, "utf-8")
    assert main.run(["profile", str(application)]) == 2
    assert "workload.kind is jobs, and a profile needs a ladder" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "why"), [("", "is a folder"), ("none/p.yaml", "no folder")])
def test_where_no_profile_can_be_written_nothing_is_run(
    application: Path, capsys: pytest.CaptureFixture[str], target: str, why: str
) -> None:
    to = str(application.parent / target)
    assert main.run(["profile", str(application), "--to", to]) == 2
    assert why in capsys.readouterr().err
    assert not (application.parent / "runs").exists()


def test_without_root_it_says_how(
    application: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.run(["profile", str(application), "--json"]) == 3
    assert "sudo testbed profile" in json.loads(capsys.readouterr().out)["mend"]
