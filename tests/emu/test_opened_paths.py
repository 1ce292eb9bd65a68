"""Root opens nothing in a caller's folder by a path that he can exchange."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
CALLER = 54_321
EXPERIMENT = """\
name: opened
topology: {kind: fat-tree, k: 2, links: 100 Mbit/s, slots_per_server: 2}
policies: [{name: fcfs, embedder: oktopus}]
workload:
  kind: jobs
  jobs:
    - id: a
      vms: 2
      bandwidth: 10 Mbit/s
      duration: 2 s
      command: [python3, ./who.py]
expect: {fidelity: invalid}
"""
OWN_CONTROLLER = """\
controller: {app: learning_switch.py}
"""
PROGRAM = """\
import os
from pathlib import Path
Path(__file__).with_name(f"who{os.environ['HOSENET_RANK']}").write_text("x")
print(os.getuid(), os.getgid())
"""


@pytest.fixture
def folder(prefix: str) -> Iterator[Path]:
    """A caller's folder, closed for others, with an experiment and a program."""
    home = Path("/var/lib", f"hosenet-{prefix}")
    home.mkdir(mode=0o700)
    (home / "x.yaml").write_text(EXPERIMENT)
    (home / "who.py").write_text(PROGRAM)
    for path in (home, home / "x.yaml", home / "who.py"):
        os.chown(path, CALLER, CALLER)
    yield home
    shutil.rmtree(home)


def opened(folder: Path, tmp_path: Path, *arguments: str) -> list[str]:
    """Events of the command on paths that the caller can change."""
    out = tmp_path / "out"
    driver = PROJECT / "tests" / "support" / "opened_paths.py"
    done = subprocess.run(
        [sys.executable, "-P", str(driver), str(out), *arguments],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PROJECT),
            "SUDO_UID": str(CALLER),
            "SUDO_GID": str(CALLER),
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    # 1: this machine is too busy for a verdict.
    assert done.returncode in (0, 1), done.stderr
    return out.read_text().splitlines()


def test_a_run_report_and_audit_go_by_open_folders(
    folder: Path, tmp_path: Path, prefix: str
) -> None:
    """The experiment file alone is read as it is named, before any program."""
    run = ("run", "x.yaml", "--prefix", prefix)
    assert opened(folder, tmp_path, *run) == ["open x.yaml"]
    for verb in ("report", "audit"):
        assert opened(folder, tmp_path, verb, "latest") == []
    # Each VM's program had a user of its own, and the caller's folder.
    owners = {path.stat().st_uid for path in folder.glob("who[01]")}
    assert owners == {CALLER}
    (logs,) = folder.glob("runs/*/logs")
    users = {path.read_text() for path in logs.glob("agent-a*.log")}
    assert len(users) == 2
    assert not any(text.startswith(f"{CALLER} ") for text in users)
    assert all(text.endswith(f" {CALLER}\n") for text in users)


def test_the_log_of_the_callers_controller_goes_by_open_folders(
    folder: Path, tmp_path: Path, prefix: str
) -> None:
    """Root reads it at each policy's end, for errors.

    The application is read as it is named, for its imports, before any program.
    """
    application = folder / "learning_switch.py"
    shutil.copy(PROJECT / "examples" / application.name, application)
    os.chown(application, CALLER, CALLER)
    file = folder / "x.yaml"
    file.write_text(EXPERIMENT + OWN_CONTROLLER)
    run = ("run", "x.yaml", "--prefix", prefix)
    by_name = {file.name, application.name, str(application)}
    expected = {f"open {name}" for name in by_name}
    assert set(opened(folder, tmp_path, *run)) == expected
    (log,) = folder.glob("runs/*/logs/controller.log")
    assert log.stat().st_size > 0
