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
from math import ceil
from pathlib import Path
from typing import Literal, get_args
from xml.parsers import expat

from jobs.demand import Lease, LeaseType
from jobs.request import JobRequest
from jobs.workload.traces import (
    Complaints,
    Trace,
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
_ABOVE_0 = ("duration", "real duration", "nodes", "CPUs")
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


def read_lwf(
    path: Path,
    *,
    lenient: bool = False,
) -> Trace[LeaseRecord]:
    """The leases of a file of either form. Raises :class:`TraceErrors`, and
    OSError.
    """
    complaints = Complaints()
    lines: list[str] = []
    with complaints.reading(path) as source:
        for text in source:
            lines.append(text)
            complaints.line += 1
    # By its first character: both forms' files are called .lwf.
    start = next((text.lstrip() for text in lines if text.strip()), "")
    if start.startswith("<"):
        leases = _Xml(complaints).read(lines)
    else:
        leases = _read_lines(lines, complaints)
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
    requests = []
    for lease in leases:
        request = JobRequest(
            id=lease.name,
            submit_s=lease.arrival_s,
            n_vms=lease.nodes,
            bandwidth_bps=0,
            duration_s=lease.duration_s,
            demand=_demand(lease, memory=memory),
            true_duration_s=lease.real_s,
            estimate_s=lease.duration_s + margin_s if margin_s else None,
        )
        requests.append(request)
    return tuple(requests)


def _demand(
    lease: LeaseRecord,
    *,
    memory: bool,
) -> Lease:
    return Lease(
        cores=lease.cores,
        memory_mib=lease.memory_mb if memory else 0,
        lease_type=_TYPES[lease.kind],
        # An immediate lease has its start too, and wants no reservation.
        wanted_s=lease.start_s if lease.kind == "AR" else None,
    )


# ------------------------------------------------------------------ one line a lease


def _read_lines(
    lines: list[str],
    complaints: Complaints,
) -> list[LeaseRecord]:
    """Leases in the older form."""
    leases: list[LeaseRecord] = []
    for number, text in enumerate(lines, 1):
        if text.strip() and not text.lstrip().startswith("#"):
            lease = _lease_of_line(text, number, complaints)
            if lease is not None and _in_order(lease, complaints):
                leases.append(lease)
    return leases


def _lease_of_line(
    text: str,
    line: int,
    complaints: Complaints,
) -> LeaseRecord | None:
    words = _words(text, line, complaints)
    values = _line_values(words, line, complaints)
    if not values:
        return None
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
        name=f"lease-{line:05}",
        kind=kind,
        arrival_s=float(arrival),
        start_s=None if kind == "BE" else float(start),
        duration_s=float(duration),
        nodes=nodes,
        cores=cores,
        memory_mb=memory,
        real_s=float(real) if real != duration else None,
        line=line,
    )


def _words(
    text: str,
    line: int,
    complaints: Complaints,
) -> list[re.Match[str]]:
    """A line's fields; empty, and reported, where it is no line of this format."""
    words = list(re.finditer(r"\S+", text))
    # Of any other text: one message, not one for each of its words.
    if not words[0].group()[:1].isdigit() and words[0].group()[:1] != "-":
        shown = quoted_text(text.strip())
        message = (
            f"{shown} is no line of this format: {len(LINE_FIELDS)} fields"
        )
        complaints.add(line, words[0].start() + 1, message)
        return []
    if not complaints.has_fields(
        line, words[-1].end(), n_fields=len(words), wanted=len(LINE_FIELDS)
    ):
        return []
    return words


def _line_values(
    words: list[re.Match[str]],
    line: int,
    complaints: Complaints,
) -> list[int]:
    """The first eight fields, all of them numbers; disk and images are not
    read. Empty where there are no words, and, after a report, where one is
    wrong.
    """
    values = []
    for k, word in enumerate(words[:8]):
        wrong = _objection(LINE_FIELDS[k], word.group())
        if wrong is not None:
            message = f"field {k + 1} ({LINE_FIELDS[k]}): {wrong}"
            complaints.add(line, word.start() + 1, message)
            return []
        values.append(int(word.group()))
    return values


def _objection(
    field: str,
    word: str,
) -> str | None:
    value = whole_number(word, 12)
    if value is None:
        return f"{quoted_text(word)} is not a whole number"
    if value < 0 and not (field == "start" and value == -1):
        return f"{value} is negative"
    if value == 0 and field in _ABOVE_0:
        return "must be above 0"
    return None


