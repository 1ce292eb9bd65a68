"""Shell completion: verbs, options, and names of runs wherever a run is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import command_line
from testbed.cli.name_completion import run_names
from testbed.record.folder import EVENTS

OLDER = "20261120T141500Z-bandwidth-scaling-s7"
LATER = "20261121T141500Z-quick-s1"
LINE = "testbed report la"
BASH = """\
COMP_WORDS=(testbed report la)
COMP_CWORD=2
_testbed_completion testbed
echo "${COMPREPLY[*]}"
"""


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two runs, one of two policies."""
    for policy in ("dcloud", "vc"):
        folder = tmp_path / "runs" / OLDER / policy
        folder.mkdir(parents=True)
        (folder / EVENTS).touch()
    (tmp_path / "runs" / LATER).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def asked(
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """Words that bash gets for a line that is being typed."""
    monkeypatch.setenv(command_line.COMPLETE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        command_line.run([])
    return capsys.readouterr().out.split()


def test_verbs_options_and_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {
        "testbed sched": [],
        "testbed sha": ["share"],
        "testbed lab gr": ["grade"],
        "testbed report --f": ["--format"],
        LINE: ["latest"],
        "testbed watch u": ["up"],
        "testbed runs rm band": ["bandwidth-scaling"],
        "testbed compare latest bandwidth-scaling/v": [
            "bandwidth-scaling/vc"
        ],
    }
    words = {}
    for line in expected:
        words[line] = asked(line, monkeypatch, capsys)
    assert words == expected


def _commands(verb: str) -> Iterator[Any]:
    command = command_line.application([verb]).commands[verb]
    yield from getattr(command, "commands", {"": command}).values()


@pytest.mark.parametrize("verb", command_line.VERBS)
def test_names_wherever_a_run_is_asked_for(verb: str) -> None:
    for command in _commands(verb):
        context = command.make_context(verb, [], resilient_parsing=True)
        for parameter in command.params:
            if "RUN" in (parameter.metavar or ""):
                items = parameter.shell_complete(context, "lat")
                names = [item.value for item in items]
                assert names == ["latest"], (verb, parameter.name)


def test_names_are_those_by_which_runs_are_found() -> None:
    assert run_names("") == [
        "latest",
        "bandwidth-scaling",
        "quick",
        LATER,
        OLDER,
    ]
    assert run_names(f"{OLDER}/d") == [f"{OLDER}/dcloud"]


def test_paths_are_the_shells_own(tmp_path: Path) -> None:
    above = tmp_path.parent / f"{tmp_path.name}-vc"
    above.mkdir()
    (above / EVENTS).touch()
    assert run_names("runs/") == []
    assert run_names("no-such-run/") == []
    assert run_names("../") == []


def test_a_name_that_no_file_can_have_is_passed_over() -> None:
    assert run_names(f"{'x' * 300}/") == []


def test_what_a_shell_would_split_is_left_out(runs: Path) -> None:
    (runs / "20261122T141500Z-two words; id-s1").mkdir()
    assert len(run_names("")) == 5


def test_nothing_without_runs(runs: Path) -> None:
    shutil.rmtree(runs)
    assert run_names("") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", BASH),
        ("fish", f"complete --do-complete '{LINE}'"),
    ],
)
def test_a_shell_completes_by_the_printed_script(
    shell: str, line: str, tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "testbed"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m testbed.cli.main "$@"\n'
    )
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "HOME": str(tmp_path),
    }
    script = subprocess.run(
        [program],
        env={**environment, command_line.COMPLETE: f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    file = tmp_path / "completion"
    file.write_text(script)
    done = subprocess.run(
        [shell, "-c", f"source {file}\n{line}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == ["latest"], done.stderr
