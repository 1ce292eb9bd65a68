"""The command of the benchmarks: its last sentence and exit code."""

from __future__ import annotations

import pytest

from bench import __main__ as command
from testbed.errors import MachineCannot


def test_a_machine_that_cannot_is_a_sentence_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise MachineCannot("there is no mpirun", "install one")

    monkeypatch.setattr(command, "_results", refused)
    assert command.main(["mpi-behind"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "error: there is no mpirun\nhint: install one\n"
