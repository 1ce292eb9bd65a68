"""Trace of a backend: its replies to the engine, recorded live and used again
in a replay.

``answers.jsonl`` in a live run's folder holds one line a call. An engine that
gets the same replies is at the same time at the same step, so a policy without
hidden state decides the same; :func:`testbed.play.playing.run_replayed`
compares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from jobs.request import JobRequest
from testbed.embedding.placement import Placement
from testbed.engine.backend import Backend, Completion, StartFailed
from testbed.errors import BadInput, RunFailed
from testbed.events import Number
from testbed.failures import Failure
from testbed.record.folder import DiskReserve
from testbed.record.stored_json import (
    CHANGED,
    from_json,
    regular_bytes,
    typed_record,
)
from testbed.schedulers.actions import Tier

TRACE = "answers.jsonl"

Write = Callable[[dict[str, Any]], None]
TraceLine = tuple[int, dict[str, Any]]
"""A line's number, from 1, and its content."""


class _Answer(TypedDict, total=False):
    """A line of the trace: a call and its result. Keys without a type here are
    calls about a job.
    """

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    now_s: Number
    wait: Number | None
    done: list[Completion]


_ANSWER = TypeAdapter(_Answer)


def writer(file: IO[str], reserve: DiskReserve) -> Write:
    """A function that writes a record as a line, and flushes it."""

    def write(answer: dict[str, Any]) -> None:
        # Not a number and infinity are no JSON: other readers would stop.
        line = json.dumps(answer, separators=(",", ":"), allow_nan=False)
        with reserve.guarding():
            file.write(f"{line}\n")
            # The trace of a killed run is as long as its events.
            file.flush()

    return write


def _about(call: str) -> Callable[..., None]:
    """The method of a call about a job that has been started."""

    def method(
        self: _JobCalls, job_id: str, *arguments: object, **named: object
    ) -> None:
        self.about(call, job_id, *arguments, **named)

    return method


class _JobCalls:
    """A backend's calls about a job that has been started, all of which are
    handled alike.
    """

    def about(
        self,
        call: str,
        job_id: str,
        *arguments: object,
        **named: object,
    ) -> None:
        raise NotImplementedError

    rescale = _about("rescale")
    preempt = _about("preempt")
    resume = _about("resume")
    migrate = _about("migrate")
    switch_tier = _about("switch_tier")
    kill = _about("kill")
    reroot = _about("reroot")
    cut = _about("cut")
    reconnect = _about("reconnect")


class TracingBackend(_JobCalls):
    """A backend whose return values are recorded. See
    :class:`testbed.engine.backend.Backend`.
    """

    def __init__(self, backend: Backend, write: Write) -> None:
        self._backend = backend
        self._write = write
        self.name = backend.name

    def now_s(self) -> float:
        # Each reading of the clock: policies decide by the time.
        now_s = self._backend.now_s()
        self._write({"now_s": now_s})
        return now_s

    def wait(self, until_s: float | None) -> list[Completion]:
        done = self._backend.wait(until_s)
        ended = [completion._asdict() for completion in done]
        self._write({"wait": until_s, "done": ended})
        return done

    def start(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
    ) -> None:
        try:
            self._backend.start(job, placement, rate_bps, tier)
        # Unlike a call without a reply it is written after it is made: its
        # reply is whether the job starts.
        except StartFailed as error:
            self._write({"start": job.id, "failed": str(error)})
            raise
        self._write({"start": job.id})

    # Calls without a reply are written before they are made: one that raises
    # ends the run, and a replay is to come as far.

    def fail(self, failure: Failure) -> None:
        self._write({"fail": failure.kind})
        self._backend.fail(failure)

    def about(
        self,
        call: str,
        job_id: str,
        *arguments: object,
        **named: object,
    ) -> None:
        self._write({call: job_id})
        getattr(self._backend, call)(job_id, *arguments, **named)


class ReplayBackend(_JobCalls):
    """Replies to each call as in the trace; calls must come in the trace's
    order.

    RunFailed names the first call that the trace does not hold: a decision
    differs from there on. The arguments of a call beside its job are decisions,
    too: they are compared by the events.
    """

    name = "replay"

    def __init__(self, trace: Iterator[TraceLine]) -> None:
        self._trace = trace

    def _next(self, call: str, of: object) -> dict[str, Any]:
        number, answer = next(self._trace, (0, {}))
        # With a default that equals nothing: None is the end of a wait without
        # one.
        if answer.get(call, _NOTHING) == of:
            return answer
        held = f"line {number}: {answer}" if number else "nothing more"
        asked = call if of is None else f"{call} {of}"
        raise RunFailed(
            f"replay: the engine asks for {asked}, the run's trace holds {held}"
        )

    def now_s(self) -> float:
        # Not by `_next`: any time will do.
        number, answer = next(self._trace, (0, {}))
        if "now_s" not in answer:
            raise RunFailed(
                f"replay: the engine asks for the time, line {number} is {answer}"
            )
        return float(answer["now_s"])

    def wait(self, until_s: float | None) -> list[Completion]:
        ended = self._next("wait", until_s).get("done", [])
        return [Completion(**completion) for completion in ended]

    def start(self, job: JobRequest, *_: object) -> None:
        failed = self._next("start", job.id).get("failed")
        if failed is not None:
            raise StartFailed(str(failed))

    def fail(self, failure: Failure) -> None:
        self._next("fail", failure.kind)

    def about(
        self, call: str, job_id: str, *_: object, **named: object
    ) -> None:
        del named
        self._next(call, job_id)


_NOTHING = object()


def read_trace(path: Path) -> Iterator[TraceLine]:
    """Every line. Raises BadInput for a trace that is missing or damaged."""
    try:
        lines = regular_bytes(path).splitlines()
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror}",
            "only live runs keep a trace: testbed run writes it",
        ) from error
    for number, line in enumerate(lines, 1):
        try:
            answer = from_json(line)
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{path}:{number}: damaged: {error}", CHANGED
            ) from error
        except (ValueError, RecursionError):
            return  # cut short: the process was killed here
        typed_record(_ANSWER, answer, Path(f"{path}:{number}"), "answer")
        yield number, answer
