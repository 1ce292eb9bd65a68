"""Text from outside, made harmless before a terminal, a table or a page gets it.

Names of jobs, files and students, reasons and outputs of programs come from
experiment files, traces, plug-ins, and run folders of others. A terminal obeys
escape sequences in them, a spreadsheet evaluates what looks like a formula.
"""

from __future__ import annotations

import math
import re

_ESCAPES = re.compile(
    # CSI: a colour, the cursor, the screen.
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    # OSC, DCS and their like, up to their end: titles, links, the clipboard.
    "|(?:\x1b[]P^_X]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\\\)?"
    "|\x1b[ -/]*[0-~]?"
)
_UNSEEN = re.compile(
    # All controls but tab and line feed; what changes the direction of writing
    # or separates lines without being seen.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_NO_TEXT = re.compile("[\ud800-\udfff]")
"""Lone surrogates: Python's signs for bytes of a file's name that are no text,
which no stream takes.
"""
_FORMULA = frozenset("=+-@\t\n＝＋－＠")
"""First characters of what spreadsheets evaluate."""


def plain_text(text: str) -> str:
    """The text without escape sequences and control characters; tabs and line
    ends stay, and bytes that are no text are shown as their numbers.
    """
    if text.isascii() and text.isprintable():
        return text
    return _NO_TEXT.sub(_number, _UNSEEN.sub("", _ESCAPES.sub("", text)))


def csv_text(text: str) -> str:
    """The text as a cell of a table: plain, and no spreadsheet's formula.

    The csv module does not quote a lone carriage return, which readers take for
    a line end.
    """
    if not (text.isascii() and text.isprintable()):
        ends = text.replace("\r\n", "\n").replace("\r", "\n")
        text = plain_text(ends)
    if text[:1] in _FORMULA and text and not _is_number(text):
        return f"'{text}"
    return text


def json_text(text: str) -> str:
    """A JSON text in which the controls that JSON allows are escaped too."""
    return _NO_TEXT.sub(_number, _UNSEEN.sub(_number, text))


def _number(character: re.Match[str]) -> str:
    """A character as JSON and Python write its number."""
    return f"\\u{ord(character[0]):04x}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
