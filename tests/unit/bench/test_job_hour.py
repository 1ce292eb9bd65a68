"""The benchmark of an hour of jobs: its progress, and what follows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest

from bench import job_hour


def test_the_reason_of_a_failed_job_has_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(
        n_jobs: int, every_s: float, say: Callable[[int], None]
    ) -> NoReturn:
        del n_jobs, every_s
        say(12)
        raise SystemExit("job 12: its agent ended")

    monkeypatch.setattr(job_hour, "one_by_one", failing)
    with pytest.raises(SystemExit):
        job_hour.run(quick=False)
    progress = "\r12 of 200 jobs, some 3384 s left "
    assert capsys.readouterr().err == f"{progress}\n"
