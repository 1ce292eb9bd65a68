"""A run's trace given again: the same decisions, and a word where one differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import events
from testbed.audit import audit
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.cli.main import run as command
from testbed.embedding.placement import Placement
from testbed.errors import RunFailed
from testbed.failures import Failure
from testbed.play.backend_trace import TRACE, ReplayBackend, TracingBackend
from testbed.play.playing import play
from testbed.record.comparison import decisions, first_difference
from testbed.record.event_file import EventLog
from testbed.record.folder import EVENTS
from testbed.spec.experiment import Experiment, PolicySpec
from testbed.spec.experiment_file import load_experiment

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]

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
    """A backend in which everything comes a little late, as in the live one."""

    def now_s(self) -> float:
        return super().now_s() + 3.7


class Slow(SimulatedBackend):
    """A backend in which failures and new paths take time, as in the live one."""

    spent_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.spent_s

    def fail(self, failure: Failure) -> None:
        self.spent_s += 0.3
        super().fail(failure)

    def reroot(self, job_id: str, placement: Placement) -> None:
        self.spent_s += 0.1
        super().reroot(job_id, placement)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    path = tmp_path / "replay.yaml"
    path.write_text(FILE)
    return load_experiment(path)


def recorded(
    experiment: Experiment,
    policy: PolicySpec | None = None,
    live: type[SimulatedBackend] = Late,
) -> tuple[list[dict[str, Any]], list[events.Event]]:
    trace: list[dict[str, Any]] = []
    decided: list[events.Event] = []
    play(
        experiment, policy or experiment.policies[0],
        TracingBackend(
            live(experiment.datacentre), lambda a: trace.append(json.loads(json.dumps(a)))
        ),
        decided.append,
    )  # fmt: skip
    return trace, decided


def test_the_same_answers_lead_to_the_same_events(
    experiment: Experiment,
) -> None:
    trace, decided = recorded(experiment)
    again: list[events.Event] = []
    backend = ReplayBackend(iter(list(enumerate(trace, 1))))
    play(experiment, experiment.policies[0], backend, again.append)
    assert [e.to_json() for e in again[1:]] == [
        e.to_json() for e in decided[1:]
    ]
    assert len(decisions(decided)) > 50
    assert first_difference(decisions(decided), decisions(again)) is None


def test_another_decision_is_found_and_the_replay_ends_there(
    experiment: Experiment,
) -> None:
    trace, _ = recorded(experiment)
    starts = [i for i, answer in enumerate(trace) if "start" in answer]
    trace[starts[7]]["start"] = "somebody-else"
    with pytest.raises(RunFailed, match="asks for start"):
        play(
            experiment, experiment.policies[0],
            ReplayBackend(iter(list(enumerate(trace, 1)))), lambda _: None,
        )  # fmt: skip


FAILURES = """
failures:
  - {at: 30 min, link: rack 0 - server 0, lasts: 40 min}
  - {at: 1 h, server: server 2, lasts: 1 h}
  - {at: 100 min, switch: rack 1}
  - {at: 2 h, controller: killed}
  - {at: 150 min, link: core 0 - rack 1, lasts: 30 min}
  - {at: 4 h, link: server 3 - rack 1}
