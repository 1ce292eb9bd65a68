"""Sweeps go on where they stopped, and compute a changed run anew."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reproductions import configuration, result_cache
from reproductions.result_cache import (
    ConfigurationTask,
    compute,
    key,
    sources_digest,
    stored,
)
from testbed.spec.document import find_file
from testbed.sweeps.cluster import executor
from testbed.sweeps.computing_sources import computing_modules, source
from testbed.sweeps.result_store import ResultStore, SweepProgress
from testbed.sweeps.tasks import InProcess, LocalContext
from tests.support.made_figures import Sum


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    Sum.computed.clear()
    monkeypatch.setattr(
        result_cache, "sources_digest", lambda _: "these sources"
    )


def silent(_: SweepProgress) -> None:
    pass


CONFIGURATIONS = [Sum(1.0, 2.0), Sum(3.0, 4.0), Sum(1.0, 2.0)]


def test_a_second_sweep_computes_nothing(tmp_path: Path) -> None:
    seen: list[SweepProgress] = []
    first = compute(
        CONFIGURATIONS, ResultStore(tmp_path), InProcess(), seen.append
    )
    assert first[CONFIGURATIONS[1]]["yield"] == pytest.approx(3.04)
    assert len(Sum.computed) == 2
    assert [(p.done, p.of, p.kept) for p in seen] == [
        (0, 2, 0),
        (1, 2, 0),
        (2, 2, 0),
    ]
    assert seen[-1].cost == seen[-1].of_cost == 4.0
    Sum.computed.clear()
    assert (
        compute(CONFIGURATIONS, ResultStore(tmp_path), InProcess(), silent)
        == first
    )
    assert Sum.computed == []


def test_a_changed_configuration_and_a_changed_program_compute_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute(CONFIGURATIONS, ResultStore(tmp_path), InProcess(), silent)
    Sum.computed.clear()
    compute(
        [*CONFIGURATIONS, Sum(1.0, 2.5)],
        ResultStore(tmp_path),
        InProcess(),
        silent,
    )
    assert Sum.computed == [Sum(1.0, 2.5)]
    monkeypatch.setattr(
        result_cache, "sources_digest", lambda _: "other sources"
    )
    Sum.computed.clear()
    compute(CONFIGURATIONS, ResultStore(tmp_path), InProcess(), silent)
    assert len(Sum.computed) == 2


def test_a_stopped_sweep_keeps_whole_results(tmp_path: Path) -> None:
    # The costliest goes first: 700, then the one that stops everything, then 1.
    runs = [Sum(1.0, 0.0), Sum(666, 0.0), Sum(700.0, 0.0)]
    with pytest.raises(KeyboardInterrupt):
        compute(runs, ResultStore(tmp_path), InProcess(), silent)
    assert Sum.computed == [Sum(700.0, 0.0)]
    (kept,) = tmp_path.glob("*/*.jsonl")
    result = json.loads(kept.read_text().splitlines()[0])["result"]
    assert result["measures"]["yield"] == 700.0
    Sum.computed.clear()
    compute([runs[0], runs[2]], ResultStore(tmp_path), InProcess(), silent)
    assert Sum.computed == [runs[0]]


def damaged(damage: str) -> str:
    return damage if damage.endswith("\n") else f"{damage}\n{{}}\n"


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"configuration": {}}',
        '{"measures": {"yield": 1}}',
        "{}\n",
    ],
)
def test_a_damaged_result_is_computed_again(
    tmp_path: Path, damage: str
) -> None:
    store, one = ResultStore(tmp_path), CONFIGURATIONS[0]
    good = compute([one], store, InProcess(), silent)[one]
    assert stored(one, store) == good
    (tmp_path / store.name(key(one))).write_text(damaged(damage))
    assert stored(one, store) is None


@pytest.mark.parametrize(
    "result", [{}, {"configuration": {}}, {"measures": {"yield": 1.0}}]
)
def test_another_configurations_result_is_none(
    tmp_path: Path, result: dict[str, object]
) -> None:
    store, one = ResultStore(tmp_path), CONFIGURATIONS[0]
    store.put(key(one), result, {})
    assert store.get(key(one)) == result
    assert stored(one, store) is None


def test_results_have_the_modes_of_run_folders(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "out" / "computed")
    store.put("ab" * 32, {"yield": 9.0}, {})
    file = tmp_path / "out" / "computed" / store.name("ab" * 32)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755


def test_a_traces_content_goes_with_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log.swf").write_text("; a log\n")
    task = ConfigurationTask.of(Reader("log.swf"))
    assert list(task.files) == ["log.swf"]
    # Where it runs the file has another name.
    (tmp_path / "data" / "log.swf").rename(tmp_path / "by-digest")
    moved = {
        n: replace(ref, path=tmp_path / "by-digest")
        for n, ref in task.files.items()
    }
    outcome = replace(task, files=moved).run(LocalContext(tmp_path))
    assert outcome["result"]["measures"] == {"length": 8.0}
    assert os.environ["TESTBED_DATA"] == str(tmp_path / "data")


@dataclass(frozen=True)
class Reader:
    """A configuration that measures a trace's length."""

    name: str

    @property
    def traces(self) -> tuple[str, ...]:
        return (self.name,)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}

    def cost(self) -> float:
        return 1.0

    def run(self) -> dict[str, float]:
        found = find_file(self.name, Path("/nowhere"))
        assert found is not None
        return {"length": float(len(found.read_text()))}


