"""Live runs of a check that last too long, or are interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import BadInput, RunFailed
from testbed.labs import live_runs
from tests.support.agent_watch import wait_until

pytestmark = pytest.mark.slow

# A run that writes down that it was asked to end, as it cleans up.
RUN = """\
#!/bin/sh
cd "${0%/*}"
trap "echo removed > network; exit 130" INT
echo up > network
while :; do sleep 0.05; done
"""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says whether the run's network is there."""
    path = tmp_path / "python"
    path.write_text(RUN)
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    return tmp_path / "network"


def test_a_run_that_lasts_too_long_cleans_up_and_is_no_students_fault(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Started(subprocess.Popen[str]):
        """A run that is not waited for before its network is up."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            wait_until(network.exists, "the network")

    monkeypatch.setattr(subprocess, "Popen", Started)
    monkeypatch.setattr(live_runs, "LONGEST_S", 2)
    with (
        pytest.raises(RunFailed, match="not ended after 2 s"),
        live_runs.played(""),
    ):
        pass
    assert network.read_text() == "removed\n"


def test_an_interrupted_run_cleans_up(network: Path) -> None:
    def interrupt(*_: object) -> None:
        if not network.exists():
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        with pytest.raises(KeyboardInterrupt), live_runs.played(""):
            pass
    finally:
        signal.signal(signal.SIGALRM, before)
    assert network.read_text() == "removed\n"


REFUSES = """\
#!/bin/sh
for argument; do case $argument in *.yaml) file=$argument;; esac; done
echo "$file:9:115: deadline: 1 s is shorter than the duration, 2 s" >&2
echo "$file:10:115: more" >&2
exit 2
"""


def test_a_file_that_is_refused_is_the_students_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers are those that a student's function returned."""
    path = tmp_path / "python"
    path.write_text(REFUSES)
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    with pytest.raises(BadInput) as refused, live_runs.played(""):
        pass
    assert refused.value.message == (
        "testbed run refuses experiment.yaml:9:115: "
        "deadline: 1 s is shorter than the duration, 2 s"
    )
