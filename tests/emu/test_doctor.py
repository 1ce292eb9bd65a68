"""The doctor on this machine: its verdict, its shape, and that it leaves nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.backends.emu.cleanup_journal import (
    STATE_VARIABLE,
    CleanupJournal,
    JournalEntry,
    machine_lock,
)
from testbed.backends.emu.machine_checks import examine, verdict
from tests.emu.test_up import wait_for
from tests.support.control_groups import control_groups

ROOT = Path(__file__).parents[2]

FOLDER = "temporary folder"


def command(
    *arguments: str, state: Path
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        STATE_VARIABLE: str(state),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-m", "testbed.cli.main", *arguments],
        capture_output=True, text=True, timeout=300, check=False, env=environment, cwd=ROOT,
    )  # fmt: skip


@pytest.mark.smoke
def test_a_machine_that_runs_these_tests_can_run_live(
    tmp_path: Path,
) -> None:
    done = command("doctor", "--json", state=tmp_path)
    shown = json.loads(done.stdout)
    assert done.returncode == 0, shown
    assert shown["can_run"] is True
    grades = {check["name"]: check["grade"] for check in shown["checks"]}
    assert (
        grades["root"]
        == grades["namespaces, veth and tc"]
        == grades["Open vSwitch"]
        == "ok"
    )
    assert grades["control groups"] == grades["TCP CUBIC"] == "ok"
    for check in shown["checks"]:
        assert check["found"]
        assert check["grade"] == "ok" or check["hint"] or check["name"] in (
            "processors", "room for a network", "disk", "other runs",
            "temporary folders",
        )  # fmt: skip


def test_it_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))

    def present() -> set[str]:
        groups = [
            group
            for group in control_groups(levels=3)
            if group.match("hosenet/doctor-*")
        ]
        spaces = Path("/run/netns").glob("hn-doctor-*")
        devices = {name for _, name in socket.if_nameindex()}
        return {
            *map(str, groups),
            *map(str, spaces),
            *(devices & {"hn0", "hn1"}),
        }

    before = present()
    assert verdict(examine())[0]
    # Doctors of tests beside this one clean up too; what was left would stay.
    wait_for(lambda: present() <= before)


def test_left_overs_are_named_with_the_hint_and_then_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, token = tmp_path / "state", tmp_path / "token"
    monkeypatch.setenv(STATE_VARIABLE, str(state))
    token.write_text("secret")
    CleanupJournal.create("night run").add(
        [JournalEntry("file", str(token))]
    )
    (found,) = [check for check in examine() if check.name == "other runs"]
    assert found.grade == "warn"
    assert "night run" in found.sentence
    assert found.hint == "sudo testbed clean"

    would = command("clean", "--dry-run", "--json", state=state)
    told = json.loads(would.stdout)["removed"]
    # Of commands that were killed on this machine at any time.
    told = [thing for thing in told if thing["what"] != FOLDER]
    assert told == [{"what": "file", "name": str(token)}]
    assert token.exists()
    assert cleaned(state) == [f"removed file {token}"]
    assert not token.exists()
    assert cleaned(state) == []


def cleaned(state: Path) -> list[str]:
    """Lines of the command but for folders of commands that were killed: one of
    another test's may be at any time.
    """
    done = command("clean", state=state)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    if last != "nothing to remove":
        lines.append(last)
    return [line for line in lines if f"removed {FOLDER}" not in line]


def test_a_run_that_is_alive_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    with machine_lock("night run"):
        refused = command("clean", state=tmp_path)
        (found,) = [
            check for check in examine() if check.name == "other runs"
        ]
    assert refused.returncode == 3
    assert "'night run'" in refused.stderr
    assert found.grade == "warn"
    assert "'night run'" in found.sentence
