"""The path on which Python looks for modules, after ``pip install --editable``,
as ``provision.sh`` has it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
BUILD = """\
import sys
from setuptools import build_meta
print(build_meta.build_editable(sys.argv[1]))
"""


@pytest.mark.slow
def test_nothing_is_looked_for_in_the_working_directory(
    tmp_path: Path,
) -> None:
    """No entry is a name without a folder, and none is code."""
    pytest.importorskip("setuptools")
    checkout = tmp_path / "checkout"
    package = checkout / "testbed"
    package.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(PROJECT / name, checkout)
    for name in ("__init__.py", "version.py"):
        shutil.copy(PROJECT / "testbed" / name, package)
    done = subprocess.run(
        [sys.executable, "-I", "-c", BUILD, str(tmp_path)],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wheel = tmp_path / done.stdout.split()[-1]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path_file,) = (name for name in names if name.endswith(".pth"))
        lines = archive.read(path_file).decode().splitlines()
    assert lines == [str(checkout)]
