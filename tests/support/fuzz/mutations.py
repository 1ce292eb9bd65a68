"""Hostile values, and what is done to texts, bytes and trees: for every kind of input."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

NUMBERS = {
    "more digits than Python turns into a number": "1" * 5000,
    "an underscore": "1_000",
    "digits of another script": "\u0661\u0662",
    "wide digits": "\uff11\uff12",
    "a superscript": "\u00b2",
    "a fraction": "\u00bd",
    "hexadecimal": "0x10",
    "beyond floats": "1e400",
    "not a number": "nan",
    "infinite": "inf",
    "minus infinity": "-inf",
    "JSON that is none": "NaN",
    "infinite in JSON": "Infinity",
}
"""Numbers that some reader takes and another does not; all of ours refuse them."""

SIZES = (
    *(
        "0",
        "-0",
        "-1",
        "1",
        "2",
        "7",
        "64",
        "1000",
        "65535",
        "65536",
        "2147483647",
        "2147483648",
    ),
    *(
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
    ),
    *(
        "0.5",
        "-0.5",
        "1e15",
        "1e16",
        "1e-300",
        "1e308",
        "99999999999999999999999999999999",
    ),
)
"""Numbers at the ends of what some type holds."""

HOSTILE: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        0.5,
        -0.0,
        1e308,
        float("inf"),
        float("nan"),
        2**31,
        2**64,
    ),
    *(
        2**64 - 1,
        10**4000,
        -(10**4000),
        "",
        "a",
        "x" * 5000,
        "\x00",
        "\ud800",
        "٣",
        "../../etc",
    ),
    *(
        [],
        {},
        [[]],
        [{}],
        {"": {}},
        [0] * 500,
        {"dpid": 1},
        "10.0.0.0/8",
        "10.0.4.0/22",
    ),
    *(
        "02:00:00:00:00:01",
        "ff:ff:ff:ff:ff:ff",
        "hn-s0",
        "server",
        "256.0.0.1",
        "10.0.4.1",
    ),
)
"""JSON values, and some that Python takes for JSON."""

PIECES = [
    "", " ", "\t", "\n", ":", "- ", "[", "]", "{", "}", ",", "#", "'", '"', "&a ", "*a", "!!int ",
    "!x ", "|", ">", "%", "@", "`", "?", "---\n", "...\n", "<<: ", "~", "null", "no", "010", "1e3",
    "10:20", "-1", "0", "1000000000000", "0.5", ".nan", "500 Mbit/s", "6 s", "12 %", "tree", "é",
    "\u2028", "\x07", "\ufeff", "kind: demand\n", "after: sort-750", "\x1b[31m", "\r", "\x85",
    "-", "e", "\\", "<", ">", "&", "<!DOCTYPE a [", "&#0;", "]]>", ";", "; Key: x\n",
    '"\\ud800"', '"\\x1b"', '\\udfff',
]  # fmt: skip
"""Pieces of YAML, JSON, XML and tables."""

VALUES = [
    None, True, 0, 1, -1, 3, 10**9, 0.5, "", "x", "6 s", "500 Mbit/s", "1000 Tbit/s", [], {}, [1],
    ["x"], [[]], {"kind": "tree"}, {"min": 2, "max": 1}, "sort", "custom", "\0", 2**63, 10**30,
    "\ud800", "\x1b[31m",
    1e-300, 1e300, "0 s", "0 bit/s", "1 us", "99999999 d", "0.0000000001 bit/s", "-5 %", "1e9 s",
]  # fmt: skip
"""Values of experiment files."""


def mutated(rng: random.Random, value: Any, hostile: Any = HOSTILE) -> Any:
    """The value with one thing in it replaced, repeated, dropped or added."""
    if isinstance(value, (list, dict)) and value and rng.random() < 0.8:
        keys = (
            list(value)
            if isinstance(value, dict)
            else list(range(len(value)))
        )
        key = rng.choice(keys)
        copy: Any = dict(value) if isinstance(value, dict) else list(value)
        act = rng.random()
        if act < 0.15:
            del copy[key]
        elif act < 0.3 and isinstance(copy, list):
            copy += [copy[key]] * rng.choice((1, 3, 300))
        elif act < 0.3:
            copy[rng.choice(("dpid", "name", "vms", "x" * 300, "\n"))] = (
                rng.choice(hostile)
            )
        else:
            copy[key] = mutated(rng, copy[key], hostile)
        return copy
    return rng.choice(hostile)


def flipped(rng: random.Random, data: bytes) -> bytes:
    """The bytes with some changed, some left out or some put in."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed) + 1)
        act = rng.random()
        if act < 0.6 and at < len(changed):
            changed[at] = rng.randrange(256)
        elif act < 0.8:
            del changed[at : at + rng.choice((1, 2, 40))]
        else:
            changed[at:at] = rng.randbytes(rng.choice((1, 2, 40)))
    return bytes(changed)


def rearranged(rng: random.Random, text: str) -> str:
    """The text with cuts, doublings, moved and foreign pieces at random places."""
    for _ in range(rng.randint(1, 4)):
        a, b = sorted(
            (rng.randrange(len(text) + 1), rng.randrange(len(text) + 1))
        )
        b = min(b, a + 40)
        piece = rng.choice(PIECES)
        text = rng.choice(
            [text[:a] + text[b:], text[:b] + text[a:], text[:a] + piece + text[a:],
             text[:a] + piece + text[b:], text[b:] + text[:a]]
        )  # fmt: skip
    return text


def replaced_word(rng: random.Random, text: str) -> str:
    """The text with one of its numbers or words another."""
    words = [
        at
        for at, sign in enumerate(text)
        if sign.isalnum() and not text[at - 1].isalnum()
    ]
    if not words:
        return text
    start = end = rng.choice(words)
    while end < len(text) and (text[end].isalnum() or text[end] in "._"):
        end += 1
    new = rng.choice(
        (*NUMBERS.values(), *SIZES, *SIZES, *PIECES, f"-{text[start:end]}")
    )
    return text[:start] + new + text[end:]


def changed_tree(rng: random.Random, tree: Any) -> Any:
    """The tree itself, with values replaced, keys removed, renamed or doubled anywhere in it."""
    for _ in range(rng.randint(1, 4)):
        holders = list(_holders(tree))
        if not holders:
            break
        holder, key = rng.choice(holders)
        match rng.randrange(4):
            case 0:
                holder[key] = deepcopy(rng.choice(VALUES))
            case 1:
                del holder[key]
            case 2 if isinstance(holder, dict):
                holder[f"{key}s"] = holder.pop(key)
            case _:
                other, where = rng.choice(holders)
                holder[key] = deepcopy(other[where])
    return tree


def _holders(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, child in items:
        yield tree, key
        if isinstance(child, dict | list):
            yield from _holders(child)
