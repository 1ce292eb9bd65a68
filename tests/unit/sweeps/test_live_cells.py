"""Live cells: what `testbed run` is given, what is made of what it prints, what is kept of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.backends.emu import machine_checks
from testbed.cli import main
from testbed.sweeps import live_cell, sweep_folder, worker_side
from testbed.sweeps.cells import Cells
from testbed.sweeps.result_store import ResultStore
from testbed.sweeps.sweeping import stored_spec
from testbed.sweeps.tasks import FileRef, LocalContext, attempt, sha256_of
from tests.unit.sweeps.small_sweep import done, planned

pytestmark = pytest.mark.usefixtures("undrawn")

TEXT = """\
name: pair
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [simple-jsa]
workload:
  kind: jobs
  jobs:
    - id: a
      vms: 3
      bandwidth: 400 Mbit/s
      duration: 6 s
      deadline: 60 s
      profile: profiles/own.yaml
      command: ["./apps/go", "1"]
"""
IN_USE = '{"error": "another testbed runs on this machine: x", "hint": "y", "exit_code": 3}'
OWN = "application: a\noptions:\n  - {bandwidth: 400 Mbit/s, time: 6 s}\n"


class Runs:
    """Stands for `testbed run`: the simulator's run of the file, said to be live."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.files: list[set[str]] = []
        self.verdicts = ["ok"]
        self.ends: tuple[int, str, str] | None = None
        self.in_use = self.sleeps = self.interrupted = 0
        self.wanted: tuple[str, ...] = ()
        self.profiles: list[list[str]] = []

    def __call__(
        self, argv: Sequence[str]
    ) -> subprocess.CompletedProcess[str]:
        if argv[0] == "sleep":
            self.sleeps += 1
            return subprocess.CompletedProcess(
                argv, -2 if self.sleeps == self.interrupted else 0
            )
        if self.sleeps < self.in_use:
            return subprocess.CompletedProcess(argv, 3, IN_USE, "")
        command = list(argv)
        del command[: command.index("testbed.cli.main") + 1]
        self.commands.append(command)
        folder = Path(command[1]).parent
        self.files.append(
            {
                str(p.relative_to(folder))
                for p in folder.rglob("*")
                if p.is_file()
            }
        )
        texts = [Path(folder, name).read_text() for name in self.wanted]
        self.profiles.append(
            [text[text.index("time: ") + 6 : -2] for text in texts]
        )
        if self.ends is not None:
            code, out, err = self.ends
            return subprocess.CompletedProcess(command, code, out, err)
        own = [part for part in command if part != "--json"]
        assert main.run(["simulate", *own[1:]]) in (0, 1)
        (run,) = Path(own[own.index("--out") + 1]).iterdir()
        record = json.loads((run / "summary.json").read_text())
        verdict = (
            self.verdicts.pop(0)
            if len(self.verdicts) > 1
            else self.verdicts[0]
        )
        record |= {
            "backend": "live",
            "fidelity": {"verdict": verdict, "reasons": []},
        }
        record |= {"folder": str(run), "audit_passed": True}
        return subprocess.CompletedProcess(
            command, 0, json.dumps([record]), ""
        )


def test_a_machine_s_checks_are_stored_with_the_keys_of_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = machine_checks.MachineCheck("disk", "ok", "1 GiB free here")
    monkeypatch.setattr(machine_checks, "examine", lambda: [check])
    # Not the function that keeps its result for the process.
    doctor = worker_side.examined.__wrapped__()["doctor"]
    assert doctor["checks"] == [
        {
            "name": "disk",
            "grade": "ok",
            "found": "1 GiB free here",
            "hint": None,
        }
    ]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    monkeypatch.setattr(live_cell, "run_child", found)
    monkeypatch.setattr(
        live_cell, "examined", lambda: {"doctor": {"can_run": True}}
    )
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(sweep_folder, "sweep_pictures", lambda *_: {})
    monkeypatch.delenv("SUDO_UID", raising=False)
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "apps").mkdir()
    (tmp_path / "profiles" / "own.yaml").write_text(OWN)
    (tmp_path / "apps" / "go").write_text("#!/bin/sh\n")
    return tmp_path / "pair.yaml"


def live(
    place: Path, *options: str, text: str = TEXT, again: bool = False
) -> Any:
    plan = planned(
        *(options or ("seed=1..2",)), text=text, path=place, live=True
    )
    return done(plan, place.parent / "out", again=again, processes=2)


@pytest.mark.slow
def test_a_live_cell_is_run_by_the_command_beside_its_files(
    runs: Runs, place: Path
) -> None:
    found = live(place, "workload.jobs[0].vms=2,3", "seed=1")
    assert found.cell_counts.computed == 2
    page = (found.folder / "report.html").read_text()
    assert "<dt>Fidelity</dt><dd>ok 2</dd>" in page
    first = runs.commands[0]
    assert first[0] == "run"
    assert first[first.index("--set") :] == [
        "--set", "workload.jobs[0].vms=2", "--set", "seed=1",
    ]  # fmt: skip
    assert runs.files[0] == {"pair.yaml", "profiles/own.yaml", "apps/go"}
    keys = [row["key"] for row in rows(found)]
    record = ResultStore(place.parent / "out" / ".cells").get(keys[0])
    assert record is not None
    assert record["summary"]["fidelity"]["verdict"] == "ok"
    assert "folder" not in json.dumps(record)
    assert "wall_s" not in record["summary"]
    (file,) = (place.parent / "out" / ".cells").glob(
        f"{keys[0][:2]}/{keys[0][2:]}.jsonl"
    )
    where = json.loads(file.read_text().splitlines()[1])
    assert where["doctor"] == {"can_run": True}
    assert where["run"]["machine"]
    assert (
        live(place, "workload.jobs[0].vms=2,3", "seed=1").cell_counts.kept
        == 2
    )


