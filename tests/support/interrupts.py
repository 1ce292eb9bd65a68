"""Ctrl-C at the very moment at which a process is started, when Python may lose it."""

from __future__ import annotations

import _thread
import operator
import subprocess
from functools import partial
from typing import Any

import pytest


def interrupt_at_start(
    monkeypatch: pytest.MonkeyPatch, argument: str
) -> list[str]:
    """SIGINT arrives while the kernel starts the next process with this among its arguments.

    Returns a list that holds the process's command line once it has happened.
    """
    start_process = subprocess._fork_exec  # type: ignore[attr-defined]
    happened: list[str] = []

    def start(argv: list[bytes], *rest: Any) -> Any:
        starting = partial(start_process, argv, *rest)
        words = [
            word if isinstance(word, str) else bytes(word).decode()
            for word in argv
        ]
        if happened or argument not in words:
            return starting()
        happened.append(" ".join(words))
        # Without a step of Python's between them, in which it would look for signals.
        return list(map(operator.call, (_thread.interrupt_main, starting)))[
            1
        ]

    monkeypatch.setattr(subprocess, "_fork_exec", start)
    return happened
