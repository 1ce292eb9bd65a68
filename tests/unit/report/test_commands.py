"""``testbed audit`` and ``testbed report``: what they print, and their exit codes."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import run
from testbed.record.conclusion import conclude_all
from testbed.record.folder import RunFolder
from tests.unit.record import sample
from tests.unit.record.written import (
    FIG10,
    NOW,
    Record,
    mutate,
    one,
    write_run,
)


def wrong_estimate(records: list[Record]) -> None:
    one(records, "job_reserved", "sort-450")["estimate_s"] = 1.0


def test_audit_of_a_good_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(), FIG10)
    assert run(["audit", str(folder.path)]) == 0
    shown = capsys.readouterr()
    assert "all 23 applicable checks passed\n" in shown.out
    assert "FAILED" not in shown.out
    assert shown.err == ""


def test_audit_of_a_bad_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(), FIG10)
    mutate(folder.path, wrong_estimate)
    assert run(["audit", str(folder.path)]) == 1
    shown = capsys.readouterr().out
    assert "FAILED estimates" in shown
    assert "sort-450: estimate 1 s, p·b/b' is 6.66667 s" in shown
    assert shown.endswith("4 checks failed, 19 passed\n")
    assert run(["audit", str(folder.path), "--json"]) == 1
    (record,) = json.loads(capsys.readouterr().out)
    assert record["passed"] is False
    (failed,) = [r for r in record["results"] if r["name"] == "estimates"]
    assert failed["n_findings"] == 1
    assert failed["findings"][0]["file"] == "events.jsonl"


def several(base: Path) -> RunFolder:
    above = RunFolder.create(base, "two", 7, now=NOW)
    results = [
        write_run(above, sample.main_example(), name=n)[1]
        for n in ("main", "other")
    ]
    conclude_all(above, results)
    return above


def test_audit_of_several_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = several(tmp_path)
    assert run(["audit", str(above.path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert run(["audit", str(above.path)]) == 0
    shown = capsys.readouterr().out
    passed = shown.count("\n  ok ")
    message = f"all {passed} applicable checks passed in 2 policies and the list above them"
    assert shown.splitlines()[-1] == message
    assert shown.count("passed") == 1


def test_one_bad_policy_of_several_is_in_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = several(tmp_path)
    (main,) = above.path.glob("main")
    mutate(main, wrong_estimate)
    assert run(["audit", str(above.path)]) == 1
    shown = capsys.readouterr().out
    passed = shown.count("\n  ok ")
    message = (
        f"4 checks failed in 1 of 2 policies (scripted), {passed} passed"
    )
    assert shown.splitlines()[-1] == message
    assert "all" not in shown.splitlines()[-1]


@pytest.mark.slow
def test_a_bad_list_above_good_policies_is_in_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    above = several(tmp_path)
    above.write_json("summary.json", [])
    assert run(["audit", str(above.path)]) == 1
    shown = capsys.readouterr().out
    passed = shown.count("\n  ok ")
    message = (
        f"1 check failed in the list above the 2 policies, {passed} passed"
    )
    assert shown.splitlines()[-1] == message


@pytest.mark.slow
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


@pytest.mark.slow
def test_report_prints_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    assert run(["report", str(folder.path)]) == 0
    path = capsys.readouterr().out.strip()
    assert path == str(folder.path / "report.html")
    assert run(["report", str(folder.path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == {"report": path, "bytes": Path(path).stat().st_size}


@pytest.mark.short("True-job_started", "False-job_ended")
@pytest.mark.slow
@pytest.mark.parametrize(
    "event", ["job_submitted", "job_reserved", "job_started", "job_ended"]
)
@pytest.mark.parametrize("many", [False, True])
def test_a_run_that_lacks_a_line_has_a_report_that_says_so(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    event: str,
    many: bool,
) -> None:
    """A job that was never submitted is not drawn, be it one of few or of many."""
    stream = sample.simulated(70) if many else sample.preempting()
    folder, _ = write_run(tmp_path, stream)
    mutate(folder.path, lambda records: records.remove(one(records, event)))
    assert run(["audit", str(folder.path)]) == 1
    assert run(["report", str(folder.path)]) == 0
    page = (folder.path / "report.html").read_text(encoding="utf-8")
    assert "the audit found violations" in page.lower()
    assert run(["compare", str(folder.path), str(folder.path)]) == 0
    capsys.readouterr()


@pytest.mark.slow
def test_a_run_that_ends_before_its_jobs_has_a_picture_of_them(
    tmp_path: Path,
) -> None:
    """No warning either: the suite would fail of one."""
    folder, _ = write_run(tmp_path, sample.sliding())
    mutate(folder.path, lambda records: records.append(records.pop(1)))
    assert run(["report", str(folder.path)]) == 0
    assert "gantt-axes_1" in (folder.path / "report.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    "asked",
    ["x", None, 10**400, [], True],
    ids=["text", "null", "long", "list", "truth"],
)
def test_a_submission_at_no_time_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: object
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    file = folder.path / "spec.resolved.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["jobs"][0]["submit_s"] = asked
    folder.write_json("spec.resolved.json", stored)
    assert run(["audit", str(folder.path)]) == 1
    assert (
        "a: submit_s is 0.0, in spec.resolved.json"
        in capsys.readouterr().out
    )


@pytest.mark.slow
def test_links_and_outcomes_that_do_not_exist_are_left_to_the_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(records: list[Record]) -> None:
        one(records, "job_reserved", "early")["links"][0][0] = 99
        one(records, "job_ended", "late")["outcome"] = "lost"

    folder, _ = write_run(tmp_path, sample.sliding())
    mutate(folder.path, change)
    assert run(["report", str(folder.path)]) == 0
    assert run(["audit", str(folder.path)]) == 1
    assert "the outcome is 'lost'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cores", None),
        ("cores", "x"),
        ("memory_mib", None),
        ("memory_mib", "x"),
        ("wanted_s", "x"),
        ("estimate_s", "x"),
        ("lease", []),
        ("profile", {"options": []}),
        ("profile", {"options": [["x", 1.0]]}),
        ("n_vms", 10**400),
        ("duration_s", 10**400),
    ],
)
@pytest.mark.parametrize("verb", ["audit", "report"])
def test_a_request_of_a_wrong_shape_is_exit_2_with_the_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    key: str,
    value: object,
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    mutate(
        folder.path, lambda records: records[1]["job"].update({key: value})
    )
    assert run([verb, str(folder.path)]) == 2
    field = "job.profile: options" if key == "profile" else f"job: {key}"
    assert (
        f"events.jsonl:2: damaged: {field} is not"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("price", [None, "x", []])
def test_a_price_that_is_none_is_exit_2_with_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], price: object
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    mutate(
        folder.path,
        lambda records: records[4]["detail"].update(price=price),
    )
    assert run(["report", str(folder.path)]) == 2
    assert (
        "events.jsonl:5: damaged: detail: price is not float"
        in capsys.readouterr().err
    )


DEEP = "[" * 100_000
LONG = f'{{"x": {"9" * 5000}}}'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "summary.json",
            '{"expectations": {}}',
            "summary.json: damaged: expectations lacks rows",
        ),
        (
            "summary.json",
            '{"expectations": {"rows": "x"}}',
            "expectations lacks complaints",
        ),
        (
            "summary.json",
            '{"expectations": {"rows": "x", "complaints": []}}',
            "rows is not",
        ),
        (
            "summary.json",
            '{"expectations": {"rows": [{}], "complaints": []}}',
            "lacks job_id",
        ),
        (
            "summary.json",
            '{"wall_s": "x"}',
            "summary.json: damaged: summary: wall_s is not",
        ),
        (
            "summary.json",
            '{"name": 7}',
            "summary.json: damaged: summary: name is not",
        ),
        (
            "summary.json",
            '{"wall_s": NaN}',
            "summary.json: damaged: NaN is not a number",
        ),
        ("summary.json", DEEP, "summary.json: damaged: nested too deeply"),
        ("summary.json", LONG, "summary.json: damaged: Exceeds the limit"),
        (
            "provenance.json",
            LONG,
            "provenance.json: damaged: Exceeds the limit",
        ),
        (
            "spec.resolved.json",
            DEEP,
            "spec.resolved.json: damaged: nested too deeply",
        ),
        (
            "spec.resolved.json",
            '{"expect": {"applications": 3}}',
            "expect: applications is no",
        ),
        (
            "spec.resolved.json",
            '{"expect": {"estimate_ratio": 3}}',
            "estimate_ratio is no object",
        ),
        (
            "spec.resolved.json",
            '{"expect": {"estimate_ratio": {"min": "x"}}}',
            "min is no number",
        ),
        (
            "summary.json",
            '{"name": "\\ud800"}',
            "summary.json: damaged: 'utf-8' codec can't encode",
        ),
        (
            "events.jsonl",
            f"{DEEP}\n",
            "events.jsonl:1: damaged: nested too deeply",
        ),
        (
            "events.jsonl",
            '{"event": {}}\n',
            "events.jsonl:1: damaged: unknown event {}",
        ),
        (
            "events.jsonl",
            '{"event": "\\udfff"}\n',
            "events.jsonl:1: damaged: 'utf-8' codec",
        ),
        (
            "events.jsonl",
            f"{LONG}\n",
            "events.jsonl:1: damaged: Exceeds the limit",
        ),
    ],
)
def test_a_damaged_file_is_exit_2_with_its_name(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    message: str,
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    if name == "spec.resolved.json":
        (folder.path / "summary.json").unlink()
    (folder.path / name).write_text(text, encoding="utf-8")
    assert run(["report", str(folder.path)]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "run again" in shown.err
    assert "sys.set_int" not in shown.err
    assert not (folder.path / "report.html").exists()


@pytest.mark.slow
def test_a_provenance_of_a_wrong_shape_is_left_out(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    machine = {"load_average": ["x", 1], "memory_bytes": "x"}
    folder.write_json(
        "provenance.json",
        {"code": {"dirty": []}, "machine": machine, "live": 3},
    )
    assert run(["report", str(folder.path)]) == 0
    page = (folder.path / "report.html").read_text(encoding="utf-8")
    assert "unknown × unknown" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [b"job_id\n\xff\xfe\n", b"job_id\n" + b"x" * 200_000 + b"\n"],
    ids=["latin", "long"],
)
def test_a_table_that_cannot_be_read_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    (folder.path / "jobs.csv").write_bytes(content)
    assert run(["audit", str(folder.path)]) == 1
    shown = capsys.readouterr().out
    assert "FAILED jobs.csv" in shown
    assert "damaged" in shown
    assert run(["report", str(folder.path)]) == 0


@pytest.mark.parametrize("rows", ["x", ["x"], {"a": 1}])
def test_verdicts_of_a_wrong_shape_are_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: object
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    file = folder.path / "summary.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["expectations"]["rows"] = rows
    folder.write_json("summary.json", stored)
    assert run(["audit", str(folder.path)]) == 1
    assert "FAILED expectations" in capsys.readouterr().out


@pytest.mark.slow
def test_a_folder_that_nobody_may_write_to_is_exit_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As root, whom nothing is refused, the refusal is played."""
    folder, _ = write_run(tmp_path, sample.flat())

    really = os.open

    def refuse(path: str, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_WRONLY:
            raise PermissionError(
                errno.EACCES, os.strerror(errno.EACCES), path
            )
        return really(path, flags, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr("testbed.record.folder.os.open", refuse)
        assert run(["report", str(folder.path)]) == 2
    shown = capsys.readouterr().err
    assert (
        f"error: {folder.path / 'report.html'}: Permission denied\nhint: change who"
        in shown
    )


@pytest.mark.parametrize("name", ["jobs.csv", "summary.json"])
def test_a_table_that_nobody_may_read_is_exit_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    really = os.open

    def refuse(path: str, *given: Any, **named: Any) -> int:
        if path == name:
            raise PermissionError(
                errno.EACCES, os.strerror(errno.EACCES), path
            )
        return really(path, *given, **named)

    monkeypatch.setattr(os, "open", refuse)
    for verb in ("audit", "report"):
        assert run([verb, str(folder.path)]) == 2
        assert (
            f"error: {folder.path / name}: Permission denied"
            in capsys.readouterr().err
        )


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"revenue": 1' + "0" * 400 + "}"],
    ids=["deep", "long number"],
)
def test_a_summary_beyond_measure_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    (folder.path / "summary.json").write_text(text)
    assert run(["audit", str(folder.path)]) == 1
    assert "FAILED summary" in capsys.readouterr().out
