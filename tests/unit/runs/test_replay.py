"""A run's answers given again: the same decisions, and a word where one differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import events
from testbed.backends.sim.backend import SimulatedBackend
from testbed.cli.main import run as command
from testbed.errors import RunFailed
from testbed.results.compare import decisions, first_difference
from testbed.runs.answers import Recorded, Replayed
from testbed.runs.play import play
from testbed.spec.experiment import Experiment
from testbed.spec.load import load_experiment

FILE = """
name: replay
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [dcloud]
workload:
  kind: poisson
  per_hour: 12
  hours: 6
  vms: {mean: 3, sigma: 1}
  bandwidth: {mean: 400 Mbit/s}
"""


class Late(SimulatedBackend):
    """A world in which everything comes a little late, as in the live one."""

    def now_s(self) -> float:
        return super().now_s() + 3.7


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    path = tmp_path / "replay.yaml"
    path.write_text(FILE)
    return load_experiment(path)


def recorded(experiment: Experiment) -> tuple[list[dict[str, Any]], list[events.Event]]:
    answers: list[dict[str, Any]] = []
    told: list[events.Event] = []
    play(
        experiment, experiment.policies[0],
        Recorded(Late(experiment.datacentre), lambda a: answers.append(json.loads(json.dumps(a)))),
        told.append,
    )  # fmt: skip
    return answers, told


def test_the_same_answers_lead_to_the_same_events(experiment: Experiment) -> None:
    answers, told = recorded(experiment)
    again: list[events.Event] = []
    world = Replayed(iter(list(enumerate(answers, 1))))
    play(experiment, experiment.policies[0], world, again.append)
    assert [e.to_json() for e in again[1:]] == [e.to_json() for e in told[1:]]
    assert len(decisions(told)) > 50
    assert first_difference(decisions(told), decisions(again)) is None


def test_another_decision_is_found_and_the_replay_ends_there(experiment: Experiment) -> None:
    answers, _ = recorded(experiment)
    starts = [i for i, answer in enumerate(answers) if "start" in answer]
    answers[starts[7]]["start"] = "somebody-else"
    with pytest.raises(RunFailed, match="asks for start"):
        play(
            experiment, experiment.policies[0],
            Replayed(iter(list(enumerate(answers, 1)))), lambda _: None,
        )  # fmt: skip


def test_the_command_replays_a_run_folder_and_compares_two(
    experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(experiment.path)
    assert command(["simulate", file, "--out", str(tmp_path / "sim"), "--json"]) == 0
    (first,) = json.loads(capsys.readouterr().out)
    answers, _ = recorded(experiment)
    lines = "".join(json.dumps(answer) + "\n" for answer in answers)
    (Path(first["folder"]) / "answers.jsonl").write_text(lines)
    replay = ["simulate", file, "--out", str(tmp_path / "again"), "--replay", first["folder"]]
    code = command([*replay, "--json"])
    (second,) = json.loads(capsys.readouterr().out)
    assert second["decisions"] > 50
    assert code == (0 if second["same_decisions"] else 1)
    assert command(["compare", first["folder"], second["folder"], "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["same_decisions"] == second["same_decisions"]
    assert len(found["jobs"]) == first["jobs"]
    assert command(["compare", first["folder"], second["folder"]]) == 0
    shown = capsys.readouterr().out
    assert "decisions are the same" in shown or "the first that differs" in shown


def test_a_run_without_answers_says_who_keeps_them(
    experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(experiment.path)
    assert command(["simulate", file, "--out", str(tmp_path), "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert command(["simulate", file, "--out", str(tmp_path), "--replay", one["folder"]]) == 2
    assert "only live runs keep answers" in capsys.readouterr().err
