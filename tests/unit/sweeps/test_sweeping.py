"""Sweeps computed: each cell once, whole or not at all, the same wherever and however it ran."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.audit import audit, audit_played
from testbed.errors import RunFailed
from testbed.play.playing import play, simulated
from testbed.record.reading import load_run
from testbed.schedulers.registry import policy_kind
from testbed.spec.experiment_file import load_experiment
from testbed.sweeps import sweep_folder
from testbed.sweeps.cell_runs import Cell
from testbed.sweeps.intervals import Stop
from testbed.sweeps.result_store import ResultStore
from testbed.sweeps.sweep_folder import Sweep
from testbed.sweeps.tasks import FileRef, LocalContext, attempt, sha256_of
from tests.unit.sweeps.small_sweep import FILE, Watched, done, planned

SEEDS = "seed=1..4"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _without_pictures(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # They take longer than the cells here.
    if (
        "folder" not in request.node.name
        and "nothing" not in request.node.name
    ):
        monkeypatch.setattr(sweep_folder, "sweep_pictures", lambda *_: {})


def rows(found: Sweep) -> list[dict[str, str]]:
    with (found.folder / "cells.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def results(out: Path) -> dict[str, str]:
    """First lines of the store's files: results without provenance."""
    store = out / ".cells"
    return {
        str(p.relative_to(store)): p.read_text().splitlines()[0]
        for p in store.glob("??/*.jsonl")
    }


def plain(result: Any) -> Any:
    return json.loads(json.dumps(result))


def watched(monkeypatch: pytest.MonkeyPatch, executor: Watched) -> Watched:
    monkeypatch.setattr(
        sweep_folder, "executor_of", lambda *_, **__: executor
    )
    return executor


# ------------------------------------------------------------------ cells


@pytest.mark.slow
def test_a_cell_is_what_simulate_shows(tmp_path: Path) -> None:
    found = done(planned("workload.load=0.4,0.8", "seed=3"), tmp_path)
    assert [(row["workload.load"], row["policy"]) for row in rows(found)] == [
        ("0.4", "fcfs"), ("0.4", "easy"), ("0.8", "fcfs"), ("0.8", "easy"),
    ]  # fmt: skip
    (tmp_path / "queue.yaml").write_text(FILE)
    settings = [
        "--set",
        "workload.load=0.8",
        "--set",
        "policies=[easy]",
        "--seed",
        "3",
    ]
    command = [
        sys.executable,
        "-m",
        "testbed.cli.main",
        "simulate",
        str(tmp_path / "queue.yaml"),
    ]
    one = subprocess.run(
        [*command, *settings, "--out", str(tmp_path / "one"), "--json"],
        capture_output=True, check=True, cwd=ROOT,
    )  # fmt: skip
    (summary,) = json.loads(one.stdout)
    row = rows(found)[3]
    assert float(row["wait_mean_s"]) == summary["wait_mean_s"]
    assert float(row["vm_utilisation"]) == summary["vm_utilisation"]
    events = (Path(summary["folder"]) / "events.jsonl").read_bytes()
    assert row["events_sha256"] == hashlib.sha256(events).hexdigest()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_kept_run_folder_gives_the_same_result(tmp_path: Path) -> None:
    plan = planned("policies=easy", "seed=1..2")
    done(plan, tmp_path / "memory")
    # The cells are there already, their folders are not.
    done(plan, tmp_path / "folders")
    found = done(plan, tmp_path / "folders", keep_runs=True)
    assert found.cell_counts.computed == 2
    assert results(tmp_path / "memory") == results(tmp_path / "folders")
    kept = sorted((tmp_path / "folders" / ".cells" / "runs").iterdir())
    assert [load_run(path).summary.seed for path in kept] in (
        [1, 2],
        [2, 1],
    )
    assert (
        done(
            plan, tmp_path / "folders", keep_runs=True
        ).cell_counts.computed
        == 0
    )


