"""Networks and jobs read from other tools' files, and the experiment file made
of them.

The reader of a format makes a network, jobs, or both. Its notes on omissions
and choices become comments of the experiment file.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

from testbed.errors import BadInput
from testbed.foreign_text import plain_text
from testbed.spec.document import ScalarError, plain_scalar
from testbed.units import MAX_DURATION_S, format_bandwidth, format_duration

LONGEST_NAME = 40
DEFAULT_LINK_BPS = 10**9
MOST_NAMED = 5
NO_BANDWIDTHS = "capacities that are no bandwidths above 0"
"""Noun for stated capacities that are left out."""
_COMMENT_WIDTH = 74


@dataclass
class Notes:
    """Sentences on parts of the imported file that the experiment file has, on
    parts that it lacks, and on choices that the user should review.
    """

    taken: list[str] = field(default_factory=list)
    not_taken: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)

    def leave_out(self, names: Iterable[str], reason: str) -> None:
        """Adds a sentence on parts that the experiment file lacks, with the first
        of their names. Adds none if there is no name.
        """
        listed = list(names)
        if not listed:
            return
        shown = ", ".join(listed[:MOST_NAMED])
        if len(listed) > MOST_NAMED:
            shown += f" and {len(listed) - MOST_NAMED:,} more"
        self.not_taken.append(f"{reason}: {shown}")

    def leave_out_counted(self, counts: Mapping[str, int]) -> None:
        """Adds a sentence for each kind of parts that the experiment file lacks.

        ``counts``: number of parts by the noun for their kind; 0 adds none.
        """
        self.not_taken.extend(_counted(counts))


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"{noun}: {count:,}" for noun, count in counts.items() if count]


@dataclass(frozen=True)
class NetworkLink:
    """A link of a custom topology.

    ``up_bps``: capacity from ``lower`` to ``upper``. ``down_bps``: capacity in
    the other direction.
    """

    lower: str
    upper: str
    up_bps: int
    down_bps: int
    delay_s: float = 0.0

    def line(self) -> str:
        """The link's line in the experiment file."""
        capacity = format_bandwidth(self.up_bps)
        if self.down_bps != self.up_bps:
            down = format_bandwidth(self.down_bps)
            capacity = f"{{up: {capacity}, down: {down}}}"
        parts = [
            f"lower: {quoted(self.lower)}",
            f"upper: {quoted(self.upper)}",
            f"capacity: {capacity}",
        ]
        if self.delay_s:
            parts.append(f"delay: {_microseconds(self.delay_s)}")
        return f"    - {{{', '.join(parts)}}}"


@dataclass(frozen=True)
class Network:
    """A custom topology.

    - ``servers``: slots by server.
    - ``left_out``: links of the imported file that the topology lacks.
    - ``speed_flops``: speed of the slowest server, in flop/s; None if unknown.
    """

    servers: Mapping[str, int]
    switches: tuple[str, ...]
    links: tuple[NetworkLink, ...]
    roots: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    speed_flops: float | None = None

    @property
    def n_servers(self) -> int:
        return len(self.servers)

    @property
    def slots(self) -> int:
        return sum(self.servers.values())

    @property
    def server_link_bps(self) -> int:
        """The smallest capacity of a server's link, of both directions."""
        return min(
            min(link.up_bps, link.down_bps)
            for link in self.links
            if link.lower in self.servers
        )

    def lines(self) -> list[str]:
        """Lines of the section ``topology``."""
        out = ["topology:", "  kind: custom", "  servers:"]
        for name, slots in self.servers.items():
            out.append(f"    - {{name: {quoted(name)}, slots: {slots}}}")
        out += _named_list("switches", self.switches)
        out.append("  links:")
        out += [link.line() for link in self.links]
        for link_name in self.left_out:
            out.append(f"    # left out: {link_name}")
        return out + _named_list("roots", self.roots)


def _named_list(key: str, names: Iterable[str]) -> list[str]:
    return [f"  {key}:", *(f"    - {quoted(name)}" for name in names)]


@dataclass(frozen=True)
class RegularTree:
    """The topology for jobs from a file that has no network.

    ``fanout``: children of each node, from the root's level downward.
    """

    fanout: tuple[int, ...]
    slots_per_server: int
    server_link_bps: int = DEFAULT_LINK_BPS

    @property
    def n_servers(self) -> int:
        return math.prod(self.fanout)

    @property
    def slots(self) -> int:
        return self.n_servers * self.slots_per_server

    def lines(self) -> list[str]:
        """Lines of the section ``topology``."""
        return [
            "topology:  # choose: the file names no network",
            "  kind: tree",
            f"  fanout: {list(self.fanout)}",
            f"  links: {format_bandwidth(self.server_link_bps)}",
            f"  slots_per_server: {self.slots_per_server}",
        ]


@dataclass(frozen=True)
class Job:
    """An entry of ``workload.jobs``; with 0 bit/s, a job that only computes.

    ``after``: name of another job, which must end before this one arrives; empty:
    none.
    ``remark``: a comment at the end of its line.
    """

    name: str
    at_s: float
    vms: int
    duration_s: float
    bandwidth_bps: int = 0
    pattern: str = "all-to-all"
    application: str = ""
    after: str = ""
    remark: str = ""

    def line(self) -> str:
        """The entry's line in the experiment file."""
        parts = [
            f"id: {quoted(self.name)}",
            f"at: {_time(self.at_s)}",
            f"vms: {self.vms}",
            f"duration: {_time(self.duration_s)}",
            *self._kind(),
        ]
        if self.application:
            parts.append(f"application: {quoted(self.application)}")
        if self.after:
            parts.append(f"after: {quoted(self.after)}")
        remark = f"  # {self.remark}" if self.remark else ""
        return f"    - {{{', '.join(parts)}}}{remark}"

    def _kind(self) -> list[str]:
        if not self.bandwidth_bps:
            return ["kind: compute"]
        bandwidth = format_bandwidth(self.bandwidth_bps)
        return [f"bandwidth: {bandwidth}", f"pattern: {self.pattern}"]


