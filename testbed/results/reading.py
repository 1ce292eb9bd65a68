"""A run folder back into typed values; an interrupted run is read as far as it came."""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, NotRequired, TypeVar

from annotated_types import Len
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from testbed.errors import BadInput
from testbed.events import EVENTS, Event, Int, JobEnded, JobSubmitted, Number, RunStarted
from testbed.results import folder as names
from testbed.results.metrics import JobRow, Summary, tally

CHANGED = "the folder was changed after its run: run again"
"""The hint of a damaged folder."""
MADE = "name a folder that `testbed run` or `testbed simulate` made, such as runs/…"
SHOWN_RUNS = 5


@dataclass(frozen=True)
class EventFile:
    """Content of ``events.jsonl``: the n-th event is line n + 1.

    ``broken_line``: the last, cut short by a killed process.
    """

    path: Path
    events: list[Event]
    broken_line: int | None = None


@dataclass(frozen=True)
class Run:
    """One run folder (one policy). Files that an interrupted run never wrote are None or empty."""

    path: Path
    file: EventFile
    started: RunStarted
    rows: tuple[JobRow, ...]
    summary: Summary
    stored_summary: dict[str, Any] | None
    provenance: dict[str, Any] | None
    spec_text: str | None
    resolved: dict[str, Any] | None


T = TypeVar("T")


class _Profile(TypedDict):
    options: Annotated[list[Annotated[list[Number], Len(2, 2)]], Len(1)]


class _Request(TypedDict):
    """Fields of a request's record that are read; each kind of demand has others of its own."""

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


class _Tree(TypedDict):
    root: Int
    # Of large data centres the root alone, below which hangs what links lead to.
    parent: NotRequired[list[Int]]
    uplink: NotRequired[list[Int]]


class _Topology(TypedDict):
    names: list[str]
    slots: list[Int]
    links: _Links
    trees: list[_Tree]
    memory_mib: NotRequired[list[Int]]


_EVENT = {name: TypeAdapter(kind).validator.validate_python for name, kind in EVENTS.items()}
_REQUEST = TypeAdapter(_Request)
_DETAIL = TypeAdapter(_Detail)
_TOPOLOGY = TypeAdapter(_Topology)


def event_from_json(record: Mapping[str, Any]) -> Event:
    """The inverse of :meth:`Event.to_json`; ValueError names what is wrong with the record."""
    given = dict(record)
    name = given.pop("event", None)
    if not isinstance(name, str) or name not in EVENTS:
        raise ValueError(f"unknown event {name!r}")
    where = name
    try:
        event: Event = _EVENT[name](given)
        match event:
            case JobSubmitted():
                where = "job"
                _REQUEST.validate_python(event.job)
            case JobEnded():
                where = "detail"
                _DETAIL.validate_python(event.detail)
            case RunStarted():
                where = "topology"
                _TOPOLOGY.validate_python(event.topology)
    except ValidationError as error:
        raise ValueError(first_fault(error, where)) from None
    return event


def checked(kind: TypeAdapter[T], record: object, path: Path, where: str) -> T:
    """A stored record as its type. Raises BadInput naming the file and what is wrong there."""
    try:
        return kind.validate_python(record)
    except ValidationError as error:
        raise BadInput(f"{path}: damaged: {first_fault(error, where)}", CHANGED) from error


def first_fault(error: ValidationError, where: str) -> str:
    """The first thing wrong with a record, missing fields first: ``job: n_vms is not int``."""
    fault = min(error.errors(include_url=False), key=lambda one: one["type"] != "missing")
    *above, name = [part for part in fault["loc"] if isinstance(part, str)] or ["it"]
    place = ".".join([where, *above])
    if fault["type"] == "missing":
        return f"{place} lacks {name}"
    message = _FAULTS.get(fault["type"], "is {input!r}").format_map(fault)
    return f"{place}: {name} {message}"


_FAULTS = {
    "int_type": "is not int",
    "float_type": "is not float",
    "float_parsing": "is no number",
    "string_type": "is not str",
    "list_type": "is not list",
    "tuple_type": "is not list",
    "dict_type": "is not dict",
    "mapping_type": "is not dict",
    "dataclass_type": "is no object",
    "unexpected_keyword_argument": "is unknown",
    "too_short": "is not as long as it must be",
    "too_long": "is not as short as it must be",
    "less_than": "is not a number that can be counted with",
    "greater_than": "is not a number that can be counted with",
}


def read_events(path: Path) -> EventFile:
    """Parse ``events.jsonl``. Raises BadInput naming file and line where it is damaged.

    A last line without a newline that does not parse is what SIGKILL leaves: it is set aside.
    """
    found = list(_each_line(path))
    whole = [event for event in found if event is not None]
    return EventFile(path, whole, len(found) if len(whole) < len(found) else None)


def stream_events(path: Path) -> Iterator[Event]:
    """The events one by one, without keeping them; otherwise as :func:`read_events`."""
    return (event for event in _each_line(path) if event is not None)


def open_regular(path: Path) -> IO[bytes]:
    """A file opened to be read. Raises OSError, also where it is a FIFO or a device, which may
    never end.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        kind = errno.EISDIR if path.is_dir() else errno.EINVAL
        raise OSError(kind, "not a regular file", str(path))
    return path.open("rb")


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
        event = event_from_json(_object(raw))
    except (ValueError, RecursionError) as error:
        if not raw.endswith(b"\n"):
            return None
        raise BadInput(f"{path}:{number}: damaged: {_why(error)}", CHANGED) from error
    return event


def _why(error: ValueError | RecursionError) -> str:
    """Fault of a text that is no JSON of ours."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    # Of a number with thousands of digits, Python's message names its own settings.
    return str(error).split("; use sys.", 1)[0]


