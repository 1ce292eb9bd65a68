"""docs/hands-on.md as it would be typed: every command, what it says, and its figures.

Its ``console`` blocks are typed into one shell. What the page shows is compared word by word; its
numbers are this machine's, and those that matter are judged below. A line ``…`` stands for any
lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.emu.test_run import REPOSITORY
from tests.emu.test_up import Standing, machine

PAGE = REPOSITORY / "docs" / "hands-on.md"
END = "end-of-command"
NUMBER = re.compile(r"\d[\d.,:]*(e[+-]\d+)?")


@dataclass(frozen=True)
class Typed:
    """A command of the page, its exit code as its comment says, and what the page shows of it."""

    line: str
    exit_code: int
    shown: tuple[str, ...]


def blocks(page: str) -> Iterator[list[Typed]]:
    """The commands of each of a page's console blocks, in their order."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        found = []
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *shown = part.rstrip("\n").split("\n")
            expected = re.search(r"  # exit code (\d+)$", line)
            found.append(
                Typed(
                    line, int(expected[1]) if expected else 0, tuple(shown)
                )
            )
        yield found


def words(line: str) -> str:
    """A line without its numbers, rules and widths of columns."""
    return " ".join(re.sub(r"[─━]+", "", NUMBER.sub("0", line)).split())


def same_words(shown: tuple[str, ...], printed: str) -> bool:
    """True for a page's lines as printed, up to numbers; ``…`` is any lines."""
    parts = [
        r"(?:.*\n)*?" if line == "…" else re.escape(words(line)) + r"\n"
        for line in shown
    ]
    there = "".join(
        f"{words(line)}\n" for line in printed.splitlines() if words(line)
    )
    return re.fullmatch("".join(parts), there) is not None


class Shell:
    """One shell, into which the page's commands are typed."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.folder = folder
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment, text=True, cwd=folder,
        )  # fmt: skip

    def type(self, line: str) -> tuple[int, str]:
        """Exit code and output of a line."""
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.write(f"{line}\necho {END} $?\n")
        self._bash.stdin.flush()
        printed = ""
        for text in self._bash.stdout:
            if text.startswith(END):
                return int(text.split()[1]), printed
            printed += text
        raise AssertionError(f"the shell ended at {line}")

    def close(self) -> None:
        self._bash.communicate()


@pytest.fixture
def shell(tmp_path: Path, prefix: str) -> Iterator[Shell]:
    """With ``testbed`` and ``sudo`` as words that can be typed, and the test's own ports."""
    own, tools = Standing(prefix, tmp_path), tmp_path / "bin"
    tools.mkdir()
    up = " ".join(own.options[:6])
    scripts = {
        "sudo": 'exec "$@"',
        "testbed": f"""verb=$1; shift
case $verb in up) set -- "$@" {up};; esac
exec {sys.executable} -m testbed.cli.main "$verb" "$@" """,
    }
    for name, text in scripts.items():
        (tools / name).write_text(
            f"#!/bin/bash\n{text}\n", encoding="utf-8"
        )
        (tools / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "PYTHONUNBUFFERED": "1",  # results and narration in their order, as on a terminal
    }
    found = Shell(own.environment | environment, tmp_path)
    yield found
    found.close()
    own.remove_left()


def ratios(printed: str) -> list[float]:
    """Measured over reserved, of a printed table of ``measure``."""
    return [float(found) for found in re.findall(r" (\d\.\d{4}) ", printed)]


def rerated(mbps: Sequence[float], least: float) -> str:
    """Whatever is wrong with a re-rating to twice ``least`` and back; empty: nothing.

    ``mbps``: what left the VM in each 100 ms. Two of these may be of both rates.
    """
    low = sorted(rate for rate in mbps if rate <= 1.5 * least)
    found = {
        "hardly ever at either rate": min(len(low), len(mbps) - len(low))
        < 15,
        "a spike": max(mbps) > 1.05 * 2 * least,
        "a spike at the lower rate": bool(low[2:])
        and low[-3] > 1.05 * least,
        "a gap": min(mbps) < 0.5 * least,
    }
    wrong = [what for what, there in found.items() if there]
    return f"{wrong} in {mbps}" if wrong else ""


MOST_TRIES = 3


def type_block(
    shell: Shell, block: list[Typed], folder: Path
) -> tuple[str, str]:
    """Whatever a block's figures lack, and what it printed other than the page."""
    lacks, differs = "", ""
    for one in block:
        code, text = shell.type(one.line)
        if "testbed measure" in one.line and one.exit_code == 0:
            kept = ratios(text)
            if (
                code != 0
                or not kept
                or not all(abs(each - 1) <= 0.01 for each in kept)
            ):
                lacks += text
        else:
            assert code == one.exit_code, f"{one.line}\n{text}"
        if not same_words(one.shown, text):
            differs += f"$ {one.line}\n{text}"
    if any("rerate a" in one.line for one in block):
        rates = (
            (folder / "every-100-ms.txt")
            .read_text(encoding="utf-8")
            .split()
        )
        lacks += rerated([float(rate) for rate in rates], 30.0)
    return lacks, differs


@pytest.mark.long
def test_the_page_as_it_would_be_typed(shell: Shell, prefix: str) -> None:
    """A block whose figures are not within their bounds is typed again: other programs on the
    machine only take away.
    """
    before, folder = machine(prefix), shell.folder
    for block in blocks(PAGE.read_text("utf-8")):
        for last in reversed(range(MOST_TRIES)):
            lacks, differs = type_block(shell, block, folder)
            if not lacks:
                break
            assert last, lacks
        assert not differs, f"the page shows something else:\n{differs}"
    assert machine(prefix) == before
