"""Runs in a folder: their verdicts, and the removal of some."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from testbed.cli.main import run as command
from testbed.errors import BadInput
from testbed.record import run_list
from testbed.record.folder import RunFolder
from testbed.record.run_list import listed_run, remove_run, runs_below
from testbed.record.running import noted, running_run
from testbed.record.stored_json import read_json

DAY = "20260101T000000Z-day-s1"
GOOD = {
    "policy": "vc",
    "backend": "sim",
    "status": "completed",
    "jobs": 3,
    "fidelity": {"verdict": None},
    "expectations": {"met": True},
}


def written(folder: Path, summary: Any = None) -> Path:
    """A policy's folder with events and, if it ended, a summary."""
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("{}\n")
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "ok"),
        ({"fidelity": {"verdict": "ok"}}, "ok"),
        ({"fidelity": {"verdict": "suspect"}}, "suspect"),
        ({"fidelity": {"verdict": "invalid"}}, "invalid"),
        ({"expectations": {"met": False}}, "outside"),
        (
            {
                "fidelity": {"verdict": "suspect"},
                "expectations": {"met": False},
            },
            "outside",
        ),
        ({"status": "interrupted"}, "interrupted"),
        ({"fidelity": "damaged", "expectations": 7, "jobs": "no"}, "ok"),
    ],
)
def test_a_verdict_is_the_worst_that_a_summary_says(
    tmp_path: Path, changed: dict[str, Any], verdict: str
) -> None:
    run = listed_run(written(tmp_path / DAY, GOOD | changed))
    [policy] = run.policies
    assert (policy.policy, policy.verdict) == ("vc", verdict)
    assert (run.name, run.seed) == ("day", 1)
    assert run.began.isoformat() == "2026-01-01T00:00:00+00:00"


def test_policies_without_a_summary_were_interrupted_or_run(
    tmp_path: Path,
) -> None:
    top = RunFolder(tmp_path / DAY)
    written(top.path / "a", GOOD)
    written(top.path / "b")
    (top.path / "logs").mkdir()
    (top.path / "summary.json").write_text("[]")

    def verdicts() -> list[tuple[str | None, str]]:
        policies = listed_run(top.path).policies
        return [(policy.policy, policy.verdict) for policy in policies]

    assert verdicts() == [("vc", "ok"), ("b", "interrupted")]
    with noted(top, running_run(top.path, "day", ["a", "b"], 7)):
        assert verdicts() == [("vc", "ok"), ("b", "running")]


def test_the_list_of_a_run_names_its_policies(tmp_path: Path) -> None:
    run = tmp_path / DAY
    for name in ("one", "two"):
        written(run / name, GOOD)
    late = GOOD | {"policy": "bl", "expectations": {"met": False}}
    listed = [late | {"folder": "two"}, GOOD | {"folder": "one"}]
    (run / "summary.json").write_text(json.dumps(listed))
    policies = listed_run(run).policies
    found = [(policy.policy, policy.verdict) for policy in policies]
    assert found == [("bl", "outside"), ("vc", "ok")]


def test_runs_are_listed_the_latest_first_and_nothing_else(
    tmp_path: Path,
) -> None:
    written(tmp_path / DAY, GOOD)
    written(tmp_path / "20260102T000000Z-two-s-years-s7-2", GOOD)
    sweep = tmp_path / "20260103T000000Z-night-sweep"
    sweep.mkdir()
    cells = {"backend": "live", "cells": {"asked": 4, "failed": 1}}
    (sweep / "sweep.json").write_text(json.dumps(cells))
    (tmp_path / ".cells").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "20260104T000000Z-linked-s1").symlink_to(tmp_path / DAY)
    runs = runs_below(tmp_path)
    assert [run.name for run in runs] == ["night", "two-s-years", "day"]
    assert [run.seed for run in runs] == [None, 7, 1]
    [cells_of_it] = runs[0].policies
    assert (cells_of_it.verdict, cells_of_it.cells) == ("outside", 4)
    files = [path for path in (tmp_path / DAY).rglob("*") if path.is_file()]
    assert runs[2].size_bytes == sum(path.stat().st_size for path in files)


