"""Inputs of one kind of input in worker processes: each is limited in time and in memory.

A worker that is busy with one input for too long, or ends by a signal, is a failure of that input;
another takes its place.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from testbed.cli.main import main

LIMIT_S = 20.0
"""The most that one input may take, on a busy machine, too."""
MEMORY_BYTES = 2 << 30
"""Address space that a worker may take beyond what it has at first."""
SHOWN_FAILURES = 20
REPORT_EVERY_S = 5.0

Try = Callable[[random.Random, Path], str]
"""Makes one input in an empty folder, has the product read it, and names the outcome.

Raises Unsound where that is no proper answer; any other exception is the product's.
"""
Progress = Callable[[int, float], None]
"""Hears the number of inputs tried, and the seconds since the first."""


class Unsound(Exception):
    """An answer that is none."""


@dataclass(frozen=True)
class Tried:
    """One input's outcome; ``why`` is set where it failed, ``place`` is where in the product."""

    number: int
    took_s: float
    peak: int
    outcome: str = "failed"
    why: str | None = None
    place: str = ""
    details: str = ""

    @property
    def sound(self) -> bool:
        return self.why is None


@dataclass
class Outcome:
    """The outcome of all inputs of a kind; ``peak`` in bytes."""

    kind: str
    seed: int
    inputs: int = 0
    duration_s: float = 0.0
    hangs: int = 0
    tracebacks: int = 0
    peak: int = 0
    slowest: tuple[float, int] = (0.0, 0)
    replies: Counter[str] = field(default_factory=Counter)
    failures: list[Tried] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.failures

    def add(self, tried: Tried) -> None:
        self.inputs += 1
        self.peak = max(self.peak, tried.peak)
        self.slowest = max(self.slowest, (tried.took_s, tried.number))
        self.replies[tried.outcome] += 1
        if tried.why is not None:
            self.failures.append(tried)
            self.hangs += tried.outcome == "hang"
            self.tracebacks += tried.outcome == "traceback"

    def text(self) -> str:
        """The outcome in a few lines, with the command that repeats each failure."""
        replies = ", ".join(
            f"{name}: {count}"
            for name, count in sorted(self.replies.items())
        )
        lines = [
            f"{self.kind}, seed {self.seed}: {self.inputs} inputs in {self.duration_s:.1f} s",
            f"  {self.inputs / max(self.duration_s, 1e-9):.0f} inputs/s",
            f"  tracebacks {self.tracebacks}, hangs {self.hangs}, failures {len(self.failures)}",
            f"  memory {self.peak >> 20} MiB at its peak",
            f"  the slowest took {self.slowest[0]:.2f} s: input {self.slowest[1]}",
            f"  outcomes {replies}",
        ]
        first: dict[str, list[Tried]] = {}
        for tried in sorted(
            self.failures, key=lambda failure: failure.number
        ):
            first.setdefault(tried.place or str(tried.why), []).append(
                tried
            )
        for place, alike in list(first.items())[:SHOWN_FAILURES]:
            lines.append(
                f"  FAILED {len(alike)} times: {alike[0].why} {place}"
            )
            lines.append(
                f"    {replay(self.kind, self.seed, alike[0].number)}"
            )
        return "\n".join(lines)


def replay(kind: str, seed: int, number: int) -> str:
    """The command that repeats one input."""
    return f"python -m tests.support.fuzz --kind {kind} --seed {seed} --only {number}"


def randomness(kind: str, seed: int, number: int) -> random.Random:
    """Nothing else decides an input."""
    return random.Random(f"{kind} {seed} {number}")


# ---------------------------------------------------------------------------------- one command


