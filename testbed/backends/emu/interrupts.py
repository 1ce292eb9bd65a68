"""Signals that ask a process to end: deferred while it removes things, or one kind for all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defers SIGINT, SIGTERM and SIGHUP until the block is done: no removal is cut short."""
    held: list[int] = []

    def hold(signum: int, _: FrameType | None) -> None:
        held.append(signum)

    try:
        asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        old = {s: signal.signal(s, hold) for s in asking}
    except ValueError:  # not the main thread: signals do not come here
        yield
        return
    try:
        yield
    finally:
        for signum, handler in old.items():
            signal.signal(signum, handler)
        if held:
            signal.raise_signal(held[0])


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP clean up like Ctrl-C."""

    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    chosen = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
