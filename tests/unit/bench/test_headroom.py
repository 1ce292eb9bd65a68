"""The benchmark of the examples' headroom: which it plays, its file, its table."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench import headroom
from bench.__main__ import main
from bench.headroom import EXAMPLES, LIVE, Outcome
from testbed.plan.peak_load import (
    computing_processors,
    peak,
    reserved_port_load_bps,
)
from testbed.spec.experiment_file import load_experiment

ROW = Outcome(
    "quickstart", "vc", 0.04, 0.5, 0.0, "ok", 0, 1.0, 1.004, [], 1.5
)


def test_every_example_that_says_how_to_run_it_live_is_played() -> None:
    live = set()
    for file in EXAMPLES.glob("*.yaml"):
        text = file.read_text("utf-8")
        if re.search("sudo testbed (run|profile|scaling)", text):
            live.add(file.stem)
        if "TESTBED_DATA=FOLDER testbed run" in text:
            live.add(file.stem)
    assert live <= set(LIVE)


def test_a_row_that_is_known_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []

    def play(case: headroom.Case) -> Outcome:
        played.append((case.example, case.policy))
        return replace(ROW, example=case.example, policy=case.policy)

    monkeypatch.setattr(headroom, "play", play)
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(asdict(ROW)) + "\n", encoding="utf-8")
    arguments = [
        "headroom",
        "--only",
        "quickstart,custom-topology",
        "--json",
    ]
    assert main([*arguments, "--results", str(file)]) == 0
    assert played == [("custom-topology", "vc")]
    assert main([*arguments, "--results", str(file)]) == 0
    assert played == [("custom-topology", "vc")]
    assert len(file.read_text("utf-8").splitlines()) == 2


def test_an_example_without_its_trace_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TESTBED_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/nonexistent")
    headroom._experiment.cache_clear()
    played = list(headroom.cases(("jsa-fig5", "quickstart")))
    headroom._experiment.cache_clear()
    assert [case.example for case in played] == ["quickstart"]
    said = capsys.readouterr().err
    assert said.startswith("jsa-fig5 is left out: ")


@pytest.mark.parametrize(
    "change", [{"verdict": "suspect"}, {"exit_code": 1}]
)
def test_a_run_without_room_misses_its_target(
    tmp_path: Path, change: dict[str, object]
) -> None:
    file = tmp_path / "results.jsonl"
    row = asdict(ROW) | change
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    arguments = ["headroom", "--only", "quickstart", "--json", "--results"]
    assert main([*arguments, str(file)]) == 1


def test_the_table_is_printed_without_the_examples_traces(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(headroom, "load_experiment", lambda _: 1 / 0)
    file = tmp_path / "results.jsonl"
    file.write_text(json.dumps(asdict(ROW)) + "\n", encoding="utf-8")
    assert main(["headroom", "--table", "--results", str(file)]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line == (
        "| quickstart, vc | 0.04 | 50% | 0% | 1.000 to 1.004 | `ok`, 0 | 1.5 |"
    )


@pytest.mark.slow
def test_no_example_asks_for_more_than_readmes() -> None:
    most_bps = 1.1 * max(
        map(asked_bps, headroom.cases(("bandwidth-scaling",)))
    )
    without_traces = set(LIVE) - {"jsa-fig5", "bgmbf-live"}
    for case in headroom.cases(tuple(without_traces)):
        assert asked_bps(case) <= most_bps, case


def asked_bps(case: headroom.Case) -> float:
    """Summed port load on the wire at the plan's busiest instant."""
    centre, scale = case.experiment.datacentre, case.experiment.scale
    together = peak(case.history, centre)
    return scale.rate * sum(map(reserved_port_load_bps, together))


def test_a_policy_is_played_alone_as_its_file_has_it() -> None:
    for case in headroom.cases(("failures", "leases-live", "cmbf-fig1")):
        file, *settings = case.command[4:]
        overrides = {}
        for setting in settings[1::2]:
            key, _, value = setting.partition("=")
            overrides[key] = value
        played = load_experiment(Path(file), overrides)
        assert [policy.label for policy in played.policies] == [case.policy]


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVE)
def test_an_example_says_its_headroom_as_its_plans_have_it(
    name: str,
) -> None:
    text = (EXAMPLES / f"{name}.yaml").read_text("utf-8")
    said = re.search(r"^# Headroom: at its busiest some (.*);", text, re.M)
    assert said
    played = list(headroom.cases((name,)))
    if not played:
        pytest.skip("its trace is not here")
    amounts = []
    gbps = max(map(asked_bps, played)) / 1e9
    if gbps:
        amounts.append(f"{gbps:.1f} Gbit/s of port load")
    cpus = max(map(computing, played))
    if cpus:
        amounts.append(f"{cpus:.1f} of a processor of computing")
    assert said[1] == " and ".join(amounts)


def computing(case: headroom.Case) -> float:
    """Processors that the jobs' own computing takes at most."""
    slots = int(case.experiment.datacentre.slots.sum())
    return computing_processors(
        case.history, slots, case.experiment.scale.cpu
    )
