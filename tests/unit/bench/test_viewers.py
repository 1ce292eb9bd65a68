"""The rule of ``python -m bench viewers``: within 0.2 % and alike, or missed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench import viewers
from bench.__main__ import main
from bench.viewers import N_VIEWERS, Round

ROUND = Round(0, {"a": 1.0, "b": 1.002}, "ok", 0, 0.0, 0, 20.0, 1.0)
WATCHED = replace(ROUND, viewers=N_VIEWERS, page_s=0.5, frames=200)


def asked(tmp_path: Path, *rounds: Round) -> int:
    file = tmp_path / "viewers.jsonl"
    lines = [json.dumps(asdict(each)) + "\n" for each in rounds]
    file.write_text("".join(lines), encoding="utf-8")
    arguments = ["viewers", "--json", "--pairs", str(len(rounds) // 2)]
    return main([*arguments, "--results", str(file)])


def test_rounds_that_are_alike_meet_it(tmp_path: Path) -> None:
    assert asked(tmp_path, ROUND, WATCHED, ROUND, WATCHED) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"ratios": {"a": 1.0, "b": 1.0045}},
        {"ratios": {"a": 0.9975, "b": 1.002}},
        {"verdict": "suspect"},
        {"exit_code": 1},
    ],
)
def test_a_moved_ratio_or_verdict_misses_it(
    tmp_path: Path, change: dict[str, object]
) -> None:
    moved = replace(WATCHED, **change)  # type: ignore[arg-type]
    assert asked(tmp_path, ROUND, moved, ROUND, moved) == 1


def test_rounds_alternate_and_known_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []

    def play(n_viewers: int) -> Round:
        played.append(n_viewers)
        return replace(WATCHED, viewers=n_viewers)

    monkeypatch.setattr(viewers, "play", play)
    file = tmp_path / "viewers.jsonl"
    file.write_text(json.dumps(asdict(ROUND)) + "\n", encoding="utf-8")
    arguments = ["viewers", "--json", "--pairs", "2", "--results"]
    assert main([*arguments, str(file)]) == 0
    assert played == [N_VIEWERS, 0, N_VIEWERS]
