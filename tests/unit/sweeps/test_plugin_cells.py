"""Plug-ins in cells: all of their files are in the key, and go where the cell goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import BadInput, RunFailed
from testbed.plugins import installed
from testbed.spec.experiment_file import parse_experiment
from testbed.sweeps import sweep_folder, worker_side
from testbed.sweeps.cell_runs import Cell
from testbed.sweeps.cells import Cells
from testbed.sweeps.content_store import Content, ContentStore, parts
from testbed.sweeps.sweep_plan import SweepPlan, used_files
from testbed.sweeps.tasks import FileRef, LocalContext, attempt, sha256_of
from tests.support.plugin_package import installed_package
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
    return planned(
        "seed=1..2",
        text=FILE.replace("CLASS", name),
        path=folder / "plugged.yaml",
    )


def cells_of(plan: SweepPlan) -> list[Cell]:
    found = Cells(plan)
    return [cell for one in found.combinations() for cell in found.of(one)]


def results(out: Path) -> dict[str, str]:
    return {
        p.name: p.read_text().splitlines()[0]
        for p in (out / ".cells").glob("??/*.jsonl")
    }


def test_a_cell_has_its_policys_files_and_no_other_has(
    tmp_path: Path,
) -> None:
    plan = plan_in(folder_of(tmp_path / "a"))
    own, plugged = cells_of(plan)[0], cells_of(plan)[2]
    assert list(own.named) == []
    assert {name: ref.path for name, ref in plugged.named.items()} == {
        "./mine.py": tmp_path / "a" / "mine.py", "shares.py": tmp_path / "a" / "shares.py",
    }  # fmt: skip


def test_what_it_imports_is_in_the_key(tmp_path: Path) -> None:
    before = cells_of(plan_in(folder_of(tmp_path / "a")))
    same = cells_of(plan_in(folder_of(tmp_path / "b")))
    other = cells_of(plan_in(folder_of(tmp_path / "c", "0.25")))
    assert [one.key for one in same] == [one.key for one in before]
    assert [one.key for one in other][:2] == [one.key for one in before][:2]
    assert not {one.key for one in other[2:]} & {one.key for one in before}


def test_its_files_are_not_read_again(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a")
    text = FILE.replace("CLASS", "./mine.py:Mine")
    experiment = parse_experiment(text, folder / "plugged.yaml")
    for name in ("mine.py", "shares.py"):
        (folder / name).unlink()
    assert set(used_files(experiment)) == {"./mine.py", "shares.py"}


def moved(ref: FileRef, place: Path) -> FileRef:
    """The same content under its digest, as a worker keeps it."""
    place.mkdir(exist_ok=True)
    path = place / ref.sha256
    path.write_bytes(ref.path.read_bytes())
    return FileRef(ref.name, ref.sha256, path)


class Elsewhere(LocalContext):
    """The context of a machine that has the files by their digests alone."""

    def path(self, ref: FileRef) -> Path:
        return moved(ref, self.scratch / "by-digest").path


@pytest.mark.slow
def test_the_same_bytes_here_and_from_files_by_digest(
    tmp_path: Path,
) -> None:
    plan = plan_in(folder_of(tmp_path / "a"))
    done(plan, tmp_path / "out")
    (tmp_path / "spec").write_text(plan.text)
    spec = FileRef("", sha256_of(tmp_path / "spec"), tmp_path / "spec")
    (tmp_path / "scratch").mkdir()
    kept = results(tmp_path / "out")
    assert len(kept) == 4
    for cell in cells_of(plan):
        task = replace(cell, spec=spec)
        outcome = attempt(task, Elsewhere(tmp_path / "scratch"))
        assert outcome.failure is None
        line = json.loads(kept[f"{cell.key[2:]}.jsonl"])
        assert json.loads(json.dumps(outcome.result)) == line["result"]


@pytest.mark.slow
def test_packages_above_the_experiments_folder_are_told_apart(
    tmp_path: Path,
) -> None:
    for package, text in (
        ("half", "SHARE = 0.5\n"),
        ("more", "MOST = 1\n"),
    ):
        (tmp_path / "lib" / package).mkdir(parents=True)
        (tmp_path / "lib" / package / "__init__.py").write_text(text)
    own = MINE.replace(
        "from shares import SHARE",
        "from half import SHARE\nfrom more import MOST",
    )
    (tmp_path / "lib" / "mine.py").write_text(own)
    (tmp_path / "exp").mkdir()
    plan = plan_in(tmp_path / "exp", "../lib/mine.py:Mine")
    task = plugged_task(plan, tmp_path, cells_of(plan)[2].named)
    assert len(task.named) == 3
    (tmp_path / "scratch").mkdir()
    assert attempt(task, Elsewhere(tmp_path / "scratch")).failure is None


@pytest.mark.slow
def test_the_same_bytes_in_two_processes(tmp_path: Path) -> None:
    plan = plan_in(folder_of(tmp_path / "a"))
    done(plan, tmp_path / "one")
    done(plan, tmp_path / "two", processes=2)
    assert len(results(tmp_path / "one")) == 4
    assert results(tmp_path / "one") == results(tmp_path / "two")


class Trusting(LocalContext):
    """The context of a machine that looks at no file before a cell reads it."""

    def path(self, ref: FileRef) -> Path:
        return ref.path


def plugged_task(
    plan: SweepPlan, folder: Path, named: Mapping[str, FileRef]
) -> Cell:
    cell = cells_of(plan)[2]
    (folder / "spec").write_text(plan.text)
    spec = FileRef("", sha256_of(folder / "spec"), folder / "spec")
    return replace(cell, spec=spec, named=named)


@pytest.mark.parametrize("name", ["shares.py", "./mine.py"])
def test_another_plug_in_than_the_keys_is_not_run(
    name: str, tmp_path: Path
) -> None:
    plan = plan_in(folder_of(tmp_path / "a"))
    files = cells_of(plan)[2].named
    stale = FileRef(name, "0" * 64, files[name].path)
    found = attempt(
        plugged_task(plan, tmp_path, {**files, name: stale}),
        Trusting(tmp_path),
    )
    assert found.failure is not None
    assert (
        found.failure.message
        == f"{name} is another one here than where the sweep began"
    )


def test_a_file_that_changes_before_a_cell_reads_it_ends_the_cell(
    tmp_path: Path,
) -> None:
    profile = tmp_path / "own.yaml"
    profile.write_text(
        "application: a\noptions:\n  - {bandwidth: 400 Mbit/s, time: 6 s}\n"
    )
    profiled = FILE.replace(
        "duration: 6 s}", "duration: 6 s, profile: own.yaml}"
    ).replace(", {class: CLASS}", ", bl, dcloud")
    plan = planned("seed=1", text=profiled, path=tmp_path / "plugged.yaml")
    task = plugged_task(plan, tmp_path, cells_of(plan)[2].named)
    profile.write_text(profile.read_text().replace("6 s", "17 s"))
    found = attempt(task, Trusting(tmp_path))
    assert found.failure is not None
    assert (
        found.failure.message
        == "own.yaml is another one here than where the sweep began"
    )


def test_a_worker_looks_at_a_file_each_time_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ContentStore(tmp_path / "received")
    monkeypatch.setattr(worker_side, "_store", lambda: store)
    trace, other = tmp_path / "trace", tmp_path / "other"
    trace.write_text("as it was")
    other.write_text("as it was")
    ref = FileRef("trace", sha256_of(trace), trace)
    content = Content(ref.sha256, 9, trace)
    context = worker_side.WorkerContext(tmp_path)
    assert store.find(content) == context.path(ref) == trace
    trace.write_text("edited meanwhile")
    with pytest.raises(
        RunFailed, match=r"trace has changed since the sweep began"
    ):
        context.path(ref)
    # A file of the same content that is where it was.
    assert context.path(FileRef("other", ref.sha256, other)) == other
    assert store.find(content) is None
    store.receive(content, "driver", 0, b"as it was")
    assert context.path(ref) == tmp_path / "received" / ref.sha256


def test_a_file_that_becomes_shorter_while_it_is_sent_has_changed(
    tmp_path: Path,
) -> None:
    store = ContentStore(tmp_path / "received")
    trace = tmp_path / "trace"
    trace.write_text("as it was")
    content = Content(sha256_of(trace), 9, trace)
    trace.write_text("cut")
    (first, last) = parts(content)
    store.receive(content, "driver", *first)
    with pytest.raises(RunFailed, match="trace has changed"):
        store.receive(content, "driver", *last)


@pytest.mark.slow
def test_a_module_beside_a_policy_may_be_a_link(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a")
    (tmp_path / "lib").mkdir()
    (folder / "shares.py").rename(tmp_path / "lib" / "common.py")
    (folder / "shares.py").symlink_to(tmp_path / "lib" / "common.py")
    plan = plan_in(folder)
    assert sorted(cells_of(plan)[2].named) == ["./mine.py", "shares.py"]
    assert done(plan, tmp_path / "out").cell_counts.computed == 4


@pytest.mark.slow
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
    before, after = (
        keys(alone),
        keys(alone.replace("0.5", "0.25") + "# other\n"),
    )
    assert before[0].key == after[0].key
    assert before[2].key != after[2].key
    monkeypatch.delitem(sys.modules, "made_policies", raising=False)
    found = done(plan_in(tmp_path, "made_policies:Mine"), tmp_path / "out")
    assert found.exit_code == 0
    assert found.cell_counts.computed == 4


ENTRY = "[hosenet.policies]\nown-one = extra_own.policy:Mine\n"
CHANGED = "extra_own has changed since it was imported: start Python anew"


def forget() -> None:
    """Has packages imported anew, as another process does."""
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] == "extra_own"
    ]:
        del sys.modules[name]
    installed.cache_clear()
    invalidate_caches()


@pytest.mark.slow
def test_an_installed_packages_sources_are_in_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "extra_own"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "policy.py").write_text(
        MINE.replace("from shares", "from extra_own.shares")
    )
    (package / "shares.py").write_text("SHARE = 0.5\n")
    (tmp_path / "folder").mkdir()
    text = FILE.replace("{class: CLASS}", "own-one")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with installed_package(tmp_path / "folder", {}, ENTRY):
        before = cells_of(
            planned("seed=1..2", text=text, path=tmp_path / "a.yaml")
        )
        (tmp_path / "spec").write_text(text)
        spec = FileRef("", sha256_of(tmp_path / "spec"), tmp_path / "spec")
        own = before[2]
        task = replace(own, spec=spec)
        assert attempt(task, LocalContext(tmp_path)).failure is None
        (package / "shares.py").write_text("SHARE = 0.25\n")
        # The old one is still imported here.
        failure = attempt(task, LocalContext(tmp_path)).failure
        assert failure is not None
        assert failure.message == CHANGED
        with pytest.raises(BadInput, match=CHANGED):
            planned("seed=1..2", text=text, path=tmp_path / "a.yaml")
        forget()
        after = cells_of(
            planned("seed=1..2", text=text, path=tmp_path / "a.yaml")
        )
        assert [one.key for one in before[:2]] == [
            one.key for one in after[:2]
        ]
        assert not {one.key for one in before[2:]} & {
            one.key for one in after[2:]
        }
        # As a worker that has imported the new one.
        failure = attempt(task, LocalContext(tmp_path)).failure
        assert failure is not None
        assert (
            "is another one here than where the sweep began"
            in failure.message
        )
    forget()
