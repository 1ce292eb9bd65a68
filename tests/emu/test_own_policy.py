"""The policy of docs/writing-a-policy.md on the live network."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli.main import run

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "writing-a-policy.md").read_text(
    encoding="utf-8"
)


@pytest.mark.long
def test_it_starts_with_less_and_takes_the_time_it_stated(
    prefix: str, tmp_path: Path
) -> None:
    for language, name in (
        ("python", "shrink.py"),
        ("yaml", "shrinking.yaml"),
    ):
        found = re.search(
            rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
        )
        assert found is not None
        (tmp_path / name).write_text(found.group(1), encoding="utf-8")
    environment = {
        **os.environ,
        "HOSENET_STATE_DIR": str(tmp_path / "state"),
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "testbed.cli.main",
                "run",
                str(tmp_path / "shrinking.yaml"),
            ),
            *(
                "--set",
                "policies=[{class: ./shrink.py:Shrink}]",
                "--set",
                "scale.rate=0.05",
            ),
            *(
                "--set",
                "expect={fidelity: invalid}",
            ),  # however busy the machine is
            *("--prefix", prefix, "--out", str(tmp_path / "runs")),
        ],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (table,) = (tmp_path / "runs").glob("*/jobs.csv")
    with table.open(encoding="utf-8") as file:
        jobs = {row["job_id"]: row for row in csv.DictReader(file)}
    assert jobs["third"]["granted_bps"] == "200000000"
    assert float(jobs["third"]["estimate_s"]) == 12.0
    assert float(jobs["third"]["ratio"]) > 0.9
    folder = table.parent
    assert (folder / "plugins" / "shrink.py").read_text() == (
        tmp_path / "shrink.py"
    ).read_text()
    replay = [
        "simulate",
        str(tmp_path / "shrinking.yaml"),
        "--replay",
        str(folder),
    ]
    only = [
        "--set",
        "policies=[{class: ./shrink.py:Shrink}]",
        "--set",
        "scale.rate=0.05",
    ]
    assert run([*replay, *only, "--out", str(tmp_path / "again")]) == 0
