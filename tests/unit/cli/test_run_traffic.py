"""``testbed top RUN``: a run's jobs and links in a terminal, until its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.cli.run_traffic import run_views
from testbed.record.folder import EVENTS, RunFolder
from testbed.record.running import noted, running_run
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
