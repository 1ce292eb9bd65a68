"""Root writes into a caller's run folder, and follows no link that his programs put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.errors import BadInput
from testbed.labs import student_folder
from testbed.labs.lab_catalogue import lab
from testbed.owned_files import (
    Owner,
    files_in,
    held_folder,
    new_file,
    remove_file,
)
from testbed.record.folder import RunFolder
from testbed.record.stored_json import read_json
from tests.unit.record.written import NOW

pytestmark = pytest.mark.needs("root")
NOBODY = Owner(65534, 65534)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of root's, in which nothing may appear or change."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "passwd").write_text("root\n")
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run folder of nobody's, in nobody's folder, as by sudo."""
    monkeypatch.setenv("SUDO_UID", str(NOBODY.uid))
    monkeypatch.setenv("SUDO_GID", str(NOBODY.gid))
    made = RunFolder.create(tmp_path / "runs", "a", 1, now=NOW)
    assert owner(tmp_path / "runs") == owner(made.path) == NOBODY.uid
    return made


def owner(path: Path) -> int:
    return path.lstat().st_uid


def exchange(path: Path, target: Path) -> None:
    """Puts a link in the place of a folder, as its owner can."""
    if path.is_dir():
        path.rename(path.with_name(f"{path.name}-was"))
    path.symlink_to(target)
    os.chown(path, NOBODY.uid, NOBODY.gid, follow_symlinks=False)


def untouched(folder: Path) -> bool:
    return (
        [path.name for path in folder.iterdir()] == ["passwd"]
        and (folder / "passwd").read_text() == "root\n"
        and owner(folder / "passwd") == 0
    )


@pytest.mark.parametrize("name", ["plan/0001.txt", "plan/more/0001.txt"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(
    name: str, run: RunFolder, elsewhere: Path
) -> None:
    run.write_text("plan/0000.txt", "x")
    exchange(run.path / "plan", elsewhere)
    with pytest.raises(
        OSError, match="plan is a link, which root does not"
    ):
        run.write_text(name, "x")
    assert untouched(elsewhere)


def test_nor_is_one_in_the_place_of_the_run_folder(
    run: RunFolder, elsewhere: Path
) -> None:
    exchange(run.path, elsewhere)
    for write in (
        lambda: run.write_text("passwd", "x"),
        run.open_events,
        run.hand_over,
        lambda: new_file(run.path / "trace", 0o644, None),
        lambda: run.policy("fcfs"),
    ):
        with pytest.raises(OSError, match="which root does not follow"):
            write()
    assert untouched(elsewhere)


def test_a_link_in_the_place_of_a_file_is_replaced(
    run: RunFolder, elsewhere: Path
) -> None:
    (run.path / "summary.json").symlink_to(elsewhere / "passwd")
    run.write_text("summary.json", "{}")
    assert (run.path / "summary.json").read_text() == "{}"
    assert untouched(elsewhere)


def test_what_is_handed_over_is_in_the_folder_and_nowhere_else(
    run: RunFolder, elsewhere: Path
) -> None:
    logs = run.path / "logs"
    logs.mkdir()
    (logs / "controller.log").write_text("x")
    (run.path / "linked").symlink_to(elsewhere)
    os.link(elsewhere / "passwd", logs / "hard")
    run.hand_over()
    assert owner(logs / "controller.log") == owner(logs) == NOBODY.uid
    assert owner(logs / "hard") == 0
    assert untouched(elsewhere)


def test_what_is_read_or_removed_is_in_the_folder_and_nowhere_else(
    run: RunFolder, elsewhere: Path
) -> None:
    (run.path / "summary.json").symlink_to(elsewhere / "passwd")
    with pytest.raises(BadInput, match="which root does not follow"):
        read_json(run.path / "summary.json")
    run.write_text("plan/0000.txt", "x")
    assert files_in(run.path) == ["plan/0000.txt"]
    exchange(run.path / "plan", elsewhere)
    assert files_in(run.path) == ["plan-was/0000.txt"]
    exchange(run.path, elsewhere)
    refused = pytest.raises(
        (OSError, BadInput), match="which root does not follow"
    )
    with refused:
        files_in(run.path)
    with refused:
        read_json(run.path / "passwd")
    with refused:
        remove_file(run.path / "passwd")
    assert untouched(elsewhere)


def test_a_held_folder_is_the_same_whatever_its_name_leads_to(
    run: RunFolder, elsewhere: Path
) -> None:
    logs = run.path / "logs"
    with held_folder(logs) as held:
        exchange(logs, elsewhere)
        (held / "agent.log").write_text("x")
        with (
            pytest.raises(OSError, match="logs is a link"),
            held_folder(logs),
        ):
            pass
    assert (run.path / "logs-was" / "agent.log").read_text() == "x"
    assert untouched(elsewhere)


def test_links_of_roots_and_those_before_a_run_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "by-root").symlink_to(disk)
    made = RunFolder.create(tmp_path / "by-root" / "runs", "a", 1, now=NOW)
    assert made.path.parent == disk / "runs"
    assert (
        RunFolder(tmp_path / "by-root").write_text("x", "y").read_text()
        == "y"
    )
    callers = tmp_path / "callers"
    callers.mkdir()
    exchange(callers / "runs", disk)
    os.chown(callers, NOBODY.uid, NOBODY.gid)
    made = RunFolder.create(callers / "runs", "a", 1, now=NOW)
    made.write_text("x", "y")
    assert made.path.parent == disk


def test_a_students_folder_gives_nothing_of_roots(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", str(NOBODY.uid))
    monkeypatch.setenv("SUDO_GID", str(NOBODY.gid))
    made = student_folder.make(lab(1), tmp_path / "lab")
    assert {owner(path) for path in made.path.rglob("*")} == {NOBODY.uid}
    assert owner(made.path) == NOBODY.uid
    os.link(elsewhere / "passwd", made.path / "hard")
    student_folder.next_hint(made)
    assert untouched(elsewhere)
    assert student_folder.opened(made.path).hints == 1
