"""Live tests can be collected without root: a renamed name is found before they run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_all_live_tests_can_be_collected() -> None:
    collected = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "--collect-only",
            "-p", "no:cacheprovider", "-p", "no:randomly",
            "tests/netns", "tests/emu",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert collected.returncode == 0, collected.stdout[-4000:]