def _in_order(lease: LeaseRecord, complaints: Complaints) -> bool:
    return not complaints.is_early(
        lease.line, 1, "arrival", lease.arrival_s
    )


# ------------------------------------------------------------------ XML


class _DocumentTypeError(Exception):
    """A document type, which could define entities that expand without end."""


_Attributes = dict[str, tuple[str, int, int]]
"""``ELEMENT ATTRIBUTE`` -> its text, and the line and column of its element."""


class _Xml:
    """The present form, read as a stream of elements with their lines."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._leases: list[LeaseRecord] = []
        self._known: dict[str, int] = {}
        # Of the lease that the parser is in.
        self._attributes: _Attributes | None = None
        self._node_sets: list[_Attributes] = []
        self._begun = (0, 0)
        # expat itself: ElementTree forgets lines.
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    def read(self, lines: list[str]) -> list[LeaseRecord]:
        try:
            # Back to the bytes that were read as Latin-1: the XML declares
            # its own encoding.
            self._parser.Parse("".join(lines).encode("latin-1"), True)  # noqa: FBT003 expat's own
        except _DocumentTypeError:
            line, column = self._place()
            wrong = "a document type has no place in a lease workload"
            self._complaints.add_of_file(line, column, wrong)
        except expat.ExpatError as error:
            line = error.lineno
            column = error.offset + 1
            wrong = f"not XML: {_syntax_objection(error)}"
            self._complaints.add_of_file(line, column, wrong)
        except (LookupError, ValueError) as error:
            # Of the declared encoding.
            line, column = self._place()
            self._complaints.add_of_file(line, column, f"not XML: {error}")
        return self._leases

    def _refuse_doctype(self, *_: object) -> None:
        raise _DocumentTypeError

    def _place(self) -> tuple[int, int]:
        return (
            self._parser.CurrentLineNumber,
            self._parser.CurrentColumnNumber + 1,
        )

    def _start(
        self,
        tag: str,
        attributes: dict[str, str],
    ) -> None:
        place = self._place()
        if tag == "lease-request":
            self._attributes = {}
            self._node_sets = []
            self._begun = place
        if self._attributes is None:
            return
        if tag == "node-set":
            numnodes = attributes.get("numnodes", "")
            self._node_sets.append(
                {"node-set numnodes": (numnodes, *place)}
            )
        elif tag == "res" and self._node_sets:
            resource = f"res {attributes.get('type', '')}"
            amount = attributes.get("amount", "")
            self._node_sets[-1][resource] = (amount, *place)
        elif tag in ("start", "now"):
            self._attributes[tag] = ("", *place)
        for key, value in attributes.items():
            self._attributes.setdefault(f"{tag} {key}", (value, *place))

    def _end(self, tag: str) -> None:
        if tag != "lease-request" or self._attributes is None:
            return
        lease = self._lease(self._attributes)
        self._attributes = None
        if lease is None:
            return
        if lease.name in self._known:
            wrong = f"lease {lease.name!r} stands in line {self._known[lease.name]} too"
            self._complaints.add(lease.line, self._begun[1], wrong)
        elif _in_order(lease, self._complaints):
            self._known[lease.name] = lease.line
            self._leases.append(lease)

    def _lease(self, attributes: _Attributes) -> LeaseRecord | None:
        """The lease; None where anything is wrong with it, all of it reported."""
        n_complaints = self._complaints.total
        arrival_s = self._time(attributes, "lease-request arrival")
        duration_s = self._time(attributes, "duration time")
        nodes, cores, memory_mb = self._nodes()
        start_s = self._optional_time(attributes, "exact time")
        real_s = self._optional_time(attributes, "realduration time")
        name = self._name(attributes)
        self._check_start(attributes, start_s, arrival_s)
        sound = self._complaints.total == n_complaints
        if not sound or arrival_s is None or duration_s is None:
            return None
        kind: LeaseKind = "AR"
        if "now" in attributes:
            kind = "IM"
        elif start_s is None:
            kind = "BE"
        return LeaseRecord(
            name=name,
            kind=kind,
            arrival_s=arrival_s,
            start_s=arrival_s if kind == "IM" else start_s,
            duration_s=duration_s,
            nodes=nodes,
            cores=cores,
            memory_mb=memory_mb,
            real_s=real_s if real_s != duration_s else None,
            line=self._begun[0],
        )

    def _nodes(self) -> tuple[int, int, int]:
        """Nodes of all node-sets; the cores and MB of each node.

        Node-sets of different sizes are reported.
        """
        node_sets = self._node_sets or [{}]
        total = 0
        sizes: list[tuple[int, int]] = []
        for attributes in node_sets:
            total += self._count(attributes, "node-set numnodes", 0)
            sizes.append(self._size(attributes))
        cores, memory_mb = sizes[0]
        for attributes, size in zip(node_sets, sizes, strict=True):
            if size != sizes[0]:
                _, line, column = attributes["node-set numnodes"]
                wrong = self._unlike(size, sizes[0])
                self._complaints.add(line, column, f"node-set: {wrong}")
                break
        return total, cores, memory_mb

    def _size(self, attributes: _Attributes) -> tuple[int, int]:
        """Cores and MB of each node of a node-set."""
        cpu_percent = self._count(attributes, "res CPU", 100)
        memory_mb = self._count(attributes, "res Memory", 1024)
        # A part of a processor takes a slot all the same.
        return max(1, ceil(cpu_percent / 100)), memory_mb

    def _unlike(self, size: tuple[int, int], first: tuple[int, int]) -> str:
        """The objection to a node-set of another size than the first one's."""
        line = self._node_sets[0]["node-set numnodes"][1]
        return (
            f"its nodes have {size[0]} cores and {size[1]} MB,"
            f" those of line {line} have {first[0]} cores and {first[1]} MB:"
            " all nodes of a lease are alike here; ask for them in a lease of"
            " their own"
        )

    def _check_start(
        self,
        attributes: _Attributes,
        start_s: float | None,
        arrival_s: float | None,
    ) -> None:
        if start_s is None or arrival_s is None or start_s >= arrival_s:
            return
        _, line, column = attributes["exact time"]
        wrong = f"starts at {start_s:.15g} s, before it arrives at {arrival_s:.15g} s"
        self._complaints.add(line, column, wrong)

    def _name(self, attributes: _Attributes) -> str:
        unnamed = (str(len(self._leases) + 1), 0, 0)
        name, line, column = attributes.get("lease id", unnamed)
        if not (name.isascii() and name.isdecimal()):
            self._complaints.check_name(line, column, "lease id", name)
            return name
        number = whole_number(name, 40)
        if number is None:
            wrong = f"{quoted_text(name)} is too long for a number"
            self._complaints.add(line, column, f"lease id: {wrong}")
        return f"lease-{number or 0:05}"

    def _optional_time(
        self,
        attributes: _Attributes,
        key: str,
    ) -> float | None:
        return self._time(attributes, key) if key in attributes else None

    def _time(
        self,
        attributes: _Attributes,
        key: str,
    ) -> float | None:
        """``HH:MM:SS.FF`` in seconds."""
        text, line, column = attributes.get(key, ("", *self._begun))
        match = _TIME.fullmatch(text)
        if match is None:
            wrong = "is missing"
            if text:
                wrong = f"{quoted_text(text)} is no time as 01:30:00.00"
            self._complaints.add(line, column, f"{key}: {wrong}")
            return None
        hours, minutes, seconds, fraction = match.groups()
        whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        time_s = whole + float(f"0.{fraction or 0}")
        if key == "duration time" and time_s == 0.0:
            self._complaints.add(line, column, f"{key}: must be above 0")
        return time_s

    def _count(
        self,
        attributes: _Attributes,
        key: str,
        absent: int,
    ) -> int:
        """A number above 0; ``absent``: where it is missing, 0 if it may not."""
        usual = (str(absent), *self._begun)
        text, line, column = attributes.get(key, usual)
        value = whole_number(text, 9) or 0
        if value < 1:
            wrong = "is missing"
            if key in attributes:
                wrong = f"{quoted_text(text)} is no number above 0"
            self._complaints.add(line, column, f"{key}: {wrong}")
        return value


def _syntax_objection(error: expat.ExpatError) -> str:
    text = str(error)
    if "no element found" in text or "unclosed" in text:
        return "the file is cut off here"
    return expat.ErrorString(error.code)
