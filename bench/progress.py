"""Progress of a benchmark of many steps on standard error, with the time that
is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step and how long it is expected to take, in s."""

    name: str
    expected_s: float


def time_left_s(steps: Sequence[Step], n_done: int, took_s: float) -> float:
    """Time for the remaining steps at the pace of those done, in s."""
    done_s = sum(step.expected_s for step in steps[:n_done])
    left_s = sum(step.expected_s for step in steps[n_done:])
    # Before the first step has ended nothing is known of the pace.
    if done_s == 0.0:
        return left_s
    return took_s / done_s * left_s


class Progress:
    """Steps done, and the time left."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._began = time.monotonic()
        self._n_done = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """The next step."""
        self.note("")
        yield
        self._n_done += 1

    def note(self, text: str) -> None:
        """A line on the present step, with the time left."""
        left_s = time_left_s(
            self._steps, self._n_done, time.monotonic() - self._began
        )
        name = self._steps[self._n_done].name
        about = name
        if text:
            about = f"{name}: {text}"
        minutes, seconds = divmod(round(left_s), 60)
        count = f"{self._n_done + 1} of {len(self._steps)}"
        self.say(f"[{count}, some {minutes}:{seconds:02} left] {about}")

    @staticmethod
    def say(text: str) -> None:
        """A line of its own, such as a result that others follow."""
        print(text, file=sys.stderr, flush=True)
