"""Output of a process that installs packages, and the moment when it is heard."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.backends.emu import requirement_environment
from testbed.backends.emu.requirement_environment import with_packages
from testbed.errors import MachineCannot
from testbed.spec.controller_choice import ControllerChoice

CHOICE = ControllerChoice(("/a.py",), packages="/needs.txt")
WAITS = """
import sys, time
from pathlib import Path
print("another process installs packages: waiting for it", flush=True)
end = time.monotonic() + 60
while not Path({heard!r}).exists():
    if time.monotonic() > end:
        sys.exit("nobody heard of it")
    time.sleep(0.01)
print("/an/interpreter", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program that installs, as this user in place of another one."""
    file = tmp_path / "program.py"
    module = requirement_environment
    monkeypatch.setattr(module.app_environment, "__file__", str(file))
    monkeypatch.setattr(module, "_interpreter", lambda _: sys.executable)
    account = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(module, "_account", lambda: account)

    class Process(subprocess.Popen[str]):
        def __init__(self, words: list[str], **options: Any) -> None:
            for name in ("user", "group", "extra_groups"):
                del options[name]
            super().__init__(words, **options)

    monkeypatch.setattr(subprocess, "Popen", Process)
    return file


def test_what_an_installation_waits_for_is_heard_meanwhile(
    program: Path, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"
    program.write_text(WAITS.format(heard=str(heard)))
    lines: list[str] = []

    def narrate(line: str) -> None:
        lines.append(line)
        heard.touch()

    assert with_packages(CHOICE, narrate).python == "/an/interpreter"
    assert lines == ["another process installs packages: waiting for it"]


def test_an_installation_that_was_killed_is_called_so(
    program: Path,
) -> None:
    program.write_text("import os\nos.kill(os.getpid(), 9)\n")
    with pytest.raises(MachineCannot) as refused:
        with_packages(CHOICE, lambda _: None)
    message = "controller.packages: /needs.txt: it was killed"
    assert refused.value.message == message
