"""Paths that begin with ~ where no shell has seen to them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

import testbed
from testbed.cli import command_line
from testbed.owned_files import from_home

pytestmark = pytest.mark.usefixtures("undrawn")

FILE = """\
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
workload:
  kind: jobs
  jobs: [{id: first, vms: 3, bandwidth: 400 Mbit/s, duration: 6 s}]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "net.yaml").write_text(FILE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.chdir(elsewhere)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("out", [["--out", "~/runs"], ["--out=~/runs"]])
def test_a_command_reads_and_writes_at_home(
    home: Path, out: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(["simulate", "~/net.yaml", *out]) == 0
    (run,) = (home / "runs").iterdir()
    assert command_line.run(["report", f"~/runs/{run.name}"]) == 0
    assert command_line.run(["lab", "start", "1", "--out=~/lab"]) == 0
    assert (home / "lab" / ".lab.json").is_file()
    capsys.readouterr()
    # No folder of that name.
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.slow
def test_python_reads_and_writes_at_home(home: Path) -> None:
    run = testbed.load("~/net.yaml").simulate(out="~/runs")
    shown = f"~/runs/{run.folder.name}"
    assert testbed.open_run(shown).folder == run.folder
    assert len(testbed.compare(shown, shown).jobs) == 1
    testbed.sweep("~/net.yaml", over={"seed": [1]}, out="~/sweeps")
    assert (home / "sweeps").is_dir()
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["exec", "a.0", "cat", "~/x"],
        ["python", "~/x.py"],
        ["validate", "net.yaml", "--", "~/x"],
        ["simulate", "net.yaml", "--set", "topology.path=~/x"],
    ],
)
def test_words_of_others_stay_as_they_are(
    home: Path, arguments: list[str]
) -> None:
    assert home.is_dir()
    assert command_line._from_home(arguments) == arguments


def test_by_sudo_it_is_the_callers_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    theirs = pwd.getpwuid(1)
    by_sudo = {"SUDO_UID": "1", "SUDO_GID": "1"}
    assert from_home("~/x", by_sudo) == f"{theirs.pw_dir}/x"
    assert from_home("~", by_sudo) == theirs.pw_dir
    assert from_home(f"~{theirs.pw_name}/x", by_sudo) == (
        f"{theirs.pw_dir}/x"
    )
    # A number without an account, and a name without.
    nobodys = {"SUDO_UID": "1234567", "SUDO_GID": "1"}
    assert from_home("~/x", nobodys) == from_home("~/x", {})
    for path in ("~no-such-user/x", "./~/x", "x~", ""):
        assert from_home(path, by_sudo) == path
