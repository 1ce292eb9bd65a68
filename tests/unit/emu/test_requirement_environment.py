"""Output of a process that installs packages, and the moment when it is heard."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
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
PIP = """
import os, time
from pathlib import Path
if os.fork():
    os.wait()
    os._exit(0)
try:
    print("Installing", flush=True)
    time.sleep(120)
except KeyboardInterrupt:
    Path({ended!r}).touch()
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


def test_an_installation_has_no_terminal_of_roots(program: Path) -> None:
    """By root's terminal, a package could type commands into root's shell."""
    program.write_text("import os\nprint(os.getsid(0))\nprint('/python')\n")
    lines: list[str] = []
    with_packages(CHOICE, lines.append)
    assert lines != [str(os.getsid(0))]


def test_an_installation_ends_with_ctrl_c(
    program: Path, tmp_path: Path
) -> None:
    """Also pip, its child: the terminal's signal reaches no other session."""
    ended = tmp_path / "ended"
    program.write_text(PIP.format(ended=str(ended)))

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_packages(CHOICE, interrupted)
    deadline_s = time.monotonic() + 60
    while not ended.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
