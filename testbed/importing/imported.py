"""Parts read from other tools' files, and the experiment file made of them.

The reader of a format makes a network, jobs, or both. Its notes say what it left
out or had to choose; they become comments of the experiment file.
"""

from __future__ import annotations

import json
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
    """Sentences about an import: parts taken, parts not taken, and choices."""

    taken: list[str] = field(default_factory=list)
    not_taken: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)

    def extend(self, other: Notes) -> None:
        self.taken += other.taken
        self.not_taken += other.not_taken
        self.choices += other.choices

    def leave_out(self, names: Iterable[str], reason: str) -> None:
        """Notes nodes, links or jobs that are not in the file, if any."""
        listed = list(names)
        if not listed:
            return
        shown = ", ".join(listed[:MOST_NAMED])
        if len(listed) > MOST_NAMED:
            shown += f" and {len(listed) - MOST_NAMED:,} more"
        self.not_taken.append(f"{reason}: {shown}")

    def leave_out_counted(self, counts: Mapping[str, int]) -> None:
        """Notes numbers of parts that are not in the file, by their noun."""
        for noun, count in counts.items():
            if count:
                self.not_taken.append(f"{noun}: {count:,}")


@dataclass(frozen=True)
class NetworkLink:
    """A link of a custom topology; ``up_bps``: from its lower end upward."""

    lower: str
    upper: str
    up_bps: int
    down_bps: int
    delay_s: float = 0.0

    def line(self) -> str:
        """The link's line."""
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

    ``left_out``: links of the other file that are not kept. ``speed_flops``:
    speed of the slowest server, if known.
    """

    servers: Mapping[str, int]
    switches: tuple[str, ...]
    links: tuple[NetworkLink, ...]
    roots: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    speed_flops: float | None = None

    @property
    def slots(self) -> int:
        return sum(self.servers.values())

    @property
    def server_link_bps(self) -> int:
        """The smallest capacity of a server's link."""
        capacities = []
        for link in self.links:
            if link.lower in self.servers:
                capacities.append(min(link.up_bps, link.down_bps))
        return min(capacities)

    def lines(self) -> list[str]:
        """The section ``topology``."""
        out = ["topology:", "  kind: custom", "  servers:"]
        for name, slots in self.servers.items():
            out.append(f"    - {{name: {quoted(name)}, slots: {slots}}}")
        out += _named_list("switches", self.switches)
        out.append("  links:")
        for link in self.links:
            out.append(link.line())
        # Where they would stand: who wants one back sees its neighbours.
        for link_name in self.left_out:
            out.append(f"    # left out: {link_name}")
        return out + _named_list("roots", self.roots)


def _named_list(key: str, names: Iterable[str]) -> list[str]:
    lines = [f"  {key}:"]
    for name in names:
        lines.append(f"    - {quoted(name)}")
    return lines


@dataclass(frozen=True)
class Star:
    """A regular tree for jobs that came without a network."""

    fanout: tuple[int, ...]
    slots_per_server: int
    server_link_bps: int = DEFAULT_LINK_BPS

    @property
    def slots(self) -> int:
        servers = 1
        for children in self.fanout:
            servers *= children
        return servers * self.slots_per_server

    def lines(self) -> list[str]:
        """The section ``topology``."""
        fanout = ", ".join(map(str, self.fanout))
        return [
            "topology:  # choose: the file names no network",
            "  kind: tree",
            f"  fanout: [{fanout}]",
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
        """The entry's line."""
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
        # A transfer without bandwidth is none: such a job computes.
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
        lines.append(f"name: {quoted(self.name)}")
        lines += self.topology.lines()
        lines.append(
            f"policies: [{self.policy}]  # choose: `testbed policy`"
        )
        lines += ["workload:", "  kind: jobs", "  jobs:"]
        for job in self.jobs:
            lines.append(job.line())
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """The parts that were taken, for ``--json``."""
        return {
            "name": self.name,
            "source": self.source,
            "servers": self._servers,
            "slots": self.topology.slots,
            "jobs": len(self.jobs),
            "taken": self.notes.taken,
            "not_taken": self.notes.not_taken,
            "choose": self.notes.choices,
        }

    @property
    def _servers(self) -> int:
        if isinstance(self.topology, Network):
            return len(self.topology.servers)
        return self.topology.slots // self.topology.slots_per_server


def in_one_line(text: str) -> str:
    """A text without line ends and control characters, for a comment."""
    printable = [char if char.isprintable() else " " for char in text]
    # In one line: a line end in a name would end the comment, and the rest
    # would be read as YAML.
    return " ".join("".join(printable).split())


def _comment(text: str) -> list[str]:
    lines = wrap(in_one_line(text), _COMMENT_WIDTH)
    return [f"# {line}" for line in lines]


def _time(seconds: float) -> str:
    # To the microsecond: sums of floats would otherwise show their last
    # digits.
    return format_duration(round(seconds, 6))


def _microseconds(seconds: float) -> str:
    digits = f"{seconds * 1e6:.3f}".rstrip("0").rstrip(".")
    return f"{digits} us"


def fits_in_a_file(seconds: float) -> bool:
    """True if an experiment file accepts this time as above 0."""
    return 1e-6 <= seconds <= MAX_DURATION_S


def quoted(text: str) -> str:
    """A text as a YAML scalar, in quotes unless it needs none."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", text):
        try:
            # A word such as "no" or "null" is read as something else.
            if plain_scalar(text) == text:
                return text
        except ScalarError:
            pass
    # JSON's strings are YAML's.
    return json.dumps(text, ensure_ascii=False)


class Names:
    """Allowed and distinct names in place of names from outside."""

    def __init__(
        self, allowed: str = "", longest: int = LONGEST_NAME
    ) -> None:
        self._allowed = allowed
        self._longest = longest
        self._times: Counter[str] = Counter()
        self._taken: set[str] = set()

    @classmethod
    def of_jobs(cls) -> Names:
        """Names of jobs and labels (``jobs.job_names``)."""
        return cls(allowed="A-Za-z0-9._-", longest=64)

    def of(self, foreign: str) -> str:
        """A name that is not taken yet, close to the foreign one."""
        name = self._cleaned(foreign)
        while name in self._taken:
            self._times[name] += 1
            tail = f"-{self._times[name] + 1}"
            # The number must fit: the name is cut, not it.
            base = self._cleaned(foreign)[: self._longest - len(tail)]
            name = base + tail
        self._taken.add(name)
        return name

    def _cleaned(self, foreign: str) -> str:
        # Word by word, for line ends separate words and are not printable.
        words = []
        for word in plain_text(foreign).split():
            words.append("".join(filter(str.isprintable, word)))
        # A link is named by its ends: A - B.
        kept = " ".join(filter(None, words)).replace(" - ", "-")
        if self._allowed:
            kept = re.sub(f"[^{self._allowed}]+", "-", kept).lstrip("._-")
        return kept[: self._longest].strip() or "unnamed"


def refusal(path: Path, message: str, line: int | None = None) -> BadInput:
    """The error of a file that cannot be imported."""
    place = str(path) if line is None else f"{path}:{line}"
    return BadInput(f"{place}: {message}")
