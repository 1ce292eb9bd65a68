"""Messages between a sweep's driver and its Dask workers, in the event loop of
Dask's client.
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
from testbed.sweeps.worker_check import Differs, joined_worker

T = TypeVar("T")

AGREE = "install the driver's version of Hosenet, with requirements/run.txt, where the workers run"
REACH = "its own log tells why; other workers may join at any time"


@dataclass(eq=False)
class Seat:
    """A worker that has been checked; ``live`` where it offers the live
    network.

    ``batch_size`` is the number of tasks that it was given last.
    """

    address: str
    facts: worker_side.WorkerFacts
    live: bool
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
class WorkerRefused:
    """A worker has joined and cannot be used."""

    sentence: str
    hint: str = AGREE


@dataclass(frozen=True)
class Lost:
    """A worker has left; ``expected`` where it was told to."""

    address: str
    expected: bool


class UnfitMachine(Exception):
    """The doctor says that a worker's machine cannot run the live network."""


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
        """Start a coroutine in the event loop."""
        return asyncio.run_coroutine_threadsafe(
            work, self._client.loop.asyncio_loop
        )

    @property
    def is_open(self) -> bool:
        return str(self._client.status) == "running"

    # -- who is there

    def watch(self) -> None:
        """Check the workers that are there, to the last of them; report those
        that come and go.
        """
        # Before the list is read: no worker comes unseen in between.
        self._client.subscribe_topic("all", self._on_event)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        self.start(self._check_all(list(workers))).result()

    def unwatch(self) -> None:
        """Hear no more of workers."""
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
        # One that came in between is both in the list and in an event.
        if address in self._known:
            return
        self._known.add(address)
        facts = await joined_worker(self._client, address)
        if facts is None and address in self._known:
            sentence = f"worker {address} is not used: its scheduler does not reach it"
            self._report(WorkerRefused(sentence, REACH))
        elif isinstance(facts, Differs):
            self._report(WorkerRefused(facts.sentence))
        elif facts is not None and address in self._known:
            self._report(Joined(Seat(address, facts, facts.live)))

    # -- tasks

    async def play(
        self, seat: Seat, tasks: Sequence[Task], limit_s: float
    ) -> list[Outcome]:
        """Outcomes of the tasks that worker computes within the limit, of at
        least one.
        """
        live = tasks[0].live
        await self._bring(seat, tasks)
        if live and not seat.examined:
            seat.examined = await self._done(
                seat, worker_side.examined, live=True
            )
            if not seat.examined["doctor"]["can_run"]:
                raise UnfitMachine(seat.examined["doctor"]["verdict"])
        # As bytes, which Dask neither searches for futures nor hashes.
        batch = pickle.dumps(tuple(tasks))
        scratch = str(seat.facts.scratch)
        answer = await self._done(
            seat, worker_side.run_batch, batch, scratch, limit_s, live=live
        )
        outcomes: list[Outcome] = pickle.loads(answer)  # noqa: S301 - from a worker that was checked
        return outcomes

    async def _done(
        self,
        seat: Seat,
        function: Callable[..., T],
        *arguments: object,
        live: bool,
    ) -> T:
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
        # Looked at, so that asyncio does not complain of an exception that
        # nobody waits for.
        answer.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )
        try:
            # Dask's own waiting must not be cut off: it would complain.
            # Released, it ends.
            return await asyncio.shield(answer)
        finally:
            future.release()

    async def stop(self, seats: Iterable[Seat]) -> None:
        """Interrupt the programs that live tasks run there."""
        addresses = [seat.address for seat in seats]
        await self._client.run(
            worker_side.stop, workers=addresses, on_error="ignore"
        )

    # -- files

    async def _bring(self, seat: Seat, tasks: Sequence[Task]) -> None:
        wanted: dict[str, FileRef] = {}
        for task in tasks:
            # By content: equal files are sent once, whatever they are
            # called.
            for ref in task.files.values():
                wanted[ref.sha256] = ref
        for sha256 in wanted.keys() - seat.files:
            path = wanted[sha256].path
            content = Content(sha256, path.stat().st_size, path)
            # Workers of a machine share its cache: the second one finds what
            # the first was sent.
            async with self._sending[seat.facts.boot_id]:
                lacking = await self._run(
                    seat, worker_side.missing, [content]
                )
                for missing in lacking:
                    await self._send(seat, missing)
            seat.files.add(sha256)

    async def _send(self, seat: Seat, content: Content) -> None:
        sender = f"{self._session}-{next(self._numbers)}"
        for offset, part in parts(content):
            await self._run(
                seat, worker_side.receive, content, sender, offset, part
            )

    async def _run(
        self, seat: Seat, function: Callable[..., Any], *arguments: object
    ) -> Any:
        by_address = await self._client.run(
            function, *arguments, workers=[seat.address]
        )
        return by_address[seat.address]
