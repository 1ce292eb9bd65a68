"""Runs in progress: what they note, what status and their page say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import events
from testbed.cli.main import run as command
from testbed.engine.engine import Engine
from testbed.play import playing
from testbed.record.event_file import stream_events
from testbed.record.folder import RunFolder
from testbed.record.running import (
    HowFar,
    how_far,
    noted,
    noted_among_others,
    read_note,
    running_in,
    running_run,
    sentences,
)
from testbed.report.page import write_report
from tests.unit.record import sample
from tests.unit.record.written import write_run

pytestmark = pytest.mark.usefixtures("undrawn")


def half_a_run(top: RunFolder) -> None:
    """The second policy's events up to its first job's end."""
    folder, _ = write_run(top.path, sample.flat())
    folder.path.rename(top.path / "b")
    (top.path / "a").mkdir()
    whole = (top.path / "b" / "events.jsonl").read_text().splitlines()
    (top.path / "a" / "events.jsonl").write_text("\n".join(whole) + "\n")
    kept = []
    for line in whole:
        kept.append(line)
        if json.loads(line)["event"] == "job_ended":
            break
    (top.path / "b" / "events.jsonl").write_text("\n".join(kept) + "\n")
    for name in ("jobs.csv", "links.csv", "summary.json"):
        (top.path / "b" / name).unlink(missing_ok=True)


@pytest.fixture
def top(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "20260101T000000Z-day-s1")
    folder.make()
    half_a_run(folder)
    return folder


def test_a_note_is_there_while_the_process_lives(
    top: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running_run(top.path, "day", ["a", "b"], 7, [10.0, 60.0])
    with noted(top, run):
        assert running_in(top.path) == running_in(top.path / "b") == run
        monkeypatch.chdir(top.path / "b")
        assert running_in(Path()) == run
        assert how_far(run) == HowFar(2, "b", 1, how_far(run).at_s)
        first, second, third = sentences(run)
        assert first.startswith("the run day is in progress since ")
        assert second.startswith(
            "policy b (2 of 2 policies): 1 of 7 jobs ended"
        )
        assert (
            second.endswith("of about 1 min 00 s")
            or "of about 60" in second
        )
        assert third == f"run folder: {top.path}"
    assert running_in(top.path) is None


def test_the_note_of_a_dead_process_is_none(top: RunFolder) -> None:
    run = replace(running_run(top.path, "day", ["a"], 7), start_ticks=1)
    with noted(top, run):
        assert running_in(top.path) is None
    (top.path / ".running.json").write_text("{")
    assert read_note(top.path / ".running.json") is None


@pytest.mark.slow
def test_the_page_of_a_run_in_progress_says_so(top: RunFolder) -> None:
    run = running_run(top.path, "day", ["a", "b"], 7)
    with noted(top, run):
        write_report(top)
        page = (top.path / "b" / "report.html").read_text()
        assert "The run day is in progress since" in page
        assert "violations" not in page
        assert "Not as expected" not in page
        above = (top.path / "report.html").read_text()
        assert ">in progress<" in above
        assert "2 policies on the same jobs" in above
        assert "does not agree" not in above
    write_report(top)
    assert "interrupted" in (top.path / "b" / "report.html").read_text()


def test_a_job_of_a_run_in_progress_did_not_stop_before_its_end(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    whole = (folder.path / "events.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["event"] for line in whole]
    until_first_start = whole[: kinds.index("job_started") + 1]
    text = "\n".join(until_first_start) + "\n"
    (folder.path / "events.jsonl").write_text(text)
    for name in ("jobs.csv", "links.csv", "summary.json"):
        (folder.path / name).unlink()
    run = running_run(folder.path, "day", ["a"], 10)
    with noted(folder, run):
        write_report(folder)
    page = (folder.path / "report.html").read_text()
    assert page.count(">has begun</td>") == 1
    assert "stopped before its end" not in page
    write_report(folder)
    assert (
        "stopped before its end"
        in (folder.path / "report.html").read_text()
    )


def test_policies_still_to_come_are_counted(top: RunFolder) -> None:
    run = running_run(top.path, "day", ["a", "b", "c"], 7)
    with noted(top, run):
        write_report(top)
    above = (top.path / "report.html").read_text()
    assert "2 of 3 policies so far on the same jobs" in above
    row = above[above.index(">in progress<") :]
    row = row[: row.index("</tr>")]
    # Its success is not known before its end.
    assert '<td class="number">–</td>' in row


@pytest.mark.parametrize("verb", ["status", "top", "tenant list"])
def test_verbs_on_networks_tell_of_a_run_in_progress(
    top: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
) -> None:
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    state = RunFolder(tmp_path / "state")
    state.make()
    run = running_run(top.path, "day", ["a", "b"], 7)
    (state.path / ".running-1.json").write_text("{}")
    with noted_among_others(state.path, run):
        code = command(verb.split())
        printed = "".join(capsys.readouterr())
        assert "the run day is in progress since" in printed
        assert code == (1 if verb == "status" else 2)
        assert ("1 of 7 jobs ended" in printed) == (verb == "status")
        assert command(["status", "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        assert (told["up"], told["run"]["ended"]) == (False, 1)
    assert command(["status"]) == 1
    assert "no network is up" in capsys.readouterr().out


TWO = """\
name: pair
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, fcfs, sbf]
workload:
  kind: jobs
  jobs: [{id: a, at: 0 s, vms: 3, bandwidth: 100 Mbit/s, duration: 5 s}]
"""


@pytest.mark.slow
def test_the_page_over_all_policies_is_written_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(TWO)
    assert (
        command(["simulate", str(path), "--out", f"{tmp_path}/runs"]) == 0
    )
    (folder,) = (tmp_path / "runs").iterdir()
    page = (folder / "report.html").read_text()
    told = capsys.readouterr().err
    assert f"report of all policies: {folder}/report.html" in told
    assert command(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text() == page
    assert not (folder / ".running.json").exists()


@pytest.mark.slow
def test_ctrl_c_shows_what_there_is_and_how_to_resume(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "pair.yaml"
    path.write_text(TWO)
    begun = []

    class Hanging(Engine):
        def run(self) -> None:
            begun.append(self)
            if len(begun) == 2:
                raise KeyboardInterrupt("SIGHUP")
            super().run()

    monkeypatch.setattr(playing, "Engine", Hanging)
    assert (
        command(["simulate", str(path), "--out", f"{tmp_path}/runs"]) == 130
    )
    printed = capsys.readouterr()
    assert "vc: audit: passed" in printed.out
    assert "0 of 1 job had ended under fcfs, policy 2 of 3" in printed.err
    assert "policies left for another run: fcfs, sbf" in printed.err
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "report.html").is_file()
    *_, ended = stream_events(folder / "fcfs" / "events.jsonl")
    assert isinstance(ended, events.RunEnded)
    assert ended.reason == "its terminal was closed (SIGHUP)"
