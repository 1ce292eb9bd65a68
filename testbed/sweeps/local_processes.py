"""Sweeps' tasks on the processors of this machine, by the standard library's
pools of processes.

Each process is a pool of its own: what is lost with one is known, and the
others continue.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType

from jobs.python_child import isolated_spawn
from testbed.errors import MachineCannot
from testbed.private_folders import private_folder
from testbed.sweeps.computing_sources import code_digest
from testbed.sweeps.task_supply import LOSSES, Order, Say, Supply
from testbed.sweeps.tasks import (
    LocalContext,
    Outcome,
    Result,
    Task,
    TaskFailure,
    attempt,
)
from testbed.units import number_of

AHEAD = 2
"""Tasks that a process has: the one it computes, and the next."""


class Processors:
    """Tasks on ``width`` processes of this machine; a single task, and live
    ones, in this one.

    Processes are started when there is a second task.
    """

    def __init__(self, width: int, say: Say) -> None:
        self.width = width
        self._say = say
        self._stack = ExitStack()
        self._processes: list[_Process] = []
        self._done: SimpleQueue[Future[Outcome]]

    def __enter__(self) -> Processors:
        folder = private_folder("sweep-", entered=True)
        self._scratch = self._stack.enter_context(folder)
        self._stack.callback(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def results(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Outcomes in order of completion; closing it ends the processes that
        compute.
        """
        # Starting processes takes longer than a single task.
        tasks = iter(tasks)
        first = list(itertools.islice(tasks, 2))
        tasks = itertools.chain(first, tasks)
        if len(first) < 2 or first[0].live:
            for task in tasks:
                yield task, attempt(task, LocalContext(self._scratch))
            return
        self._done = SimpleQueue()
        supply = Supply(tasks)
        try:
            self._hand_out(supply)
            while self._is_busy:
                result = self._received(self._done.get(), supply)
                # First, so that no process waits for whoever takes the result.
                self._hand_out(supply)
                if result is not None:
                    yield result
        finally:
            # Whoever takes no more results wants no more computed.
            if self._is_busy:
                self._end()

    @property
    def _is_busy(self) -> bool:
        return any(process.sent for process in self._processes)

    def _hand_out(self, supply: Supply) -> None:
        while supply.peek() is not None:
            process = self._with_room()
            if process is None:
                return
            (order,) = supply.take(1)
            future = process.send(order, self._scratch)
            future.add_done_callback(self._done.put)

    def _with_room(self) -> _Process | None:
        """An idle process, a new one, or one that has nothing after its task."""
        least = min(self._processes, key=_Process.load, default=None)
        if least is not None and not least.sent:
            return least
        if len(self._processes) < self.width:
            self._start()
            return self._with_room()
        if least is not None and least.load() < AHEAD:
            return least
        return None

    def _start(self) -> None:
        try:
            self._processes.append(_Process())
        except OSError as error:
            if not self._processes:
                raise MachineCannot(
                    f"no process can be started: {error.strerror}",
                    "sweep with --processes 1",
                ) from error
            self._say(
                f"fewer than {self.width} worker processes have started; they do all"
            )
            self.width = len(self._processes)

    def _received(
        self, future: Future[Outcome], supply: Supply
    ) -> Result | None:
        """The result of a future that is done; None for one of a lost process
        that is done again.
        """
        for process in self._processes:
            if future in process.sent:
                return self._result(process, future, supply)
        return None

    def _result(
        self, process: _Process, future: Future[Outcome], supply: Supply
    ) -> Result | None:
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            return self._lost(process, supply)
        order = process.sent.pop(future)
        if error is None:
            return order.task, future.result()
        failure = TaskFailure(f"{type(error).__name__}: {error}")
        return order.task, Outcome(None, failure)

    def _lost(self, process: _Process, supply: Supply) -> Result | None:
        """Has a lost process's tasks done again. The first one, which it
        computed, may fail by that.
        """
        # Not the task of the future that came first: what is sent to a lost
        # process is refused before the others' futures are done.
        order, *others = process.sent.values()
        process.sent.clear()
        self._processes.remove(process)
        process.end()
        reason = f"worker process {process.pid} was lost"
        number = 1 + len(others)
        self._say(
            f"{reason}: {number_of(number, 'task is', 'tasks are')} done again"
        )
        # The task that was computed is to blame; the others waited behind
        # it.
        order.losses += 1
        if order.losses < LOSSES:
            supply.again([order, *others])
            return None
        supply.again(others)
        return order.given_up(reason)

    def _end(self) -> None:
        # All are killed before the first is waited for.
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.end()
        self._processes.clear()


class _Process:
    """A process, and what it has been sent, the oldest first."""

    def __init__(self) -> None:
        self.sent: dict[Future[Outcome], Order] = {}
        spawn = multiprocessing.get_context("spawn")
        with isolated_spawn(), _without_script():
            # A pool of many breaks as a whole when a process is lost, and
            # does not say which task was with it (decision 44).
            self._pool = ProcessPoolExecutor(1, spawn, initializer=_begin)
            # A pool starts its process with the first task.
            with _without_interrupt():
                self._pool.submit(os.getpid)
        # From Python 3.14 on a pool has kill_workers().
        (process,) = self._pool._processes.values()  # noqa: SLF001
        self.pid = process.pid
        self.kill = process.kill

    def load(self) -> int:
        return len(self.sent)

    def send(self, order: Order, scratch: Path) -> Future[Outcome]:
        """Sends a task; if the process is lost, the future has a BrokenProcessPool."""
        future: Future[Outcome]
        try:
            future = self._pool.submit(
                _outcome, order.task, scratch, code_digest()
            )
        except BrokenProcessPool as error:
            future = Future()
            future.set_exception(error)
        self.sent[future] = order
        return future

    def end(self) -> None:
        """Waits for the end of a process that was killed."""
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _without_script() -> Iterator[None]:
    """Starts processes without the caller's script, which would run, and sweep,
    in each of them.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Starts processes that Ctrl-C does not reach: the driver ends them."""
    # A process inherits the signals that are blocked when it starts.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in a process


def _begin() -> None:
    threading.Thread(target=_end_with_driver, daemon=True).start()


def _end_with_driver() -> None:
    """Ends this process when the driver is gone, which a pool's own process
    does not notice.
    """
    # A pool's process holds both ends of its queue, and so sees no end of
    # it when the driver is killed (decision 44).
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
    os._exit(1)


def _outcome(task: Task, scratch: Path, digest: str) -> Outcome:
    if code_digest() != digest:
        failure = TaskFailure(
            "the sources of Hosenet have changed since the sweep began",
            "start the sweep again",
        )
        return Outcome(None, failure)
    # Two processes would write copies of the same files.
    folder = scratch / str(os.getpid())
    folder.mkdir(exist_ok=True)
    return attempt(task, LocalContext(folder))
