"""Text from outside, made harmless before a terminal, a table or a page gets it.

Experiment files, traces, plug-ins and others' run folders bring names of jobs,
files and students, reasons, and outputs of programs. A terminal obeys escape
sequences in them; a spreadsheet evaluates text that looks like a formula.
"""

from __future__ import annotations

import math
import re

_ESCAPES = re.compile(
    # CSI: a colour, the cursor, the screen.
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    # OSC, DCS and their like, up to their end: titles, links, the clipboard.
    "|(?:\x1b[]P^_X]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\\\)?"
    # All shorter ones, and an escape character by itself.
    "|\x1b[ -/]*[0-~]?"
)
_UNSEEN = re.compile(
    # All controls but tab and line feed; and invisible characters that change
    # the direction of writing, or separate lines.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_NO_TEXT = re.compile("[\ud800-\udfff]")
"""Lone surrogates, by which Python stands for bytes of a file's name that are
no text. No stream takes them.
"""
_FORMULA = frozenset("=+-@\t\n＝＋－＠")
"""First characters of texts that spreadsheets evaluate."""


def plain_text(text: str) -> str:
    r"""The text without escape sequences and control characters. Tabs and line
    feeds stay; a byte that is no text is shown by its number: ``\udcff``.
    """
    if text.isascii() and text.isprintable():
        return text
    without_escapes = _ESCAPES.sub("", text)
    seen = _UNSEEN.sub("", without_escapes)
    return _NO_TEXT.sub(_number, seen)


def csv_text(text: str) -> str:
    """The text as a field of a CSV file: plain, and no spreadsheet's formula."""
    if not (text.isascii() and text.isprintable()):
        # Readers take a lone carriage return for a line end, and the csv
        # module does not quote it.
        with_feeds = text.replace("\r\n", "\n").replace("\r", "\n")
        text = plain_text(with_feeds)
    if text[:1] in _FORMULA and not _is_number(text):
        return f"'{text}"
    return text


def json_text(text: str) -> str:
    """A JSON document in which all characters that ``plain_text`` removes or
    replaces are escaped: JSON allows some of them as they are.
    """
    return _NO_TEXT.sub(_number, _UNSEEN.sub(_number, text))


def _number(character: re.Match[str]) -> str:
    r"""A character by its number, as JSON and Python write it: ``\u202e``."""
    return f"\\u{ord(character[0]):04x}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
