"""The papers' pages say what the values beside them say, by today's rules."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from reproductions import (
    claim_ledger,
    first_page,
    paper_pages,
    stored_results,
)
from reproductions.claim_checks import Claim
from reproductions.figure_tables import to_json
from reproductions.generated_text import by_hand, updated
from reproductions.grid_quantities import Level
from reproductions.paper_pages import generated_parts
from reproductions.published_figure import Reproduced
from reproductions.stored_results import (
    compact,
    restored,
    take_in,
    to_text,
)
from tests.support import result_prose
from tests.support.made_claims import more
from tests.support.made_figures import YIELD, figure

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "papers"
WHERE = {
    "code": {"commit": "0123456789abcdef"},
    "machine": {"cpu_model": "a", "cpus": 2, "memory_bytes": 1},
}
RIGHT = Claim("b is above a", "b > a", more(YIELD, "b", ("a",), [1.0, 2.0]))


def made() -> Reproduced:
    one = figure(RIGHT)
    results = {
        c: c.run()
        for own in one.configurations(2, quick=False).values()
        for c in own
    }
    return Reproduced.of(one, 2, results, quick=False)


IN_TABLES_AND_CODE = re.compile(
    r"^\|.*$|^```.*?^```|`[^`]*`|\[[^]]*\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)
NAMES_OF_THINGS = re.compile(
    r"Figures? \d+( and \d+)?|\b[JH]\d\b|Section [\d.]+|decision \d+"
    r"|Student's|2\.5 %|24 hours|24 machines|50 Mbit/s"
)


@pytest.mark.parametrize(
    "page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem
)
def test_prose_by_hand_has_no_number_of_a_result(page: Path) -> None:
    text = by_hand(page.read_text("utf-8"))
    prose = NAMES_OF_THINGS.sub("", IN_TABLES_AND_CODE.sub("", text))
    assert re.findall(r"^.*\d.*$", prose, re.MULTILINE) == []


@pytest.mark.parametrize(
    "page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem
)
def test_no_page_by_hand_says_by_how_much_a_policy_leads(
    page: Path,
) -> None:
    text = result_prose.by_hand(page.read_text("utf-8"))
    assert result_prose.comparisons(text) == []


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))],
    ids=lambda page: page.stem,
)
def test_results_of_papers_are_filled_in_on_other_pages(page: Path) -> None:
    text = page.read_text("utf-8")
    assert result_prose.results_by_hand(text) == []


@pytest.mark.parametrize(
    ("text", "leads"),
    [
        ("| use | all of it would put CMCBF 30 % ahead of EASY |", True),
        ("Here JSA earns twice as much.", True),
        ("CMBF has more of them, by six times.", True),
        ("VC finishes\na third more jobs.", True),
        ("EASY knows every running time exactly, and keeps up.", False),
        ('"DCloud finishes 40 % more" | percentage points', False),
        ("VC has less. Half of the servers are full.", False),
        ("`DCloud 40 % more`", False),
    ],
)
def test_a_lead_is_found_in_tables_and_in_words(
    text: str, leads: bool
) -> None:
    assert bool(result_prose.comparisons(text)) == leads


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("saves 23.4 ± 1.4 points", ["4 ± 1"]),
        ("| tree | reproduced, 0.913 |", ["| tree | reproduced, 0.913 |"]),
        ("runs beside the simulator", []),
    ],
)
def test_sections_on_results_have_neither_intervals_nor_verdicts(
    text: str, results: list[str]
) -> None:
    linked = f"# A\n\n[page](papers/dcloud.md)\n\n{text}\n\n# B\n\n0 ± 1"
    assert result_prose.results_by_hand(linked) == results
    elsewhere = linked.replace("papers/", "elsewhere/")
    assert result_prose.results_by_hand(elsewhere) == []


def test_causes_have_no_number_in_words_beside_a_policy() -> None:
    for name, stated in stored_results.sections().items():
        for claim in stated.claims:
            assert result_prose.quantities(claim.cause) == [], name


def test_causes_have_no_number_of_a_result() -> None:
    named = re.compile(r"\(decisions? [\d and]+\)|adaba-fig\d")
    for name, stated in stored_results.sections().items():
        for claim in stated.claims:
            assert not re.search(r"\d", named.sub("", claim.cause)), name


@pytest.mark.slow
def test_the_readme_counts_what_the_pages_say() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert updated(text, paper_pages.readme_part(PAGES)) == text


@pytest.mark.slow
def test_pages_are_what_their_values_say() -> None:
    for name, generated in generated_parts(PAGES).items():
        text = (PAGES / f"{name}.md").read_text("utf-8")
        assert updated(text, generated) == text, (
            "run python -m reproductions.paper_pages"
        )


def test_values_come_back_as_they_were() -> None:
    done = made()
    record = json.loads(to_text(compact(to_json(done, [], WHERE))))
    back = restored(done.figure, record)
    level = Level(YIELD, "b", 2.0)
    assert level.values(back.grid) == pytest.approx(level.values(done.grid))
    assert [judged.verdict for judged in back.judged] == ["reproduced"]


def test_a_figures_claims_are_judged_once() -> None:
    """A page asks for them some twenty times."""
    done = made()
    assert done.judged is done.judged


def test_verdicts_are_judged_when_the_page_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = made()
    out = tmp_path / "out" / "made-fig1"
    out.mkdir(parents=True)
    (out / "results.json").write_text(json.dumps(to_json(done, [], WHERE)))
    monkeypatch.setattr(paper_pages, "paper_of", lambda _: "jsa")
    monkeypatch.setattr(first_page, "paper_of", lambda _: "jsa")
    monkeypatch.setattr(
        stored_results, "FIGURES", {"made-fig1": done.figure}
    )
    assert take_in(tmp_path / "out", tmp_path) == ["made-fig1"]
    assert "| b is above a | b > a |" in generated_parts(tmp_path)["jsa"]
    assert "| **not reproduced** |" not in generated_parts(tmp_path)["jsa"]
    wrong = figure(
        Claim("a is above b", "a > b", more(YIELD, "a", ("b",), [1.0]))
    )
    monkeypatch.setattr(stored_results, "FIGURES", {"made-fig1": wrong})
    assert "| **not reproduced** |" in generated_parts(tmp_path)["jsa"]


@pytest.mark.slow
def test_pictures_are_drawn_from_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = made()
    out = tmp_path / "out" / "made-fig1"
    out.mkdir(parents=True)
    (out / "results.json").write_text(json.dumps(to_json(done, [], WHERE)))
    monkeypatch.setattr(first_page, "paper_of", lambda _: "jsa")
    monkeypatch.setattr(
        stored_results, "FIGURES", {"made-fig1": done.figure}
    )
    take_in(tmp_path / "out", tmp_path)
    paper_pages.draw_pictures(tmp_path)
    drawn = tmp_path / "data" / "made-fig1.svg"
    first = drawn.read_text()
    assert done.figure.title in first
    assert not re.search(r"[ \t]$", first, re.MULTILINE)
    paper_pages.draw_pictures(tmp_path)
    assert drawn.read_text() == first


def test_causes_tell_figures_without_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Claim(
        "a is above b",
        "a > b",
        more(YIELD, "a", ("b",), [1.0]),
        cause="made-fig2 looks for it",
    )
    done = replace(made(), figure=figure(wrong))
    other = figure(RIGHT, name="made-fig2")
    monkeypatch.setattr(paper_pages, "paper_of", lambda _: "jsa")
    monkeypatch.setattr(first_page, "paper_of", lambda _: "jsa")
    monkeypatch.setattr(
        stored_results,
        "FIGURES",
        {"made-fig1": done.figure, "made-fig2": other},
    )
    monkeypatch.setattr(stored_results, "LIVE_FIGURES", {})
    data = tmp_path / "data"
    data.mkdir()
    record = to_text(compact(to_json(done, [], WHERE)))
    (data / "made-fig1.json").write_text(record, "utf-8")
    parts = generated_parts(tmp_path)
    assert "looks for it **(made-fig2 is not taken yet)**" in parts["jsa"]
    assert "| made-fig2 |" in parts["README"]
    assert "`testbed reproduce made-fig2 --seeds" in parts["README"]
    (data / "made-fig2.json").write_text(record, "utf-8")
    parts = generated_parts(tmp_path)
    assert "is not taken yet" not in parts["jsa"]
    assert "never taken" not in parts["README"]
    old = {"made-fig2": {"old": "its commit is not in the repository"}}
    (data / "verdicts.json").write_text(json.dumps(old), "utf-8")
    assert "(made-fig2 is old)" in generated_parts(tmp_path)["jsa"]


def test_the_page_says_what_each_quantity_of_a_rule_is() -> None:
    text = (PAGES / "README.md").read_text("utf-8")
    start = text.index("| `quantity` |")
    rows = text[start : text.index("\n\n", start)].splitlines()[2:]
    explained: list[str] = []
    for row in rows:
        names = row.split("|")[1]
        explained += re.findall(r"`([a-z-]+)`", names)
    pairs = claim_ledger.PAIRS
    known = [
        "level",
        *pairs,
        *claim_ledger.BETWEEN,
        *claim_ledger.FROM_TO,
        *claim_ledger.ALONG,
        *claim_ledger.BY_STEP,
        *claim_ledger.OF_SEVERAL,
    ]
    assert sorted(explained) == sorted(known)


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        updated("nothing here", "results")
