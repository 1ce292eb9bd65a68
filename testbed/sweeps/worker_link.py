"""Messages between a sweep's driver and its Dask workers.

Coroutines here run in the event loop of Dask's client.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any, TypeVar

from testbed.sweeps import worker_side
from testbed.sweeps.content_store import Content, parts
from testbed.sweeps.tasks import FileRef, Outcome, Task
from testbed.sweeps.worker_check import WorkerRefused, joined_worker

T = TypeVar("T")

REACH = "its own log tells why; other workers may join at any time"
"""Hint where the scheduler does not reach a worker."""


@dataclass(eq=False)
class Seat:
    """A worker that has been checked.

    ``batch_size``: the number of tasks that it was given last. ``files``:
    digests of the files that it has. ``examined``: the doctor's verdict on its
    machine, once it was asked for.
    """

    address: str
    facts: worker_side.WorkerFacts
    batch_size: int = 1
    files: set[str] = field(default_factory=set)
    examined: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"worker {self.address} on host {self.facts.host}"


@dataclass(frozen=True)
class Joined:
    """A worker has joined and may be used."""

    seat: Seat


@dataclass(frozen=True)
class Lost:
    """A worker has left; ``expected``: as it was asked to."""

    address: str
    expected: bool


class UnfitMachine(Exception):
    """A worker's machine cannot run the live network, by the doctor's verdict."""


class WorkerLink:
    """The workers of a Dask ``Client``; ``report`` is called in its event loop."""

    def __init__(
        self,
        client: Any,
        report: Callable[[Joined | WorkerRefused | Lost], None],
    ) -> None:
        self._client = client
        self._report = report
        self._session = secrets.token_hex(4)
        self._numbers = itertools.count()
        self._known: set[str] = set()
        self._sending: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def start(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        """Starts a coroutine in the event loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(
            work, self._client.loop.asyncio_loop
        )

    @property
    def is_open(self) -> bool:
        return str(self._client.status) == "running"

    # -- workers that come and go

    def watch(self) -> None:
        """Checks all workers that are there, and reports those that come and go
        from now on.
        """
        # Before the list is read, so that no worker comes unseen in between.
        self._client.subscribe_topic("all", self._on_event)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        self.start(self._check_all(list(workers))).result()

    def unwatch(self) -> None:
        """Reports no more workers that come and go."""
        self._client.unsubscribe_topic("all")

    async def _check_all(self, addresses: Sequence[str]) -> None:
        await asyncio.gather(*map(self._check, addresses))

    async def _on_event(self, event: tuple[float, Any]) -> None:
        match event[1]:
            case {"action": "add-worker", "worker": str(address)}:
                await self._check(address)
            case {
                "action": "remove-worker",
                "worker": str(address),
                **more,
            }:
                self._known.discard(address)
                self._report(Lost(address, bool(more.get("expected"))))

    async def _check(self, address: str) -> None:
        # A worker that comes while the list is read is in the list, and in
        # an event too.
        if address in self._known:
            return
        self._known.add(address)
        facts = await joined_worker(self._client, address)
        # One that has left meanwhile is not known any more.
        if facts is None and address in self._known:
            sentence = f"worker {address} is not used: its scheduler does not reach it"
            self._report(WorkerRefused(sentence, REACH))
        elif isinstance(facts, WorkerRefused):
            self._report(facts)
        elif facts is not None and address in self._known:
            self._report(Joined(Seat(address, facts)))

    # -- tasks

    async def play(
        self, seat: Seat, tasks: Sequence[Task], limit_s: float
    ) -> list[Outcome]:
        """Has a worker compute tasks; returns the outcomes.

        At least the first is computed; no other one begins after ``limit_s``.
        Raises UnfitMachine.
        """
        # A live task comes alone.
        live = tasks[0].live
        await self._bring(seat, tasks)
        if live and not seat.examined:
            seat.examined = await self._run_task(
                seat, worker_side.examined, live=True
            )
            doctor = seat.examined["doctor"]
            if not doctor["can_run"]:
                raise UnfitMachine(doctor["verdict"])
        # As bytes, which Dask neither searches for futures nor hashes.
        batch = pickle.dumps(tuple(tasks))
        scratch = str(seat.facts.scratch)
        answer = await self._run_task(
            seat, worker_side.run_batch, batch, scratch, limit_s, live=live
        )
        outcomes: list[Outcome] = pickle.loads(answer)  # noqa: S301 - from a worker that was checked
        return outcomes

    async def _run_task(
        self,
        seat: Seat,
        function: Callable[..., T],
        *arguments: object,
        live: bool,
    ) -> T:
        """A function's result on a worker, as a task of Dask's."""
        # One prefix for all keys: the scheduler remembers prefixes for ever.
        key = ("hosenet", self._session, next(self._numbers))
        needs = {worker_side.LIVE: 1} if live else None
        future = self._client.submit(
            function,
            *arguments,
            key=key,
            pure=False,
            workers=[seat.address],
            resources=needs,
        )
        answer: asyncio.Future[T] = asyncio.ensure_future(future)
        # The exception is read, as asyncio complains of one that nobody has
        # read.
        answer.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )
        try:
            # Shielded: Dask would complain if its own waiting were
            # cancelled. It ends when the future is released.
            return await asyncio.shield(answer)
        finally:
            future.release()

    async def stop(self, seats: Iterable[Seat]) -> None:
        """Interrupts the programs that live tasks run on these workers."""
        addresses = [seat.address for seat in seats]
        await self._client.run(
            worker_side.stop, workers=addresses, on_error="ignore"
        )

    # -- files

    async def _bring(self, seat: Seat, tasks: Sequence[Task]) -> None:
        """Sends a worker those of the tasks' files that its machine lacks."""
        wanted: dict[str, FileRef] = {}
        for task in tasks:
            # By content: equal files are sent once, whatever their names.
            for ref in task.files.values():
                wanted[ref.sha256] = ref
        for sha256 in wanted.keys() - seat.files:
            path = wanted[sha256].path
            content = Content(sha256, path.stat().st_size, path)
            # One at a time for each machine, whose workers share its cache:
            # the second one finds there what the first was sent.
            async with self._sending[seat.facts.boot_id]:
                if not await self._call(
                    seat, worker_side.has_content, content
                ):
                    await self._send(seat, content)
            seat.files.add(sha256)

    async def _send(self, seat: Seat, content: Content) -> None:
        sender = f"{self._session}-{next(self._numbers)}"
        for offset, part in parts(content):
            await self._call(
                seat, worker_side.receive, content, sender, offset, part
            )

    async def _call(
        self, seat: Seat, function: Callable[..., Any], *arguments: object
    ) -> Any:
        """A function's result on a worker at once, beside its tasks."""
        by_address = await self._client.run(
            function, *arguments, workers=[seat.address]
        )
        return by_address[seat.address]
