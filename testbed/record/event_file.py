"""``events.jsonl``: written as the run goes, read back as typed events."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any, NotRequired

from annotated_types import Len
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json as quick_json
from typing_extensions import TypedDict

from testbed.errors import BadInput
from testbed.events import (
    EVENTS,
    Event,
    Int,
    JobEnded,
    JobSubmitted,
    Number,
    RunStarted,
)
from testbed.owned_files import FILE_MODE, Owner, new_file
from testbed.record.stored_json import (
    CHANGED,
    fault_of,
    first_fault,
    from_json,
    open_regular,
    plain_value,
)

_LINE = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    separators=(",", ":"),
    default=plain_value,
)


def event_line(event: Event) -> str:
    """An event's line of ``events.jsonl``."""
    return _LINE.encode(event.to_json()) + "\n"


class EventLog:
    """Appends events to ``events.jsonl``, one flushed line each; an event sink
    for the engine.

    A process killed at any moment leaves whole lines and at most one broken
    one, the last. Threads may share it.
    """

    def __init__(self, path: Path, owner: Owner | None = None) -> None:
        self._file: IO[str] = os.fdopen(
            new_file(path, FILE_MODE, owner), "w", encoding="utf-8"
        )
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        line = event_line(event)
        with self._lock:
            self._file.write(line)
            # To the kernel, line by line: SIGKILL then costs one line at most.
            self._file.flush()

    def close(self) -> None:
        """Puts what was written on the disk. Closing twice is allowed."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()
                # To the disk once, at the end: a sync per line would cost
                # milliseconds each.
                os.fsync(self._file.fileno())
                self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class EventFile:
    """Content of ``events.jsonl``: ``events[n]`` is line ``n + 1``.

    ``broken_line``: the number of a last line that a killed process cut
    short; None if there is none.
    """

    path: Path
    events: list[Event]
    broken_line: int | None = None

    @property
    def started(self) -> RunStarted:
        """The first event. Raises BadInput where it is another, or missing."""
        first = self.events[0] if self.events else None
        if not isinstance(first, RunStarted):
            message = "damaged: a run begins with run_started"
            raise BadInput(f"{self.path}:1: {message}")
        return first


class _Profile(TypedDict):
    options: Annotated[list[Annotated[list[Number], Len(2, 2)]], Len(1)]


class _Request(TypedDict):
    """Fields of a request's record that are read; each kind of demand has
    others of its own.
    """

    id: str
    submit_s: Number
    n_vms: Int
    bandwidth_bps: Int
    duration_s: Number
    deadline_s: Number | None
    kind: str
    application: str | None
    value: Number
    # Not every request has them, nor had the first run folders.
    cores: NotRequired[Int]
    memory_mib: NotRequired[Int]
    lease: NotRequired[str | None]
    wanted_s: NotRequired[Number | None]
    estimate_s: NotRequired[Number | None]
    profile: NotRequired[_Profile | None]


class _Iperf3(TypedDict):
    received_bps: list[Number]
    counted_bps: list[Number]


class _Detail(TypedDict):
    price: NotRequired[Number]
    iperf3: NotRequired[_Iperf3]


class _Links(TypedDict):
    lower: list[Int]
    upper: list[Int]
    capacity_bps: list[Int]
    # Where a link has another capacity downward.
    capacity_down_bps: NotRequired[list[Int]]


class _Tree(TypedDict):
    root: Int
    # Large data centres have the root alone: their trees follow from the
    # links.
    parent: NotRequired[list[Int]]
    uplink: NotRequired[list[Int]]


class _Topology(TypedDict):
    names: list[str]
    slots: list[Int]
    links: _Links
    trees: list[_Tree]
    memory_mib: NotRequired[list[Int]]


Check = Callable[[Any], Any]


@dataclass(frozen=True)
class _Checks:
    """Checks of a line's content.

    ``of_event``: by an event's name, the function that makes the event of
    its fields. ``of_record``: by an event's type, the name of a field with a
    record that is only partly known, and the function that checks it.
    """

    of_event: Mapping[str, Check]
    of_record: Mapping[type[Event], tuple[str, Check]]


@cache
def _checks() -> _Checks:
    # Made when the first event is read: that takes a tenth of a short command's
    # time, and few commands read events.
    return _Checks(
        of_event={name: _check_of(kind) for name, kind in EVENTS.items()},
        of_record={
            JobSubmitted: ("job", _check_of(_Request)),
            JobEnded: ("detail", _check_of(_Detail)),
            RunStarted: ("topology", _check_of(_Topology)),
        },
    )


def _check_of(kind: Any) -> Check:
    check: Check = TypeAdapter(kind).validator.validate_python
    return check


def event_from_json(record: Mapping[str, Any]) -> Event:
    """The inverse of :meth:`Event.to_json`; ValueError names what is wrong with
    the record.
    """
    fields = dict(record)
    name = fields.pop("event", None)
    if not isinstance(name, str) or name not in EVENTS:
        raise ValueError(f"unknown event {name!r}")
    where = name
    try:
        event: Event = _checks().of_event[name](fields)
        record_check = _checks().of_record.get(type(event))
        if record_check is not None:
            field, validate = record_check
            where = field
            validate(getattr(event, field))
    except ValidationError as error:
        raise ValueError(first_fault(error, where)) from None
    return event


def read_events(path: Path) -> EventFile:
    """Parses ``events.jsonl``. Raises BadInput naming file and line where it is
    damaged.

    A last line without a newline that does not parse is what SIGKILL leaves: it
    is set aside.
    """
    # The events hold no cycles; looking for some in a million lists doubles the
    # time.
    with paused_collection():
        lines = list(_each_line(path))
    events = [event for event in lines if event is not None]
    broken_line = len(lines) if len(events) < len(lines) else None
    return EventFile(path, events, broken_line)


@contextmanager
def paused_collection() -> Generator[None, None, None]:
    """Without the collector of reference cycles, where it was on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def stream_events(path: Path) -> Iterator[Event]:
    """The events one by one, without keeping them; otherwise as
    :func:`read_events`.
    """
    return (event for event in _each_line(path) if event is not None)