"""


@pytest.mark.short(
    "tree-vc-Late", "tree-{name: dcloud, on_failure: wait}-Slow"
)
@pytest.mark.slow
@pytest.mark.parametrize("live", [Late, Slow])
@pytest.mark.parametrize(
    "policy",
    ["{name: dcloud, on_failure: wait}", "fcfs", "vc", "bl", "jsa"],
)
@pytest.mark.parametrize("kind", ["tree", "fat-tree"])
def test_failures_are_decided_as_in_the_live_run(
    tmp_path: Path,
    policy: str,
    live: type[SimulatedBackend],
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "failing.yaml"
    text = FILE.replace("[dcloud]", f"[{policy}]").replace(
        "per_hour: 12", "per_hour: 20"
    )
    text = text.replace("vms: {mean: 3", "vms: {mean: 4") + FAILURES
    if kind == "fat-tree":
        text = text.replace(
            "kind: tree, fanout: [2, 2]", "kind: fat-tree, k: 4"
        )
        text = text.replace(
            "slots_per_server: 2", "slots_per_server: 1"
        ).replace("400 Mbit/s", "90 Mbit/s")
        text = text.replace("mean: 4", "mean: 9")
        for old, new in (
            ("rack", "edge"),
            ("core 0 - edge 1", "core 0 - aggregation 0"),
        ):
            text = text.replace(old, new)
        text = text.replace("server 3 - edge 1", "edge 1 - aggregation 1")
    path.write_text(text)
    failing = load_experiment(path)
    assert (
        command(
            [
                "simulate",
                str(path),
                "--out",
                str(tmp_path / "sim"),
                "--json",
            ]
        )
        == 0
    )
    (first,) = json.loads(capsys.readouterr().out)
    trace, decided = recorded(failing, live=live)
    keep(Path(first["folder"]), trace, decided)
    done = {event.name for event in decided}
    assert {
        "link_failed",
        "link_restored",
        "server_failed",
        "server_restored",
    } < done
    stopped = any("lost" in str(vars(event)) for event in decided)
    assert stopped or "job_rerooted" in done
    replay = [
        "simulate",
        str(path),
        "--out",
        str(tmp_path / "again"),
        "--json",
    ]
    assert command([*replay, "--replay", first["folder"]]) == 0
    (second,) = json.loads(capsys.readouterr().out)
    assert second["same_decisions"] is True
    assert second["decisions"] > 50
    checked = audit(Path(second["folder"]))
    # What the simulator measures here is not of the clock of these backends.
    assert {each.name for each in checked.results if each.findings} <= {
        "measured"
    }


def test_another_failure_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "failing.yaml"
    path.write_text(FILE + FAILURES)
    failing = load_experiment(path)
    trace, _ = recorded(failing)
    one = next(answer for answer in trace if "fail" in answer)
    one["fail"] = "server_failed"
    with pytest.raises(RunFailed, match="asks for fail"):
        play(
            failing, failing.policies[0],
            ReplayBackend(iter(list(enumerate(trace, 1)))), lambda _: None,
        )  # fmt: skip


def keep(
    folder: Path, trace: list[dict[str, Any]], decided: list[events.Event]
) -> None:
    """Make a run folder that of the run which these are of."""
    (folder / EVENTS).unlink()
    with EventLog(folder / EVENTS) as log:
        for event in decided:
            log(event)
    lines = "".join(json.dumps(answer) + "\n" for answer in trace)
    (folder / TRACE).write_text(lines)


def test_the_command_replays_a_run_folder_and_compares_two(
    experiment: Experiment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(experiment.path)
    assert (
        command(
            ["simulate", file, "--out", str(tmp_path / "sim"), "--json"]
        )
        == 0
    )
    (first,) = json.loads(capsys.readouterr().out)
    keep(Path(first["folder"]), *recorded(experiment))
    replay = [
        "simulate",
        file,
        "--out",
        str(tmp_path / "again"),
        "--replay",
        first["folder"],
    ]
    assert command([*replay, "--json"]) == 0
    (second,) = json.loads(capsys.readouterr().out)
    assert second["decisions"] > 50
    assert second["same_decisions"] is True
    assert (
        command(["compare", first["folder"], second["folder"], "--json"])
        == 0
    )
    (found,) = json.loads(capsys.readouterr().out)
    assert found["same_decisions"] is True
    assert len(found["jobs"]) == first["jobs"]
    assert command(["compare", first["folder"], second["folder"]]) == 0
    assert "decisions are the same" in capsys.readouterr().out


MINE = """
from testbed.schedulers.vc import VirtualCluster

class Mine(VirtualCluster):
    def __init__(self, embedder, patience: int = 3):
        super().__init__(embedder)
