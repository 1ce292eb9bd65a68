"""What a plain (unquoted) YAML scalar means, by rules that no YAML version disputes.

Whole numbers, decimal fractions, ``true`` and ``false``, and texts. What YAML 1.1 and 1.2 read
differently is refused with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

MAX_WHOLE: Final = 2**63 - 1
_MAX_DIGITS: Final = 30
_BOOL: Final = {"true": True, "false": False}
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_INT = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")


class ScalarError(ValueError):
    """A plain text that should not stand in a file; the message says what to write."""


def plain_scalar(text: str) -> bool | int | float | str:
    """The value of an unquoted scalar; raises :class:`ScalarError`."""
    if text in _NULL:
        raise ScalarError("has no value: write one, or remove the key")
    if len(text) > _MAX_DIGITS and re.fullmatch(r"[-+0-9._:]+", text):
        raise ScalarError(f"is too long for a number: {len(text)} characters")
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return _whole(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    for pattern, mend in _SURPRISES:
        if pattern.fullmatch(text):
            raise ScalarError(mend(text))
    return text


def plain_key(text: str) -> str:
    """The key that an unquoted text is: the text itself, unless YAML versions dispute it."""
    if text == "<<":
        raise ScalarError("'<<' (YAML's merge) is not supported: write the keys out")
    if text in _BOOL or text in _NULL:
        raise ScalarError(f"the key {text} is not a word: write '{text}' if the word is meant")
    for pattern, mend in _SURPRISES:
        if pattern.fullmatch(text):
            raise ScalarError(f"the key {text}: {mend(text)}")
    return text


def _whole(text: str) -> int:
    number = int(text)
    if abs(number) > MAX_WHOLE:
        raise ScalarError(f"{text} is larger than any whole number here")
    return number


def _true_word(text: str) -> str:
    return f"YAML 1.1 reads {text} as true: write true, or '{text}' if the word is meant"


def _false_word(text: str) -> str:
    return f"YAML 1.1 reads {text} as false: write false, or '{text}' if the word is meant"


def _not_finite(text: str) -> str:
    return f"{text} is not a finite number: write one"


def _sexagesimal(text: str) -> str:
    total = Decimal(0)
    for part in text.lstrip("+-").split(":"):
        total = total * 60 + Decimal(part.rstrip(".") or "0")
    return (
        f"YAML 1.1 reads {text} as the number {total}:"
        f" write a time with its unit, as {total} s, or '{text}' in quotes"
    )


def _exponent(text: str) -> str:
    number = Decimal(text)
    if abs(number.adjusted()) > 15:
        return f"{text} is read as a number or as a text: write the number without an exponent"
    return f"{text} is read as a number or as a text: write {number:f}, or '{text}' in quotes"


def _based(text: str) -> str:
    number = int(text.replace("_", ""), 0)
    return f"{text} is read as a number or as a text: write {number}, or '{text}' in quotes"


def _octal(text: str) -> str:
    digits = text.replace("_", "").lstrip("+-")
    decimal = digits.lstrip("0") or "0"
    also = "" if re.search("[89]", digits) else f" (YAML 1.1 reads it as octal {int(digits, 8)})"
    return f"{text} begins with a 0{also}: write {decimal}, or '{text}' in quotes"


def _underscored(text: str) -> str:
    return f"{text} has an underscore: write {text.replace('_', '')}, or '{text}' in quotes"


def _loose(text: str) -> str:
    return f"{text} is not how a number is written here: write {Decimal(text):f}"


_SURPRISES: Final[tuple[tuple[re.Pattern[str], Callable[[str], str]], ...]] = (
    (re.compile(r"yes|on|true", re.IGNORECASE), _true_word),
    (re.compile(r"no|off|false", re.IGNORECASE), _false_word),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), _not_finite),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"), _sexagesimal),
    (re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+"), _exponent),
    (re.compile(r"[-+]?0(x[0-9a-fA-F]+|o[0-7]+|b[01]+)", re.IGNORECASE), _based),
    (re.compile(r"[-+]?0[0-9_]+"), _octal),
    (re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?"), _underscored),
    (re.compile(r"\+[0-9]+(\.[0-9]*)?|[-+]?\.[0-9]+|-?[0-9]+\.|-?0[0-9]+\.[0-9]+"), _loose),
)