class EventTail:
    """The events of a file that is still written to, as they come.

    A last line without its end is read when the rest of it is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._n_lines = 0

    def new_events(self) -> list[Event]:
        """Events since the last call; none as long as there is no file.

        Raises BadInput where a line is damaged, or what has been read is no
        longer there.
        """
        try:
            with open_regular(self.path) as file:
                return self._after(file)
        except FileNotFoundError:
            if not self._offset:
                return []
            raise BadInput(f"{self.path} is no longer there") from None
        except OSError as error:
            raise BadInput(f"{self.path}: {error.strerror}") from error

    def _after(self, file: IO[bytes]) -> list[Event]:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes < self._offset:
            raise BadInput(
                f"{self.path} is shorter than what was read of it", CHANGED
            )
        file.seek(self._offset)
        new = []
        for raw in file:
            if not raw.endswith(b"\n"):
                break
            event = _parse(self.path, self._n_lines + 1, raw)
            self._n_lines += 1
            self._offset += len(raw)
            if event is not None:
                new.append(event)
        return new


def _each_line(path: Path) -> Iterator[Event | None]:
    try:
        with open_regular(path) as file:
            for number, raw in enumerate(file, 1):
                yield _parse(path, number, raw)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error


def _parse(path: Path, number: int, raw: bytes) -> Event | None:
    """The event on a line; None for a last line that a killed process cut short."""
    try:
        return _quickly_parsed(raw)
    except (ValueError, LookupError, TypeError, AttributeError):
        # The line is damaged, or only too much for the quick parser. The slow
        # one below says what is wrong, if anything.
        pass
    try:
        return event_from_json(_object(raw))
    except (ValueError, RecursionError) as error:
        if not raw.endswith(b"\n"):
            return None
        raise BadInput(
            f"{path}:{number}: damaged: {fault_of(error)}", CHANGED
        ) from error


def _quickly_parsed(raw: bytes) -> Event:
    """The event on a sound line, in a fifth of the time of :func:`from_json`.

    Raises some error on every damaged line, and on some sound ones that
    only Python's own parser takes (nested 200 deep).
    """
    record = quick_json(raw, allow_inf_nan=False, cache_strings="keys")
    checks = _checks()
    event: Event = checks.of_event[record.pop("event")](record)
    record_check = checks.of_record.get(type(event))
    if record_check is not None:
        field, validate = record_check
        validate(getattr(event, field))
    return event


def _object(raw: bytes) -> dict[str, Any]:
    record = from_json(raw)
    if not isinstance(record, dict):
        # ValueError like the rest of what can be wrong with a line
        raise ValueError("not a JSON object")  # noqa: TRY004
    return record
