"""No retired word is used in the project; docstrings open with a noun phrase or a verb."""

from __future__ import annotations

import pytest

from tests.support import words


@pytest.mark.slow
def test_no_retired_word_is_used() -> None:
    found = [
        str(one) for path in words.files() for one in words.findings(path)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("both worlds run the same file", ["worlds"]),
        ("the claim came out", ["came out"]),
        ("workload: {kind: ladder, rounds: 3}", []),
        ("a ladder of bandwidths", ["ladder"]),
        ("{name: bl, coupling: lockstep}", []),
        ("flows in lockstep", ["in lockstep"]),
        ("reading: literal-clamped", []),
        ("reading a run folder", []),
        ("under this reading of Eq. 6", ["this reading"]),
        ("in front of the queue", []),
        ("the job in front", ["in front"]),
    ],
)
def test_text_is_searched_but_keys_and_values_of_files_are_kept(
    text: str, found: list[str]
) -> None:
    assert [one.found for one in words._in_text("docs/x.md", text)] == found


def test_names_are_compared_by_their_parts() -> None:
    assert words._in_name("testbed/x.py", 1, "told_before")
    assert words._in_name("testbed/x.py", 1, "GuestRates")
    assert not words._in_name("testbed/x.py", 1, "met_deadline")
