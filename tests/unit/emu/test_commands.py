"""Commands are run from argument lists, with a limit, and say what went wrong."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from testbed.backends.emu.commands import (
    CommandFailed,
    ip_batch,
    ip_remove,
    run,
)
from testbed.errors import MachineCannot


def test_a_missing_command_is_the_machines_fault_and_gives_the_hint() -> (
    None
):
    with pytest.raises(MachineCannot, match="'no-such-command'") as caught:
        run(["no-such-command"])
    assert caught.value.exit_code == 3
    assert caught.value.hint is not None


def test_a_failure_carries_the_output_of_the_command() -> None:
    program = "import sys; sys.stderr.write('it is broken'); sys.exit(3)"
    with pytest.raises(CommandFailed, match="it is broken"):
        run([sys.executable, "-c", program])
    assert run([sys.executable, "-c", program], check=False).returncode == 3


def test_a_command_that_cannot_be_executed_is_a_failure(
    tmp_path: Path,
) -> None:
    with pytest.raises(CommandFailed, match="Permission denied"):
        run([str(tmp_path)])


def test_output_that_is_no_text_is_read() -> None:
    program = r"import os; os.write(1, b'caf\xe9')"
    assert run([sys.executable, "-c", program]).stdout == r"caf\xe9"


def test_a_batch_that_is_killed_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "ip"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(CommandFailed, match="exit code -9"):
        ip_batch(["link show dev lo"])
    with pytest.raises(CommandFailed, match="exit code -9"):
        ip_remove(["link show dev lo"])


def test_a_command_that_hangs_is_ended() -> None:
    with pytest.raises(CommandFailed, match=r"no answer within 0 s"):
        run(["sleep", "30"], timeout_s=0.1)


def test_an_interrupt_at_the_terminal_does_not_reach_it() -> None:
    program = "import os; print(os.getpgid(0))"
    assert int(run([sys.executable, "-c", program]).stdout) != os.getpgid(0)


def test_a_failing_batch_names_its_line() -> None:
    lines = [
        "link show dev lo",
        "link show dev nobody-has-it",
        "link show dev lo",
    ]
    with pytest.raises(
        CommandFailed,
        match=r"at 'link show dev nobody-has-it': .*does not exist",
    ):
        ip_batch(lines)
    ip_batch(lines[:1])
    ip_batch([])


def test_removing_what_is_gone_is_no_failure_but_nonsense_is() -> None:
    ip_remove(["link show dev nobody-has-it", "link show dev lo"])
    with pytest.raises(CommandFailed, match="nonsense"):
        ip_remove(["link show dev nobody-has-it", "nonsense"])
