"""Haizea's lease workloads: XML leases, or the older form of one line of
numbers a lease.

The older line is ``arrival start duration real-duration nodes cpus memory disk
image size``, where a start of -1 is none (best effort). In XML a lease with an
exact start is an advance reservation, one that is to start now is immediate,
one without is best effort.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from xml.parsers import expat

from jobs.demand import Lease, LeaseType
from jobs.request import JobRequest
from jobs.workload.traces import (
    Complaints,
    Trace,
    check_name,
    quoted_text,
    whole_number,
)

LeaseKind = Literal["AR", "IM", "BE"]
"""Advance reservation, immediate, best effort (MBFCBS, Section 3)."""
LEASE_KINDS: tuple[LeaseKind, ...] = get_args(LeaseKind)

_TYPES: dict[LeaseKind, LeaseType] = {
    "AR": "advance",
    "IM": "immediate",
    "BE": "best-effort",
}

LINE_FIELDS = (
    "arrival",
    "start",
    "duration",
    "real duration",
    "nodes",
    "CPUs",
    "memory",
    "disk",
    "image",
    "image size",
)
_TIME = re.compile(
    r"(\d{1,6}):([0-5]\d):([0-5]\d)(?:\.(\d{1,40}))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A lease that is asked for. Times in seconds; ``cores`` and ``memory_mb``
    are per node.

    ``real_s`` is how long it is really used, where it is known to end before
    its time.
    """

    name: str
    kind: LeaseKind
    arrival_s: float
    start_s: float | None
    duration_s: float
    nodes: int
    cores: int = 1
    memory_mb: int = 1024
    real_s: float | None = None
    line: int = 0


def read_lwf(path: Path, *, lenient: bool = False) -> Trace[LeaseRecord]:
    """The leases of a file of either form. Raises :class:`TraceErrors`, and
    OSError.
    """
    complaints = Complaints()
    lines: list[str] = []
    with complaints.reading(path) as source:
        for text in source:
            lines.append(text)
            complaints.line += 1
    start = next((text.lstrip() for text in lines if text.strip()), "")
    xml = start.startswith("<")
    leases = (
        _Xml(complaints).read(lines)
        if xml
        else _read_lines(lines, complaints)
    )
    return complaints.trace(path, leases, lenient=lenient, noun="lease")


def requests_of(
    leases: Sequence[LeaseRecord],
    *,
    memory: bool = True,
    margin_s: float = 0.0,
) -> tuple[JobRequest, ...]:
    """Leases as requests: each node a VM that computes; ``memory`` False asks
    for none.

    A lease's real duration is the truth behind its stated one, where it is
    known. It is booked for ``margin_s`` more than it states, as its VMs take a
    moment to start and to end.
    """
    return tuple(
        JobRequest(
            id=lease.name,
            submit_s=lease.arrival_s,
            n_vms=lease.nodes,
            bandwidth_bps=0,
            duration_s=lease.duration_s,
            demand=Lease(
                cores=lease.cores,
                memory_mib=lease.memory_mb if memory else 0,
                lease_type=_TYPES[lease.kind],
                wanted_s=lease.start_s if lease.kind == "AR" else None,
            ),
            true_duration_s=lease.real_s,
            estimate_s=lease.duration_s + margin_s if margin_s else None,
        )
        for lease in leases
    )


# ------------------------------------------------------------------ one line a lease


def _read_lines(
    lines: list[str], complaints: Complaints
) -> list[LeaseRecord]:
    """Leases in the older form."""
    leases: list[LeaseRecord] = []
    for number, text in enumerate(lines, 1):
        if text.strip() and not text.lstrip().startswith("#"):
            lease = _lease_of_line(text, number, complaints)
            if lease is not None and _in_order(lease, leases, complaints):
                leases.append(lease)
    return leases


def _lease_of_line(
    text: str, line: int, complaints: Complaints
) -> LeaseRecord | None:
    words = list(re.finditer(r"\S+", text))
    if not words[0].group()[:1].isdigit() and words[0].group()[:1] != "-":
        shown = quoted_text(text.strip())
        message = (
            f"{shown} is no line of this format: {len(LINE_FIELDS)} fields"
        )
        complaints.add(line, words[0].start() + 1, message)
        return None
    if not complaints.has_fields(
        line, words[-1].end(), found=len(words), wanted=len(LINE_FIELDS)
    ):
        return None
    values: list[int] = []
    for k, word in enumerate(words[:8]):
        wrong = _objection(LINE_FIELDS[k], word.group())
        if wrong is not None:
            message = f"field {k + 1} ({LINE_FIELDS[k]}): {wrong}"
            complaints.add(line, word.start() + 1, message)
            return None
        values.append(int(word.group()))
    arrival, start, duration, real, nodes, cores, memory, _ = values
    if 0 <= start < arrival:
        message = f"field 2 (start): {start} s is before the arrival at {arrival} s"
        complaints.add(line, words[1].start() + 1, message)
        return None
    kind: LeaseKind = "AR"
    if start < 0:
        kind = "BE"
    elif start == arrival:
        kind = "IM"
    return LeaseRecord(
        f"lease-{line:05}",
        kind,
        float(arrival),
        None if kind == "BE" else float(start),
        float(duration),
        nodes,
        cores,
        memory,
        float(real) if real != duration else None,
        line,
    )


def _objection(field: str, word: str) -> str | None:
    value = whole_number(word, 12)
    if value is None:
        return f"{quoted_text(word)} is not a whole number"
    if value < 0 and not (field == "start" and value == -1):
        return f"{value} is negative"
    if value == 0 and field in (
        "duration",
        "real duration",
        "nodes",
        "CPUs",
    ):
        return "must be above 0"
    return None