@pytest.mark.short("quickstart", "failures")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["quickstart", "leases", "failures", "elastic"]
)
def test_the_audit_in_memory_is_that_of_the_folder(
    name: str, tmp_path: Path
) -> None:
    path = ROOT / "examples" / f"{name}.yaml"
    experiment = load_experiment(path)
    policy = experiment.policies[0]
    history: list[Any] = []
    play(experiment, policy, simulated(experiment, policy), history.append)
    claims = list(
        policy_kind(policy.name).claims_of(dict(policy.parameters))
    )
    resolved = {
        **experiment.resolved,
        "policy": policy.label,
        "claims": claims,
    }
    ours = audit_played(history, resolved)
    command = [
        sys.executable,
        "-m",
        "testbed.cli.main",
        "simulate",
        str(path),
    ]
    entry = (
        f"{{name: {policy.name}"
        + "".join(f", {k}: {v}" for k, v in policy.parameters)
        + "}"
    )
    settings = [
        "--set",
        f"policies=[{entry}]".replace("True", "true").replace(
            "False", "false"
        ),
    ]
    subprocess.run(
        [*command, *settings, "--out", str(tmp_path)],
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    (folder,) = tmp_path.iterdir()
    theirs = {one.name: one.status for one in audit(folder).results}
    assert {one.name: theirs[one.name] for one in ours.results} == {
        one.name: one.status for one in ours.results
    }
    assert theirs.keys() - {one.name for one in ours.results} == {
        "jobs.csv", "links.csv", "summary", "expectations",
    }  # fmt: skip


def test_a_fault_in_memory_is_found() -> None:
    experiment = load_experiment(ROOT / "examples" / "quickstart.yaml")
    (policy,) = experiment.policies
    history: list[Any] = []
    play(experiment, policy, simulated(experiment, policy), history.append)
    resolved = {**experiment.resolved, "policy": policy.label, "claims": []}
    assert audit_played(history, resolved).passed
    without_end = [event for event in history if event.name != "job_ended"]
    assert not audit_played(without_end, resolved).passed
    assert not audit_played(history, {**resolved, "seed": 99}).passed


# ------------------------------------------------------------------ once


@pytest.mark.slow
def test_a_second_sweep_computes_nothing(tmp_path: Path) -> None:
    plan = planned("workload.load=0.4,0.8", SEEDS)
    first, second = done(plan, tmp_path), done(plan, tmp_path)
    assert (first.cell_counts.computed, first.cell_counts.kept) == (16, 0)
    assert (second.cell_counts.computed, second.cell_counts.kept) == (0, 16)
    assert first.folder != second.folder
    for name in (
        "cells.csv",
        "table.csv",
        "table.md",
        "sweep.svg",
        "sweep.png",
    ):
        assert (first.folder / name).read_bytes() == (
            second.folder / name
        ).read_bytes()


@pytest.mark.slow
def test_a_wider_sweep_computes_what_is_new(tmp_path: Path) -> None:
    done(planned("workload.load=0.4", SEEDS), tmp_path)
    wider = done(planned("workload.load=0.4,0.8", "seed=1..5"), tmp_path)
    assert (wider.cell_counts.computed, wider.cell_counts.kept) == (12, 8)


@pytest.mark.slow
def test_two_processes_compute_the_same_bytes(tmp_path: Path) -> None:
    plan = planned("workload.load=0.4,0.8", SEEDS)
    one, two = (
        done(plan, tmp_path / "one"),
        done(plan, tmp_path / "two", processes=2),
    )
    assert len(results(tmp_path / "one")) == 16
    assert results(tmp_path / "one") == results(tmp_path / "two")
    assert (one.folder / "cells.csv").read_bytes() == (
        two.folder / "cells.csv"
    ).read_bytes()


@pytest.mark.slow
def test_a_cell_is_the_same_wherever_its_files_are(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    content = (
        "application: a\noptions:\n  - {bandwidth: 400 Mbit/s, time: 6 s}\n"
    )
    (tmp_path / "a" / "own.yaml").write_text(content)
    (tmp_path / "b1946ac9").write_text(content)
    text = """\
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [simple-jsa]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 3, bandwidth: 400 Mbit/s, duration: 6 s, profile: own.yaml, deadline: 60 s}
"""
    plan = planned("seed=1", text=text, path=tmp_path / "a" / "x.yaml")
    found = done(plan, tmp_path / "out")
    (tmp_path / "spec").write_text(text)
    spec = ref("", tmp_path / "spec")
    named = {"own.yaml": ref("own.yaml", tmp_path / "b1946ac9")}
    key, live = rows(found)[0]["key"], False
    # Elsewhere the file has another folder, and what it names another name.
    task = Cell(key, live, "x.yaml", (1,), (("seed", "1"),), named, spec)
    outcome = attempt(task, LocalContext(tmp_path))
    assert plain(outcome.result) == ResultStore(
        tmp_path / "out" / ".cells"
    ).get(key)
    without = replace(task, named={})
    assert "own.yaml" in failure(without, tmp_path)
    # A file that is edited while the sweep runs is not what its key says.
    (tmp_path / "b1946ac9").write_text(content.replace("6 s", "7 s"))
    assert "b1946ac9 has changed since the sweep began" in failure(
        task, tmp_path
    )


@pytest.mark.slow
def test_commands_are_the_same_wherever_the_file_lies(
    tmp_path: Path,
) -> None:
    text = FILE.replace("{kind: flat, nodes: 16}", "{kind: tree, fanout: [2, 2], links: 1 Gbit/s, "
                        "slots_per_server: 2}").replace("[fcfs, easy]", "[vc]")  # fmt: skip
    text = (
        text.partition("workload")[0]
        + """\
workload:
  kind: jobs
  jobs: [{id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 6 s, command: [./go, "1"]}]
"""
    )
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "go").write_text("#!/bin/sh\n")
        plan = planned("seed=1", text=text, path=tmp_path / name / "x.yaml")
        done(plan, tmp_path / name / "out")
        found.append(results(tmp_path / name / "out"))
    assert len(found[0]) == 1
    assert found[0] == found[1]


def ref(name: str, path: Path) -> FileRef:
    return FileRef(name, sha256_of(path), path)


def failure(task: Cell, scratch: Path) -> str:
    outcome = attempt(task, LocalContext(scratch))
    assert outcome.result is None
    assert outcome.failure is not None
    return outcome.failure.message


# ------------------------------------------------------------------ what fails, what stops it


@pytest.mark.slow
def test_a_cell_that_fails_is_a_row_and_the_others_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Cell.run

    def broken(task: Cell, context: LocalContext) -> Any:
        if dict(task.overrides)["seed"] == "2":
            raise RunFailed("the policy returned nonsense at 3 s")
        return whole(task, context)

    monkeypatch.setattr(Cell, "run", broken)
    found = done(planned("policies=easy", SEEDS), tmp_path)
    assert [row["outcome"] for row in rows(found)] == [
        "ok",
        "failed",
        "ok",
        "ok",
    ]
    assert rows(found)[1]["why"] == "the policy returned nonsense at 3 s"
    assert found.exit_code == 4
    assert found.reasons == ("the policy returned nonsense at 3 s",)
    assert found.rows[0].estimates[0].n == 3
    # What failed is not stored.
    monkeypatch.setattr(Cell, "run", whole)
    again = done(planned("policies=easy", SEEDS), tmp_path)
    assert (
        again.cell_counts.computed,
        again.cell_counts.kept,
        again.exit_code,
    ) == (
        1,
        3,
        0,
    )


def test_a_cell_outside_its_expectations_is_told(tmp_path: Path) -> None:
    text = FILE + "expect: {estimate_ratio: {max: 0.5}}\n"
    found = done(planned("policies=easy", "seed=1", text=text), tmp_path)
    assert found.exit_code == 1
    (row,) = rows(found)
    assert row["outcome"] == "outside"
    assert "measured/estimate" in row["why"]
    assert float(row["wait_mean_s"]) >= 0


def test_a_value_that_spoils_another_key_is_told_with_both() -> None:
    options = (
        "topology.fanout=[2, 2],[2, 2, 2]",
        "topology.links=[1 Gbit/s, 1 Gbit/s]",
        "seed=1",
    )
    text = FILE.replace(
        "{kind: flat, nodes: 16}",
        "{kind: tree, fanout: [2, 2], slots_per_server: 4, links: 1 Gbit/s}",
    )
    with pytest.raises(Exception, match=r"with \[2, 2, 2\]") as caught:
        planned(*options, text=text)
    assert "topology.links" in str(caught.value)


N_CELLS = 2 * 2 * 40
"""Loads, policies and seeds of the sweep that is stopped."""


@pytest.mark.short("9")
@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_resumes(
    tmp_path: Path, kill: signal.Signals
) -> None:
    (tmp_path / "queue.yaml").write_text(
        FILE.replace("jobs: 12", "jobs: 30")
    )
    over = [
        "--over",
        "workload.load=0.4,0.8",
        "--over",
        "seed=1..40",
        "--processes",
        "1",
    ]
    command = [
        sys.executable,
        "-m",
        "testbed.cli.main",
        "sweep",
        str(tmp_path / "queue.yaml"),
    ]
    command += [*over, "--out", str(tmp_path / "out"), "--json"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(lambda: len(results(tmp_path / "out")) > 20)
        process.send_signal(kill)
        _, said = process.communicate()
    stored = results(tmp_path / "out")
    assert 20 < len(stored) < N_CELLS
    assert all(json.loads(line)["result"] for line in stored.values())
    if kill == signal.SIGINT:
        assert process.returncode == 130
        assert (
            f"queue: {len(stored)} of {N_CELLS} cells are kept; the same command continues"
            in said
        )
    again = subprocess.run(
        command, cwd=ROOT, capture_output=True, check=True
    )
    counts = json.loads(again.stdout)["cells"]
    assert counts == {
        "asked": N_CELLS,
        "computed": N_CELLS - len(stored),
        "kept": len(stored),
        "failed": 0,
    }
    assert stored.items() <= results(tmp_path / "out").items()


def wait_for(condition: Any) -> None:
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.02)


# ------------------------------------------------------------------ the stop rule


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "backwards"), [(1, False), (7, False), (7, True), (64, True)]
)
@pytest.mark.short("7-True")
def test_seeds_that_count_do_not_depend_on_the_order_of_completion(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    backwards: bool,
) -> None:
    stop = Stop(0.25, "response_mean_s", 3)
    whole = done(
        planned("workload.load=0.4,0.8", "seed=1..30"), tmp_path / "all"
    )
    runs = watched(monkeypatch, Watched(width, backwards))
    found = done(
        planned("workload.load=0.4,0.8", "seed=1..30", stop=stop),
        tmp_path / "some",
    )
    columns: dict[Any, list[float]] = {}
    for row in rows(whole):
        own = columns.setdefault((row["workload.load"], row["policy"]), [])
        own.append(float(row["response_mean_s"]))
    used: dict[Any, int] = {}
    for row in rows(found):
        used[row["workload.load"], row["policy"]] = (
            used.get((row["workload.load"], row["policy"]), 0) + 1
        )
    assert used == {
        key: by_brute_force(values) for key, values in columns.items()
    }
    assert [row.needed for row in found.rows] == list(used.values())
    # What was computed ahead is in the store and not in the tables.
    assert sum(used.values()) <= len(runs.keys) < 120
    assert len(set(runs.keys)) == len(runs.keys)
    if width == 1:
        assert len(runs.keys) == sum(used.values())


