"""The benchmark of the examples' headroom: which it plays, its file, its table."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench import headroom
from bench.headroom import EXAMPLES, LIVE, Outcome, table

ROW = Outcome("quickstart", "vc", 0.04, 0.5, 0.0, "ok", 0, 1.0, 1.004, [], 1.5)


def test_every_example_that_says_how_to_run_it_live_is_played() -> None:
    live = set()
    for file in EXAMPLES.glob("*.yaml"):
        text = file.read_text("utf-8")
        if "sudo testbed run" in text or "sudo testbed profile" in text:
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
    from bench.__main__ import main

    arguments = ["headroom", "--only", "quickstart,custom-topology", "--json"]
    assert main([*arguments, "--results", str(file)]) == 0
    assert played == [("custom-topology", "vc")]
    assert main([*arguments, "--results", str(file)]) == 0
    assert played == [("custom-topology", "vc")]
    assert len(file.read_text("utf-8").splitlines()) == 2


@pytest.mark.parametrize("change", [{"verdict": "suspect"}, {"exit_code": 1}])
def test_a_run_without_room_misses_its_target(
    tmp_path: Path, change: dict[str, object]
) -> None:
    from bench.__main__ import main

    file = tmp_path / "results.jsonl"
    row = asdict(ROW) | change
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    arguments = ["headroom", "--only", "quickstart", "--json", "--results"]
    assert main([*arguments, str(file)]) == 1


def test_the_table_has_a_line_a_row() -> None:
    *_, line = table([ROW])
    assert line == (
        "| quickstart, vc | 0.04 | 50% | 0% | 1.000 to 1.004 | `ok`, 0 | 1.5 |"
    )