def _in_order(
    lease: LeaseRecord, above: list[LeaseRecord], complaints: Complaints
) -> bool:
    latest = (above[-1].arrival_s, above[-1].line) if above else (0.0, 0)
    return not complaints.is_early(
        lease.line, 1, "arrival", lease.arrival_s, latest
    )


# ------------------------------------------------------------------ XML


class _DocumentTypeError(Exception):
    """A document type, which could define entities that expand without end."""


class _Xml:
    """The present form, read as a stream of elements with their lines."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._leases: list[LeaseRecord] = []
        self._known: dict[str, int] = {}
        self._now: dict[str, tuple[str, int, int]] | None = None
        self._begun = (0, 0)
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    def read(self, lines: list[str]) -> list[LeaseRecord]:
        try:
            self._parser.Parse("".join(lines).encode("latin-1"), True)  # noqa: FBT003 expat's own
        except _DocumentTypeError:
            line, column = self._place()
            wrong = "a document type has no place in a lease workload"
            self._complaints.add_of_file(line, column, wrong)
        except expat.ExpatError as error:
            cut = "no element found" in str(error) or "unclosed" in str(
                error
            )
            wrong = (
                "the file is cut off here"
                if cut
                else expat.ErrorString(error.code)
            )
            self._complaints.add_of_file(
                error.lineno, error.offset + 1, f"not XML: {wrong}"
            )
        except (
            LookupError,
            ValueError,
        ) as error:  # of the declared encoding
            self._complaints.add_of_file(
                *self._place(), f"not XML: {error}"
            )
        return self._leases

    def _refuse_doctype(self, *_: object) -> None:
        raise _DocumentTypeError

    def _place(self) -> tuple[int, int]:
        return (
            self._parser.CurrentLineNumber,
            self._parser.CurrentColumnNumber + 1,
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        place = self._place()
        if tag == "lease-request":
            self._now = {}
            self._begun = place
        if self._now is None:
            return
        if tag == "res":
            self._now[f"res {attributes.get('type', '')}"] = (
                attributes.get("amount", ""),
                *place,
            )
        elif tag in ("start", "now"):
            self._now[tag] = ("", *place)
        for key, value in attributes.items():
            self._now.setdefault(f"{tag} {key}", (value, *place))

    def _end(self, tag: str) -> None:
        if tag != "lease-request" or self._now is None:
            return
        lease = self._lease(self._now)
        self._now = None
        if lease is None:
            return
        if lease.name in self._known:
            wrong = f"lease {lease.name!r} stands in line {self._known[lease.name]} too"
            self._complaints.add(lease.line, self._begun[1], wrong)
        elif _in_order(lease, self._leases, self._complaints):
            self._known[lease.name] = lease.line
            self._leases.append(lease)

    def _lease(
        self, given: dict[str, tuple[str, int, int]]
    ) -> LeaseRecord | None:
        found = self._complaints.found
        arrival_s = self._time(given, "lease-request arrival")
        duration_s = self._time(given, "duration time")
        nodes = self._count(given, "node-set numnodes", 0)
        start_s = (
            self._time(given, "exact time")
            if "exact time" in given
            else None
        )
        real_s = (
            self._time(given, "realduration time")
            if "realduration time" in given
            else None
        )
        cores = self._count(given, "res CPU", 100)
        memory_mb = self._count(given, "res Memory", 1024)
        name = self._name(given)
        if (
            start_s is not None
            and arrival_s is not None
            and start_s < arrival_s
        ):
            _, line, column = given["exact time"]
            wrong = f"starts at {start_s:.15g} s, before it arrives at {arrival_s:.15g} s"
            self._complaints.add(line, column, wrong)
        if (
            self._complaints.found > found
            or arrival_s is None
            or duration_s is None
        ):
            return None
        kind: LeaseKind = "AR"
        if "now" in given:
            kind = "IM"
        elif start_s is None:
            kind = "BE"
        return LeaseRecord(
            name,
            kind,
            arrival_s,
            arrival_s if kind == "IM" else start_s,
            duration_s,
            nodes,
            max(1, cores // 100),
            memory_mb,
            real_s if real_s != duration_s else None,
            self._begun[0],
        )

    def _name(self, given: dict[str, tuple[str, int, int]]) -> str:
        name, line, column = given.get(
            "lease id", (str(len(self._leases) + 1), 0, 0)
        )
        if not (name.isascii() and name.isdecimal()):
            check_name(self._complaints, line, column, "lease id", name)
            return name
        number = whole_number(name, 40)
        if number is None:
            self._complaints.add(
                line,
                column,
                f"lease id: {quoted_text(name)} is too long for a number",
            )
        return f"lease-{number or 0:05}"

    def _time(
        self, given: dict[str, tuple[str, int, int]], key: str
    ) -> float | None:
        """``HH:MM:SS.FF`` in seconds."""
        text, line, column = given.get(key, ("", *self._begun))
        match = _TIME.fullmatch(text)
        if match is None:
            wrong = (
                f"{quoted_text(text)} is no time as 01:30:00.00"
                if text
                else "is missing"
            )
            self._complaints.add(line, column, f"{key}: {wrong}")
            return None
        hours, minutes, seconds, fraction = match.groups()
        whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        if key == "duration time" and whole == 0:
            self._complaints.add(line, column, f"{key}: must be above 0")
        return whole + float(f"0.{fraction or 0}")

    def _count(
        self, given: dict[str, tuple[str, int, int]], key: str, absent: int
    ) -> int:
        text, line, column = given.get(key, (str(absent), *self._begun))
        value = whole_number(text, 9) or 0
        if value < 1:
            wrong = (
                f"{quoted_text(text)} is no number above 0"
                if key in given
                else "is missing"
            )
            self._complaints.add(line, column, f"{key}: {wrong}")
        return value
