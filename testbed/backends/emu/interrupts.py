"""Signals that ask a process to end: deferred, or turned into one kind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], None]
TERMINATION = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defers SIGINT, SIGTERM and SIGHUP to the end of the block."""
    held: list[int] = []

    # It returns, so that Python repeats the system call that a signal
    # interrupts (PEP 475).
    def hold(signum: int, _: FrameType | None) -> None:
        held.append(signum)

    try:
        previous = handle_signals((signal.SIGINT, *TERMINATION), hold)
    except ValueError:
        # Only the main thread handles signals.
        yield
        return
    try:
        yield
    finally:
        restore_handlers(previous)
        # The first signal alone, raised again, ends the process.
        if held:
            signal.raise_signal(held[0])


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into KeyboardInterrupt for the block."""

    # One way for all: whoever cleans up after Ctrl-C does after these too.
    def interrupt(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    previous = handle_signals(TERMINATION, interrupt)
    try:
        yield
    finally:
        restore_handlers(previous)


def handle_signals(
    numbers: Sequence[int], handler: Handler
) -> dict[int, Any]:
    """Installs a handler; returns the previous ones by signal number.

    Raises ValueError in another thread than the main one.
    """
    previous = {}
    for number in numbers:
        # What was ignored before the start stays so, as after nohup.
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, handler)
    return previous


def restore_handlers(handlers: dict[int, Any]) -> None:
    """Installs the handlers that :func:`handle_signals` has returned."""
    for number, handler in handlers.items():
        signal.signal(number, handler)
