"""A watch over the start of a person's applications: one that has no end is refused.

A request in a constructor is never answered, as no application handles events
before all are constructed: it would wait for ever, without a word. So would a
loop that polls for what is never to come.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import StackSummary, extract_stack
from types import FrameType
from typing import Any

# A start that uses less processor time than BUSY_S within WAIT_S only waits. A
# large one, or one that is slow because others have the processors, uses more.
WAIT_S = 10.0
BUSY_S = 0.05
# Processor time: what needs more is no start.
MOST_S = 60.0


@contextmanager
def watched_start(
    most_s: float,
    refuse: Callable[[StackSummary], None],
    refuse_busy: Callable[[StackSummary], None],
    tell: Callable[[StackSummary], None],
) -> Iterator[None]:
    """Looks every WAIT_S at the block that it surrounds, and at its stack.

    Calls ``refuse`` where the block only waits, ``refuse_busy`` where it has
    taken more than ``most_s`` of processor time, else ``tell``. To be used in
    the main thread, where Python runs the handlers of signals.
    """
    starter = _green_thread()
    began_s = used_s = time.process_time()

    def look(number: int, interrupted: FrameType | None) -> None:
        nonlocal used_s
        del number
        before_s, used_s = used_s, time.process_time()
        # A green thread that waits is not the one that was interrupted.
        waiting = getattr(starter, "gr_frame", None) or interrupted
        stack = extract_stack(waiting)
        if used_s - before_s < BUSY_S:
            refuse(stack)
        elif used_s - began_s > most_s:
            refuse_busy(stack)
        else:
            tell(stack)

    previous = signal.signal(signal.SIGALRM, look)
    # By the wall clock: a timer of processor time would never fire in a
    # start that only waits.
    signal.setitimer(signal.ITIMER_REAL, WAIT_S, WAIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _green_thread() -> Any:
    """The running one; None with a library of native threads."""
    greenlet = sys.modules.get("greenlet")
    return None if greenlet is None else greenlet.getcurrent()