@pytest.mark.slow
def test_files_above_the_experiments_folder_are_where_it_names_them(
    runs: Runs, tmp_path: Path
) -> None:
    for folder, time in (
        ("exp", "6 s"),
        ("one", "7 s"),
        ("two/more", "8 s"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "own.yaml").write_text(
            OWN.replace("6 s", time)
        )
    asked = "vms: 2, bandwidth: 400 Mbit/s, duration: 6 s, deadline: 60 s"
    job = f"    - {{id: ID, {asked}, profile: NAME}}"
    names = (
        "../one/own.yaml",
        "own.yaml",
        "../two/more/../more/own.yaml",
        f"{tmp_path}/one/own.yaml",
    )
    text = TEXT.partition("    - id")[0] + "\n".join(
        job.replace("ID", f"j{number}").replace("NAME", name)
        for number, name in enumerate(names)
    )
    runs.wanted = names
    found = live(tmp_path / "exp" / "pair.yaml", "seed=1", text=text)
    assert [row["why"] for row in rows(found)] == [""]
    assert runs.profiles[0] == ["7 s", "6 s", "8 s", "7 s"]


def test_an_absolute_name_is_that_file_here_or_no_run(
    runs: Runs, place: Path
) -> None:
    profile = place.parent / "profiles" / "own.yaml"
    text = TEXT.replace("profiles/own.yaml", str(profile))
    plan = planned("seed=1", text=text, path=place, live=True)
    (cell,) = (
        cell
        for one in Cells(plan).combinations()
        for cell in Cells(plan).of(one)
    )
    copy = FileRef(str(profile), sha256_of(profile), place.parent / "copy")
    copy.path.write_text(OWN)
    profile.write_text(OWN.replace("6 s", "17 s"))
    spec = stored_spec(plan, place.parent)
    named = {**cell.named, str(profile): copy}
    task = replace(cell, spec=spec, named=named)
    failure = attempt(task, LocalContext(place.parent)).failure
    assert failure is not None
    assert (
        failure.message
        == f"{profile} is not here, or another one than where the sweep began"
    )
    assert runs.commands == []


@pytest.mark.slow
def test_a_machine_that_another_run_leaves_is_waited_for(
    runs: Runs, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose worker was killed cleans up, and has the machine meanwhile."""
    runs.in_use = 3
    found = live(place, "seed=1")
    assert [row["outcome"] for row in rows(found)] == ["ok"]
    assert (runs.sleeps, len(runs.commands)) == (3, 1)
    runs.in_use, runs.interrupted = 10**6, 5
    assert (
        rows(live(place, "seed=2"))[0]["why"]
        == "another testbed runs on this machine: x"
    )
    assert runs.sleeps == 5
    monkeypatch.setattr(live_cell, "IN_USE_S", 0.0)
    assert (
        rows(live(place, "seed=3"))[0]["why"]
        == "another testbed runs on this machine: x"
    )
    assert runs.sleeps == 5


def rows(found: Any) -> list[dict[str, str]]:
    import csv

    with (found.folder / "cells.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_what_is_not_ok_is_shown_and_not_kept(
    runs: Runs, place: Path
) -> None:
    runs.verdicts = ["suspect", "ok"]
    first = live(place)
    assert [row["outcome"] for row in rows(first)] == ["ok", "ok"]
    assert rows(first)[0]["wait_mean_s"] != ""
    second = live(place)
    assert (second.cell_counts.computed, second.cell_counts.kept) == (1, 1)


@pytest.mark.slow
def test_what_the_file_accepts_is_kept_until_it_is_measured_again(
    runs: Runs, place: Path
) -> None:
    text = TEXT + "expect: {fidelity: suspect}\n"
    runs.verdicts = ["suspect", "suspect", "ok"]
    live(place, text=text)
    assert live(place, text=text).cell_counts.kept == 2
    assert live(place, text=text, again=True).cell_counts.computed == 2
    assert live(place, text=text, again=True).cell_counts.kept == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (
            (
                3,
                '{"error": "no Open vSwitch", "hint": "x", "exit_code": 3}',
                "",
            ),
            "no Open vSwitch",
        ),
        (
            (4, '{"error": "the run stopped", "exit_code": 4}', ""),
            "the run stopped",
        ),
        ((-9, "", "Killed"), "testbed run ended with exit code -9: Killed"),
        ((0, "", ""), "testbed run ended with exit code 0"),
    ],
)
def test_a_run_that_fails_is_a_row(
    runs: Runs, place: Path, ends: tuple[int, str, str], why: str
) -> None:
    runs.ends = ends
    found = live(place)
    assert [row["outcome"] for row in rows(found)] == ["failed", "failed"]
    assert rows(found)[0]["why"].startswith(why)
    assert found.exit_code == 4
    assert not list((place.parent / "out" / ".cells").glob("??/*.jsonl"))
