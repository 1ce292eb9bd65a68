"""A bandwidth sweep from file to profile and back into a job, simulated; what the verb refuses."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.errors import RunFailed
from testbed.events import JobEnded
from testbed.play.playing import RunRecord, dry_run, run_simulated
from testbed.play.profiled import Profiled, profiled
from testbed.record.folder import RunFolder
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment

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


def simulated(path: Path) -> tuple[Experiment, RunRecord]:
    experiment = load_experiment(path)
    top = RunFolder.create(
        path.parent / "runs", experiment.name, experiment.seed
    )
    (recorded,) = run_simulated(
        experiment,
        top,
        lambda *_: nullcontext(lambda _: None),
        ["testbed", "profile"],
    )
    return experiment, recorded


@dataclass(frozen=True)
class Climbed:
    """One bandwidth sweep, simulated and made a profile; ``target`` is what ``--to`` would name."""

    experiment: Experiment
    found: Profiled
    target: Path


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Climbed:
    path = tmp_path_factory.mktemp("ladder") / "wordcount.yaml"
    path.write_text(APPLICATION, "utf-8")
    target = path.with_name("profile-of-it.yaml")
    experiment, recorded = simulated(path)
    return Climbed(
        experiment, profiled(experiment, recorded, target), target
    )


@pytest.fixture
def application(tmp_path: Path) -> Path:
    path = tmp_path / "wordcount.yaml"
    path.write_text(APPLICATION, "utf-8")
    return path


@pytest.mark.slow
def test_the_profile_of_a_modelled_application_is_the_models(
    swept: Climbed,
) -> None:
    found = swept.found
    assert found.measured.profile.options == OPTIONS
    assert found.measured.threshold_found
    assert found.file == swept.target
    assert found.to_json()["threshold_bps"] == 240_000_000
    in_the_folder = found.recorded.folder.path / "profile.yaml"
    assert in_the_folder.read_text("utf-8") == swept.target.read_text(
        "utf-8"
    )


def test_a_job_with_the_written_profile_takes_the_measured_times(
    swept: Climbed,
) -> None:
    lines = [
        f"    - {{id: j{bps}, vms: 3, bandwidth: 240 Mbit/s, granted: {bps} bit/s, duration: 5 s,"
        f" at: {20 * number} s, profile: {swept.target.name}}}\n"
        for number, (bps, _) in enumerate(OPTIONS)
    ]
    head = APPLICATION.split("workload:", maxsplit=1)[0]
    again = swept.target.with_name("again.yaml")
    text = f"{head}policies: [scripted]\nworkload:\n  kind: jobs\n  jobs:\n{''.join(lines)}"
    again.write_text(text, "utf-8")
    experiment = load_experiment(again)
    history = dry_run(experiment, experiment.policies[0])
    taken = {
        e.job_id: e.measured_s for e in history if isinstance(e, JobEnded)
    }
    assert taken == {
        f"j{bps}": pytest.approx(time_s) for bps, time_s in OPTIONS
    }


@pytest.mark.slow
def test_the_page_shows_it_and_is_made_again_from_the_folder(
    swept: Climbed,
) -> None:
    folder = swept.found.recorded.folder.path
    for _ in range(2):
        page = (folder / "report.html").read_text("utf-8")
        assert page.count("<h2>What bandwidth gains the application") == 1
        assert "No-elongation threshold: 240 Mbit/s" in page
        assert main.run(["report", str(folder)]) == 0


@pytest.mark.slow
def test_a_run_cut_short_gives_no_profile_and_says_where_to_look(
    swept: Climbed, tmp_path: Path
) -> None:
    recorded = swept.found.recorded
    results = replace(recorded.results, rows=recorded.results.rows[:-1])
    cut = replace(recorded, results=results, folder=RunFolder(tmp_path))
    with pytest.raises(RunFailed, match="never started") as caught:
        profiled(swept.experiment, cut, None)
    assert str(tmp_path) in str(caught.value.hint)
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_a_sweep_is_refused(
    application: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = "  kind: jobs\n  jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 1 s}]\n"
    application.write_text(
        APPLICATION.split("  kind:", maxsplit=1)[0] + jobs, "utf-8"
    )
    assert main.run(["profile", str(application)]) == 2
    assert (
        "workload.kind is jobs, and a profile needs ladder"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("target", "why"), [("", "is a folder"), ("none/p.yaml", "no folder")]
)
def test_where_no_profile_can_be_written_nothing_is_run(
    application: Path,
    capsys: pytest.CaptureFixture[str],
    target: str,
    why: str,
) -> None:
    to = str(application.parent / target)
    assert main.run(["profile", str(application), "--to", to]) == 2
    assert why in capsys.readouterr().err
    assert not (application.parent / "runs").exists()


def test_without_root_it_says_how(
    application: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.run(["profile", str(application), "--json"]) == 3
    assert (
        "sudo testbed profile"
        in json.loads(capsys.readouterr().out)["hint"]
    )
