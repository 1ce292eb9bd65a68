"""A sweep's tasks in their order; those of lost workers are handed out again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from testbed.sweeps.tasks import Outcome, Result, Task, TaskFailure

LOSSES = 3
"""A task with which this many workers were lost has failed."""

Say = Callable[[str], None]


@dataclass(eq=False)
class Order:
    """A task that is wanted; ``losses`` workers were lost with it."""

    task: Task
    losses: int = 0

    def given_up(self, reason: str) -> Result:
        """The failure of a task with which too many workers were lost."""
        why = f"{self.task.key}: given up after {LOSSES} attempts: {reason}"
        return self.task, Outcome(None, TaskFailure(why))


class Supply:
    """Orders in the order of their tasks, those to be done again first.

    A task is made when it is looked at: only those that workers have exist, and
    one more.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._new = map(Order, tasks)
        self._next: deque[Order] = deque()

    def peek(self) -> Order | None:
        """The next order, if there is one."""
        if not self._next:
            self._next.extend(islice(self._new, 1))
        if self._next:
            return self._next[0]
        return None

    def take(self, most: int) -> tuple[Order, ...]:
        """The next order, and those after it that may go with it."""
        first = self.peek()
        if first is None:
            return ()
        taken = [self._next.popleft()]
        # What has lost a worker, or is live, goes alone.
        while (
            len(taken) < most
            and (order := self.peek())
            and not (order.losses or order.task.live)
        ):
            taken.append(self._next.popleft())
        return tuple(taken)

    def again(self, orders: Sequence[Order]) -> None:
        """Takes orders back; they are the next."""
        self._next.extendleft(reversed(orders))
