"""The programs of others in ``examples/wild``: their files, and the one that breaks the rule."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.demand import Program
from testbed.spec.document import read_text
from testbed.spec.experiment_file import load_experiment, parse_experiment
from testbed.sweeps.scaling_file import scaling_file
from tests.support.agent_watch import loopback_ips

WILD = Path(__file__).parents[3] / "examples" / "wild"
FILES = sorted(WILD.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_program_is_checked_and_scaled(path: Path) -> None:
    for job in load_experiment(path).jobs:
        demand = job.demand
        assert isinstance(demand, Program)
        # A wrong result has measured nothing.
        assert demand.expected == ("PASSED",)
    file = scaling_file(path, read_text(path), {})
    jobs = parse_experiment(file.text, path).jobs
    scaled = [job.granted_bps for job in jobs if job.granted_bps]
    assert len(scaled) == 2 * len(file.applications)


def test_there_are_eight_programs_of_others_and_one_that_breaks_the_rule() -> (
    None
):
    names: list[str] = []
    for path in FILES:
        names += scaling_file(path, read_text(path), {}).applications
    assert len(set(names)) == len(names)
    assert "impatient" in names
    assert len(names) >= 9


@pytest.mark.slow
def test_the_impatient_program_sends_all_of_its_blocks() -> None:
    peers = loopback_ips(3)
    command = [sys.executable, str(WILD / "impatient.py"), "5", "30", "400"]
    ranks = []
    for rank in range(len(peers)):
        variables = {
            "HOSENET_RANK": str(rank),
            "HOSENET_PEERS": ",".join(peers),
        }
        ranks.append(
            subprocess.Popen(
                command,
                env=os.environ | variables,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for process in ranks:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert said.startswith("5 blocks, ")
        assert said.endswith("PASSED\n")
