"""The command that compares the decisions of two interpreters sees a difference."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import decisions

EXAMPLE = "examples/leases-live.yaml"
OTHER_SEEDS = """
import numpy.random

class SeedSequence(numpy.random.SeedSequence):
    def __init__(self, seed, **given):
        super().__init__(seed + 1, **given)

numpy.random.SeedSequence = SeedSequence
"""


def another_python(folder: Path, startup: str) -> Path:
    """This interpreter under another name, with a module that it imports before all others."""
    (folder / "sitecustomize.py").write_text(startup)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.slow
@pytest.mark.short("other")
@pytest.mark.parametrize(
    ("startup", "code"), [("", 0), (OTHER_SEEDS, 1)], ids=["same", "other"]
)
def test_interpreters_are_compared(
    startup: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    python = another_python(tmp_path, startup)
    arguments = [
        "compare",
        "--python",
        str(python),
        "--only",
        EXAMPLE,
        "--processes",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", ["decisions", *arguments])
    assert decisions.main() == code
    told = capsys.readouterr().out
    assert f"{1 - code} of 1 entries" in told
    assert (f"differs: {EXAMPLE}" in told) == bool(code)
    assert "0 are missing" in told
