"""``testbed sweep``: what it prints, and one sentence for each kind of bad input."""

# ruff: noqa: E501

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.cli.sweep import _stop_rule
from testbed.sweeps import sweep_folder
from testbed.sweeps.cell_runs import Cell
from testbed.sweeps.intervals import Stop, estimate
from testbed.sweeps.sweep_pictures import sweep_figure, sweep_pictures
from testbed.sweeps.sweep_tables import TableRow
from tests.unit.sweeps.small_sweep import planned

FILE = """\
name: queue
topology: {kind: flat, nodes: 16}
policies: [fcfs, easy]
workload: {kind: exponential, jobs: 12, mean_vms: 4, load: 0.7}
"""
SWEEP = """\
sweep:
  over:
    workload.load: [0.4, 0.8]
    seed: 1..3
"""
WITHOUT_SEEDS = (
    "sweep:\n  over: {workload.load: [0.5]}\n  stop: {interval: 2 %}\n"
)


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_folder, "sweep_pictures", lambda *_: {})


def swept(folder: Path, *arguments: str, text: str = FILE + SWEEP) -> int:
    (folder / "queue.yaml").write_text(text, encoding="utf-8")
    out = ["--out", str(folder / "out"), "--processes", "1"]
    return main.run(["sweep", str(folder / "queue.yaml"), *out, *arguments])


@pytest.mark.slow
def test_the_table_and_what_was_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(tmp_path, "--metric", "wait_mean_s") == 0
    header, *lines, last = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "workload.load",
        "policy",
        "cells",
        "wait_mean_s",
    ]
    assert [line.split()[:3] for line in lines] == [
        ["0.4", "fcfs", "3"], ["0.4", "easy", "3"], ["0.8", "fcfs", "3"], ["0.8", "easy", "3"],
    ]  # fmt: skip
    assert last.startswith(
        "12 cells: 12 computed, 0 there already. Tables and picture: "
    )
    assert swept(tmp_path, "--metric", "revenue", "--json") == 0
    told = capsys.readouterr()
    assert "queue: 1 of 12 cells are there already" not in told.err
    record = json.loads(told.out)
    assert record["cells"] == {
        "asked": 12,
        "computed": 0,
        "kept": 12,
        "failed": 0,
    }
    assert record["rows"][0]["policy"] == "fcfs"
    assert record["rows"][0]["revenue_ci95"] == 0.0