def by_brute_force(values: list[float]) -> int:
    import numpy as np
    from scipy import stats

    for n in range(3, len(values) + 1):
        own = np.array(values[:n])
        low, high = stats.t.interval(
            0.95, n - 1, loc=own.mean(), scale=stats.sem(own)
        )
        if (high - low) / 2 <= 0.25 * abs(own.mean()):
            return n
    raise AssertionError("too few seeds")


@pytest.mark.slow
def test_an_interval_that_is_not_reached_is_told(tmp_path: Path) -> None:
    plan = planned(
        "policies=easy", SEEDS, stop=Stop(0.0001, "wait_mean_s", 3)
    )
    found = done(plan, tmp_path)
    assert found.rows[0].needed is None
    assert found.rows[0].cells == 4
    assert "4 (not enough)" in (found.folder / "table.md").read_text()


def test_a_rule_over_all_metrics_takes_the_slowest() -> None:
    steady, unsteady = (
        [5.0] * 9,
        [1.0, 9.0, 5.0, 5.0, 5.1, 4.9, 5.0, 5.0, 5.0],
    )
    rule = Stop(0.5)
    assert rule.needed([steady]) == 3
    assert rule.needed([steady, unsteady]) == rule.needed([unsteady]) > 3
    assert rule.needed([steady, [None] * 9]) is None
    assert rule.needed([]) is None
    assert rule.needed([[0.0] * 3]) == 3


