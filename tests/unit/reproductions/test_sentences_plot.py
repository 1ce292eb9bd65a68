"""The picture of the papers' sentences."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from reproductions.catalogue import PAPERS
from reproductions.claim_checks import Status
from reproductions.first_page import statuses_by_outcome
from reproductions.paper_pages import SENTENCES
from reproductions.sentences_plot import (
    LEAST_NAMED,
    Outcomes,
    sentences_picture,
)
from reproductions.stored_results import DATA, stored

PAGES = Path(__file__).parents[3] / "docs" / "papers"
FREE: tuple[Status] = ("free",)
FITTED: tuple[Status] = ("fitted",)


def numbers_in(picture: str) -> Counter[int]:
    """The numbers in a picture, those of its axis among them."""
    return Counter(map(int, re.findall(r">(\d+)</text>", picture)))


def test_each_part_has_its_number_where_there_is_room() -> None:
    outcomes: Outcomes = {
        "Hold with their numbers": (*FREE * 17, *FITTED * 13),
        "Hold as a direction": FITTED * 2,
        "Do not hold": [],
        "Cannot be decided": FREE * 23,
    }
    pictures = sentences_picture({"A paper": outcomes})
    text = pictures["svg"].decode("utf-8")
    numbers = numbers_in(text)
    assert (numbers[17], numbers[13], numbers[23]) == (1, 1, 1)
    assert numbers[2] == 0
    assert ">A paper</text>" in text
    assert ">cannot be decided</text>" in text


@pytest.mark.slow
def test_the_stored_picture_is_that_of_the_stored_verdicts() -> None:
    every = stored(PAGES)
    expected: Counter[int] = Counter()
    for paper in PAPERS:
        for statuses in statuses_by_outcome(every, paper).values():
            for count in Counter(statuses).values():
                if count >= LEAST_NAMED:
                    expected[count] += 1
    picture = (PAGES / DATA / SENTENCES).read_text("utf-8")
    assert expected <= numbers_in(picture)