"""


def test_a_policy_of_a_file_is_replayed_as_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        FILE.replace("[dcloud]", "[{class: ./mine.py:Mine, patience: 4}]")
    )
    (tmp_path / "mine.py").write_text(MINE)
    assert (
        command(
            [
                "simulate",
                str(path),
                "--out",
                str(tmp_path / "sim"),
                "--json",
            ]
        )
        == 0
    )
    (first,) = json.loads(capsys.readouterr().out)
    keep(Path(first["folder"]), *recorded(load_experiment(path)))
    replay = [
        "simulate",
        str(path),
        "--out",
        str(tmp_path / "again"),
        "--json",
    ]
    assert command([*replay, "--replay", first["folder"]]) == 0
    (second,) = json.loads(capsys.readouterr().out)
    assert (second["policy"], second["same_decisions"]) == (
        "mine-patience=4",
        True,
    )
    assert second["decisions"] > 50


def test_the_command_says_where_a_run_decided_otherwise(
    experiment: Experiment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(experiment.path)
    assert (
        command(
            ["simulate", file, "--out", str(tmp_path / "sim"), "--json"]
        )
        == 0
    )
    (first,) = json.loads(capsys.readouterr().out)
    trace, decided = recorded(experiment)
    place = next(
        i
        for i, e in enumerate(decided)
        if isinstance(e, events.JobReserved) and i > 20
    )
    decided[place] = replace(decided[place], rate_bps=1)  # type: ignore[call-arg]
    keep(Path(first["folder"]), trace, decided)
    replay = [
        "simulate",
        file,
        "--out",
        str(tmp_path / "again"),
        "--replay",
        first["folder"],
    ]
    assert command([*replay, "--json"]) == 1
    (second,) = json.loads(capsys.readouterr().out)
    assert second["same_decisions"] is False
    assert "differs" in second["replay"]


def test_each_policy_is_replayed_from_its_own_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A label may hold what a folder's name may not: bl-coupling=independent."""
    path = tmp_path / "two.yaml"
    path.write_text(
        FILE.replace(
            "[dcloud]",
            "[{name: bl, coupling: independent}, {name: dcloud, gamma: 0.1}]",
        )
    )
    two = load_experiment(path)
    assert (
        command(
            [
                "simulate",
                str(path),
                "--out",
                str(tmp_path / "sim"),
                "--json",
            ]
        )
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    for policy, one in zip(two.policies, shown, strict=True):
        assert "=" in policy.label
        keep(Path(one["folder"]), *recorded(two, policy))
    live = str(Path(shown[0]["folder"]).parent)
    replay = [
        "simulate",
        str(path),
        "--out",
        str(tmp_path / "again"),
        "--replay",
        live,
    ]
    assert command([*replay, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [one["same_decisions"] for one in again] == [True, True]
    alone = ["--set", "policies=[{name: bl, coupling: independent}]"]
    assert command([*replay, *alone, "--json"]) == 0
    assert command([*replay, "--set", "policies=[vc]"]) == 2
    assert "holds no run of the policy vc" in capsys.readouterr().err


def test_a_run_without_a_trace_says_which_runs_keep_one(
    experiment: Experiment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(experiment.path)
    assert (
        command(["simulate", file, "--out", str(tmp_path), "--json"]) == 0
    )
    (one,) = json.loads(capsys.readouterr().out)
    assert (
        command(
            [
                "simulate",
                file,
                "--out",
                str(tmp_path),
                "--replay",
                one["folder"],
            ]
        )
        == 2
    )
    assert "only live runs keep a trace" in capsys.readouterr().err


@pytest.mark.parametrize("trace", [None, b"\xff\xfe", b"[1]\n"])
def test_nothing_is_made_where_there_is_nothing_to_replay(
    experiment: Experiment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    trace: bytes | None,
) -> None:
    replay = [
        "simulate",
        str(experiment.path),
        "--out",
        str(tmp_path / "again"),
        "--replay",
    ]
    if trace is None:
        live = tmp_path / "nope"
    else:
        assert command([*replay[:3], str(tmp_path / "sim"), "--json"]) == 0
        live = Path(json.loads(capsys.readouterr().out)[0]["folder"])
        (live / TRACE).write_bytes(trace)
    assert command([*replay, str(live)]) == 2
    shown = capsys.readouterr().err
    assert str(live) in shown
    assert "hint: " in shown
    assert not (tmp_path / "again").exists()


def test_runs_are_compared_by_the_policy_that_ran(
    experiment: Experiment,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One policy's run has the run's name, one of several bears the policy's."""
    file, out = str(experiment.path), ["--out", str(tmp_path), "--json"]
    assert command(["simulate", file, *out]) == 0
    alone = Path(json.loads(capsys.readouterr().out)[0]["folder"])
    assert (
        command(
            ["simulate", file, *out, "--set", "policies=[vc, dcloud, bl]"]
        )
        == 0
    )
    several = Path(json.loads(capsys.readouterr().out)[0]["folder"]).parent
    for pair in ([alone, several], [several, alone]):
        assert command(["compare", *map(str, pair), "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        places = []
        for each in pair:
            places.append(f"dcloud (simulated, {each.name})")
        assert found["runs"] == places
        assert found["same_decisions"] is True
    (several / "vc").rename(several / "other")
    # One that was killed before it message what it was is left out.
    (several / "bl" / EVENTS).write_bytes(b"")
    assert command(["compare", str(several), str(several), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(one["runs"][0] for one in found) == [
        "dcloud (simulated)",
        "vc (simulated)",
    ]
    (several / "dcloud" / EVENTS).write_bytes(b"")
    assert command(["compare", str(several), str(alone)]) == 2
    assert "no policy in common" in capsys.readouterr().err
