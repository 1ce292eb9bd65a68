"""An executor on a Dask cluster: tasks go to checked workers in batches; the
tasks of a lost worker go to others.

Dask carries code and messages, and starts and ends workers. This module assigns
tasks to workers: only a checked worker has tasks, files are sent to a worker
before its tasks, and a live task has its machine to itself. A checked worker is
a :class:`Seat`.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from testbed.errors import BadInput, MachineCannot, RunFailed, TestbedError
from testbed.sweeps.result_store import fidelity_of
from testbed.sweeps.task_supply import LOSSES, Order, Say, Supply
from testbed.sweeps.tasks import Outcome, Result, Task, TaskFailure
from testbed.sweeps.worker_check import WorkerRefused
from testbed.sweeps.worker_link import (
    Joined,
    Lost,
    Seat,
    UnfitMachine,
    WorkerLink,
)
from testbed.units import number_of

AHEAD = 2
"""Batches that a worker has at most: the current one and the next."""
BATCH_S = 0.5
"""Intended duration of a batch of short tasks with few workers, in seconds."""
MESSAGE_S = 4e-3
"""Time that the scheduler needs for a batch, in seconds: with many workers
batches last longer, so that it keeps up.
"""
SPARE = 4
"""Multiple of a batch's intended duration after which its worker begins no more
of its tasks and returns them.
"""
MOST_IN_BATCH = 200
STOP_S = 10.0
"""Limit of the message to workers that ends their live runs, in seconds."""
LOOK_S = 0.5
"""Interval of checks of the connection while no event comes, in seconds."""

RESUME = "repeat the sweep: it continues (your own cluster needs workers: dask worker ADDRESS)"


@dataclass(eq=False)
class Batch:
    """Orders that were sent to a worker together, and their outcomes to come."""

    number: int
    seat: Seat
    orders: tuple[Order, ...]
    playing: futures.Future[list[Outcome]]

    @property
    def is_live(self) -> bool:
        return self.orders[0].task.live


@dataclass(frozen=True)
class Played:
    """A worker has ended batch ``number``, with outcomes or an error."""

    seat: Seat
    number: int


WorkerEvent = Joined | WorkerRefused | Lost | Played


def _invalid_reasons(outcome: Outcome) -> str | None:
    """Reasons why a live run is invalid, after ``: ``; empty if it states none.

    None for a valid run, or one that meets the file's ``expect`` regardless.
    """
    result = outcome.result or {}
    if fidelity_of(result) != "invalid" or result.get("met"):
        return None
    reasons = "; ".join(map(str, result["summary"]["fidelity"]["reasons"]))
    if reasons:
        return f": {reasons}"
    return ""


class DaskExecutor:
    """Tasks on the workers of a Dask scheduler, which messages call ``name``.

    ``opened`` opens Dask's client, and closes it with all that it started. If
    the next task has no worker for ``patience_s``, the sweep fails; with None
    it waits for ever.
    """

    def __init__(
        self,
        name: str,
        opened: Callable[[], AbstractContextManager[Any]],
        say: Say,
        *,
        patience_s: float | None = None,
    ) -> None:
        self._name = name
        self._opened = opened
        self._say = say
        self._patience_s = patience_s
        self._inbox: queue.SimpleQueue[WorkerEvent] = queue.SimpleQueue()
        self._numbers = itertools.count()
        # By address.
        self._seats: dict[str, Seat] = {}
        # Workers that may have another batch, in the order of their turns.
        self._with_room: dict[Seat, None] = {}
        # Batches that workers have, by number.
        self._sent: dict[Seat, dict[int, Batch]] = {}
        # Number of batches by machine. Machines are known by their boot id.
        self._on_machine: Counter[str] = Counter()
        # Machines on which a live task runs: nothing else is sent there.
        self._quiet: set[str] = set()
        # Machines that have proved unfit for live tasks.
        self._unfit: set[str] = set()
        # True once a worker has joined that offers the live network.
        self._had_live = False
        # Why the last unfit machine is unfit; empty without one.
        self._left_out = ""
        # Smoothed duration of tasks; None before the first is done.
        self._task_s: float | None = None
        self._stack = ExitStack()

    def __enter__(self) -> DaskExecutor:
        with ExitStack() as stack:
            self._link = WorkerLink(
                stack.enter_context(self._opened()), self._inbox.put
            )
            stack.callback(self._link.unwatch)
            # A caller may close the iterator of results only after this exit,
            # or never.
            stack.callback(self._drop)
            self._link.watch()
            self._take_first_workers()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def width(self) -> int:
        """The number of workers now, at least 1."""
        return max(1, len(self._seats))

    def results(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Outcomes in order of completion; closing drops unfinished tasks."""
        supply = Supply(tasks)
        try:
            self._hand_out(supply)
            while (head := supply.peek()) is not None or self._busy:
                if self._has_no_live_worker(head):
                    yield from self._without_live_worker(supply)
                    self._hand_out(supply)
                    continue
                event = self._event(is_waiting=self._lacks_worker(head))
                results = tuple(self._results_of(event, supply))
                # Before the caller takes the results, so that workers do not
                # wait for it.
                self._hand_out(supply)
                yield from results
        finally:
            self._drop()

    # -- assignment of tasks to workers

    @property
    def _busy(self) -> bool:
        return self._on_machine.total() > 0

    def _hand_out(self, supply: Supply) -> None:
        """Sends orders to the workers in turn, until no worker may have any."""
        n_refused = 0
        # A worker that may not have the next order goes to the end of the
        # queue. When all workers in it have done so in sequence, it is over.
        while (
            n_refused < len(self._with_room) and supply.peek() is not None
        ):
            seat = next(iter(self._with_room))
            del self._with_room[seat]
            orders = self._orders_for(seat, supply)
            if orders:
                n_refused = 0
                self._send(seat, orders)
            else:
                n_refused += 1
                self._with_room[seat] = None

    def _orders_for(self, seat: Seat, supply: Supply) -> tuple[Order, ...]:
        """The next orders, if this worker may have them now."""
        head = supply.peek()
        machine = seat.facts.boot_id
        if head is None or machine in self._quiet:
            return ()
        if head.task.live:
            # Other batches on the machine would disturb its measurements.
            if self._on_machine[machine] or not self._offers_live(seat):
                return ()
            return supply.take(1)
        if head.losses:
            # Alone on a worker: if this one is lost too, the task is to blame.
            if self._sent[seat]:
                return ()
            return supply.take(1)
        return supply.take(self._batch_size(seat))

    @property
    def _batch_s(self) -> float:
        """Intended duration of a batch, in seconds."""
        return max(BATCH_S, self.width * MESSAGE_S)

    def _batch_size(self, seat: Seat) -> int:
        """Number of tasks that last ``_batch_s``.

        At most twice the worker's last number: batches grow slowly, so that all
        workers have some of few tasks.
        """
        longest = int(self._batch_s / self._task_s) if self._task_s else 1
        return max(1, min(MOST_IN_BATCH, 2 * seat.batch_size, longest))

    def _send(self, seat: Seat, orders: tuple[Order, ...]) -> None:
        tasks = [order.task for order in orders]
        seat.batch_size = len(orders)
        number = next(self._numbers)
        playing = self._link.start(
            self._link.play(seat, tasks, SPARE * self._batch_s)
        )
        batch = Batch(number, seat, orders, playing)
        self._sent[seat][number] = batch
        self._on_machine[seat.facts.boot_id] += 1
        if batch.is_live:
            self._quiet.add(seat.facts.boot_id)
        # The callback refers to the number, not to the batch: a reference
        # cycle would keep the results in memory.
        batch.playing.add_done_callback(
            lambda _: self._inbox.put(Played(seat, number))
        )
        self._note_room(seat)

    def _note_room(self, seat: Seat) -> None:
        """Notes that a worker may have another batch, if it may."""
        batches = self._sent[seat].values()
        alone = any(
            batch.is_live or batch.orders[0].losses for batch in batches
        )
        if len(batches) < AHEAD and not alone:
            self._with_room[seat] = None

    def _forget(self, batch: Batch) -> None:
        """Notes that a batch is no longer with its worker."""
        del self._sent[batch.seat][batch.number]
        self._on_machine[batch.seat.facts.boot_id] -= 1
        if batch.is_live:
            self._quiet.discard(batch.seat.facts.boot_id)

    def _drop(self) -> None:
        """Cancels all batches and interrupts live runs."""
        batches: list[Batch] = []
        for sent in self._sent.values():
            batches.extend(sent.values())
        live = [batch.seat for batch in batches if batch.is_live]
        for batch in batches:
            batch.playing.cancel()
            self._forget(batch)
            self._note_room(batch.seat)
        if live:
            self._say(
                f"interrupting live runs on {', '.join(map(str, live))}; they clean up there"
            )
            with suppress(OSError, futures.TimeoutError):
                self._link.start(self._link.stop(live)).result(STOP_S)

    # -- events

    def _lacks_worker(self, head: Order | None) -> bool:
        """True if no task is computed and no worker can have the next task."""
        if self._busy:
            return False
        if head is not None and head.task.live:
            return not any(map(self._offers_live, self._seats.values()))
        return not self._seats

    def _offers_live(self, seat: Seat) -> bool:
        return seat.facts.live and seat.facts.boot_id not in self._unfit

    def _has_no_live_worker(self, head: Order | None) -> bool:
        """True if the next task is live and no worker for it is expected.

        A machine was left out as unfit, or the workers never offered the live
        network. After the loss of a live worker another one may join.
        """
        if head is None or not head.task.live:
            return False
        if not self._lacks_worker(head):
            return False
        if self._left_out:
            return True
        return bool(self._seats) and not self._had_live

    def _results_of(
        self, event: WorkerEvent, supply: Supply
    ) -> Iterator[Result]:
        """Handles an event; yields the results that come with it."""
        match event:
            case Joined(seat):
                self._join(seat)
            case WorkerRefused(sentence):
                self._say(sentence)
            case Lost(address, expected):
                yield from self._lost(address, expected, supply)
            case Played(seat, number):
                # A batch that was cancelled before its end is forgotten.
                if batch := self._sent.get(seat, {}).get(number):
                    yield from self._played(batch, supply)

    def _event(self, *, is_waiting: bool) -> WorkerEvent:
        """The next event.

        Raises RunFailed if the scheduler is gone. ``is_waiting``: the next task
        has no worker; raises RunFailed too if no event comes in time.
        """
        patience_s = self._patience_s if is_waiting else None
        until_s = time.monotonic() + (patience_s or 0.0)
        while True:
            try:
                return self._inbox.get(timeout=LOOK_S)
            except queue.Empty:
                if not self._link.is_open:
                    raise self._scheduler_gone() from None
                if patience_s is not None and time.monotonic() > until_s:
                    raise RunFailed(
                        f"{self._name} has had no worker that can be used"
                        f" for {patience_s:g} s",
                        RESUME,
                    ) from None

    def _take_first_workers(self) -> None:
        """Takes the workers that the scheduler has at the start.

        Raises BadInput if all of them are refused.
        """
        refused = []
        # ``watch`` has checked them all; its reports are in the inbox.
        while not self._inbox.empty():
            match self._inbox.get():
                case Joined(seat):
                    self._join(seat)
                case WorkerRefused() as refusal:
                    refused.append(refusal)
        if refused and not self._seats:
            raise self._all_refused(refused)
        for refusal in refused:
            self._say(refusal.sentence)
        if not self._seats:
            self._say(
                f"no worker has joined {self._name} yet: waiting for the first"
            )

    def _all_refused(self, refused: Sequence[WorkerRefused]) -> BadInput:
        others = ""
        if len(refused) > 1:
            others = f" (and {len(refused) - 1} more)"
        return BadInput(
            f"no worker of {self._name} can be used: {refused[0].sentence}{others}",
            refused[0].hint,
        )

    def _join(self, seat: Seat) -> None:
        self._seats[seat.address] = seat
        self._sent[seat] = {}
        self._with_room[seat] = None
        self._had_live |= seat.facts.live

    def _lost(
        self, address: str, expected: bool, supply: Supply
    ) -> Iterator[Result]:
        """Removes a worker, and has its tasks done again."""
        seat = self._seats.pop(address, None)
        if seat is None:
            return
        self._with_room.pop(seat, None)
        orders: list[Order] = []
        for batch in tuple(self._sent[seat].values()):
            batch.playing.cancel()
            self._forget(batch)
            orders.extend(batch.orders)
        del self._sent[seat]
        if not expected:
            self._say_lost(seat, orders)
        # Its tasks are not to blame if the worker was asked to end.
        yield from self._again(
            orders, f"{seat} was lost", supply, blame=not expected
        )

    def _say_lost(self, seat: Seat, orders: Sequence[Order]) -> None:
        lost = f"{seat} is lost"
        if orders:
            tasks = number_of(len(orders), "task is", "tasks are")
            lost += f": {tasks} done again"
            if orders[0].task.live:
                lost += "; what a live run left there, the next one there removes first"
        self._say(lost)

    def _again(
        self,
        orders: Sequence[Order],
        reason: str,
        supply: Supply,
        *,
        blame: bool = True,
    ) -> Iterator[Result]:
        """Has tasks done again; yields the failures of tasks with too many
        losses.

        ``blame``: the attempt counts as a loss of the task.
        """
        repeated = []
        for order in orders:
            order.losses += int(blame)
            if order.losses < LOSSES:
                repeated.append(order)
            else:
                yield order.given_up(reason)
        supply.again(repeated)

    def _played(self, batch: Batch, supply: Supply) -> Iterator[Result]:
        """The results of a batch that a worker has ended."""
        seat = batch.seat
        self._forget(batch)
        self._note_room(seat)
        try:
            outcomes = batch.playing.result()
        except UnfitMachine as error:
            self._leave_out(
                seat, f"its machine cannot run the live network: {error}"
            )
            supply.again(batch.orders)
        except TestbedError as error:
            failed = Outcome(None, TaskFailure.of(error))
            for order in batch.orders:
                yield order.task, failed
        except futures.CancelledError:
            raise self._scheduler_gone() from None
        except Exception as error:  # noqa: BLE001 - whatever a worker raises is about these tasks
            reason = f"{seat}: {type(error).__name__}: {error}"
            yield from self._again(batch.orders, reason, supply)
        else:
            # Tasks that the worker did not begin in time have no outcome.
            supply.again(batch.orders[len(outcomes) :])
            yield from self._valid_results(batch, outcomes, supply)

    def _valid_results(
        self, batch: Batch, outcomes: Sequence[Outcome], supply: Supply
    ) -> Iterator[Result]:
        """Outcomes with their worker; tasks of invalid live runs are done again
        elsewhere.
        """
        seat = batch.seat
        for order, outcome in zip(batch.orders, outcomes, strict=False):
            self._note_time(outcome.provenance["wall_s"])
            reasons = _invalid_reasons(outcome)
            if reasons is not None:
                self._leave_out(
                    seat,
                    f"its live run {order.task.key[:16]} is invalid{reasons}",
                )
                supply.again([order])
                continue
            provenance = {
                **outcome.provenance,
                "worker": seat.facts.name,
                **seat.examined,
            }
            yield order.task, replace(outcome, provenance=provenance)

    def _note_time(self, wall_s: float) -> None:
        """Smooths the duration of tasks, which differs between swept values."""
        if self._task_s is None:
            self._task_s = wall_s
        else:
            self._task_s = 0.7 * self._task_s + 0.3 * wall_s

    # -- unfit machines and the end

    def _leave_out(self, seat: Seat, why: str) -> None:
        """Gives a worker's machine no more live tasks."""
        self._unfit.add(seat.facts.boot_id)
        self._left_out = (
            f"the machine of {seat} is given no more live tasks: {why}"
        )
        self._say(self._left_out)

    def _without_live_worker(self, supply: Supply) -> Iterator[Result]:
        """Failures of the next live tasks, as all machines for them were unfit.

        Raises MachineCannot if no worker offers the live network.
        """
        if not self._left_out:
            raise MachineCannot(
                f"no worker of {self._name} offers the live network (the resource 'testbed')",
                f"on a machine that can: sudo $(command -v dask) worker {self._name}"
                " --nthreads 1 --nworkers 1 --resources testbed=1",
            )
        while (head := supply.peek()) is not None and head.task.live:
            (order,) = supply.take(1)
            why = f"{order.task.key} is not done: no live worker is left; {self._left_out}"
            failure = TaskFailure(why, None, MachineCannot.exit_code)
            yield order.task, Outcome(None, failure)

    def _scheduler_gone(self) -> RunFailed:
        return RunFailed(
            f"the Dask scheduler of {self._name} is gone", RESUME
        )
