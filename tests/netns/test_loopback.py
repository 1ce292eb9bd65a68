"""A network namespace as build sandboxes have it: its loopback device is down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FILE = """\
name: queue
topology: {kind: flat, nodes: 16}
policies: [fcfs]
workload: {kind: exponential, jobs: 20, load: 0.7}
"""


def test_a_sweep_of_two_processes_computes(tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(FILE)
    command = [
        sys.executable,
        "-m",
        "testbed.cli.main",
        "sweep",
        "queue.yaml",
    ]
    done = subprocess.run(
        [
            "unshare",
            "--net",
            *command,
            "--over",
            "seed=1..2",
            "--processes=2",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 computed" in done.stdout
