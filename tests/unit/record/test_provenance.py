from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.record import provenance as source
from testbed.record.provenance import (
    code,
    cpu_model,
    first_version,
    provenance,
)


def collect() -> dict[str, object]:
    return provenance(
        seeds={"seed": 7},
        command=["testbed", "run"],
        backend="live",
        extra={"datapath": "netdev"},
    )


def test_it_records_what_it_documents() -> None:
    found = json.loads(json.dumps(collect(), allow_nan=False))
    assert found["seeds"] == {"seed": 7}
    assert found["command"] == ["testbed", "run"]
    assert found["live"] == {"datapath": "netdev"}
    assert found["kernel"]["release"] == platform.release()
    assert found["python"]["version"] == platform.python_version()
    assert found["python"]["packages"]["numpy"]
    assert found["machine"]["cpus"] == os.cpu_count()
    assert found["machine"]["memory_bytes"] > 0
    assert len(found["machine"]["load_average"]) == 3


def test_the_hosts_name_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = socket.gethostname()
    # A name so short that it is part of other words proves nothing, and one of
    # letters may be a word of the record, as "hosenet" is.
    if len(own) >= 5 and not own.isalpha():
        assert own not in json.dumps(collect())
    name = "a-name-that-is-no-word"
    system = list(os.uname())
    system[1] = name
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(system))
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    monkeypatch.setattr(platform, "_uname_cache", None)
    assert platform.node() == name
    assert name not in json.dumps(collect())


def test_missing_tools_are_null(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert set(source.tools().values()) == {None}
    assert code(Path(__file__).parents[3])["commit"] is None


def test_a_tool_that_hangs_is_null(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "tc"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 60\n", encoding="utf-8")
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(source, "TIMEOUT_S", 0.2)
    assert source.tools()["iproute2"] is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("ovs-vswitchd (Open vSwitch) 3.1.0\nDPDK 22.11.1", "3.1.0"),
        ("iperf 3.12 (cJSON 1.7.15)", "3.12"),
        ("ethtool version 6.1", "6.1"),
        ("ethtool version 6", "6"),
        ("no number", None),
        (None, None),
    ],
)
def test_versions_in_programs_words(
    text: str | None, version: str | None
) -> None:
    assert first_version(text) == version


def test_texts_of_the_system() -> None:
    assert (
        cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n")
        == "Fast CPU @ 3 GHz"
    )
    assert cpu_model("") is None
    assert cpu_model(None) is None
    # As in a virtual machine whose processor has no name.
    assert cpu_model("model name\t: \nstepping\t: 1\n") is None


def git(tree: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        [
            "git",
            "-C",
            str(tree),
            "-c",
            f"safe.directory={tree}",
            *identity,
            *arguments,
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.fixture
def work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if shutil.which("git") is None:
        pytest.skip("no git command")
    # A command that took longer would be as one that is not there.
    monkeypatch.setattr(source, "TIMEOUT_S", 60.0)
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1", encoding="utf-8")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    return tmp_path


def test_commit_and_dirt(work_tree: Path) -> None:
    commit = git(work_tree, "rev-parse", "HEAD")
    assert code(work_tree) | {"hosenet": None} == {
        "hosenet": None,
        "commit": commit,
        "dirty": False,
    }
    (work_tree / "a").write_text("2", encoding="utf-8")
    assert code(work_tree)["dirty"] is True


def test_no_work_tree_is_null(tmp_path: Path) -> None:
    found = code(tmp_path)
    assert (found["commit"], found["dirty"]) == (None, None)


def test_git_has_no_terminal_of_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By root's terminal, a tree's owner could type commands into its shell."""
    (tmp_path / ".git").mkdir()
    fake = tmp_path / "git"
    fake.write_text("#!/bin/sh\nexec ps -o sid= -p $$\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    session = code(tmp_path)["commit"]
    assert isinstance(session, str)
    assert int(session) != os.getsid(0)


def identity(path: Path) -> tuple[int, ...]:
    """Owner and time of writing; reading it may change the time of access."""
    stat = path.stat()
    return (
        stat.st_ino,
        stat.st_uid,
        stat.st_gid,
        stat.st_size,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
    )


class _OfAnotherUser(type(Path())):  # type: ignore[misc]
    def stat(self, **_: object) -> SimpleNamespace:  # type: ignore[override]
        return SimpleNamespace(st_uid=4321, st_gid=4321, st_mode=0)


def test_root_runs_git_as_the_owner_alone_where_nothing_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users = []

    def output(command: Sequence[str], **run_as: Any) -> str:
        users.append(run_as.get("user", 0))
        return "" if "status" in command else "0123abcd"

    monkeypatch.setattr(source, "_output", output)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert code(_OfAnotherUser("/src"))["dirty"] is False
    assert users == [4321, 4321]


@pytest.mark.needs("root")
def test_root_reads_the_work_tree_of_another_user(work_tree: Path) -> None:
    for path in [work_tree, *work_tree.rglob("*")]:
        os.chown(path, 4321, 4321, follow_symlinks=False)
    commit = git(work_tree, "rev-parse", "HEAD")
    before = identity(work_tree / ".git" / "index")
    assert code(work_tree)["commit"] == commit
    assert identity(work_tree / ".git" / "index") == before
