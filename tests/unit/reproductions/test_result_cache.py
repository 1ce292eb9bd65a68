"""Sweeps go on where they stopped, and compute a changed run anew."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from reproductions import configuration, result_cache
from reproductions.result_cache import (
    Progress,
    ResultCache,
    compute,
    computing_modules,
    sources_digest,
)
from tests.support.made_figures import Sum


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    Sum.computed.clear()
    monkeypatch.setattr(result_cache, "sources_digest", lambda _: "these sources")


def silent(_: Progress) -> None:
    pass


CONFIGURATIONS = [Sum(1.0, 2.0), Sum(3.0, 4.0), Sum(1.0, 2.0)]


def test_a_second_sweep_computes_nothing(tmp_path: Path) -> None:
    seen: list[Progress] = []
    first = compute(CONFIGURATIONS, ResultCache(tmp_path), 1, seen.append)
    assert first[CONFIGURATIONS[1]]["yield"] == pytest.approx(3.04)
    assert len(Sum.computed) == 2
    assert [(p.done, p.of, p.kept) for p in seen] == [(0, 2, 0), (1, 2, 0), (2, 2, 0)]
    assert seen[-1].cost == seen[-1].of_cost == 4.0
    Sum.computed.clear()
    assert compute(CONFIGURATIONS, ResultCache(tmp_path), 1, silent) == first
    assert Sum.computed == []


def test_a_changed_configuration_and_a_changed_program_compute_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute(CONFIGURATIONS, ResultCache(tmp_path), 1, silent)
    Sum.computed.clear()
    compute([*CONFIGURATIONS, Sum(1.0, 2.5)], ResultCache(tmp_path), 1, silent)
    assert Sum.computed == [Sum(1.0, 2.5)]
    monkeypatch.setattr(result_cache, "sources_digest", lambda _: "other sources")
    Sum.computed.clear()
    compute(CONFIGURATIONS, ResultCache(tmp_path), 1, silent)
    assert len(Sum.computed) == 2


def test_a_stopped_sweep_keeps_whole_results(tmp_path: Path) -> None:
    # The costliest goes first: 700, then the one that stops everything, then 1.
    runs = [Sum(1.0, 0.0), Sum(666, 0.0), Sum(700.0, 0.0)]
    with pytest.raises(KeyboardInterrupt):
        compute(runs, ResultCache(tmp_path), 1, silent)
    assert Sum.computed == [Sum(700.0, 0.0)]
    kept = list(tmp_path.iterdir())
    assert len(kept) == 1
    assert json.loads(kept[0].read_text())["measures"]["yield"] == 700.0
    Sum.computed.clear()
    compute([runs[0], runs[2]], ResultCache(tmp_path), 1, silent)
    assert Sum.computed == [runs[0]]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"configuration": {}}', '{"measures": {"yield": 1}}']
)
def test_a_damaged_result_is_computed_again(tmp_path: Path, damage: str) -> None:
    store = ResultCache(tmp_path)
    store.put(CONFIGURATIONS[0], {"yield": 9.0})
    assert store.get(CONFIGURATIONS[0]) == {"yield": 9.0}
    (tmp_path / store.name(CONFIGURATIONS[0])).write_text(damage)
    assert store.get(CONFIGURATIONS[0]) is None


def test_results_have_the_modes_of_run_folders(tmp_path: Path) -> None:
    store = ResultCache(tmp_path / "out" / "computed")
    store.put(CONFIGURATIONS[0], {"yield": 9.0})
    file = tmp_path / "out" / "computed" / store.name(CONFIGURATIONS[0])
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755


@pytest.mark.slow
def test_two_processors_find_what_one_finds(tmp_path: Path) -> None:
    from reproductions.dcloud.dcloud_pricing import Bargain

    runs = [Bargain("the truth", 2.0), Bargain("20 % longer", 2.0)]
    both = compute(runs, ResultCache(tmp_path / "two"), 2, silent)
    assert both == compute(runs, ResultCache(tmp_path / "one"), 1, silent)


def test_the_sources_behind_a_run() -> None:
    behind = {name for name, _ in computing_modules()}
    for module in (
        "testbed.results.metrics",
        "testbed.engine.engine",
        "testbed.schedulers.dcloud",
        "jobs.workload.tenants",
        "topologies.tree",
    ):
        assert module in behind, module
    # What shows results does not compute them.
    assert not any(m.startswith(("testbed.cli", "testbed.report")) for m in behind)
    assert not any(m.startswith("reproductions") for m in behind)
    assert "reproductions.occupancy" in result_cache.SHARED
    pricing, optimum = "reproductions.dcloud.dcloud_pricing", "reproductions.jsa.jsa_optimality"
    assert sources_digest(pricing) != sources_digest(optimum)


def test_another_experiment_file_is_another_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("name: a\n")
    monkeypatch.setattr(configuration, "FOLDER", tmp_path)
    one = configuration.RunConfiguration(
        configuration.Variant("a.yaml", "vc"),
        1,
        configuration.Extractor(len),  # type: ignore[arg-type]
    )
    before = ResultCache(tmp_path).name(one)
    (tmp_path / "a.yaml").write_text("name: b\n")
    assert ResultCache(tmp_path).name(one) != before
