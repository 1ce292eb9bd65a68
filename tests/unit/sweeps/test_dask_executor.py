"""Which worker is given which task, on scripted workers: no process, no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import BadInput, RunFailed
from testbed.sweeps import dask_executor, worker_side
from testbed.sweeps.dask_executor import DaskExecutor
from testbed.sweeps.tasks import LocalContext, Outcome, Task, attempt
from testbed.sweeps.worker_check import WorkerRefused, joined_worker
from testbed.sweeps.worker_link import Joined, Lost, Seat, UnfitMachine
from testbed.sweeps.worker_side import WorkerFacts
from tests.support.scripted_tasks import Square

Sent = tuple[Seat, list[Task], "Future[list[Outcome]]"]
QUICK_S = 1e-3


def worker(name: str, machine: str = "m", *, live: bool = False) -> Seat:
    facts = WorkerFacts(
        name,
        f"host-{machine}",
        machine,
        live,
        "digest",
        Path("/nowhere"),
    )
    return Seat(f"tcp://{name}", facts)


class Scripted:
    """Stands in for the link to the workers: what is sent waits until the test answers it."""

    def __init__(self, *events: Any) -> None:
        self.first = events
        self.sent: list[Sent] = []
        self.is_open = True
        self.stopped: list[Seat] = []

    def __call__(
        self, _client: object, report: Callable[[Any], None]
    ) -> Scripted:
        self.report = report
        return self

    def watch(self) -> None:
        for event in self.first:
            self.report(event)

    def unwatch(self) -> None:
        pass

    def play(
        self, seat: Seat, tasks: Sequence[Task], limit_s: float
    ) -> tuple[Seat, list[Task]]:
        return seat, list(tasks)

    def stop(self, seats: Sequence[Seat]) -> None:
        self.stopped += seats

    def start(self, work: Any) -> Future[Any]:
        found: Future[Any] = Future()
        if work is None:
            found.set_result(None)
        else:
            self.sent.append((*work, found))
        return found

    def answer(
        self,
        position: int = 0,
        *,
        wall_s: float = QUICK_S,
        most: int = 1000,
    ) -> None:
        """Computes what was sent: the oldest of it, or another."""
        _, tasks, found = self.sent.pop(position)
        outcomes = [
            attempt(task, LocalContext(Path("/nowhere")))
            for task in tasks[:most]
        ]
        found.set_result(
            [
                Outcome(one.result, one.failure, {"wall_s": wall_s})
                for one in outcomes
            ]
        )

    def sizes(self) -> list[int]:
        return [len(tasks) for _, tasks, _ in self.sent]

    def keys(self, name: str) -> list[list[str]]:
        return [
            [t.key for t in tasks]
            for seat, tasks, _ in self.sent
            if seat.facts.name == name
        ]


@pytest.fixture
def opened(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[Scripted, DaskExecutor]]:
    def open_with(
        *events: Any,
        patience_s: float | None = None,
        said: list[str] | None = None,
    ) -> tuple[Scripted, DaskExecutor]:
        link = Scripted(*events)
        monkeypatch.setattr(dask_executor, "WorkerLink", link)
        monkeypatch.setattr(dask_executor, "LOOK_S", 0.001)
        say = (said if said is not None else []).append
        there = DaskExecutor(
            "tcp://here", nullcontext, say, patience_s=patience_s
        )
        return link, there.__enter__()

    return open_with


def counted(drawn: list[int], most: int = 10_000) -> Iterator[Task]:
    for number in range(most):
        drawn.append(number)
        yield Square(number)


class Run:
    """The results of an executor, drawn one by one as the test answers."""

    def __init__(
        self, link: Scripted, results: Iterator[tuple[Task, Outcome]]
    ) -> None:
        self.link = link
        self.results = results
        self.done: list[Task] = []

    def answer(self, position: int = 0, **how: Any) -> None:
        size = len(self.link.sent[position][1])
        self.link.answer(position, **how)
        self.done += [
            next(self.results)[0]
            for _ in range(min(size, how.get("most", size)))
        ]


def begin(
    link: Scripted, there: DaskExecutor, tasks: Iterator[Task]
) -> Run:
    """The first result is there; what else was sent waits."""
    run = Run(link, there.results(tasks))
    start = link.start

    def first(work: Any) -> Any:
        found = start(work)
        link.start = start  # type: ignore[method-assign]
        link.answer()
        return found

    link.start = first  # type: ignore[method-assign]
    run.done.append(next(run.results)[0])
    return run


def test_batches_of_cheap_tasks_grow_twofold(opened: Any) -> None:
    drawn: list[int] = []
    link, there = opened(Joined(worker("a")))
    run = begin(link, there, counted(drawn))
    sizes = []
    for _ in range(10):
        run.answer()
        next_sizes = link.sizes()
        sizes.append(next_sizes[-1])
    assert sizes[:3] == sorted(sizes[:3])
    assert max(sizes) == dask_executor.MOST_IN_BATCH
    assert all(
        later <= 2 * sooner
        for sooner, later in zip([2, *sizes], sizes, strict=False)
    )


def test_long_tasks_are_sent_one_by_one(opened: Any) -> None:
    link, there = opened(Joined(worker("a")), Joined(worker("b")))
    run = begin(link, there, counted([]))
    for _ in range(12):
        run.answer(wall_s=10.0)
    assert link.sizes() == [1] * 2 * dask_executor.AHEAD


@pytest.mark.slow
def test_batches_last_longer_the_more_workers_a_scheduler_has(
    opened: Any,
) -> None:
    """A thousand of half a second would be two thousand messages a second."""
    link, there = opened(
        *(
            Joined(worker(f"w{number}", str(number)))
            for number in range(1000)
        )
    )
    run = begin(link, there, counted([]))
    for _ in range(3000):
        run.answer(wall_s=1.0)
    assert link.sizes()[-1] == 4


def test_no_more_is_drawn_than_workers_have(opened: Any) -> None:
    drawn: list[int] = []
    link, there = opened(Joined(worker("a")), Joined(worker("b")))
    run = begin(link, there, counted(drawn))
    for _ in range(20):
        run.answer(wall_s=10.0)
        had = 2 * dask_executor.AHEAD
        assert len(drawn) - len(run.done) <= had + 1


def test_what_a_worker_gives_back_is_done_again(opened: Any) -> None:
    link, there = opened(Joined(worker("a")))
    run = begin(link, there, counted([], 30))
    while link.sent:
        run.answer(most=1)
    assert list(run.results) == []
    assert sorted(int(task.key.split("-")[1]) for task in run.done) == list(
        range(30)
    )


def test_a_task_of_a_lost_worker_is_alone_on_the_next(opened: Any) -> None:
    link, there = opened(Joined(worker("a")), Joined(worker("b")))
    run = begin(link, there, counted([]))
    suspects = [key for keys in link.keys("b") for key in keys]
    link.report(Lost("tcp://b", expected=False))
    link.sent = [one for one in link.sent if one[0].facts.name == "a"]
    while [suspects[0]] not in link.keys("a"):
        run.answer()
    assert link.keys("a") == [[suspects[0]]]
    run.answer()
    assert link.keys("a") == [[suspects[1]]]


def test_a_worker_that_is_lost_before_it_had_a_task_is_named(
    opened: Any,
) -> None:
    said: list[str] = []
    link, there = opened(
        Joined(worker("a")), Joined(worker("b")), said=said
    )
    link.report(Lost("tcp://b", expected=False))
    link.report(Lost("tcp://never-checked", expected=False))
    run = begin(link, there, iter([Square(0)]))
    link.sent.clear()
    assert list(run.results) == []
    assert said == ["worker tcp://b on host host-m is lost"]


def test_the_hint_is_that_of_the_first_worker_that_cannot_be_used(
    opened: Any,
) -> None:
    with pytest.raises(BadInput, match="unreached") as caught:
        opened(
            WorkerRefused("unreached", "look there"),
            WorkerRefused("another"),
        )
    assert caught.value.hint == "look there"


def test_a_worker_that_was_retired_is_not_held_against_its_tasks(
    opened: Any,
) -> None:
    said: list[str] = []
    link, there = opened(
        Joined(worker("a")), Joined(worker("b")), said=said
    )
    run = begin(link, there, counted([], 40))
    for _ in range(dask_executor.LOSSES + 1):
        link.report(Lost("tcp://b", expected=True))
        link.report(Joined(worker("b")))
        link.sent = [one for one in link.sent if one[0].facts.name == "a"]
        run.answer()
    while link.sent:
        run.answer()
    assert len(run.done) == 40
    assert said == []


def test_nothing_runs_beside_a_live_task(opened: Any) -> None:
    """Neither another one on its machine, nor a simulated one; another machine computes."""
    workers = [worker(name, live=name != "c") for name in "abc"]
    link, there = opened(
        *map(Joined, [*workers, worker("other", "n", live=True)])
    )
    tasks = [
        Square(number, live=number in (2, 3, 4)) for number in range(9)
    ]
    run = begin(link, there, iter(tasks))
    on_machines: list[list[tuple[str, bool]]] = []
    while link.sent:
        on_machines.append(
            [
                (seat.facts.boot_id, tasks[0].live)
                for seat, tasks, _ in link.sent
            ]
        )
        run.answer()
    assert len(run.done) == 9
    for sent in on_machines:
        for machine in "mn":
            there_now = [live for where, live in sent if where == machine]
            assert True not in there_now or len(there_now) == 1
    assert any(
        {("m", True), ("n", True)} <= set(sent) for sent in on_machines
    )


def test_a_machine_that_is_left_out_is_so_with_all_its_workers(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker of it, or the same one started again, is given no live task either."""
    workers = [
        worker("a", live=True),
        worker("b", live=True),
        worker("c", "n", live=True),
    ]
    link, there = opened(*map(Joined, workers))
    start, given = link.start, list[str]()

    def answered(work: Any) -> Future[Any]:
        found: Future[Any] = start(work)
        given.append(work[0].facts.name)
        if work[0].facts.boot_id == "m":
            link.sent.pop()
            found.set_exception(UnfitMachine("no Open vSwitch"))
        else:
            if given.count("c") == 1:
                link.report(Lost("tcp://a", expected=False))
                link.report(Joined(worker("a", live=True)))
            link.answer()
        return found

    monkeypatch.setattr(link, "start", answered)
    done = list(
        there.results(Square(number, live=True) for number in range(5))
    )
    assert [outcome.failure for _, outcome in done] == [None] * 5
    assert sorted(given) == ["a", *"ccccc"]


