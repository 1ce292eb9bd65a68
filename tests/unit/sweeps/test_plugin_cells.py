"""Plug-ins in cells: all of their files are in the key, and go where the cell goes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.sweeps import sweep_folder
from testbed.sweeps.cell_runs import CellTask
from testbed.sweeps.cells import Cell, Cells
from testbed.sweeps.sweep_plan import SweepPlan
from testbed.sweeps.tasks import FileRef, Here, attempt, sha256_of
from tests.unit.sweeps.small_sweep import done, planned

MINE = """\
from shares import SHARE

from testbed.embedding.placement import Refusal
from testbed.schedulers.actions import Arrived, Reject, Start


class Mine:
    '''Starts what fits, at a share of its bandwidth.'''

    def __init__(self, embedder, most: float = 1.0):
        self.embedder, self.share = embedder, SHARE * most

    def decide(self, view, event):
        if not isinstance(event, Arrived):
            return []
        job, free = view.job(event.job_id), view.residual(view.now_s, None)
        rate_bps = int(job.bandwidth_bps * self.share)
        found = self.embedder.embed(view.datacentre, free, job.n_vms, rate_bps)
        if isinstance(found, Refusal):
            return [Reject(job.id, found.reason)]
        return [Start(job.id, found, rate_bps)]
"""
FILE = """\
name: plugged
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, {class: CLASS}]
workload:
  kind: jobs
  jobs: [{id: a, vms: 3, bandwidth: 100 Mbit/s, duration: 6 s}]
"""


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_folder, "sweep_pictures", lambda *_: {})


def folder_of(path: Path, share: str = "0.5") -> Path:
    path.mkdir(exist_ok=True)
    (path / "mine.py").write_text(MINE)
    (path / "shares.py").write_text(f"SHARE = {share}\n")
    return path


def plan_in(folder: Path, name: str = "./mine.py:Mine") -> SweepPlan:
    return planned("seed=1..2", text=FILE.replace("CLASS", name), path=folder / "plugged.yaml")


def cells_of(plan: SweepPlan) -> list[Cell]:
    found = Cells(plan)
    return [cell for one in found.combinations() for cell in found.of(one)]


def results(out: Path) -> dict[str, str]:
    return {p.name: p.read_text().splitlines()[0] for p in (out / ".cells").glob("??/*.jsonl")}


def test_a_cell_has_its_policys_files_and_no_other_has(tmp_path: Path) -> None:
    plan = plan_in(folder_of(tmp_path / "a"))
    own, plugged = cells_of(plan)[0], cells_of(plan)[2]
    assert list(own.files) == []
    assert {name: ref.path for name, ref in plugged.files.items()} == {
        "./mine.py": tmp_path / "a" / "mine.py", "shares.py": tmp_path / "a" / "shares.py",
    }  # fmt: skip


def test_what_it_imports_is_in_the_key(tmp_path: Path) -> None:
    before = cells_of(plan_in(folder_of(tmp_path / "a")))
    same = cells_of(plan_in(folder_of(tmp_path / "b")))
    other = cells_of(plan_in(folder_of(tmp_path / "c", "0.25")))
    assert [one.key for one in same] == [one.key for one in before]
    assert [one.key for one in other][:2] == [one.key for one in before][:2]
    assert not {one.key for one in other[2:]} & {one.key for one in before}


def moved(ref: FileRef, place: Path) -> FileRef:
    """The same content under its digest, as a worker keeps it."""
    place.mkdir(exist_ok=True)
    path = place / ref.sha256
    path.write_bytes(ref.path.read_bytes())
    return FileRef(ref.name, ref.sha256, path)


class Elsewhere(Here):
    """The context of a machine that has the files by their digests alone."""

    def path(self, ref: FileRef) -> Path:
        return moved(ref, self.scratch / "by-digest").path


def test_the_same_bytes_here_and_from_files_by_digest(tmp_path: Path) -> None:
    plan = plan_in(folder_of(tmp_path / "a"))
    done(plan, tmp_path / "out")
    (tmp_path / "spec").write_text(plan.text)
    spec = FileRef("", sha256_of(tmp_path / "spec"), tmp_path / "spec")
    (tmp_path / "scratch").mkdir()
    kept = results(tmp_path / "out")
    assert len(kept) == 4
    for cell in cells_of(plan):
        task = CellTask(cell.key, False, "plugged.yaml", spec, cell.files, cell.overrides)  # noqa: FBT003
        outcome = attempt(task, Elsewhere(tmp_path / "scratch"))
        assert outcome.failure is None
        line = json.loads(kept[f"{cell.key[2:]}.jsonl"])
        assert json.loads(json.dumps(outcome.result)) == line["result"]


@pytest.mark.slow
def test_the_same_bytes_in_two_processes(tmp_path: Path) -> None:
    plan = plan_in(folder_of(tmp_path / "a"))
    done(plan, tmp_path / "one")
    done(plan, tmp_path / "two", processes=2)
    assert len(results(tmp_path / "one")) == 4
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_another_plug_in_than_the_keys_is_not_run(tmp_path: Path) -> None:
    plan = plan_in(folder_of(tmp_path / "a"))
    cell = cells_of(plan)[2]
    (tmp_path / "spec").write_text(plan.text)
    spec = FileRef("", sha256_of(tmp_path / "spec"), tmp_path / "spec")
    stale = FileRef("shares.py", "0" * 64, cell.files["shares.py"].path)
    named = {**cell.files, "shares.py": stale}

    class Trusting(Here):
        def path(self, ref: FileRef) -> Path:
            return ref.path

    task = CellTask(cell.key, False, "plugged.yaml", spec, named, cell.overrides)  # noqa: FBT003
    found = attempt(task, Trusting(tmp_path))
    assert found.failure is not None
    assert found.failure.message == "shares.py is another one here than where the sweep began"


def test_an_installed_plug_ins_content_is_in_the_key_and_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys(text: str) -> Any:
        (tmp_path / "made_policies.py").write_text(text)
        monkeypatch.delitem(sys.modules, "made_policies", raising=False)
        return cells_of(plan_in(tmp_path, "made_policies:Mine"))

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    alone = MINE.replace("from shares import SHARE\n", "SHARE = 0.5\n")
    before, after = keys(alone), keys(alone.replace("0.5", "0.25") + "# other\n")
    assert before[0].key == after[0].key
    assert before[2].key != after[2].key
    monkeypatch.delitem(sys.modules, "made_policies", raising=False)
    found = done(plan_in(tmp_path, "made_policies:Mine"), tmp_path / "out")
    assert found.exit_code == 0
    assert found.counts.computed == 4
