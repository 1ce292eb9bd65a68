"""Errors a person sees, each with the exit code that the command ends in."""

from __future__ import annotations

from pathlib import Path


class TestbedError(Exception):
    """An error in one sentence; ``hint``: what to do about it."""

    exit_code = 4
    __test__ = False

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            # Shown in tracebacks of those who use Python.
            self.add_note(f"hint: {hint}")


class DoesNotFit(TestbedError):
    """A request for more than is free; nothing has changed (exit 1)."""

    exit_code = 1


class BadInput(TestbedError):
    """A bad file or usage: nothing has been created (exit 2)."""

    exit_code = 2


class MachineCannot(TestbedError):
    """This machine cannot do it; ``hint`` is the command that would change that
    (exit 3).
    """

    exit_code = 3


IN_USE = "another testbed runs on this machine: "
"""The beginning of the MachineCannot that may pass if one waits."""


class RunFailed(TestbedError):
    """The run failed; the run folder shows its progress (exit 4)."""

    exit_code = 4


def from_checkout() -> bool:
    """True unless this package is a wheel's, without ``provision.sh`` beside it."""
    return (Path(__file__).resolve().parents[1] / "provision.sh").is_file()


def install_hint() -> str:
    """The command that installs what the live network needs, and its folder."""
    command = "sudo ./provision.sh install"
    if from_checkout():
        return command
    return f"{command}, in a checkout of Hosenet or in its unpacked hosenet-*.tar.gz"
