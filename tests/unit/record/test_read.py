from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.audit.history import History
from testbed.cli.main import run as command
from testbed.errors import BadInput
from testbed.events import RunEnded
from testbed.record.conclusion import conclude
from testbed.record.event_file import read_events
from testbed.record.folder import RunFolder
from testbed.record.reading import load_run, policy_folders, policy_of
from testbed.record.topology_record import topology_record
from tests.unit.record import sample
from tests.unit.record.written import FIG10, mutate, write_run
from topologies.tree import tree as tree_topology


def test_a_run_comes_back_whole(tmp_path: Path) -> None:
    folder, results = write_run(tmp_path, sample.main_example(), FIG10)
    folder.write_text("spec.yaml", "name: x\n")
    folder.write_json("provenance.json", {"written": "now"})
    run = load_run(folder.path)
    assert run.rows == results.rows
    assert run.summary == results.summary
    assert isinstance(run.file.events[-1], RunEnded)
    assert run.spec_text == "name: x\n"
    assert run.provenance == {"written": "now"}
    stored = json.loads(
        (folder.path / "summary.json").read_text(encoding="utf-8")
    )
    assert stored["expectations"]["met"] is True
    assert [row["verdict"] for row in stored["expectations"]["rows"]] == [
        "ok"
    ] * 10


@pytest.mark.slow
def test_a_killed_run_is_read_as_far_as_it_came(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    for name in ("jobs.csv", "links.csv", "summary.json"):
        (folder.path / name).unlink()
    file = folder.path / "events.jsonl"
    file.write_bytes(file.read_bytes()[:-700])
    run = load_run(folder.path)
    assert run.file.broken_line == len(file.read_bytes().splitlines())
    assert run.summary.status == "interrupted"
    assert run.stored_summary is None
    assert len(run.rows) == 10
    concluded = conclude(RunFolder.open(folder.path), FIG10)
    assert concluded.summary.finished == run.summary.finished
    assert not concluded.verdicts.met


def test_a_last_line_without_its_newline_counts_if_it_is_whole(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    file = folder.path / "events.jsonl"
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    assert isinstance(read_events(file).events[-1], RunEnded)


def test_a_policys_folder_finds_what_lies_above(tmp_path: Path) -> None:
    above, _ = write_run(tmp_path, sample.flat())
    (above.path / "events.jsonl").rename(tmp_path / "events.jsonl")
    for name in ("jobs.csv", "links.csv", "summary.json"):
        (above.path / name).unlink()
    sub = above.policy("fcfs")
    (tmp_path / "events.jsonl").rename(sub.path / "events.jsonl")
    above.write_text("spec.yaml", "name: x\n")
    assert policy_folders(above.path) == [sub.path]
    assert load_run(sub.path).spec_text == "name: x\n"


def test_damaged_json_is_bad_input_with_its_line(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    folder.write_text("summary.json", '{\n"name": \n}')
    with pytest.raises(BadInput, match=r"summary\.json:3: damaged"):
        load_run(folder.path)


def test_the_topologys_record_is_what_the_audit_reads() -> None:
    datacentre = tree_topology([4, 2, 2], 10**9, 2)
    record = topology_record(datacentre)
    assert json.loads(json.dumps(record)) == record
    assert record["slots"] == [2] * 16
    assert len(record["links"]["capacity_bps"]) == 28
    assert record["names"][0] == "server 0"


def test_two_unrelated_runs_are_not_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, sample.flat(), name="one")
    write_run(tmp_path, sample.sliding(), name="two")
    with pytest.raises(
        BadInput,
        match=r"it holds 2 runs: .*-one-s7 \(flat, sim, seed 1\); .*-two",
    ):
        policy_folders(tmp_path)
    for verb in ("report", "audit"):
        assert command([verb, str(tmp_path)]) == 2
        assert f"name one of them, as {tmp_path}" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_one_run_twice_and_one_alone_are_no_policies(
    tmp_path: Path,
) -> None:
    for message in ("it holds 1 run: ", "it holds 2 runs: "):
        write_run(tmp_path, sample.flat())
        with pytest.raises(BadInput, match=message):
            policy_folders(tmp_path)


def test_runs_without_a_first_line_are_counted_and_not_listed(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    (folder.path / "events.jsonl").write_bytes(b"")
    with pytest.raises(BadInput, match="it holds 1 run\n"):
        policy_folders(tmp_path)


def test_a_policy_has_its_runs_files_in_whatever_way_its_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    run = RunFolder(tmp_path / "run")
    policy = write_run(run, sample.flat(), name="a")[0].path
    run.write_text("spec.yaml", "name: x\n")
    run.write_json("provenance.json", {"written": "now"})
    link = tmp_path / "link"
    link.symlink_to(policy)
    monkeypatch.chdir(policy)
    (policy / "spec.resolved.json").rename(run.path / "spec.resolved.json")
    for path in (policy, Path(), link):
        read = load_run(path)
        assert History(path, read.file).stated("name") == "flat"
        assert read.spec_text == "name: x\n"
        assert read.provenance == {"written": "now"}


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"backend": "live"}, {"run": "other"}]
)
def test_policies_of_one_run_agree_in_name_seed_and_backend(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    folders = [
        write_run(RunFolder(tmp_path), sample.flat(), name=name)[0].path
        for name in ("a", "b")
    ]
    assert policy_folders(tmp_path) == folders
    mutate(folders[1], lambda records: records[0].update(policy="easy"))
    assert policy_folders(tmp_path) == folders
    assert [policy_of(folder) for folder in folders] == ["fcfs", "easy"]
    mutate(folders[1], lambda records: records[0].update(change))
    with pytest.raises(BadInput, match="it holds 2 runs"):
        policy_folders(tmp_path)


@pytest.mark.parametrize("left", [b"", b'{"t":0.0,"event":"run_st'])
def test_a_policy_that_was_killed_before_its_first_line_belongs_to_the_run(
    tmp_path: Path, left: bytes
) -> None:
    folders = [
        write_run(RunFolder(tmp_path), sample.flat(), name=name)[0].path
        for name in ("a", "b")
    ]
    (folders[1] / "events.jsonl").write_bytes(left)
    assert policy_folders(tmp_path) == folders
    assert policy_of(folders[1]) is None


def test_what_is_no_folder_says_what_is(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nope"):
        with pytest.raises(BadInput) as caught:
            policy_folders(path)
        assert "testbed simulate" in (caught.value.hint or "")
