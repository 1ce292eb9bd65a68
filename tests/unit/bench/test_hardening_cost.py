"""The cost of hardening: samples and errors of checkouts that are run."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench import hardening_cost
from testbed.errors import RunFailed

TABLE = """\
job_id,submit_s,end_s,outcome
j0,0.0,1.5,finished
j1,1.0,1.0,rejected
j2,2.0,2.5,finished
"""


def test_a_rejected_job_has_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran(*_: object, caller: Path) -> str:
        run = caller / "runs" / "first"
        run.mkdir(parents=True)
        (run / "jobs.csv").write_text(TABLE)
        return ""

    def folder(**_: object) -> TemporaryDirectory[str]:
        return TemporaryDirectory(dir=tmp_path)

    monkeypatch.setattr(hardening_cost, "command", ran)
    monkeypatch.setattr(hardening_cost, "TemporaryDirectory", folder)
    monkeypatch.setattr(hardening_cost.os, "chown", lambda *_: None)
    assert hardening_cost.program_ms(tmp_path) == [1500.0, 500.0]


def test_a_checkout_without_an_environment_is_a_sentence(
    tmp_path: Path,
) -> None:
    with pytest.raises(RunFailed, match=r"bench job-start: .*No such file"):
        hardening_cost.command(tmp_path, "bench", "job-start")


def test_a_checkout_that_hangs_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(hardening_cost, "TIMEOUT_S", 0.1)
    with pytest.raises(RunFailed, match="timed out after"):
        hardening_cost.command(tmp_path, "bench", "job-start")