def answered(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a ``testbed`` command."""
    kept = sys.stdout, sys.stderr
    # As in a terminal: what cannot be written as UTF-8 is an error on standard output.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", newline="")
    err = io.TextIOWrapper(
        io.BytesIO(), "utf-8", "backslashreplace", newline=""
    )
    sys.stdout, sys.stderr = out, err
    code: object = None
    try:
        main(arguments)
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout, sys.stderr = kept
    if not isinstance(code, int):
        raise Unsound(f"exit code {code!r}")
    texts = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        texts.append(stream.read())
    return code, *texts


def sound_answer(
    folder: Path,
    good: Sequence[int],
    *arguments: str,
    names: Sequence[str] = ("--set",),
) -> tuple[int, Any]:
    """The exit code, and the JSON value where ``--json`` asks for one.

    Raises Unsound where the code is another, or an error names neither a file in ``folder`` nor
    any of ``names``.
    """
    code, out, err = answered(*arguments)
    command = " ".join(arguments)
    if code not in (*good, 2):
        raise Unsound(f"{command}: exit code {code}: {err[:200]!r}")
    as_json = "--json" in arguments
    value = json.loads(out) if as_json else None
    complaint = out if as_json else err
    if code == 2 and not any(
        name in complaint for name in (str(folder), *names)
    ):
        raise Unsound(
            f"{command}: the error names no file: {complaint[:200]!r}"
        )
    return code, value


# -------------------------------------------------------------------------------------- workers


def try_all(
    kind: str,
    attempt: Try,
    numbers: Sequence[int],
    seed: int,
    progress: Progress | None = None,
    *,
    workers: int = 2,
    limit_s: float = LIMIT_S,
    memory: int = MEMORY_BYTES,
) -> Outcome:
    """Try the inputs, some at a time."""
    outcome = Outcome(kind, seed)
    left = iter(numbers)
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as base:
        pool = [
            _Worker(kind, attempt, seed, Path(base) / str(index), memory)
            for index in range(min(workers, len(numbers)))
        ]
        try:
            for worker in pool:
                worker.give(next(left))
            for tried, worker in _each(pool, limit_s):
                outcome.add(tried)
                if progress is not None:
                    progress(outcome.inputs, time.monotonic() - begin_s)
                number = next(left, None)
                if number is not None:
                    worker.give(number)
        finally:
            for worker in pool:
                worker.end()
    outcome.duration_s = time.monotonic() - begin_s
    return outcome


def _each(
    pool: list[_Worker], limit_s: float
) -> Iterator[tuple[Tried, _Worker]]:
    """Outcomes as they come, until no worker has an input."""
    while busy := [worker for worker in pool if worker.number is not None]:
        # With a limit: a worker that hangs says nothing.
        wait([worker.connection for worker in busy], timeout=0.5)
        for worker in busy:
            tried = worker.taken(limit_s)
            if tried is not None:
                yield tried, worker


class _Worker:
    """A process that tries one input after another; ``number`` is the one it is busy with."""

    def __init__(
        self, kind: str, attempt: Try, seed: int, folder: Path, memory: int
    ) -> None:
        self._start = (kind, attempt, seed, folder, memory)
        self.number: int | None = None
        self._since_s = 0.0
        self._begin()

    def _begin(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(
            target=_work, args=(theirs, *self._start), daemon=True
        )
        self.process.start()
        # Were it open here too, the worker's death would not end the pipe.
        theirs.close()
        self.connection: Connection = ours

    def give(self, number: int) -> None:
        self.number, self._since_s = number, time.monotonic()
        self.connection.send(number)

    def taken(self, limit_s: float) -> Tried | None:
        """The outcome of the input given; None while it may still come."""
        number, took_s = self.number, time.monotonic() - self._since_s
        assert number is not None
        tried: Tried | None = None
        try:
            if self.connection.poll():
                tried = self.connection.recv()
        except EOFError:
            self.process.join()
            why = f"the process ended with code {self.process.exitcode}"
            tried = Tried(number, took_s, 0, "died", why)
        if tried is None and took_s < limit_s:
            return None
        if tried is None:
            tried = Tried(
                number, took_s, 0, "hang", f"no end within {limit_s:g} s"
            )
        if tried.outcome in ("died", "hang"):
            self.end()
            self._begin()
        self.number = None
        return tried

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def _work(
    connection: Connection,
    kind: str,
    attempt: Try,
    seed: int,
    folder: Path,
    memory: int,
) -> None:
    """The worker's own process."""
    limit_memory(memory)
    os.environ.pop("TESTBED_DATA", None)
    while True:
        number = connection.recv()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        connection.send(try_one(kind, attempt, seed, number, folder))


def limit_memory(more: int) -> None:
    """Limits this process's address space to what it has now, and so much more."""
    pages = int(
        Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    )
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(
        resource.RLIMIT_AS,
        (limit, resource.getrlimit(resource.RLIMIT_AS)[1]),
    )


def try_one(
    kind: str, attempt: Try, seed: int, number: int, folder: Path
) -> Tried:
    """The outcome of one input in this process."""
    begin_s = time.monotonic()
    outcome, why, place, details = "failed", None, "", ""
    try:
        with warnings.catch_warnings():
            # A warning is a finding, too.
            warnings.simplefilter("error")
            outcome = attempt(randomness(kind, seed, number), folder)
    except Unsound as error:
        outcome, why = "unsound", str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - that is the finding
        outcome, why = (
            "traceback",
            f"{type(error).__name__}: {str(error)[:200]}",
        )
        place, details = (
            _place(error),
            "".join(traceback.format_exception(error)[-40:]),
        )
    # Linux counts it in KiB, over the process's whole life.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Tried(
        number,
        time.monotonic() - begin_s,
        peak,
        outcome,
        why,
        place,
        details,
    )


def _place(error: BaseException) -> str:
    """The last line of the product that was on the way."""
    frames = traceback.extract_tb(error.__traceback__)
    product_frames = [
        at for at in frames if "/site-packages/" not in at.filename
    ]
    at = product_frames[-1] if product_frames else None
    return (
        ""
        if at is None
        else f"({Path(at.filename).name}:{at.lineno} {at.name})"
    )


def try_alone(kind: str, attempt: Try, seed: int, number: int) -> Tried:
    """The outcome of one input, whose folder stays, with the exception whole on the terminal."""
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{kind}-{number}-"))
    os.environ.pop("TESTBED_DATA", None)
    print(f"input {number} is made in {folder}", flush=True)
    tried = try_one(kind, attempt, seed, number, folder)
    with contextlib.suppress(UnicodeError):
        print(tried.details, end="")
    return tried
