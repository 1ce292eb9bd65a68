"""The ledger of claims: its files, and the verdicts that were made by them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from reproductions.catalogue import PAPERS as PAPER_NAMES
from reproductions.catalogue import paper_of
from reproductions.claim_ledger import (
    LEDGER,
    LedgerError,
    named,
    read,
    rules_in,
)
from reproductions.figure_tables import DRAWN
from reproductions.grid_quantities import Grid, Measure
from reproductions.live_figure import LiveFigure
from reproductions.stored_results import (
    read_verdicts,
    rules_first,
    sections,
    standing,
    stored,
    verdicts_of,
)
from testbed.record.provenance import unsound_commit
from tests.support.history import require_history
from tests.support.made_figures import YIELD

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "papers"
HEAD = "figure: made\nwhere: nowhere\nseeds: 3\nclaims:\n"
RULED = "- claim: made\n  published: made\n  status: {status}\n  rule: [{rule}]\n"


def test_a_file_for_every_figure_and_for_nothing_else() -> None:
    files = {path.stem for path in LEDGER.glob("*.yaml")}
    assert files == set(sections())


def test_a_rule_judges_the_measures_that_its_figure_shows() -> None:
    # Leases that are accepted are a number, jobs of other live figures a
    # share: one name, and two scales.
    for figure in sections().values():
        shown = {
            panel.measure.name: panel.measure for panel in figure.tables
        }
        for claim in figure.claims:
            for check in (*claim.checks, *claim.beside):
                parts = (
                    check.quantity.measure,
                    getattr(check.quantity, "other", None),
                )
                for part in parts:
                    if isinstance(part, Measure):
                        assert shown[part.name] == part, claim.text


def test_every_figure_says_where_it_stands_and_how_many_seeds_it_needs() -> (
    None
):
    for name, figure in sections().items():
        assert figure.where, name
        assert len(figure.ledger) == 16
        assert figure.exact or figure.seeds >= 3, name
    assert sections()["dcloud-fig11-live"].seeds >= 5


def test_the_paper_s_claims_are_quoted_with_where_they_stand() -> None:
    for name, figure in sections().items():
        for claim in figure.claims:
            if claim.status != "own check":
                assert claim.quote, (name, claim.text)
                assert claim.where, (name, claim.text)


PAPERS = os.environ.get("TESTBED_PAPERS", "")
IN_PLAIN_TEXT = {
    "$": "",
    r"\bar{r}": "r̄",
    r"\lambda": "λ",
    r"\geq": "≥",
    "*": "",
}


@pytest.mark.skipif(
    not PAPERS, reason="TESTBED_PAPERS names no folder of the papers' texts"
)
def test_quotations_are_verbatim() -> None:
    text = ""
    for path in sorted(Path(PAPERS).glob("*.txt")):
        content = path.read_text("utf-8")
        for mark, plain in IN_PLAIN_TEXT.items():
            content = content.replace(mark, plain)
        text += " ".join(content.split())
    assert text
    for name, figure in sections().items():
        for claim in figure.claims:
            drawn = claim.quote.startswith(DRAWN)
            assert drawn or claim.quote in text, (name, claim.quote)


@pytest.mark.slow
def test_what_does_not_hold_has_a_cause_or_a_test_that_looked_for_it() -> (
    None
):
    for name, result in stored(PAGES).items():
        for judged in result.done.judged:
            if judged.claim.status == "own check" or result.old:
                continue
            if judged.verdict == "not reproduced":
                assert judged.claim.cause, (name, judged.claim.text)


def test_every_paper_has_main_results() -> None:
    for paper in PAPER_NAMES:
        assert any(
            claim.headline
            for figure in sections().values()
            if paper_of(figure) == paper
            for claim in figure.claims
        )


def test_a_rule_that_changes_is_another_and_a_quotation_is_none() -> None:
    text = HEAD + RULED.format(status="free", rule="{quantity: level}")
    quoted = text.replace("  rule", "  quote: as it says\n  rule")
    assert rules_in(quoted.encode()) == rules_in(text.encode())
    for old, new in (
        ("level", "spread"),
        ("made\n  pub", "told\n  pub"),
        ("seeds: 3", "seeds: 4"),
    ):
        assert old in text
        changed = text.replace(old, new)
        assert rules_in(changed.encode()) != rules_in(text.encode())


def test_the_first_seed_is_part_of_what_judges() -> None:
    path = LEDGER / "dcloud-fig5.yaml"
    document = yaml.safe_load(path.read_text("utf-8"))
    digests = set()
    for first_seed in (None, 1, 101):
        document.pop("first_seed", None)
        if first_seed is not None:
            document["first_seed"] = first_seed
        digests.add(rules_in(yaml.safe_dump(document).encode()))
    assert len(digests) == 3


def test_results_with_their_rules_first_begin_at_the_first_seed() -> None:
    for name, result in stored(PAGES).items():
        if result.in_advance and not result.live:
            begins = result.record.get("first_seed", 1)
            assert begins == result.done.figure.first_seed, name


def test_the_ledger_has_the_size_that_a_figure_is_judged_at() -> None:
    for name, figure in sections().items():
        document = yaml.safe_load((LEDGER / f"{name}.yaml").read_bytes())
        assert document["size"] == figure.size, name


def test_live_figures_have_no_first_seed() -> None:
    """Their values are measured anew whichever the seed is."""
    for name, figure in sections().items():
        if isinstance(figure, LiveFigure):
            assert figure.first_seed == 1, name


def test_rules_are_first_where_the_named_ledger_has_them() -> None:
    require_history(ROOT)
    verdicts = read_verdicts(PAGES)
    for name, result in stored(PAGES).items():
        assert verdicts[name]["rules_first"] == rules_first(result), (
            f"{name}: run python -m reproductions.paper_pages"
        )
    assert any(result.in_advance for result in stored(PAGES).values())


def test_own_checks_are_not_the_paper_s() -> None:
    for name, figure in sections().items():
        for claim in figure.claims:
            if claim.published in ("ours", "(ours)"):
                assert claim.status == "own check", (name, claim.text)


def test_every_correction_gives_its_reason() -> None:
    for name, figure in sections().items():
        for claim in figure.claims:
            for former in claim.replaced:
                assert former.rule, name
                assert former.reason, name
                assert former.verdict in (
                    "reproduced",
                    "not reproduced",
                    "inconclusive",
                )


@pytest.mark.slow
def test_no_verdict_was_made_under_another_ledger() -> None:
    verdicts = read_verdicts(PAGES)
    found = stored(PAGES)
    assert set(verdicts) == set(found)
    for name, result in found.items():
        made = verdicts[name]
        figure = result.done.figure
        assert made["ledger"] == figure.ledger, (
            f"{name}: run python -m reproductions.paper_pages"
        )
        assert made["verdicts"] == verdicts_of(result), name


@pytest.mark.slow
def test_results_name_a_ledger_that_is_in_the_history() -> None:
    for name, result in stored(PAGES).items():
        ledger = result.record.get("ledger")
        if ledger is None or result.old:
            continue
        assert ledger["commit"], name
        require_history(ROOT)
        state = {"commit": ledger["commit"], "dirty": False}
        assert unsound_commit(state) == "", name


@pytest.mark.slow
def test_results_can_be_checked_out_or_are_said_to_be_old() -> None:
    require_history(ROOT)
    for name, result in stored(PAGES).items():
        assert bool(result.old) == bool(standing(result)), (
            f"{name}: {standing(result)}; run python -m reproductions.paper_pages"
        )


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("rise-by-step", "reproduced"), ("fall-by-step", "not reproduced")],
)
def test_a_curve_is_judged_step_by_step(kind: str, verdict: str) -> None:
    rule = f"{{quantity: {kind}, measure: y, of: a, along: [1, 2, 3], above: 0}}"
    text = HEAD + RULED.format(status="free", rule=rule)
    (claim,) = read(text.encode(), "made", {"y": YIELD}).claims
    assert len(claim.checks) == 2
    rising = {
        ("a", x): tuple(
            {"yield": x + noise}
            for noise in (0.0, 0.01 * x, 0.02 * x, 0.03 * x)
        )
        for x in (1.0, 2.0, 3.0)
    }
    assert claim.judge(Grid(rising), 3).verdict == verdict


def test_steps_in_percent_are_of_their_beginning() -> None:
    rule = (
        "{quantity: rise-by-step, measure: y, of: a, along: [1, 2], "
        "relative: true, low: -1}"
    )
    text = HEAD + RULED.format(status="free", rule=rule)
    (claim,) = read(text.encode(), "made", {"y": YIELD}).claims
    runs = {
        ("a", 1.0): ({"yield": 400.0}, {"yield": 500.0}),
        ("a", 2.0): ({"yield": 398.0}, {"yield": 495.0}),
    }
    values = claim.checks[0].quantity.values(Grid(runs))
    assert values == pytest.approx((-0.5, -1.0))


@pytest.mark.parametrize(
    ("status", "rule", "message"),
    [
        ("new", "{quantity: level}", "status new"),
        (
            "free",
            "{quantity: level, measure: yield, of: a, at: 0}",
            "no band",
        ),
        (
            "free",
            "{quantity: height, measure: yield, of: a, at: 0, low: 1}",
            "height is unknown",
        ),
        (
            "free",
            "{quantity: level, measure: yield, of: a, at: 0, low: 1, below: 2}",
            "do not go with",
        ),
        (
            "free",
            "{quantity: level, measure: other, of: a, at: 0, low: 1}",
            "other",
        ),
        ("free", "", "has no check"),
        (
            "free",
            "{quantity: level, measure: yield, of: a, at: [], low: 1}",
            "has no check",
        ),
        (
            "free",
            "{quantity: level, measure: yield, of: a, at: 0, low: 1, hihg: 2}",
            "hihg",
        ),
        (
            "free",
            "{quantity: level, measure: yield, of: a, at: 0, low: 2, high: 1}",
            "no value is 2 to 1",
        ),
        (
            "free",
            "{quantity: level, measure: yield, of: a, at: 0, low: .nan}",
            "no value is at least nan",
        ),
        (
            "free",
            "{quantity: spread, measure: yield, of: a, along: [1], low: 0}",
            "two places",
        ),
        (
            "free",
            "{quantity: rise-by-step, measure: yield, of: a, along: [1], low: 0}",
            "two places",
        ),
        (
            "free",
            "{quantity: largest, among: [], low: 0}",
            "largest among nothing",
        ),
        (
            "free",
            f"{{quantity: level, measure: yield, of: a, at: 0, low: 1{'0' * 400}}}",
            "too large",
        ),
        ("free", "low", "made"),
    ],
)
def test_a_wrong_file_names_its_claim(
    status: str, rule: str, message: str
) -> None:
    text = HEAD + RULED.format(status=status, rule=rule)
    with pytest.raises(LedgerError, match=message) as caught:
        read(text.encode(), "made", {"yield": YIELD})
    assert str(caught.value).startswith("made.yaml: made: ")


@pytest.mark.parametrize(
    "value",
    ["2001-99-99", "!!timestamp then", '!!int ""', "!!bool x", "9" * 5000],
)
def test_a_value_that_the_loader_cannot_make_is_a_wrong_file(
    value: str,
) -> None:
    text = HEAD.replace("nowhere", value) + "  []"
    with pytest.raises(LedgerError, match=r"made\.yaml"):
        read(text.encode(), "made", {"yield": YIELD})


def test_other_rules_than_the_file_s_have_no_commit_of_it() -> None:
    require_history(ROOT)
    figure = sections()["mbfcbs-fig5"]
    assert named(figure)["commit"]
    others = replace(figure, ledger="0" * 16)
    assert named(others) == {"digest": "0" * 16, "commit": None}
