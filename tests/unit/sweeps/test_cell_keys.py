"""A cell's key: each thing that a cell depends on changes it, and nothing else does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from testbed.spec.sweep_section import read_option
from testbed.sweeps import cells
from testbed.sweeps.cell_runs import Cell
from testbed.sweeps.cells import Cells, with_value
from testbed.sweeps.computing_sources import DECIDING, versions
from testbed.sweeps.sweep_plan import PlanOptions, plan_sweep
from testbed.sweeps.worker_check import own_versions

FILE = """\
name: made
seed: 7
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [{name: dcloud, gamma: 12 %, on_failure: wait}]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 3, bandwidth: 400 Mbit/s, duration: 6 s}
"""
SWEEP = """\
sweep:
  over: {"workload.jobs[0].vms": [2, 3], seed: 1..3}
"""
PROFILED = FILE.replace(
    "duration: 6 s}", "duration: 6 s, profile: own.yaml}"
)


def of(
    text: str, path: Path = Path("made.yaml"), **asked: Any
) -> list[Cell]:
    cells = Cells(plan_sweep(path, text, PlanOptions(**asked)))
    return [cell for one in cells.combinations() for cell in cells.of(one)]


def keys(
    text: str, path: Path = Path("made.yaml"), **asked: Any
) -> Mapping[Any, str]:
    return {cell.values: cell.key for cell in of(text, path, **asked)}


def over(*options: str) -> tuple[Any, ...]:
    return tuple(map(read_option, options))


def test_every_cell_has_a_key_of_its_own() -> None:
    found = keys(FILE + SWEEP)
    assert list(found) == [
        (vms, seed) for vms in (2, 3) for seed in (1, 2, 3)
    ]
    assert len(set(found.values())) == 6
    assert found == keys(FILE + SWEEP)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: made", "name: other"),
        ("fanout: [2, 2]", "fanout: [2, 3]"),
        ("gamma: 12 %, on_failure: wait", "gamma: 13 %, on_failure: wait"),
        # The parameters' order is that of the policy's label, which is in the events.
        ("gamma: 12 %, on_failure: wait", "on_failure: wait, gamma: 12 %"),
        ("duration: 6 s", "duration: 7 s"),
        ("seed: 7\n", "seed: 7\nexpect: {estimate_ratio: {max: 2}}\n"),
    ],
)
def test_the_file_is_in_the_key(old: str, new: str) -> None:
    assert old in FILE
    before, after = keys(FILE + SWEEP), keys(FILE.replace(old, new) + SWEEP)
    assert not set(before.values()) & set(after.values())


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n" + FILE + SWEEP,
        FILE.replace(
            "kind: tree, fanout: [2, 2]", "fanout: [2, 2], kind: tree"
        )
        + SWEEP,
        # What a key has in the file where the sweep replaces it.
        FILE.replace("seed: 7", "seed: 8").replace("vms: 3", "vms: 4")
        + SWEEP,
        FILE.replace("seed: 7\n", "") + SWEEP,
        SWEEP + FILE,
        FILE + SWEEP.replace("1..3}", "[1, 2, 3]}\n  metrics: [revenue]"),
        FILE + SWEEP + "  stop: {interval: 2 %}\n",
    ],
)
def test_nothing_else_is_in_it(text: str) -> None:
    assert keys(text) == keys(FILE + SWEEP)


def test_a_wider_sweep_keeps_the_keys() -> None:
    narrow = keys(FILE + SWEEP)
    wide = keys(
        FILE
        + SWEEP.replace("[2, 3]", "[1, 2, 3, 4]").replace("1..3", "1..9")
    )
    assert {values: wide[values] for values in narrow} == narrow
    # A key that the file had a value for all the time.
    more = keys(FILE + SWEEP, over=over("topology.slots_per_server=1,2"))
    assert {
        values: more[(values[0], 2, values[1])] for values in narrow
    } == narrow


def test_a_name_is_in_the_key_wherever_it_comes_from() -> None:
    unnamed = FILE.replace("name: made\n", "") + SWEEP
    made, other = (
        keys(unnamed, Path("made.yaml")),
        keys(unnamed, Path("other.yaml")),
    )
    assert not set(made.values()) & set(other.values())
    assert keys(FILE + SWEEP, Path("other.yaml")) == keys(
        FILE + SWEEP, Path("made.yaml")
    )
    swept = keys(FILE + SWEEP, over=over("name=first,made"))
    assert {
        values: swept[(values[0], "made", values[1])]
        for values in keys(FILE + SWEEP)
    } == keys(FILE + SWEEP)


def test_the_command_line_gives_the_same_cells() -> None:
    options = over("workload.jobs[0].vms=2,3", "seed=1..3")
    assert keys(FILE, over=options) == keys(FILE + SWEEP)


def test_a_policy_alone_is_the_policy_swept() -> None:
    swept = of(
        FILE,
        over=over(
            "policies=vc,{name: dcloud, gamma: 12 %, on_failure: wait}",
            "seed=1",
        ),
    )
    alone = of(FILE, over=over("seed=1"))
    assert alone[0].key == swept[1].key != swept[0].key
    several = FILE.replace("policies: [", "policies: [vc, ")
    assert [one.key for one in of(several, over=over("seed=1"))] == [
        one.key for one in swept
    ]


def test_the_backend_the_code_and_the_versions_are_in_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = keys(FILE + SWEEP)
    assert not set(before.values()) & set(
        keys(FILE + SWEEP, live=True).values()
    )
    with monkeypatch.context() as changed:
        changed.setattr(cells, "code_digest", lambda **_: "other sources")
        assert not set(before.values()) & set(keys(FILE + SWEEP).values())
    assert keys(FILE + SWEEP) == before
    versions.cache_clear()
    try:
        with monkeypatch.context() as changed:
            changed.setattr(
                metadata,
                "version",
                lambda name: "2.0" if name == "numba" else "1.0",
            )
            after = keys(FILE + SWEEP)
    finally:
        # Of no other test.
        versions.cache_clear()
    assert not set(before.values()) & set(after.values())


def test_the_versions_in_the_key_are_those_that_workers_agree_on() -> None:
    python, *packages = versions().split()
    own = {"Python": python, **dict(zip(DECIDING, packages, strict=True))}
    assert own.items() <= own_versions().items()


def profile(folder: Path, text: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    content = (
        "application: a\noptions:\n  - {bandwidth: 400 Mbit/s, time: 6 s}\n"
    )
    (folder / "own.yaml").write_text((text or content), encoding="utf-8")
    (folder / "made.yaml").write_text(PROFILED, encoding="utf-8")
    return folder / "made.yaml"


def test_the_content_of_files_is_in_the_key_and_not_their_place(
    tmp_path: Path,
) -> None:
    here, there = profile(tmp_path / "a"), profile(tmp_path / "b")
    before = keys(PROFILED, here, over=over("seed=1..2"))
    assert before == keys(PROFILED, there, over=over("seed=1..2"))
    (cell, *_) = of(PROFILED, here, over=over("seed=1..2"))
    assert [ref.path for ref in cell.named.values()] == [
        here.parent / "own.yaml"
    ]
    profile(
        there.parent,
        "application: a\noptions:\n  - {bandwidth: 400 Mbit/s, time: 7 s}\n",
    )
    after = keys(PROFILED, there, over=over("seed=1..2"))
    assert not set(before.values()) & set(after.values())


def test_a_cell_has_the_files_of_its_own_values(tmp_path: Path) -> None:
    path = profile(tmp_path)
    (tmp_path / "next.yaml").write_text((tmp_path / "own.yaml").read_text())
    found = of(
        PROFILED,
        path,
        over=over("workload.jobs[0].profile=own.yaml,next.yaml", "seed=1"),
    )
    assert [list(cell.named) for cell in found] == [
        ["own.yaml"],
        ["next.yaml"],
    ]
    assert found[0].key != found[1].key


@pytest.mark.slow
def test_a_key_costs_microseconds() -> None:
    found = Cells(
        plan_sweep(
            Path("made.yaml"), FILE, PlanOptions(over("seed=1..5000"))
        )
    )
    began_s = time.process_time()
    made = sum(1 for one in found.combinations() for _ in found.of(one))
    each_s = (time.process_time() - began_s) / made
    # A loaded experiment costs milliseconds; any machine that runs these tests is within this.
    assert made == 5000
    assert each_s < 1e-3


def test_values_are_put_into_copies() -> None:
    data = {"a": [{"b": 1}, 2], "c": 3}
    assert with_value(data, ("a", 0, "b"), 9) == {
        "a": [{"b": 9}, 2],
        "c": 3,
    }
    assert with_value(data, ("d", "e"), 5) == {**data, "d": {"e": 5}}
    assert data == {"a": [{"b": 1}, 2], "c": 3}