# ------------------------------------------------------------------ files


@pytest.mark.slow
def test_the_folder_of_a_sweep(tmp_path: Path) -> None:
    found = done(planned("workload.load=0.4,0.8", SEEDS), tmp_path)
    names = {path.name for path in found.folder.iterdir()}
    assert names == {
        "spec.yaml", "sweep.json", "provenance.json", "cells.csv", "table.csv", "table.md",
        "sweep.svg", "sweep.png", "report.html",
    }  # fmt: skip
    assert found.folder.name.endswith("-queue-sweep")
    page = (found.folder / "report.html").read_text()
    assert "16 cells: 16 computed, 0 there already" in page
    assert page.count("<tr>") == 1 + len(found.rows)
    assert "<svg" in page
    assert "<dt>seed</dt><dd>1..4</dd>" in page
    asked = json.loads((found.folder / "sweep.json").read_text())
    assert asked["over"] == {
        "workload.load": [0.4, 0.8], "policies": ["fcfs", "easy"], "seed": ["1..4"],
    }  # fmt: skip
    assert asked["cells"] == {
        "asked": 16,
        "computed": 16,
        "kept": 0,
        "failed": 0,
    }
    with (found.folder / "table.csv").open() as file:
        (row, *_) = csv.DictReader(file)
    waits = [float(one["wait_mean_s"]) for one in rows(found)[:4]]
    assert float(row["wait_mean_s"]) == pytest.approx(sum(waits) / 4)
    assert float(row["wait_mean_s_ci95"]) > 0
    assert row["cells"] == "4"


