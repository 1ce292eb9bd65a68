"""docs/coming-from-mininet.md: what it types without root, and the tests that it names.

Lines that need root are typed in tests/emu/test_coming_from_mininet.py.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from testbed.cli import main

PROJECT = Path(__file__).parents[3]
PAGE = (PROJECT / "docs" / "coming-from-mininet.md").read_text("utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def write_files(folder: Path) -> None:
    """The topology and the experiment file that the page shows."""
    for name, language in (("mine.py", "python"), ("mine.yaml", "yaml")):
        shown = PAGE.split(f"```{language}\n")[1].split("```")[0]
        (folder / name).write_text(shown, encoding="utf-8")


def rows(heading: str) -> list[str]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return lines[1:]


def test_it_has_twelve_things() -> None:
    numbers = re.findall(r"^\*\*(\d+)\. ", PAGE, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 13))


@pytest.mark.slow
@pytest.mark.needs("mininet")
def test_what_needs_no_root_is_as_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_files(tmp_path)
    example = PROJECT / "examples" / "learning_switch.py"
    shutil.copy(example, tmp_path)
    monkeypatch.chdir(tmp_path)
    typed = re.findall(
        r"^\$ testbed (.*)\n((?:(?!\$|```).*\n)*)", PAGE, re.MULTILINE
    )
    assert len(typed) == 3
    for line, shown in typed:
        assert main.run(shlex.split(line)) == 0
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize("heading", ["applications", "topologies"])
def test_each_kind_names_tests_that_exist(heading: str) -> None:
    kinds = rows(f"Public {heading}")
    assert len(kinds) > 10
    for row in kinds:
        named = NAMED.findall(row)
        assert named, row
        for file, test in named:
            text = (PROJECT / file).read_text("utf-8")
            assert re.search(rf"^def {test}\(", text, re.MULTILINE), test
