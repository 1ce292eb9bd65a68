"""Text from outside gives orders neither to a terminal nor to a spreadsheet nor to a page."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from jobs.workload.lwf import read_lwf
from jobs.workload.swim import read_swim
from jobs.workload.traces import TraceErrors
from testbed.cli import console
from testbed.cli.main import run
from testbed.errors import RunFailed
from testbed.foreign_text import csv_text, json_text, plain_text
from testbed.labs.grading import Mark, table
from tests.unit.record import sample
from tests.unit.record.written import FIG10, Record, mutate, write_run

TITLE = "\x1b]0;owned\x07"
HOSTILE = f"{TITLE}so\x1b[31mrt\x9b2J\x1b[2J-\u202e450\r"
ORDERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ä ✓\tx\n", "plain – ä ✓\tx\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        (f"{TITLE}name", "name"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\after", "after"),
        ("\x9b31mred\x9d0;t\x9cx", "redx"),
        ("\x1b(0q\x1bc", "q"),
        ("a\u202eb\u2066c\u2028d\x7f", "abcd"),
        ("\x1b", ""),
        ("\x1b\x1b[2Jx", "x"),
    ],
)
def test_orders_to_a_terminal_are_removed(text: str, shown: str) -> None:
    assert plain_text(text) == shown


def test_a_name_in_a_table_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """rich makes a link of ``[link=…]``, and hides what is ``[conceal]``."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    name = "[link=http://x]s1[/link][conceal]"
    shown = Table("server")
    shown.add_row(name)
    for printer in (console.out(), console.err()):
        printer.print(shown)
        printer.print(name)
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert text.count(name) == 2
        assert "\x1b]8" not in text


@given(st.text(st.sampled_from("\x1b[]0;m\x07\\P\x9b\x9c=x\n\t\u202e-")))
def test_none_is_left_or_made_by_removing_others(text: str) -> None:
    shown = plain_text(text)
    assert not ORDERS.search(shown)
    assert plain_text(shown) == shown
    assert (
        json.loads(json_text(json.dumps(text, ensure_ascii=False))) == text
    )


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("+1+1", "'+1+1"),
        ("-1+1", "'-1+1"),
        ("-1.5e3", "-1.5e3"),
        ("\x1b[1m=1+1", "'=1+1"),
        ("\r=1+1", "'\n=1+1"),
        ("sort-450", "sort-450"),
        ("", ""),
    ],
)
def test_a_cell_is_no_formula(text: str, cell: str) -> None:
    assert csv_text(text) == cell


def renamed(records: list[Record]) -> None:
    """A run folder of somebody's, whose job is called by orders."""
    text = json.dumps(records).replace(
        "sort-450", json.dumps(HOSTILE).strip('"')
    )
    records[:] = json.loads(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    [
        ["audit"], ["audit", "--json"], ["explain", HOSTILE], ["explain", "nobody"],
        ["compare"], ["report"],
    ],
    ids=lambda words: "-".join(words)[:12].replace("\x1b", ""),
)  # fmt: skip
def test_a_strangers_run_folder_gives_no_orders(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(), FIG10)
    mutate(folder.path, renamed)
    folders = [str(folder.path)] * (1 + (verb == ["compare"]))
    run([verb[0], *folders, *verb[1:]])
    shown = capsys.readouterr()
    assert not ORDERS.search(shown.out + shown.err)
    for page in folder.path.glob("*.html"):
        assert not ORDERS.search(page.read_text("utf-8").replace("\n", ""))


def test_errors_and_tables_give_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = RunFailed(f"job {HOSTILE} failed", f"see {TITLE}")
    console.print_error(error, as_json=False)
    console.print_error(error, as_json=True)
    console.print_text(HOSTILE)
    console.say(HOSTILE)
    console.out().print(HOSTILE, markup=False)
    shown = capsys.readouterr()
    assert not ORDERS.search(shown.out + shown.err)
    assert shown.err.count("sort") == 2


def test_marks_give_none() -> None:
    check: dict[str, Any] = {
        "name": "c", "layer": "correct", "verdict": "failed", "points": 1, "earned": 0,
        "sentence": f"{TITLE}=1+1",
    }  # fmt: skip
    mark = Mark(f"=cmd|x{TITLE}", 4, 1, (check,))
    text = table([mark])
    assert not ORDERS.search(text)
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["student"] == "'=cmd|x"


LEASE = (
    '<lease-request arrival="00:00:00"><lease id="{}">'
    '<nodes><node-set numnodes="1"></node-set></nodes><start></start>'
    '<duration time="01:00:00"/></lease></lease-request>'
)


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "x/y",
        "=HYPERLINK(1)",
        "-x",
        ".x",
        "a b",
        "x" * 65,
        "a\u202eb",
    ],
)
def test_a_name_that_is_none_is_told_with_its_line(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(
        f"<lease-workload>\n{LEASE.format(name)}</lease-workload>".encode()
    )
    with pytest.raises(
        TraceErrors, match=r":2:\d+: lease id: .* is no name"
    ):
        read_lwf(path)
    path.write_bytes(f"{name}\t5\t5\t1\t2\t3\n".encode())
    with pytest.raises(
        TraceErrors, match=r":1:1: field 1 \(job\): .* is no name"
    ):
        read_swim(path)


def test_bytes_that_are_no_text_reach_no_stream() -> None:
    """Of a file's name, for example: Python has surrogates for them."""
    name = os.fsdecode(b"a\xffb")
    for text in (plain_text(name), csv_text(name), json_text(name)):
        assert text.encode("utf-8").startswith(b"a")
