"""Sweeps go on where they stopped, and compute a changed cell anew."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from reproductions import store as stores
from reproductions.sources import digest_behind, modules_behind
from reproductions.store import Store
from reproductions.sweep import Progress, sweep
from tests.unit.reproductions.made import Sum


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    Sum.computed.clear()
    monkeypatch.setattr(stores, "digest_behind", lambda _: "these sources")


def silent(_: Progress) -> None:
    pass


CELLS = [Sum(1.0, 2.0), Sum(3.0, 4.0), Sum(1.0, 2.0)]


def test_a_second_sweep_computes_nothing(tmp_path: Path) -> None:
    seen: list[Progress] = []
    first = sweep(CELLS, Store(tmp_path), 1, seen.append)
    assert first[CELLS[1]]["yield"] == pytest.approx(3.04)
    assert len(Sum.computed) == 2
    assert [(p.done, p.of, p.kept) for p in seen] == [(0, 2, 0), (1, 2, 0), (2, 2, 0)]
    assert seen[-1].cost == seen[-1].of_cost == 4.0
    Sum.computed.clear()
    assert sweep(CELLS, Store(tmp_path), 1, silent) == first
    assert Sum.computed == []


def test_a_changed_cell_and_a_changed_program_compute_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(CELLS, Store(tmp_path), 1, silent)
    Sum.computed.clear()
    sweep([*CELLS, Sum(1.0, 2.5)], Store(tmp_path), 1, silent)
    assert Sum.computed == [Sum(1.0, 2.5)]
    monkeypatch.setattr(stores, "digest_behind", lambda _: "other sources")
    Sum.computed.clear()
    sweep(CELLS, Store(tmp_path), 1, silent)
    assert len(Sum.computed) == 2


def test_a_stopped_sweep_keeps_whole_results(tmp_path: Path) -> None:
    # The costliest goes first: 700, then the one that stops everything, then 1.
    cells = [Sum(1.0, 0.0), Sum(666, 0.0), Sum(700.0, 0.0)]
    with pytest.raises(KeyboardInterrupt):
        sweep(cells, Store(tmp_path), 1, silent)
    assert Sum.computed == [Sum(700.0, 0.0)]
    kept = list(tmp_path.iterdir())
    assert len(kept) == 1
    assert json.loads(kept[0].read_text())["measures"]["yield"] == 700.0
    Sum.computed.clear()
    sweep([cells[0], cells[2]], Store(tmp_path), 1, silent)
    assert Sum.computed == [cells[0]]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"cell": {}}', '{"measures": {"yield": 1}}'])
def test_a_damaged_result_is_computed_again(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    store.put(CELLS[0], {"yield": 9.0})
    assert store.get(CELLS[0]) == {"yield": 9.0}
    (tmp_path / store.name(CELLS[0])).write_text(damage)
    assert store.get(CELLS[0]) is None


def test_results_have_the_modes_of_run_folders(tmp_path: Path) -> None:
    store = Store(tmp_path / "out" / "cells")
    store.put(CELLS[0], {"yield": 9.0})
    file = tmp_path / "out" / "cells" / store.name(CELLS[0])
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755


def test_two_processors_find_what_one_finds(tmp_path: Path) -> None:
    from reproductions.dcloud.charging import ChargingCell

    cells = [ChargingCell("the truth", 2.0), ChargingCell("20 % longer", 2.0)]
    both = sweep(cells, Store(tmp_path / "two"), 2, silent)
    assert both == sweep(cells, Store(tmp_path / "one"), 1, silent)


def test_the_sources_behind_a_cell() -> None:
    behind = modules_behind("reproductions.dcloud.cell")
    for module in (
        "reproductions.dcloud.meter",
        "testbed.engine.engine",
        "testbed.schedulers.dru_loop",
        "testbed.reservation.fill_loop",
        "jobs.workload.distributions",
        "topologies.tree",
    ):
        assert module in behind, module
    # What shows results does not compute them.
    assert not any(m.startswith(("testbed.cli", "testbed.report")) for m in behind)
    assert "reproductions.claims" not in behind
    assert digest_behind("topologies.tree") != digest_behind("jobs.workload.distributions")
