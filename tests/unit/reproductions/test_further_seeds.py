"""Seeds that are taken later join a stored result, or are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reproductions import paper_pages, stored_results
from reproductions.claim_checks import Claim
from reproductions.figure_runs import doubled
from reproductions.figure_tables import to_json
from reproductions.further_seeds import joined
from reproductions.grid_quantities import Level
from reproductions.published_figure import Figure, Reproduced
from reproductions.stored_results import compact, restored, take_in
from testbed.errors import BadInput
from tests.support.made_claims import more
from tests.support.made_figures import YIELD, figure

RIGHT = Claim("b is above a", "b > a", more(YIELD, "b", ("a",), [1.0, 2.0]))
MACHINE = {"cpu_model": "a", "cpus": 2, "memory_bytes": 2**30}
ANOTHER = {"cpu_model": "b", "cpus": 2, "memory_bytes": 2**30}
CODE = {"commit": "0123456789abcdef", "dirty": False}


def taken(
    first_seed: int,
    seeds: int,
    *,
    machine: dict[str, Any] = MACHINE,
    stages: tuple[int, ...] = (),
) -> dict[str, Any]:
    """The content of ``results.json`` of so many seeds from the first on."""
    done = reproduced(replace(figure(RIGHT), first_seed=first_seed), seeds)
    where = {"code": CODE, "machine": machine}
    return to_json(replace(done, stages=stages), [], where)


def reproduced(made: Figure, seeds: int) -> Reproduced:
    results = {}
    for runs in made.configurations(seeds, quick=False).values():
        for run in runs:
            results[run] = run.run()
    return Reproduced.of(made, seeds, results, quick=False)


def test_seeds_that_join_are_as_if_taken_at_once() -> None:
    both = joined(compact(taken(1, 3)), compact(taken(4, 2)))
    at_once = compact(taken(1, 5))
    for name in at_once.keys() - {"stages"}:
        assert both[name] == at_once[name], name
    level = Level(YIELD, "b", 2.0)
    whole = reproduced(figure(RIGHT), 5)
    back = restored(figure(RIGHT), both)
    assert level.values(back.grid) == pytest.approx(
        level.values(whole.grid)
    )


@pytest.mark.parametrize(
    ("planned", "stages"),
    [
        ((), [3, 5]),
        ((3,), [3, 5]),
        ((3, 6, 12), [3, 5, 6, 12]),
        ((3, 5), [3, 5]),
    ],
)
def test_every_number_of_seeds_that_was_judged_is_a_look(
    planned: tuple[int, ...], stages: list[int]
) -> None:
    stored = compact(taken(1, 3, stages=planned))
    assert joined(stored, compact(taken(4, 2)))["stages"] == stages


def test_more_than_once() -> None:
    both = joined(compact(taken(1, 2)), compact(taken(3, 2)))
    whole = joined(both, compact(taken(5, 1, machine=ANOTHER)))
    assert whole["seeds"] == 5
    assert whole["stages"] == [2, 4, 5]
    assert [part["first_seed"] for part in whole["parts"]] == [1, 3, 5]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"first_seed": 5}, "begin with 5, and 4 follows"),
        ({"first_seed": 3}, "begin with 3, and 4 follows"),
        ({"code": {"commit": "another", "dirty": False}}, "another code"),
        ({"played": "something else"}, "another played"),
        ({"ledger": {"digest": "b", "commit": "c"}}, "another ledger"),
        ({"size": "quick"}, "another size"),
        ({"name": "made-fig2"}, "another name"),
    ],
)
def test_seeds_of_something_else_are_refused(
    changes: dict[str, Any], reason: str
) -> None:
    further = {**compact(taken(4, 2)), **changes}
    with pytest.raises(BadInput, match=reason):
        joined(compact(taken(1, 3)), further)


def test_programs_that_were_changed_are_not_known_to_be_the_same() -> None:
    changed = {"code": {"commit": "0123456789abcdef", "dirty": True}}
    with pytest.raises(BadInput, match="nobody can tell"):
        joined(
            {**compact(taken(1, 3)), **changed},
            {**compact(taken(4, 2)), **changed},
        )


def test_live_runs_are_listed_together() -> None:
    first = {**compact(taken(1, 1)), "runs": [{"seed": 5}]}
    second = {**compact(taken(2, 1)), "runs": [{"seed": 6}]}
    assert joined(first, second)["runs"] == [{"seed": 5}, {"seed": 6}]


def test_pages_name_each_machine_with_its_seeds() -> None:
    first = compact(taken(1, 3))
    assert paper_pages._machines(first) == "2 × a, 1.0 GiB"
    alike = joined(first, compact(taken(4, 2)))
    assert paper_pages._machines(alike) == "2 × a, 1.0 GiB"
    two = joined(alike, compact(taken(6, 1, machine=ANOTHER)))
    assert paper_pages._machines(two) == (
        "2 × a, 1.0 GiB (seeds 1 to 3, seeds 4 to 5); 2 × b, 1.0 GiB (seed 6)"
    )
    # Live results count repetitions, and their runs have the files' seeds.
    runs = [{"seed": 11}, {"seed": 12}, {"seed": 16}]
    assert "(seed 16)" in paper_pages._machines({**two, "runs": runs})


def test_a_folder_of_further_seeds_is_taken_in_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        stored_results, "FIGURES", {"made-fig1": figure(RIGHT)}
    )
    monkeypatch.setattr(stored_results, "LIVE_FIGURES", {})
    out = tmp_path / "out"
    path = out / "made-fig1" / "results.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(taken(4, 2)), "utf-8")
    with pytest.raises(BadInput, match="no stored result"):
        take_in(out, tmp_path)
    path.write_text(json.dumps(taken(1, 3)), "utf-8")
    take_in(out, tmp_path)
    path.write_text(json.dumps(taken(4, 2)), "utf-8")
    assert take_in(out, tmp_path) == ["made-fig1"]
    stored = json.loads((tmp_path / "data" / "made-fig1.json").read_text())
    assert stored["seeds"] == 5
    with pytest.raises(BadInput, match="6 follows"):
        take_in(out, tmp_path)


def test_numbers_of_seeds_are_doubled_up_to_a_limit() -> None:
    assert doubled(5, 20) == (5, 10, 20)
    assert doubled(5, 19) == (5, 10)
    assert doubled(5, 0) == (5,)