@dataclass(frozen=True)
class Imported:
    """An experiment made from other tools' files, which ``source`` names."""

    name: str
    source: str
    notes: Notes
    topology: Network | RegularTree
    jobs: tuple[Job, ...]
    policy: str

    def text(self) -> str:
        """The text of the experiment file."""
        lines = _comment(f"Imported from {self.source}.")
        for title, sentences in (
            ("Taken", self.notes.taken),
            ("Not taken", self.notes.not_taken),
            ("choose", self.notes.choices),
        ):
            for sentence in sentences:
                lines += _comment(f"{title}: {sentence}")
        lines += [
            f"name: {quoted(self.name)}",
            *self.topology.lines(),
            f"policies: [{self.policy}]  # choose: `testbed policy`",
            "workload:",
            "  kind: jobs",
            "  jobs:",
            *(job.line() for job in self.jobs),
        ]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """The parts that were taken, for ``--json``."""
        return {
            "name": self.name,
            "source": self.source,
            "servers": self.topology.n_servers,
            "slots": self.topology.slots,
            "jobs": len(self.jobs),
            "taken": self.notes.taken,
            "not_taken": self.notes.not_taken,
            "choose": self.notes.choices,
        }


def in_one_line(text: str) -> str:
    """A text for a comment, without line ends and control characters."""
    # After a line end, the rest of the text would be read as YAML.
    printable = [char if char.isprintable() else " " for char in text]
    return " ".join("".join(printable).split())


def stated_capacity(key: str, text: str) -> str:
    """A capacity as the file states it, for notes."""
    return f"{key} {in_one_line(text)!r:.50}"


def _comment(text: str) -> list[str]:
    lines = wrap(in_one_line(text), _COMMENT_WIDTH)
    return [f"# {line}" for line in lines]


def _time(seconds: float) -> str:
    # Sums of floats have errors in their last digits.
    return format_duration(round(seconds, 6))


def _microseconds(seconds: float) -> str:
    digits = f"{seconds * 1e6:.3f}".rstrip("0").rstrip(".")
    return f"{digits} us"


def fits_in_a_file(seconds: float) -> bool:
    """True if a time above 0 is in the range of an experiment file.

    The lower limit is 1 us, since times are rounded to microseconds.
    """
    return 1e-6 <= seconds <= MAX_DURATION_S


def quoted(text: str) -> str:
    """A text as a YAML scalar, in quotes unless it is a plain word."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", text):
        try:
            # YAML reads some words as other values, such as "no" and "null".
            if plain_scalar(text) == text:
                return text
        except ScalarError:
            pass
    # Every JSON string is also a YAML string.
    return json.dumps(text, ensure_ascii=False)


class Names:
    """Maps foreign names, those in imported files, to distinct permitted names.

    ``allowed``: permitted characters, as between the brackets of a regular
    expression; empty: all printable characters. ``longest``: the longest name,
    in characters.
    """

    def __init__(
        self, allowed: str = "", longest: int = LONGEST_NAME
    ) -> None:
        self._allowed = allowed
        self._longest = longest
        self._repetitions: Counter[str] = Counter()
        self._taken: set[str] = set()
        self._labels: dict[str, str] = {}

    @classmethod
    def of_jobs(cls) -> Names:
        """Names that :mod:`jobs.job_names` permits for jobs and labels."""
        return cls(allowed="A-Za-z0-9._-", longest=64)

    def of(self, foreign: str) -> str:
        """A new name, close to the foreign one: repeated calls with the same
        foreign name return different names.
        """
        cleaned = self._cleaned(foreign)
        name = cleaned
        while name in self._taken:
            self._repetitions[cleaned] += 1
            number = f"-{self._repetitions[cleaned] + 1}"
            # The name is cut, so that it is not too long with its number.
            name = cleaned[: self._longest - len(number)] + number
        self._taken.add(name)
        return name

    def label(self, foreign: str) -> str:
        """The name for a foreign label: repeated calls with the same label return
        the same name.
        """
        if foreign not in self._labels:
            self._labels[foreign] = self.of(foreign)
        return self._labels[foreign]

    def _cleaned(self, foreign: str) -> str:
        words = []
        # Line ends are not printable, but they separate words. The text is
        # therefore split before other characters are removed.
        for word in plain_text(foreign).split():
            words.append("".join(filter(str.isprintable, word)))
        # A link is named by its ends, as in "A - B". The name of a node must
        # therefore not contain " - ".
        kept = " ".join(filter(None, words)).replace(" - ", "-")
        if self._allowed:
            kept = re.sub(f"[^{self._allowed}]+", "-", kept).lstrip("._-")
        return kept[: self._longest].strip() or "unnamed"


def refusal(path: Path, message: str, line: int | None = None) -> BadInput:
    """The error for a file that cannot be imported, with the line if known."""
    place = str(path) if line is None else f"{path}:{line}"
    return BadInput(f"{place}: {message}")


def refusal_without_jobs(
    path: Path, message: str, left_out: Mapping[str, int]
) -> BadInput:
    """The error for a file of which every job is left out, with the number of
    jobs by reason.
    """
    reasons = "; ".join(_counted(left_out))
    if reasons:
        message = f"{message} ({reasons})"
    return refusal(path, message)
