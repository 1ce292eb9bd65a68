"""Tests that look at the project's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def require_history(root: Path) -> None:
    """Skips the test in a checkout that has no history."""
    shallow = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--is-shallow-repository"],
        capture_output=True,
        text=True,
        check=False,
    )
    if shallow.stdout.strip() != "false":
        pytest.skip("no history here: git fetch --unshallow")