@pytest.mark.slow
def test_the_table_of_cells_as_parquet(tmp_path: Path) -> None:
    import pandas as pd

    plan = planned("workload.load=0.4,0.8", SEEDS)
    as_text, packed = (
        done(plan, tmp_path),
        done(plan, tmp_path, parquet=True),
    )
    frame = pd.read_parquet(packed.folder / "cells.parquet")
    plain = pd.read_csv(as_text.folder / "cells.csv")
    assert list(frame.columns) == list(plain.columns)
    assert (
        frame["workload.load"].tolist() == plain["workload.load"].tolist()
    )
    assert frame["wait_mean_s"].tolist() == plain["wait_mean_s"].tolist()
    assert frame["key"].tolist() == plain["key"].tolist()
    assert not (packed.folder / "cells.csv").exists()


def test_a_parquet_file_has_seeds_that_no_float_holds(
    tmp_path: Path,
) -> None:
    import pandas as pd

    seed = 2**53 + 1
    plan = planned("policies=easy", f"seed={seed}")
    found = done(plan, tmp_path, parquet=True)
    frame = pd.read_parquet(found.folder / "cells.parquet")
    assert frame["seed"].tolist() == [seed]


def test_results_belong_to_who_called_sudo_and_are_readable(
    tmp_path: Path,
) -> None:
    found = done(planned("policies=easy", "seed=1"), tmp_path)
    owner = os.geteuid() or int(os.environ.get("SUDO_UID", "0"))
    (file,) = (tmp_path / ".cells").rglob("*.jsonl")
    for path in (file, found.folder / "cells.csv"):
        assert path.stat().st_mode & 0o777 == 0o644
        assert path.stat().st_uid == owner
