"""A run as one file: all in it, nothing from elsewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.record.folder import EVENTS, RunFolder
from testbed.record.running import noted, running_run
from testbed.web.shared_page import MOMENTS, shared_page
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path, sample.main_example(), FIG10)[0].path


def test_it_holds_the_run_and_its_own_scripts_hash(folder: Path) -> None:
    page = shared_page(folder)
    packed = re.search(r'type="text/plain">([^<]+)<', page)
    assert packed is not None
    recording = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    (recorded,) = recording["runs"]
    assert recorded["header"]["name"] == "bandwidth-scaling"
    assert len(recorded["frames"]) == MOMENTS + 1
    last = recorded["frames"][-1]
    assert last["ended"]["finished"] > 0
    assert any(name.startswith("link ") for name in recorded["items"])
    script = page.rsplit("<script>", 1)[1].split("</script>", 1)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    assert f"script-src 'sha256-{digest.decode()}'" in page
    # Whoever opens it has no server, and sends nothing to one.
    assert "src=" not in page.split("<script>", 1)[0]
    assert shared_page(folder) == page


def test_the_command_writes_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.html"
    assert run(["share", str(folder), "--out", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"file": str(file), "bytes": file.stat().st_size}


def test_a_damaged_run_is_not_shared(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / EVENTS).open("ab") as file:
        file.write(b"{nonsense}\n")
    out = tmp_path / "mine.html"
    assert run(["share", str(folder), "--out", str(out)]) == 2
    assert "events.jsonl:" in capsys.readouterr().err
    assert not out.exists()


def test_a_run_without_events_is_not_shared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = running_run(tmp_path, "begun", ["a"], 1)
    with noted(RunFolder(tmp_path), begun):
        assert run(["share", str(tmp_path)]) == 2
    assert "has no events yet" in capsys.readouterr().err


def test_a_run_that_was_stopped_before_its_first_event_is_not_shared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / EVENTS).touch()
    out = tmp_path / "mine.html"
    assert run(["share", str(tmp_path), "--out", str(out)]) == 2
    assert "has no events yet" in capsys.readouterr().err
    assert not out.exists()
