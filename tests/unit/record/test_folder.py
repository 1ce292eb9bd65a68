from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import events
from testbed.errors import BadInput
from testbed.owned_files import Owner, caller, opened_file, opened_folder
from testbed.record.event_file import read_events
from testbed.record.folder import RunFolder, folder_name, write_asked_for
from testbed.record.stored_json import as_json
from tests.unit.record.written import NOW


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_the_name_says_when_what_and_with_which_seed() -> None:
    assert (
        folder_name("bandwidth-scaling", 7, NOW)
        == "20261120T141500Z-bandwidth-scaling-s7"
    )
    elsewhere = datetime(
        2026, 11, 20, 16, 15, tzinfo=timezone(timedelta(hours=2))
    )
    assert folder_name("x", 7, elsewhere) == "20261120T141500Z-x-s7"


@given(st.text(max_size=200), st.integers(0, 2**31))
def test_any_name_makes_one_plain_file_name(name: str, seed: int) -> None:
    made = folder_name(name, seed, NOW)
    assert Path(made).name == made
    assert len(made.encode()) <= 255
    assert made.startswith("20261120T141500Z-")
    assert made.endswith(f"-s{seed}")
    assert made.isascii()
    assert not set(made) & set("/ \0\n'\"$`\\")


def test_folders_of_one_second_are_told_apart(tmp_path: Path) -> None:
    made = [
        RunFolder.create(tmp_path / "runs", "a", 1, now=NOW).path.name
        for _ in range(3)
    ]
    stem = "20261120T141500Z-a-s1"
    assert made == [stem, f"{stem}-2", f"{stem}-3"]


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = RunFolder.create(
            tmp_path / "deep" / "runs", "a", 1, now=NOW
        )
        file = folder.write_text("plan/tc.txt", "qdisc")
        with folder.open_events():
            pass
    finally:
        os.umask(before)
    assert (
        mode(folder.path)
        == mode(tmp_path / "deep" / "runs")
        == mode(file.parent)
        == 0o755
    )
    assert mode(file) == mode(folder.path / "events.jsonl") == 0o644


def test_a_base_that_cannot_be_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(
        BadInput, match="no run folder can be made"
    ) as caught:
        RunFolder.create(tmp_path / "file" / "runs", "a", 1, now=NOW)
    assert "--out" in str(caught.value.hint)


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a", 1, now=NOW)
    folder.write_text("summary.json", "old")

    def fail(_: object) -> None:
        raise RuntimeError("full disk")

    with pytest.raises(RuntimeError):
        folder.write_lines("summary.json", fail)
    assert (folder.path / "summary.json").read_text(
        encoding="utf-8"
    ) == "old"
    assert [entry.name for entry in folder.path.iterdir()] == [
        "summary.json"
    ]


def test_a_link_in_the_folder_is_replaced_not_followed(
    tmp_path: Path,
) -> None:
    folder = RunFolder.create(tmp_path, "a", 1, now=NOW)
    target = tmp_path / "precious"
    target.write_text("mine", encoding="utf-8")
    (folder.path / "report.html").symlink_to(target)
    folder.write_text("report.html", "page")
    assert target.read_text(encoding="utf-8") == "mine"
    assert not (folder.path / "report.html").is_symlink()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "", "a/../../x"])
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    folder = RunFolder.create(tmp_path, "a", 1, now=NOW)
    with pytest.raises(ValueError, match="not a file inside"):
        folder.write_text(name, "x")


def test_json_knows_numpy_and_refuses_not_a_number() -> None:
    assert json.loads(as_json({"a": np.int64(3), "b": Path("x")})) == {
        "a": 3,
        "b": "x",
    }
    with pytest.raises(ValueError, match="JSON"):
        as_json({"a": float("nan")})
    with pytest.raises(TypeError, match="does not go into a run folder"):
        as_json({"a": object()})


@pytest.mark.parametrize("key", [1, 2.5, None, True, "a"])
def test_any_key_of_an_object_is_a_text(key: object) -> None:
    value = {key: {key: [{key: 1}], "b": 2}}
    due = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    assert as_json(value) == due


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.sampled_from('ab"\\{}[],:\n ü')),
)


@given(
    st.recursive(
        PLAIN,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.text(max_size=3), inner, max_size=4),
            st.lists(st.dictionaries(st.text(max_size=3), PLAIN)),
        ),
    )
)
def test_json_is_indented_as_python_does(value: object) -> None:
    due = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    assert as_json(value) == due


# ------------------------------------------------------------------------------ whose it is


def test_the_caller_is_the_person_behind_sudo() -> None:
    sudo = {"SUDO_UID": "1000", "SUDO_GID": "1001"}
    assert caller(sudo, euid=0) == Owner(1000, 1001)
    assert caller(sudo, euid=1000) is None
    assert caller({}, euid=0) is None
    assert caller({"SUDO_UID": "x", "SUDO_GID": "1"}, euid=0) is None