def test_a_folder_whose_digits_are_no_date_is_no_run(
    tmp_path: Path,
) -> None:
    written(tmp_path / DAY, GOOD)
    other = written(tmp_path / "20261399T000000Z-day-s1", GOOD)
    assert [run.folder.name for run in runs_below(tmp_path)] == [DAY]
    for refuses in (listed_run, remove_run):
        with pytest.raises(BadInput, match="is not the folder of a run"):
            refuses(other)


def test_a_run_that_is_removed_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / DAY, GOOD)
    written(tmp_path / "20260102T000000Z-night-s1" / "vc", GOOD)

    def removed_before(path: Path) -> Any:
        if "night" in str(path):
            rmtree(path.parent)
        return read_json(path)

    monkeypatch.setattr(run_list, "read_json", removed_before)
    assert [run.name for run in runs_below(tmp_path)] == ["day"]


def test_removal_follows_no_link_and_spares_what_runs(
    tmp_path: Path,
) -> None:
    outside = written(tmp_path / "outside", GOOD)
    top = RunFolder(written(tmp_path / DAY, GOOD))
    (top.path / "link").symlink_to(outside)
    with (
        noted(top, running_run(top.path, "day", ["vc"], 7)),
        pytest.raises(BadInput, match="run in progress"),
    ):
        remove_run(top.path)
    assert remove_run(top.path) > 0
    assert not top.path.exists()
    assert (outside / "summary.json").is_file()
    with pytest.raises(BadInput, match="is not the folder of a run"):
        remove_run(outside)


def test_the_command_lists_and_removes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["runs"]) == 2
    assert "runs: No such file or directory" in capsys.readouterr().err
    runs = Path("runs")
    written(runs / DAY / "vc", GOOD)
    other = written(runs / "20260102T000000Z-night-s1", GOOD)
    assert command(["runs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in listed] == ["night", "day"]
    # One name that is none, or a policy's, and nothing is removed.
    for wrong in ("nobody", "day/vc"):
        assert command(["runs", "rm", "night", wrong]) == 2
        assert other.is_dir()
    capsys.readouterr()
    assert command(["runs", "rm", "night", "latest", "--yes"]) == 0
    assert f"removed {other}" in capsys.readouterr().out
    assert command(["runs"]) == 0
    assert "day" in capsys.readouterr().out
    assert command(["runs", "rm", "day"]) == 0
    capsys.readouterr()
    assert command(["runs"]) == 0
    assert capsys.readouterr().out == ""


def test_an_unknown_users_home_is_no_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(["runs", "list", "~no-such-user"]) == 2
    error = capsys.readouterr().err
    assert "~no-such-user: No such file or directory" in error


def test_a_run_before_its_first_policy_is_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top = RunFolder(tmp_path / DAY)
    top.path.mkdir()
    with noted(top, running_run(top.path, "day", ["vc"], 7)):
        assert command(["runs", "list", str(tmp_path)]) == 0
    assert "running" in capsys.readouterr().out
    assert command(["runs", "list", str(tmp_path)]) == 0
    assert "interrupted" in capsys.readouterr().out


def test_with_a_run_in_progress_none_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = written(tmp_path / "20260102T000000Z-night-s1", GOOD)
    top = RunFolder(written(tmp_path / DAY, GOOD))
    with noted(top, running_run(top.path, "day", ["vc"], 7)):
        assert command(["runs", "rm", str(ended), str(top.path)]) == 2
    assert "run in progress" in capsys.readouterr().err
    assert ended.is_dir()


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_the_question_is_no_part_of_the_result(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = written(tmp_path / DAY, GOOD)
    monkeypatch.setattr("sys.stdin", _Terminal("y\n"))
    assert command(["runs", "rm", "--json", str(run)]) == 0
    shown = capsys.readouterr()
    assert "remove" in shown.err
    assert json.loads(shown.out)["removed"] == [str(run)]
