"""``docs/reproduction.md`` says what the values beside it say, by today's rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reproductions import published, registry
from reproductions.claims import Claim, more
from reproductions.figure import Reproduced
from reproductions.published import PAGE, compact, restored, results_text, take_in, updated
from reproductions.quantities import Level
from reproductions.record import to_json
from tests.unit.reproductions.made import YIELD, figure

WHERE = {
    "code": {"commit": "0123456789abcdef"},
    "machine": {"cpu_model": "a", "cpus": 2, "memory_bytes": 1},
}
RIGHT = Claim("b is above a", "b > a", more(YIELD, "b", ("a",), [1.0, 2.0]))


def made() -> Reproduced:
    one = figure(RIGHT)
    results = {c: c.run() for own in one.cells(2, quick=False).values() for c in own}
    return Reproduced.of(one, 2, results, quick=False)


def test_the_page_is_what_its_values_say() -> None:
    text = PAGE.read_text("utf-8")
    assert updated(text, results_text()) == text, "run python -m reproductions.published"


def test_values_come_back_as_they_were() -> None:
    done = made()
    record = json.loads(compact(to_json(done, [], WHERE)))
    back = restored(done.figure, record)
    level = Level(YIELD, "b", 2.0)
    assert level.values(back.grid) == pytest.approx(level.values(done.grid))
    assert [judged.verdict for judged in back.judged] == ["came out"]


def test_verdicts_are_judged_when_the_page_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = made()
    out = tmp_path / "out" / "made-fig1"
    out.mkdir(parents=True)
    (out / "results.json").write_text(json.dumps(to_json(done, [], WHERE)))
    (out / "figure.svg").write_text("<svg> \n</svg>")
    page = tmp_path / "page.md"
    for module in (registry, published):
        monkeypatch.setattr(module, "FIGURES", {"made-fig1": done.figure})
    assert take_in(tmp_path / "out", page) == ["made-fig1"]
    assert "| b is above a | b > a |" in results_text(page)
    assert "**no**" not in results_text(page)
    wrong = figure(Claim("a is above b", "a > b", more(YIELD, "a", ("b",), [1.0])))
    monkeypatch.setattr(published, "FIGURES", {"made-fig1": wrong})
    assert "**no**" in results_text(page)


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        updated("nothing here", "results")
