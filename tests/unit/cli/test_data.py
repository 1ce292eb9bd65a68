"""``testbed data``: what is found, what is not, and what is not what it says it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.workload.traces import published_traces
from testbed.cli.main import run
from tests.unit.workload.traces import KTH, trace


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine, but for the folder that is returned."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_list_says_origin_checksum_and_where_it_looked(
    nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "list", "--json"]) == 0
    message = json.loads(capsys.readouterr().out)
    assert str(nowhere) in message["folders"]
    assert [one["name"] for one in message["traces"]] == [
        one.name for one in published_traces()
    ]
    assert {one["path"] for one in message["traces"]} == {None}
    assert run(["data"]) == 0
    text = capsys.readouterr().out
    assert "Parallel Workloads Archive, log l_kth_sp2" in text
    assert published_traces()[0].sha256 in text


def test_a_trace_that_is_not_here_is_the_machines_lack_and_says_its_origin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for verb in ("path", "check"):
        assert run(["data", verb, "KTH"]) == 3
        message = capsys.readouterr().err
        assert "log l_kth_sp2" in message
        assert published_traces()[0].sha256 in message


def test_another_file_of_that_name_is_found_out(
    nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (nowhere / KTH.removesuffix(".gz")).write_text(
        "1 0 -1 60 4" + " -1" * 13 + "\n"
    )
    assert run(["data", "check", "--json"]) == 1
    (first, *others) = json.loads(capsys.readouterr().out)
    assert first["found_jobs"] == 1
    assert "not the published" in first["problem"]
    assert {other["problem"] for other in others} == {"not found"}


def test_unknown_names_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["data", "path", "KTX-SP2-1996-2.1-cln.swf.gz"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert run(["data", "path"]) == 2


def test_the_published_log_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    path = trace(KTH)
    assert run(["data", "path", KTH]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert run(["data", "check", "kth"]) == 0
    assert capsys.readouterr().out.startswith(f"ok     {KTH}: 28,476 jobs")