@pytest.mark.long
@pytest.mark.slow
def test_two_processors_find_what_one_finds(tmp_path: Path) -> None:
    from reproductions.dcloud.dcloud_pricing import Bargain

    runs = [Bargain("the truth", 2.0), Bargain("20 % longer", 2.0)]
    with executor(None, 2, print) as two:
        both = compute(runs, ResultStore(tmp_path / "two"), two, silent)
    assert both == compute(
        runs, ResultStore(tmp_path / "one"), InProcess(), silent
    )


def test_the_sources_behind_a_run() -> None:
    behind = {name for name, _ in computing_modules()}
    for module in (
        "testbed.record.metrics",
        "testbed.engine.engine",
        "testbed.schedulers.dcloud",
        "jobs.workload.tenants",
        "topologies.tree",
    ):
        assert module in behind, module
    # What shows results does not compute them.
    assert not any(
        m.startswith(("testbed.cli", "testbed.report")) for m in behind
    )
    assert not any(m.startswith("reproductions") for m in behind)
    assert "reproductions.occupancy" in result_cache.SHARED
    pricing, optimum = (
        "reproductions.dcloud.dcloud_pricing",
        "reproductions.jsa.jsa_optimality",
    )
    assert sources_digest(pricing) != sources_digest(optimum)


def test_other_parameters_of_a_policy_are_another_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Its cases take them from the interpretation, which no file states.
    monkeypatch.undo()
    name = "reproductions.jsa.jsa_optimality"
    before = sources_digest(name)
    other = tmp_path / "interpretations.py"
    other.write_text("BASELINE = {'queue': 'block'}\n", "utf-8")

    def changed(module: str) -> Path:
        if module == "reproductions.interpretations":
            return other
        return source(module)

    monkeypatch.setattr(result_cache, "source", changed)
    sources_digest.cache_clear()
    assert sources_digest(name) != before
    sources_digest.cache_clear()


def test_a_tenants_strategy_at_another_data_centre_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from reproductions.dcloud.dcloud_pricing import Bargain

    file = Path("dcloud/dcloud-pricing.yaml")
    text = (configuration.FOLDER / file).read_text("utf-8")
    (tmp_path / "dcloud").mkdir()
    (tmp_path / file).write_text(text, "utf-8")
    monkeypatch.setattr(configuration, "FOLDER", tmp_path)
    truth = Bargain("the truth", 2.0)
    before = key(truth)
    larger = text.replace("fanout: [10, 10, 10]", "fanout: [10, 10, 20]")
    (tmp_path / file).write_text(larger, "utf-8")
    assert key(truth) != before


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
    before = key(one)
    (tmp_path / "a.yaml").write_text("name: b\n")
    assert key(one) != before
