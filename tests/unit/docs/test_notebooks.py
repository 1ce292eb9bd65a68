"""The notebooks of examples/notebooks run from their first cell to their last, and show results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def executed(path: Path, folder: Path) -> Any:
    """The notebook with its outputs, run in ``folder`` by this interpreter."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.run_notebook",
            str(path),
            str(folder),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def outputs(notebook: Any) -> list[dict[str, Any]]:
    return [
        each
        for cell in notebook["cells"]
        for each in cell.get("outputs", ())
    ]


def texts(notebook: Any) -> str:
    """All that cells have printed or shown as text; what libraries say on standard error is not.

    What one cell prints may be in several outputs, cut anywhere.
    """
    pieces: list[str] = []
    for output in outputs(notebook):
        if output.get("name") == "stderr":
            continue
        if output["output_type"] == "stream":
            pieces.append("".join(output["text"]))
        else:
            value = output.get("data", {}).get("text/plain", "")
            pieces.append(f"{''.join(value)}\n")
    return "".join(pieces)


def pictures(notebook: Any) -> int:
    return sum(
        "image/png" in each.get("data", {}) for each in outputs(notebook)
    )


def test_they_are_kept_without_outputs() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "a-first-run",
        "policies-over-seeds",
    ]
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None


@pytest.mark.slow
def test_a_first_run(tmp_path: Path) -> None:
    notebook = executed(NOTEBOOKS[0], tmp_path)
    shown = texts(notebook)
    rows = [line.split() for line in shown.splitlines()[-3:]]
    assert rows == [
        ["first", "finished", "finished"],
        ["second", "finished", "finished"],
        ["third", "finished", "rejected"],
    ]
    assert pictures(notebook) == 1
    (folder,) = (tmp_path / "runs").glob("*-first-run-s1")
    assert (folder / "dcloud" / "report.html").is_file()


@pytest.mark.long
@pytest.mark.slow
def test_policies_over_seeds(tmp_path: Path) -> None:
    notebook = executed(NOTEBOOKS[1], tmp_path)
    shown = texts(notebook)
    assert "easy waits less: True" in shown
    assert "same decisions: False" in shown
    assert "cells computed: 16" in shown
    assert pictures(notebook) == 1