def test_a_failed_cell_ends_in_exit_code_4(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(Cell, "run", broken)
    assert swept(tmp_path) == 4
    out = capsys.readouterr().out
    assert "failed, 12 cells: ZeroDivisionError: division by zero" in out
    assert "0 computed, 0 there already, 12 failed" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SWEEP.replace("workload.load", "workload.lod"), ":7:20: workload.lod: is an unknown key (did you mean 'load'?)"),
        (SWEEP.replace("workload.load", "load"), "load: is an unknown key"),
        (SWEEP.replace("0.8", "much"), ":7:26: workload.load: must be a number, not the text 'much'"),
        (SWEEP.replace("0.4, 0.8", "0.4, 0.4"), ":7:26: workload.load: 0.4 is there twice"),
        (SWEEP.replace("1..3", "[1..5, 3]"), ":8:18: seed: 3 is there twice"),
        (SWEEP.replace("1..3", "[1..5, 4..8]"), ":8:18: seed: 4, 5 are there twice"),
        (SWEEP.replace("1..3", "[1, 1, 1]"), ":8:15: seed: 1 is there twice"),
        (SWEEP.replace("1..3", "[1..30, 1..20]"), "seed: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 10 more are there twice"),
        (SWEEP.replace("[0.4, 0.8]", "[]"), "needs a value, not a list"),
        (SWEEP.replace("1..3", "3..1"), ":8:11: sweep.over.seed: the range 3..1 ends before it begins: write 1..3"),
        (SWEEP.replace("1..3", "1..3000000"), "at most 1,000,000 are supported"),
        (SWEEP.replace("1..3", "-1..3"), ":8:11: seed: must be at least 0, not -1"),
        (SWEEP.replace("    seed", "    policies: [fcfs, esy]\n    seed"), ":8:22: policies[0]: unknown policy 'esy' (did you mean 'easy'?)"),
        (SWEEP + "  metrics: [wait]\n", "unknown metric 'wait' (did you mean"),
        (SWEEP + "  stop: {interval: 2 %, metric: waits_mean_s}\n", "unknown metric 'waits_mean_s' (did you mean 'wait_mean_s'?)"),
        (SWEEP + "  stop: {interval: 2}\n", "sweep.stop.interval"),
        (SWEEP + "  stop: {metric: wait_mean_s}\n", "sweep.stop.interval: is required"),
        (SWEEP + "  backend: real\n", "sweep.backend: must be one of sim, live, not the text 'real'"),
        (SWEEP + "  until: 3\n", "sweep.until: is an unknown key"),
        ("sweep: {over: 3}\n", "sweep.over: must be a mapping, not 3"),
        ("sweep: {over: {}}\n", "sweep.over"),
        ("sweep: 4\n", "sweep: must be a mapping with the keys over, stop, metrics, backend, not 4"),
        (SWEEP + "    workload: [{kind: exponential}]\n", ":9:5: workload: overlaps with workload.load: sweep one of them"),
        (SWEEP + "    sweep.backend: [sim]\n", ":9:5: sweep.backend: is the sweep itself"),
        (SWEEP.replace("0.4, 0.8", ", ".join(f"0.1{n:04}" for n in range(1001))), "asks for some 1,001 listed values of a key; at most 1,000 are supported: give workload.load a range"),
        (WITHOUT_SEEDS, "there are no seeds to stop at: add seed: 1..20 to over"),
        ("", "has no sweep: section"),
    ],
)  # fmt: skip
def test_a_wrong_section_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    sentence: str,
) -> None:
    assert swept(tmp_path, text=FILE + text) == 2
    (told, *hints) = capsys.readouterr().err.splitlines()
    assert sentence in told
    assert all(hint.startswith("hint: ") for hint in hints)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--over", "workload.load"], "--over workload.load: write it as KEY=VALUE,…"),
        (["--over", "workload.load=0.2,x"], "--over workload.load=0.2,x: workload.load: must be a number"),
        (["--over", "workload.lod=0.2"], "is an unknown key (did you mean 'load'?)"),
        (["--over", "workload.load=[0.2"], "--over workload.load=[0.2"),
        (["--over", "seed=1", "--over", "seed=2"], "--over seed=2: seed: is there twice: give all its values to one --over"),
        (["--over", "policies=[fcfs, easy]"], "policies"),
        (["--over", "workload.load=[0.2, 0.4]"], "not a list: several values stand without brackets, --over workload.load=A,B"),
        (["--stop", "much"], "--stop much"),
        (["--stop", "200%"], "--stop 200% is more than 100 %"),
        (["--stop", ".02"], "--stop .02"),
        (["--metric", "waits_mean_s"], "unknown metric 'waits_mean_s'"),
        (["--again"], "--again is for live cells"),
        (["--keep-runs", "--cluster", "tcp://127.0.0.1:1"], "--keep-runs keeps folders on this machine"),
        (["--format", "xlsx"], "xlsx"),
        (["--processes", "0"], "greater than or equal to 1"),
        (["--cluster", "nowhere"], "'nowhere' is no cluster"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    assert swept(tmp_path, *arguments) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") <= 2
    assert not list((tmp_path / "out").glob("*-sweep"))


@pytest.mark.parametrize("written", ["2%", "2 %", "0.02"])
def test_a_share_is_written_as_in_a_file(written: str) -> None:
    assert _stop_rule(written) == Stop(0.02)


@pytest.mark.slow
def test_validate_looks_at_the_sweep_and_the_other_verbs_pass_over_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "queue.yaml"
    path.write_text(FILE + SWEEP)
    assert main.run(["validate", str(path)]) == 0
    path.write_text(FILE + SWEEP.replace("0.8", "much"))
    assert main.run(["validate", str(path)]) == 2
    assert (
        f"{path}:7:26: workload.load: must be a number"
        in capsys.readouterr().err
    )
    assert (
        main.run(["simulate", str(path), "--out", str(tmp_path / "runs")])
        == 0
    )


def test_live_cells_need_root(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    # A value of two words, as the shell gave it.
    words = ["testbed", "sweep", "--over", "workload.mean_run_time=1 h"]
    monkeypatch.setattr("sys.argv", words)
    assert swept(tmp_path, "--live") == 3
    shown = capsys.readouterr().err
    assert "live cells need root" in shown
    assert "--over 'workload.mean_run_time=1 h'" in shown


def test_reasons_of_cells_outside_stand_in_the_terminal_and_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{FILE}expect: {{estimate_ratio: {{max: 0.5}}}}\n"
    over = ("--over", "seed=1..2", "--over", "policies=fcfs")
    assert swept(tmp_path, *over, text=text) == 1
    printed = capsys.readouterr().out
    assert "outside, 1 cell: " in printed or "outside, 2 cells: " in printed
    (page,) = tmp_path.glob("out/*-sweep/report.html")
    shown = page.read_text()
    assert "Outside what was expected" in shown
    assert re.search("<li>[12] cells?: ", shown)
    assert "<dt>Fidelity</dt><dd>simulated" in shown
    assert "<dt>Command</dt><dd>" in shown


@pytest.mark.slow
def test_report_names_what_writes_a_sweeps_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(tmp_path) == 0
    (folder,) = (tmp_path / "out").glob("*-sweep")
    capsys.readouterr()
    assert main.run(["report", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "is a sweep's folder" in said
    assert "type the command of its provenance.json again" in said
    (folder / "report.html").unlink()
    assert swept(tmp_path) == 0
    assert "12 there already" in capsys.readouterr().out
    # Of the same second, with a number behind its name.
    assert list((tmp_path / "out").glob("*sweep*/report.html"))


def test_no_picture_is_drawn_of_nothing() -> None:
    row = TableRow(("vc",), 3, 3, 0, None, (estimate([]),))
    plan = planned("policies=fcfs")
    assert sweep_pictures(plan, [row]) == {}


def test_a_metric_without_values_has_a_panel_without_a_scale() -> None:
    nothing, one = estimate([]), estimate([1.0])
    plan = planned("policies=fcfs")
    several = [*[one] * (len(plan.metrics) - 1), nothing]
    row = TableRow(("fcfs",), 1, 0, 0, None, tuple(several))
    *drawn, empty = sweep_figure(plan, [row]).axes
    assert [text.get_text() for text in empty.texts] == ["no values"]
    assert not empty.get_yticks().size
    for axes in drawn:
        assert axes.get_yticks().size


def test_a_place_where_no_folder_can_be_made_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").touch()
    assert swept(tmp_path) == 2
    said = capsys.readouterr().err
    assert f"the folder {tmp_path}/out/.cells cannot be made" in said
    assert "with --out" in said
