"""The page's state of a run, against the record's own tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.errors import BadInput
from testbed.record.folder import EVENTS, RunFolder
from testbed.record.reading import load_run
from testbed.record.running import noted, running_run
from testbed.web.followed_run import FollowedFolder, FollowedRun, Player
from testbed.web.run_state import NOT_JUDGED, RunState
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path, sample.main_example(), FIG10)[0].path


def followed(folder: Path) -> FollowedRun:
    (run,) = FollowedFolder(folder).new_runs()
    run.refresh()
    return run


def ends(player: Player) -> list[Any]:
    return [(row[0], row[2]) for row in player.frame()["recent"]]


def test_at_its_end_it_agrees_with_the_summary(folder: Path) -> None:
    run = followed(folder)
    recorded = load_run(folder)
    assert run.status == "finished"
    for outcome in ("finished", "rejected", "killed", "unfinished"):
        expected = getattr(recorded.summary, outcome)
        assert run.state.ended[outcome] == expected
    assert run.state.frame()["jobs"] == []
    assert sum(run.state.frame()["reserved"]) == 0


def test_at_each_event_it_has_what_the_jobs_hold(folder: Path) -> None:
    run = followed(folder)
    player = Player(run)
    for event in run.events:
        player.seek(event.t)
        state = player._state
        lives = state.tally.lives
        held = sum(
            life.hold.bps for life in lives.jobs.values() if life.hold
        )
        assert state.reserved_bps().sum() == held
        placed = player.frame()["placed"]
        n_placed = sum(n for vms in placed.values() for _, n in vms)
        assert n_placed == state.totals()["slots_used"]


def test_backwards_is_as_forwards(folder: Path) -> None:
    run = followed(folder)
    forward = Player(run)
    back = Player(run)
    back.seek(run.state.now_s)
    for part in (0.7, 0.2, 0.5):
        at_s = run.state.now_s * part
        back.seek(at_s)
        forward = Player(run)
        forward.seek(at_s)
        assert back.frame() == forward.frame()


def test_a_player_stops_at_the_end(folder: Path) -> None:
    run = followed(folder)
    player = Player(run)
    player.speed = run.state.now_s
    player.step(0.25)
    assert not player.at_end
    player.step(2.0)
    assert player.at_end
    assert player.speed == 0
    assert player.at_s == run.state.now_s


def test_a_growing_folder_is_followed_line_by_line(
    folder: Path, tmp_path: Path
) -> None:
    written = (folder / EVENTS).read_bytes()
    growing = tmp_path / "20261127T000000Z-grows-s1"
    growing.mkdir()
    file = growing / EVENTS
    file.write_bytes(b"")
    (run,) = FollowedFolder(growing).new_runs()
    assert not run.refresh()
    middle = written.index(b"\n", len(written) // 2) + 20
    file.write_bytes(written[:middle])
    assert run.refresh()
    assert run.status == "interrupted"
    n_half = len(run.events)
    # The half of a line waits for the other half.
    assert not run.refresh()
    file.write_bytes(written)
    assert run.refresh()
    assert n_half < len(run.events)
    assert run.events == followed(folder).events
    assert run.status == "finished"


def new_names(followed: FollowedFolder) -> list[str]:
    return [run.folder.name for run in followed.new_runs()]


@pytest.mark.parametrize("known_to_live", [False, True])
def test_a_folder_is_looked_at_until_its_run_has_ended(
    folder: Path, tmp_path: Path, known_to_live: bool
) -> None:
    written = (folder / EVENTS).read_bytes()
    top = tmp_path / "grows"

    def policy(name: str) -> None:
        (top / name).mkdir()
        (top / name / EVENTS).write_bytes(written)

    top.mkdir()
    run = running_run(top, "grows", ["a", "b"], 1)
    if known_to_live:
        followed = FollowedFolder(top, growing=True)
        assert new_names(followed) == []
    with noted(RunFolder(top), run):
        if not known_to_live:
            followed = FollowedFolder(top)
        assert new_names(followed) == []
        policy("a")
        assert new_names(followed) == ["a"]
        policy("b")
    assert new_names(followed) == ["b"]
    policy("c")
    assert new_names(followed) == []


def test_a_run_that_is_stopped_before_its_first_event_has_no_policies(
    tmp_path: Path,
) -> None:
    run = running_run(tmp_path, "stopped", ["a"], 1)
    with noted(RunFolder(tmp_path), run):
        followed = FollowedFolder(tmp_path)
    for _ in range(3):
        assert new_names(followed) == []


def test_a_damaged_line_is_told_with_its_number(folder: Path) -> None:
    lines = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    lines[4] = b"{nonsense}\n"
    (folder / EVENTS).write_bytes(b"".join(lines))
    run = followed(folder)
    assert run.status == "damaged"
    assert f"{folder / EVENTS}:5: damaged" in run.trouble
    assert not run.refresh()


@pytest.mark.parametrize("change", ["shorter", "gone"])
def test_events_that_are_taken_away_are_told(
    folder: Path, change: str
) -> None:
    run = followed(folder)
    if change == "gone":
        (folder / EVENTS).unlink()
    else:
        (folder / EVENTS).write_bytes(b"")
    run.refresh()
    words = {"gone": "no longer there", "shorter": "is shorter than"}
    assert words[change] in run.trouble


def test_items_have_their_history_and_command(folder: Path) -> None:
    run = followed(folder)
    job_id = next(iter(run.state.tally.lives.jobs))
    job = run.item("job", job_id)
    assert job["command"] == f"testbed explain {folder} {job_id}"
    assert job["lines"][0][1].startswith("submitted, asks for")
    link = run.item("link", "0")
    assert link["command"].endswith(f"{folder}/links.csv")
    upward = link["curves"][0]
    assert max(upward["reserved_bps"]) <= upward["capacity_bps"]
    assert len(upward["t"]) == len(upward["reserved_bps"])
    node = run.item("node", "0")
    assert any("starts" in text for _, text in node["lines"])
    for kind in ("job", "link", "node"):
        with pytest.raises(BadInput):
            run.item(kind, "no such")  # type: ignore[arg-type]


def test_a_sweeps_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(BadInput, match="is a sweep's folder"):
        FollowedFolder(tmp_path)


def test_a_live_run_is_judged_at_its_end(folder: Path) -> None:
    run = followed(folder)
    state = RunState()
    for event in run.events[:-1]:
        state.follow(event)
        assert state.frame()["fidelity"]["verdict"] == NOT_JUDGED
    verdict = load_run(folder).summary.fidelity.verdict
    assert verdict == "ok"
    assert run.frame()["fidelity"]["verdict"] == verdict


def test_an_interrupted_run_has_its_summarys_verdict(folder: Path) -> None:
    events = folder / EVENTS
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(lines[: len(lines) // 2]))
    run = followed(folder)
    assert run.status == "interrupted"
    assert run.frame()["fidelity"]["verdict"] == "suspect"
