"""The ledger of claims: its files, and the verdicts that were made by them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reproductions.claim_ledger import LEDGER, LedgerError, read
from reproductions.stored_results import (
    read_verdicts,
    sections,
    standing,
    stored,
    verdicts_of,
)
from testbed.record.provenance import unsound_commit
from tests.support.made_figures import YIELD

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "papers"
HEAD = "figure: made\nwhere: nowhere\nseeds: 3\nclaims:\n"
RULED = "- claim: made\n  published: made\n  status: {status}\n  rule: [{rule}]\n"


def _require_history() -> None:
    shallow = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"],
        capture_output=True,
        text=True,
        check=False,
    )
    if shallow.stdout.strip() != "false":
        pytest.skip("no history here: git fetch --unshallow")


def test_a_file_for_every_figure_and_for_nothing_else() -> None:
    files = {path.stem for path in LEDGER.glob("*.yaml")}
    assert files == set(sections())


def test_every_figure_says_where_it_stands_and_how_many_seeds_it_needs() -> (
    None
):
    for name, figure in sections().items():
        assert figure.where, name
        assert len(figure.ledger) == 16
        assert figure.exact or figure.seeds >= 3, name
    assert sections()["dcloud-fig11-live"].seeds >= 5


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


def test_results_name_a_ledger_that_is_in_the_history() -> None:
    for name, result in stored(PAGES).items():
        ledger = result.record.get("ledger")
        if ledger is None or result.old:
            continue
        assert ledger["commit"], name
        _require_history()
        state = {"commit": ledger["commit"], "dirty": False}
        assert unsound_commit(state) == "", name


def test_results_can_be_checked_out_or_are_said_to_be_old() -> None:
    _require_history()
    for name, result in stored(PAGES).items():
        assert bool(result.old) == bool(standing(result)), (
            f"{name}: {standing(result)}; run python -m reproductions.paper_pages"
        )


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
    ],
)
def test_a_wrong_file_names_its_claim(
    status: str, rule: str, message: str
) -> None:
    text = HEAD + RULED.format(status=status, rule=rule)
    with pytest.raises(LedgerError, match=message) as caught:
        read(text.encode(), "made", {"yield": YIELD})
    assert str(caught.value).startswith("made.yaml: made: ")