@pytest.mark.needs("root")
def test_everything_belongs_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "4321")
    monkeypatch.setenv("SUDO_GID", "4322")
    folder = RunFolder.create(tmp_path / "runs", "a", 1, now=NOW)
    with folder.open_events():
        folder.write_text("plan/tc.txt", "x")
        folder.write_text("logs/agent.log", "")
        sub = folder.policy("vc")
        sub.write_text("jobs.csv", "x")
        late = folder.path / "logs" / "written-by-others"
        late.write_text("x", encoding="utf-8")
    folder.hand_over()
    everything = [tmp_path / "runs", *(tmp_path / "runs").rglob("*")]
    assert len(everything) == 10
    assert {(p.stat().st_uid, p.stat().st_gid) for p in everything} == {
        (4321, 4322)
    }
    assert tmp_path.stat().st_uid == os.geteuid()
    again = RunFolder.open(folder.path)
    assert again.write_text("report.html", "x").stat().st_uid == 4321


# ------------------------------------------------------------------------------- the events


def test_what_is_logged_is_read_back(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a", 1, now=NOW)
    stream: list[events.Event] = [
        events.JobResumed(1.0, "naïve ⟨job⟩\n"),
        events.JobRescaled(2.5, "x", np.int64(5), [[np.int64(1), 2]]),  # type: ignore[arg-type]
    ]
    with folder.open_events() as log:
        for event in stream:
            log(event)
        assert (
            read_events(folder.path / "events.jsonl").events == stream
        )  # before it is closed
    log.close()


def test_the_log_is_never_written_over(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a", 1, now=NOW)
    folder.open_events().close()
    with pytest.raises(FileExistsError):
        folder.open_events()


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a", 1, now=NOW)
    with folder.open_events() as log:

        def write(name: str) -> None:
            for n in range(200):
                log(events.JobPreempted(float(n), name, "x" * 300))

        threads = [
            threading.Thread(target=write, args=(f"t{i}",))
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = read_events(folder.path / "events.jsonl").events
    assert len(lines) == 800


KILLED = """
import sys, time
from pathlib import Path
from testbed import events
from testbed.record.event_file import EventLog
log = EventLog(Path(sys.argv[1]))
# 100 MB at most: on a busy machine the signal comes late.
for n in range(20_000):
    log(events.JobPreempted(float(n), "job", "x" * 5000))
    if n == 50:
        print("going", flush=True)
time.sleep(600)
"""


def test_a_killed_process_leaves_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        process.send_signal(signal.SIGKILL)
    found = read_events(file)
    assert len(found.events) >= 50
    assert [event.t for event in found.events] == [
        float(n) for n in range(len(found.events))
    ]


def test_policies_get_folders_of_their_own(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a", 1, now=datetime.now(UTC))
    names = [
        folder.policy(label).path.name
        for label in ("vc", "vc", "dcloud-gamma=0.12", "../x")
    ]
    assert names == ["vc", "vc-2", "dcloud-gamma-0.12", "x"]


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A folder that everybody may write to, with two links."""
    tmp_path.chmod(0o777)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def test_other_users_errors_at_links_do_not_name_root(
    links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with (
        pytest.raises(NotADirectoryError),
        opened_folder(links / "link" / "x"),
    ):
        pass
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        opened_file(links / "loop")
    os.close(opened_file(links / "link"))
    with pytest.raises(OSError, match="symbolic links"):
        opened_file(links / "link", follow_link=False)


def test_root_follows_no_link_in_a_folder_of_everybody(
    links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    refused = pytest.raises(
        OSError, match="link is a link, which root does"
    )
    with refused, opened_folder(links / "link" / "x"):
        pass
    with refused:
        opened_file(links / "link")


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """Root would have put a page in the place of /dev/null."""
    pipe = tmp_path / "null"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match="is a device or pipe, not a file"):
        write_asked_for("--page", pipe, "text")
    assert pipe.is_fifo()
    page = tmp_path / "page.html"
    for text in ("first", "second"):
        write_asked_for("--page", page, text)
        assert page.read_text() == text


def test_runs_that_begin_together_share_the_folders_above(
    tmp_path: Path,
) -> None:
    failed: list[BadInput] = []

    def begin(base: Path) -> None:
        try:
            RunFolder.create(base, "a", 1, now=NOW)
        except BadInput as error:
            failed.append(error)

    for attempt in range(100):
        base = tmp_path / str(attempt) / "deep" / "runs"
        threads = [Thread(target=begin, args=(base,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(list(base.iterdir())) == 3
    assert failed == []
