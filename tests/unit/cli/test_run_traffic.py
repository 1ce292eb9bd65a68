"""``testbed top RUN``: a run's jobs and links in a terminal, until its end."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from testbed.cli.main import run
from testbed.cli.run_traffic import (
    RunView,
    ShownJob,
    ShownLink,
    _shown,
    run_views,
)
from testbed.errors import RunFailed
from testbed.record.folder import EVENTS, RunFolder
from testbed.record.running import noted, running_run
from testbed.web.followed_run import FollowedRun
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path, sample.main_example(), FIG10)[0].path


def cut(folder: Path) -> tuple[bytes, bytes]:
    """The run's lines before and after a moment at which a job runs."""
    lines = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    started = [n for n, line in enumerate(lines) if b"job_started" in line]
    middle = started[2] + 1
    (folder / EVENTS).write_bytes(b"".join(lines[:middle]))
    return b"".join(lines[:middle]), b"".join(lines[middle:])


def test_it_shows_jobs_and_the_fullest_links(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut(folder)
    assert run(["top", str(folder), "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["status"] == "interrupted"
    running = [job for job in view["jobs"] if job["phase"] == "running"]
    assert running
    assert view["links"]
    shares = []
    for link in view["links"]:
        used = max(link["reserved_bps"], link["sent_bps"] or 0)
        shares.append(used / link["capacity_bps"])
    assert shares == sorted(shares, reverse=True)
    assert run(["top", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert running[0]["job_id"] in shown
    assert view["links"][0]["name"] in shown


def test_a_run_is_followed_to_its_end(folder: Path) -> None:
    _, rest = cut(folder)
    top = RunFolder.open(folder)
    views = run_views(folder)
    with noted(top, running_run(folder, "any", ["any"], 10)):
        views = run_views(folder)
        first = next(views)
        assert first.status == "live"
        assert first.fidelity == "not judged yet"
        assert next(views).at_s == first.at_s
        with (folder / EVENTS).open("ab") as file:
            file.write(rest)
        last = next(views)
    assert last.status == "finished"
    assert last.jobs == []
    assert sum(last.ended.values()) == 10
    assert list(views) == []


def test_a_damaged_run_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    lines[3] = b"{nothing\n"
    (folder / EVENTS).write_bytes(b"".join(lines))
    assert run(["top", str(folder)]) == 4
    assert f"{EVENTS}:4" in capsys.readouterr().err


def test_no_such_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "no-such-run"]) == 2
    assert "no-such-run" in capsys.readouterr().err


def test_a_run_is_followed_from_one_policy_to_the_next(
    folder: Path, tmp_path: Path
) -> None:
    written = (folder / EVENTS).read_bytes()
    top = tmp_path / "several"
    top.mkdir()
    with noted(RunFolder(top), running_run(top, "any", ["a", "b"], 10)):
        views = run_views(top)
        waiting = next(views)
        assert (waiting.name, waiting.status) == ("any", "waiting")
        (top / "a").mkdir()
        (top / "a" / EVENTS).write_bytes(written)
        assert next(views).status == "finished"
        # The first policy's report is being written.
        assert next(views).status == "finished"
        (top / "b").mkdir()
        lines = written.splitlines(keepends=True)
        (top / "b" / EVENTS).write_bytes(b"".join(lines[:-1]))
        assert next(views).status == "live"
        (top / "b" / EVENTS).write_bytes(written)
    assert [view.status for view in views] == ["finished"]


def test_one_policy_of_a_run_in_progress_is_followed_to_its_own_end(
    folder: Path, tmp_path: Path
) -> None:
    top = tmp_path / "several"
    (top / "a").mkdir(parents=True)
    (top / "a" / EVENTS).write_bytes((folder / EVENTS).read_bytes())
    with noted(RunFolder(top), running_run(top, "any", ["a", "b"], 10)):
        views = list(run_views(top / "a"))
    assert [view.status for view in views] == ["finished"]


def test_a_run_that_was_stopped_before_its_first_event_is_told(
    tmp_path: Path,
) -> None:
    run = running_run(tmp_path, "stopped", ["a"], 1)
    with noted(RunFolder(tmp_path), run):
        views = run_views(tmp_path)
        assert next(views).status == "waiting"
    with pytest.raises(RunFailed, match="before its first event"):
        next(views)


def test_the_last_events_of_a_run_that_ends_meanwhile_are_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, rest = cut(folder)
    note = ExitStack()
    note.enter_context(
        noted(
            RunFolder.open(folder), running_run(folder, "any", ["any"], 10)
        )
    )
    views = run_views(folder)
    assert next(views).status == "live"
    refresh = FollowedRun.refresh

    def ends_after_it(run: FollowedRun) -> bool:
        grew = refresh(run)
        if rest not in (folder / EVENTS).read_bytes():
            with (folder / EVENTS).open("ab") as file:
                file.write(rest)
            note.close()
        return grew

    monkeypatch.setattr(FollowedRun, "refresh", ends_after_it)
    assert list(views)[-1].status == "finished"


def test_what_there_is_no_room_for_is_counted() -> None:
    link = ShownLink("a – b", 100.0, 50.0, None)
    job = ShownJob("j", "running", "foreground", 1, 5, 0.0, None, None, "")
    for n, jobs, links in (
        (1, "and 1 more job", "and 1 direction less loaded"),
        (2, "and 2 more jobs", "and 2 directions less loaded"),
    ):
        view = RunView(
            "r",
            "p",
            "live",
            0.0,
            None,
            {},
            [job] * (2 + n),
            [link] * (2 + n),
        )
        console = Console(width=100)
        with console.capture() as captured:
            console.print(_shown(view, 2))
        lines = [line.strip() for line in captured.get().splitlines()]
        assert [jobs, links] == [x for x in lines if x.startswith("and")]
