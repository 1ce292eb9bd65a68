"""Text and archives of others: traces, run folders, students' answers."""

from __future__ import annotations

import csv
import gzip
import io
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import (
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from jobs.workload.lwf import read_lwf
from jobs.workload.swf import read_swf
from jobs.workload.swim import read_swim
from jobs.workload.traces import TraceErrors
from testbed.cli import console
from testbed.errors import RunFailed
from testbed.foreign_text import csv_text
from testbed.labs.grading import Mark, table
from tests.adversary.attack import Attack, Tries
from tests.unit.cli.test_foreign_text import LEASE, ORDERS

# Beginnings and ends of orders to terminals, in both of their forms.
BEGINNINGS = (
    "\x1b[",
    "\x1b]0;",
    "\x1bP",
    "\x9b",
    "\x9d",
    "\x1b(",
    "\x1b",
    "\u202e",
    "\r",
)
MIDDLES = ("2J", "31m", "8;;http://x", "\x1b[2J", "")
ENDS = ("\x07", "\x1b\\", "\x9c", "")
FORMULAS = (
    *("=HYPERLINK(1)", "=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-1+1"),
    *("\uff1dSUM(1)", "\uff20SUM(1)", "\uff0b1+1", "\uff0d1+1"),
)
DISGUISES = ("{}", "\t{}", "\r{}", "\n{}", "\x1b[1m{}", "\u202e{}")
NAMES = (
    *("../x", "x/y", "/etc/passwd", "..", ".", ".x", "-x", "a b", "x" * 65),
    *("=HYPERLINK(1)", "a\u202eb", "a\x1b[2Jb", "con\tname", ""),
)
ENDLESS_LINES = 2_000_000
FORMATS = {"swf": read_swf, "swim": read_swim, "lwf": read_lwf}
"""Readers of traces by their kind."""


def attacks() -> list[Attack]:
    return [
        Attack(
            "escapes",
            "text of others gives orders to a terminal",
            lambda: _escapes(_printed),
            lambda: _escapes(str),
        ),
        Attack(
            "formulas",
            "text of others is a formula in a table",
            lambda: _formulas(csv_text),
            lambda: _formulas(str),
        ),
        Attack(
            "names",
            "jobs of a trace are called by paths, options and formulas",
            _names_of_traces,
            _names_of_lines,
        ),
        Attack(
            "endless archives",
            "a small archive keeps its reader busy without end",
            _archives_as_traces,
            _archives_as_they_are,
            expected_s=15,
        ),
    ]


def _texts() -> list[str]:
    return [
        f"so{begin}{middle}{end}rt"
        for begin, middle, end in product(BEGINNINGS, MIDDLES, ENDS)
    ]


def _printed(text: str) -> str:
    """All ways of a text to a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        console.print_error(RunFailed(f"job {text}", text), as_json=False)
        console.print_error(RunFailed(f"job {text}", text), as_json=True)
        console.print_text(text)
        console.say(text)
        console.out().print(text, markup=False)
    return out.getvalue() + err.getvalue()


def _escapes(show: Callable[[str], str]) -> Tries:
    texts = _texts()
    shown = [show(text) for text in texts]
    return Tries(
        len(texts), sum(bool(ORDERS.search(text)) for text in shown)
    )


def _formulas(cell: Callable[[str], str]) -> Tries:
    texts = [
        disguise.format(formula)
        for disguise, formula in product(DISGUISES, FORMULAS)
    ]
    cells = [cell(text) for text in texts]
    marks = table([Mark(cell(text), 1, 0, ()) for text in texts])
    if cell is not str:
        cells += [
            row["student"] for row in csv.DictReader(io.StringIO(marks))
        ]
    through = sum(_is_formula(text) for text in cells)
    return Tries(len(cells), through)


def _is_formula(text: str) -> bool:
    """As spreadsheets see it: some skip controls, and read wide characters as
    the usual ones.
    """
    printable = "".join(c for c in text if c.isprintable())
    return unicodedata.normalize("NFKC", printable).startswith(
        tuple("=@+-")
    )


@contextmanager
def _trace(content: bytes) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        path = Path(folder, "trace.gz")
        path.write_bytes(content)
        yield path


def _names_of_traces() -> Tries:
    through = 0
    for name in NAMES:
        lease = f"<lease-workload>\n{LEASE.format(name)}</lease-workload>"
        line = f"{name}\t5\t5\t1\t2\t3\n"
        for read, text in ((read_lwf, lease), (read_swim, line)):
            with _trace(text.encode()) as path, suppress(TraceErrors):
                read(path)
                through += 1
    return Tries(2 * len(NAMES), through)


def _names_of_lines() -> Tries:
    """By a reader that takes whatever stands there."""
    names = [f"{name}\t5".split("\t")[0] for name in NAMES]
    through = [name for name in names if name in NAMES]
    return Tries(len(NAMES), len(through))


def _endless() -> bytes:
    """200 kB or less, which are millions of lines."""
    buffer = io.BytesIO()
    with gzip.open(buffer, "wb", compresslevel=9) as file:
        block = b"\n" * 100_000
        for _ in range(ENDLESS_LINES // len(block)):
            file.write(block)
    return buffer.getvalue()


def _archives_as_traces() -> Tries:
    through = 0
    for read in FORMATS.values():
        with _trace(_endless()) as path:
            began = time.process_time()
            try:
                read(path)
                through += 1
            except TraceErrors as error:
                lines = [problem.line for problem in error.problems]
                through += max(lines) >= ENDLESS_LINES
            # A whole reading of these takes a hundred times as long.
            through += time.process_time() - began > 30
    return Tries(2 * len(FORMATS), through)


def _archives_as_they_are() -> Tries:
    through = 0
    for _ in FORMATS:
        with _trace(_endless()) as path, gzip.open(path) as lines:
            through += sum(1 for _ in lines) >= ENDLESS_LINES
    return Tries(len(FORMATS), through)
