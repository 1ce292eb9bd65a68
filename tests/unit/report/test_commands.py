"""``testbed audit`` and ``testbed report``: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.results.conclude import conclude_all
from testbed.results.folder import RunFolder
from tests.unit.results import sample
from tests.unit.results.written import FIG10, NOW, Record, mutate, one, write_run


def wrong_estimate(records: list[Record]) -> None:
    one(records, "job_reserved", "sort-450")["estimate_s"] = 1.0


def test_audit_of_a_good_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(), FIG10)
    assert run(["audit", str(folder.path)]) == 0
    shown = capsys.readouterr()
    assert "all 22 applicable checks passed\n" in shown.out
    assert "FAILED" not in shown.out
    assert shown.err == ""


def test_audit_of_a_bad_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(), FIG10)
    mutate(folder.path, wrong_estimate)
    assert run(["audit", str(folder.path)]) == 1
    shown = capsys.readouterr().out
    assert "FAILED estimates" in shown
    assert "sort-450: estimate 1 s, p·b/b' is 6.66667 s" in shown
    assert shown.endswith("4 checks failed, 18 passed\n")
    assert run(["audit", str(folder.path), "--json"]) == 1
    (record,) = json.loads(capsys.readouterr().out)
    assert record["passed"] is False
    (failed,) = [r for r in record["results"] if r["name"] == "estimates"]
    assert failed["n_findings"] == 1
    assert failed["findings"][0]["file"] == "events.jsonl"


def several(base: Path) -> RunFolder:
    above = RunFolder.create(base, "two", 7, now=NOW)
    streams = (("main", sample.main_example()), ("flat", sample.flat()))
    conclude_all(above, [write_run(above.path, stream, name=n)[1] for n, stream in streams])
    return above


def test_audit_of_several_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    above = several(tmp_path)
    assert run(["audit", str(above.path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert run(["audit", str(above.path)]) == 0
    shown = capsys.readouterr().out
    passed = shown.count("\n  ok ")
    said = f"all {passed} applicable checks passed in 2 policies and the list above them"
    assert shown.splitlines()[-1] == said
    assert shown.count("passed") == 1


def test_one_bad_policy_of_several_is_in_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = several(tmp_path)
    (main,) = above.path.glob("*-main-*")
    mutate(main, wrong_estimate)
    assert run(["audit", str(above.path)]) == 1
    shown = capsys.readouterr().out
    passed = shown.count("\n  ok ")
    said = f"4 checks failed in 1 of 2 policies (scripted), {passed} passed"
    assert shown.splitlines()[-1] == said
    assert "all" not in shown.splitlines()[-1]


def test_a_bad_list_above_good_policies_is_in_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = several(tmp_path)
    above.write_json("summary.json", [])
    assert run(["audit", str(above.path)]) == 1
    shown = capsys.readouterr().out
    passed = shown.count("\n  ok ")
    said = f"1 check failed in the list above the 2 policies, {passed} passed"
    assert shown.splitlines()[-1] == said


@pytest.mark.parametrize("verb", ["audit", "report"])
def test_a_damaged_folder_is_exit_2_with_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    file = folder.path / "events.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[9] = lines[9][:20]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert run([verb, str(folder.path)]) == 2
    shown = capsys.readouterr()
    assert f"{file}:10: damaged" in shown.err
    assert shown.out == ""
    assert run([verb, str(tmp_path)]) == 2
    assert run([verb, str(tmp_path / "missing")]) == 2


def test_report_prints_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    assert run(["report", str(folder.path)]) == 0
    path = capsys.readouterr().out.strip()
    assert path == str(folder.path / "report.html")
    assert run(["report", str(folder.path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == {"report": path, "bytes": Path(path).stat().st_size}