def _object(raw: bytes) -> dict[str, Any]:
    record = from_json(raw)
    if not isinstance(record, dict):
        # ValueError like the rest of what can be wrong with a line
        raise ValueError("not a JSON object")  # noqa: TRY004
    return record


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def from_json(raw: bytes) -> Any:
    """The value of a JSON text; ValueError or RecursionError where it is none, or holds NaN, or
    half a character, which no file could be written with.
    """
    text = raw.decode("utf-8")
    value = _DECODER.decode(text)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def policy_folders(path: Path) -> list[Path]:
    """The folders with an ``events.jsonl``: ``path`` itself, or its policies by name.

    Raises BadInput where ``path`` is no run folder, or holds several runs.
    """
    try:
        if (path / names.EVENTS).is_file():
            return [path]
        below = sorted(sub for sub in path.iterdir() if (sub / names.EVENTS).is_file())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BadInput(f"{path} is not a folder", MADE) from error
    except OSError as error:
        hint = f"see who may read it: ls -l {path}"
        raise BadInput(f"{error.filename or path}: {error.strerror}", hint) from error
    if not below:
        raise BadInput(
            f"{path} is not a run folder: it has no {names.EVENTS}, nor has a folder in it", MADE
        )
    _require_one_run(path, below)
    return below


def in_order_of_list(path: Path, found: list[Path]) -> list[Path]:
    """Policies in the experiment file's order, as the list has it; by name without one."""
    listed = read_json(path / names.SUMMARY)
    entries = listed if isinstance(listed, list) else []
    order = [entry.get("folder") for entry in entries if isinstance(entry, dict)]
    return sorted(found, key=lambda p: order.index(p.name) if p.name in order else len(order))


def _require_one_run(path: Path, below: list[Path]) -> None:
    """One run's policies agree in its name, seed and backend, and none is called as a run is.

    Raises BadInput where it is otherwise: then this is where somebody keeps runs. A policy that was
    killed before its first line says nothing, and belongs to the others.
    """
    runs: dict[tuple[str, int, str], list[str]] = {}
    for folder in below:
        first = next(stream_events(folder / names.EVENTS), None)
        if isinstance(first, RunStarted):
            runs.setdefault((first.run, first.seed, first.backend), []).append(folder.name)
    kept = [folder.name for folder in below if names.is_a_runs(folder.name)]
    if len(runs) > 1 or kept:
        n_runs = max(len(runs), len(kept))
        found = [
            f"{', '.join(own)} ({run}, {backend}, seed {seed})"
            for (run, seed, backend), own in runs.items()
        ]
        more = f" and {len(found) - SHOWN_RUNS:,} more" if len(found) > SHOWN_RUNS else ""
        raise BadInput(
            f"{path} is not a run folder, it holds {n_runs:,} {'run' if n_runs == 1 else 'runs'}:"
            f" {'; '.join(found[:SHOWN_RUNS])}{more}",
            f"name one of them, as {below[0]}",
        )


def policy_of(folder: Path) -> str | None:
    """The policy of a run folder as recorded in the run: a folder's name may not hold it.

    None where the run was killed before its first line. Raises BadInput on a damaged one.
    """
    file = folder / names.EVENTS
    first = next(stream_events(file), None)
    return None if first is None else beginning(file, [first]).policy


def beginning(file: Path, events: list[Event]) -> RunStarted:
    """The first event of a run. Raises BadInput where it is another, or missing."""
    first = events[0] if events else None
    if not isinstance(first, RunStarted):
        raise BadInput(f"{file}:1: damaged: a run begins with run_started")
    return first


def load_run(path: Path) -> Run:
    """One policy's run folder. Raises BadInput where it is none, or damaged."""
    file = read_events(path / names.EVENTS)
    started = beginning(file.path, file.events)
    found = tally(file.events)
    stored = _stored_summary(path / names.SUMMARY)
    above = path.parent
    return Run(
        path=path,
        file=file,
        started=started,
        rows=tuple(found.rows()),
        summary=found.summary(**{key: (stored or {}).get(key) for key in _Stored.__annotations__}),
        stored_summary=stored,
        # Several policies share what belongs to the experiment: it lies one folder up.
        provenance=_first_object(path / names.PROVENANCE, above / names.PROVENANCE),
        spec_text=_first_text(path / names.SPEC, above / names.SPEC),
        resolved=_first_object(path / names.RESOLVED, above / names.RESOLVED),
    )


# What the events do not know: the experiment's name, and what the run took.
class _Stored(TypedDict, total=False):
    name: str | None
    wall_s: Number | None


_STORED = TypeAdapter(_Stored)


def _stored_summary(path: Path) -> dict[str, Any] | None:
    stored = _first_object(path)
    if stored is not None:
        checked(_STORED, stored, path, "summary")
    return stored


def read_json(path: Path) -> Any:
    """A JSON file's value; None where there is no such file. Raises BadInput on a damaged one."""
    try:
        with open_regular(path) as file:
            return from_json(file.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: damaged: {error.msg}", CHANGED) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: damaged: {_why(error)}", CHANGED) from error


def _first_object(*paths: Path) -> dict[str, Any] | None:
    return next((value for value in map(read_json, paths) if isinstance(value, dict)), None)


def claims_of(resolved: object) -> tuple[str, ...]:
    """Invariants that the policy declared in ``spec.resolved.json``; none where it holds none."""
    declared = resolved.get("claims") if isinstance(resolved, dict) else None
    return tuple(map(str, declared)) if isinstance(declared, list) else ()


def _first_text(*paths: Path) -> str | None:
    found = next((path for path in paths if path.is_file()), None)
    return None if found is None else found.read_text(encoding="utf-8", errors="replace")
