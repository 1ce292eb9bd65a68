"""docs/importing.md, typed: its files are imported as it says, and what comes is
what it shows.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from testbed.cli.main import run

PAGE = Path(__file__).parents[3] / "docs" / "importing.md"
FILES = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.M | re.S)
SESSIONS = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)


def test_the_page_is_what_is_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    for name, content in FILES.findall(text):
        Path(name).write_text(content)
    sessions = SESSIONS.findall(text)
    assert len(sessions) == 5
    for session in sessions:
        typed = ""
        for line in session.splitlines():
            if line.startswith("$ testbed "):
                assert run(shlex.split(line)[2:]) == 0
                printed = capsys.readouterr()
                typed += f"{line}\n{printed.out}{printed.err}"
        assert typed == session
    shown = re.search(r"^```text\n(.*?)^```$", text, re.M | re.S)
    assert shown is not None
    assert shown[1] in Path("tasks.yaml").read_text()
