"""Messages in docs/troubleshooting.md are messages of the program."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = [
    message
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    for message in re.findall(r"`([^`]+)`", row)
]


@cache
def sources() -> str:
    """All strings of the program and of provision.sh, those over several lines joined."""
    folders = ("testbed", "controller", "jobs", "topologies")
    paths = [
        path for folder in folders for path in (ROOT / folder).rglob("*.py")
    ]
    text = "\n".join(
        path.read_text("utf-8") for path in (*paths, ROOT / "provision.sh")
    )
    return re.sub(r"\"\s*f?\"", "", text)


def test_there_are_messages() -> None:
    assert len(MESSAGES) > 35


@pytest.mark.parametrize("message", MESSAGES)
def test_message_is_one_of_the_program(message: str) -> None:
    for part in message.split("…"):
        assert part.strip() in sources(), part
