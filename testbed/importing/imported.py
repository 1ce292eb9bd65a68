"""Parts read from other tools' files, and the experiment file made of them.

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
_COMMENT_WIDTH = 74


@dataclass
class Notes:
    """Sentences about parts taken, parts not taken, and choices to review."""

    taken: list[str] = field(default_factory=list)
    not_taken: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)

    def leave_out(self, names: Iterable[str], reason: str) -> None:
        """Notes names of parts that the experiment file will lack, if any."""
        listed = list(names)
        if not listed:
            return
        shown = ", ".join(listed[:MOST_NAMED])
        if len(listed) > MOST_NAMED:
            shown += f" and {len(listed) - MOST_NAMED:,} more"
        self.not_taken.append(f"{reason}: {shown}")

    def leave_out_counted(self, counts: Mapping[str, int]) -> None:
        """Notes how many parts of each noun the experiment file will lack."""
        for noun, count in counts.items():
            if count:
                self.not_taken.append(f"{noun}: {count:,}")


@dataclass(frozen=True)
class NetworkLink:
    """A link of a custom topology; ``up_bps``: capacity from ``lower`` to
    ``upper``.
    """

    lower: str
    upper: str
    up_bps: int
    down_bps: int
    delay_s: float = 0.0

    def line(self) -> str:
        """The link's line in the experiment file."""
        up = format_bandwidth(self.up_bps)
        capacity = up
        if self.down_bps != self.up_bps:
            capacity = (
                f"{{up: {up}, down: {format_bandwidth(self.down_bps)}}}"
            )
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
    """A custom topology: servers with their slots, switches and links.

    ``left_out``: the imported file's links that are no part of it.
    ``speed_flops``: of the slowest server, in flop/s, if known.
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
        """The smallest capacity of a server's link."""
        return min(
            min(link.up_bps, link.down_bps)
            for link in self.links
            if link.lower in self.servers
        )

    def lines(self) -> list[str]:
        """The section ``topology``."""
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
class Star:
    """A regular tree for jobs without a network."""

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
        """The section ``topology``."""
        return [
            "topology:  # choose: the file names no network",
            "  kind: tree",
            f"  fanout: {list(self.fanout)}",
            f"  links: {format_bandwidth(self.server_link_bps)}",
            f"  slots_per_server: {self.slots_per_server}",
        ]


@dataclass(frozen=True)
class Job:
    """An entry of ``workload.jobs``; without bandwidth it computes."""

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
            *self._sends(),
        ]
        if self.application:
            parts.append(f"application: {quoted(self.application)}")
        if self.after:
            parts.append(f"after: {quoted(self.after)}")
        remark = f"  # {self.remark}" if self.remark else ""
        return f"    - {{{', '.join(parts)}}}{remark}"

    def _sends(self) -> list[str]:
        if not self.bandwidth_bps:
            return ["kind: compute"]
        bandwidth = format_bandwidth(self.bandwidth_bps)
        return [f"bandwidth: {bandwidth}", f"pattern: {self.pattern}"]


@dataclass(frozen=True)
class Imported:
    """An experiment made of other tools' files; ``source`` names them."""

    name: str
    source: str
    notes: Notes
    topology: Network | Star
    jobs: tuple[Job, ...]
    policy: str

    def text(self) -> str:
        """The experiment file."""
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
    """A text without line ends and control characters, for a comment."""
    # A line end would end the comment, and the rest would be YAML.
    printable = [char if char.isprintable() else " " for char in text]
    return " ".join("".join(printable).split())


def _comment(text: str) -> list[str]:
    lines = wrap(in_one_line(text), _COMMENT_WIDTH)
    return [f"# {line}" for line in lines]


def _time(seconds: float) -> str:
    # Rounded, since sums of floats have errors in their last digits.
    return format_duration(round(seconds, 6))


def _microseconds(seconds: float) -> str:
    digits = f"{seconds * 1e6:.3f}".rstrip("0").rstrip(".")
    return f"{digits} us"


def fits_in_a_file(seconds: float) -> bool:
    """True if an experiment file accepts this time as above 0."""
    return 1e-6 <= seconds <= MAX_DURATION_S


def quoted(text: str) -> str:
    """A text as a YAML scalar, in quotes if it needs them."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", text):
        try:
            # YAML reads some words as other values, such as "no" and "null".
            if plain_scalar(text) == text:
                return text
        except ScalarError:
            pass
    # A string of JSON is one of YAML.
    return json.dumps(text, ensure_ascii=False)


class Names:
    """Distinct names of allowed characters for names of imported files.

    ``allowed`` is as in a regular expression's brackets; empty: all printable
    characters. ``longest`` is in characters.
    """

    def __init__(
        self, allowed: str = "", longest: int = LONGEST_NAME
    ) -> None:
        self._allowed = allowed
        self._longest = longest
        self._times: Counter[str] = Counter()
        self._taken: set[str] = set()
        self._labels: dict[str, str] = {}

    @classmethod
    def of_jobs(cls) -> Names:
        """Names of jobs and labels (``jobs.job_names``)."""
        return cls(allowed="A-Za-z0-9._-", longest=64)

    def of(self, foreign: str) -> str:
        """A name that is not taken yet, close to the foreign one."""
        cleaned = self._cleaned(foreign)
        name = cleaned
        while name in self._taken:
            self._times[cleaned] += 1
            tail = f"-{self._times[cleaned] + 1}"
            # Cut, so that the number fits.
            name = cleaned[: self._longest - len(tail)] + tail
        self._taken.add(name)
        return name

    def label(self, foreign: str) -> str:
        """The name of a foreign label, the same each time that it occurs."""
        if foreign not in self._labels:
            self._labels[foreign] = self.of(foreign)
        return self._labels[foreign]

    def _cleaned(self, foreign: str) -> str:
        # Split first: line ends are not printable, but separate words.
        words = []
        for word in plain_text(foreign).split():
            words.append("".join(filter(str.isprintable, word)))
        # A link is called by its ends, A - B: no end's name may hold that.
        kept = " ".join(filter(None, words)).replace(" - ", "-")
        if self._allowed:
            kept = re.sub(f"[^{self._allowed}]+", "-", kept).lstrip("._-")
        return kept[: self._longest].strip() or "unnamed"


def refusal(path: Path, message: str, line: int | None = None) -> BadInput:
    """The error of a file that cannot be imported."""
    place = str(path) if line is None else f"{path}:{line}"
    return BadInput(f"{place}: {message}")