def test_simulated_tasks_behind_live_ones_that_nobody_can_do(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, there = opened(Joined(worker("a", live=True)))
    start = link.start

    def answered(work: Any) -> Future[Any]:
        found: Future[Any] = start(work)
        if work[1][0].live:
            link.sent.pop()
            found.set_exception(UnfitMachine("no Open vSwitch"))
        else:
            link.answer()
        return found

    monkeypatch.setattr(link, "start", answered)
    done = list(
        there.results(
            Square(number, live=number < 3) for number in range(5)
        )
    )
    failures = [
        str(outcome.failure)
        for _, outcome in done
        if outcome.failure is not None
    ]
    assert [task.key for task, _ in done[3:]] == ["square-3", "square-4"]
    assert len(failures) == 3
    assert all(
        "no live worker is left" in one and "no Open vSwitch" in one
        for one in failures
    )


def test_a_cluster_without_a_worker_ends_the_sweep(opened: Any) -> None:
    link, there = opened(patience_s=0.01)
    with pytest.raises(RunFailed, match="has had no worker"):
        next(there.results(iter([Square(1)])))
    assert link.sent == []


def test_a_scheduler_that_goes_while_nothing_runs(opened: Any) -> None:
    link, there = opened()
    link.is_open = False
    with pytest.raises(RunFailed, match="is gone"):
        next(there.results(iter([Square(1)])))


def test_workers_that_differ_are_said_and_the_others_used(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    opened(
        Joined(worker("a")), WorkerRefused("worker b differs"), said=said
    )
    assert said == ["worker b differs"]
    with pytest.raises(BadInput) as bad:
        opened(
            WorkerRefused("worker b differs"),
            WorkerRefused("worker c differs"),
        )
    assert "can be used: worker b differs (and 1 more)" in bad.value.message


def test_an_error_of_a_workers_file_is_not_one_of_its_connection() -> None:
    class Client:
        """Its worker has the driver's packages, and fails to say its facts."""

        def __init__(self, error: OSError) -> None:
            self.error = error

        async def run(
            self, function: Any, workers: list[str], **arguments: Any
        ) -> dict[str, Any]:
            answer: Any = self.error
            if function is not worker_side.facts:
                arguments.pop("on_error")
                answer = function(**arguments)
            return dict.fromkeys(workers, answer)

    missing = FileNotFoundError(2, "No such file", "/proc/boot_id")
    refused = asyncio.run(joined_worker(Client(missing), "tcp://w"))
    assert isinstance(refused, WorkerRefused)
    assert "fails: " in refused.sentence
    assert "/proc/boot_id" in refused.sentence
    gone = OSError("Timed out trying to connect")
    assert asyncio.run(joined_worker(Client(gone), "tcp://w")) is None
