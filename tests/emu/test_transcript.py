"""docs/hands-on.md as it would be typed: every command, what it says, and the figures promised.

Its ``console`` blocks are typed into one shell. What the page shows is compared word by word; its
numbers are this machine's, and those that matter are judged below. A line ``…`` stands for any
lines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.emu.test_run import REPOSITORY, Testbed

PAGE = REPOSITORY / "docs" / "hands-on.md"
END = "end-of-command"
NUMBER = re.compile(r"\d[\d.,:]*(e[+-]\d+)?")


@dataclass(frozen=True)
class Typed:
    """A command of the page, its exit code as its comment says, and what the page shows of it."""

    line: str
    exit_code: int
    shown: tuple[str, ...]


def typed(page: str) -> Iterator[Typed]:
    """The commands of a page's console blocks, in their order."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *shown = part.rstrip("\n").split("\n")
            expected = re.search(r"  # exit code (\d+)$", line)
            yield Typed(line, int(expected[1]) if expected else 0, tuple(shown))


def words(line: str) -> str:
    """A line without its numbers, rules and widths of columns."""
    return " ".join(re.sub(r"[─━]+", "", NUMBER.sub("0", line)).split())


def same_words(shown: tuple[str, ...], printed: str) -> bool:
    """Whether a page's lines are those printed, up to numbers; ``…`` is any lines."""
    parts = [r"(?:.*\n)*?" if line == "…" else re.escape(words(line)) + r"\n" for line in shown]
    there = "".join(f"{words(line)}\n" for line in printed.splitlines() if words(line))
    return re.fullmatch("".join(parts), there) is not None


class Shell:
    """One shell, into which the page's commands are typed."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment, text=True, cwd=REPOSITORY,
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
    own, tools = Testbed(prefix, tmp_path), tmp_path / "bin"
    tools.mkdir()
    up = " ".join(own.options[:6])
    scripts = {
        "sudo": 'exec "$@"',
        "testbed": f"""verb=$1; shift
case $verb in up) set -- "$@" {up};; esac
exec {sys.executable} -m testbed.cli.main "$verb" "$@" """,
    }
    for name, text in scripts.items():
        (tools / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    found = Shell(own.environment | {"PATH": f"{tools}:{os.environ['PATH']}", "COLUMNS": "100"})
    yield found
    found.close()
    own.run("down")
    assert own.run("clean").returncode == 0


def test_the_page_as_it_would_be_typed(shell: Shell, prefix: str) -> None:
    printed: dict[str, list[str]] = {}
    differs: list[str] = []
    for one in typed(PAGE.read_text("utf-8")):
        code, text = shell.type(one.line)
        printed.setdefault(one.line, []).append(text)
        assert code == one.exit_code, f"{one.line}\n{text}"
        if not same_words(one.shown, text):
            differs.append(f"$ {one.line}\n{text}")
    assert not differs, "the page shows something else:\n" + "\n".join(differs)
