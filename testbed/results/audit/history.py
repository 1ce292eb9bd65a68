"""Input and output of every check: a run's events by line and job, its topology, its findings."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from testbed.errors import BadInput
from testbed.events import Event, JobReserved, JobSubmitted, LinkSample, RunEnded, RunStarted
from testbed.results.folder import RESOLVED
from testbed.results.reading import EventFile, read_json

Kind = TypeVar("Kind", bound=Event)

LEVELS = ("ok", "suspect", "invalid")
"""Levels of a note on fidelity, from good to bad."""
OUTCOMES = ("finished", "rejected", "killed", "unfinished")

_CLAIMS_OF_EARLIER_FOLDERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("dcloud", "dcloud-ts", "dcloud-bs"), ("within-deadline",)),
    **dict.fromkeys(("jsa", "simple-jsa"), ("options-within-deadline",)),
    "easy": ("head-not-delayed",),
    "fcfs": ("in-order-of-arrival",),
    "mbfcbs": ("best-effort-preempted-once",),
    "scripted": ("every-job-starts",),
    "vc": ("granted-as-asked",),
}
"""Claims by policy, for run folders that do not hold them yet."""


Place = Event | tuple[str, int | None]
"""An event, or a file and its line (None: the file as a whole)."""
Found = Iterator[tuple[Place, str]]
"""A check's finding: the place of a fault, and a sentence on it."""


@dataclass
class JobHistory:
    """One job: its request and all its events, in the order of the file."""

    job_id: str
    events: list[Event] = field(default_factory=list)

    def all(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    def first(self, kind: type[Kind]) -> Kind | None:
        return next(iter(self.all(kind)), None)

    @cached_property
    def request(self) -> Mapping[str, Any]:
        """Empty for a job that was never submitted."""
        submitted = self.first(JobSubmitted)
        return {} if submitted is None else submitted.job

    @property
    def slots_per_vm(self) -> int:
        """Slots that each of its VMs takes: the cores of a lease, else 1."""
        return int(self.request.get("cores", 1))


@dataclass(frozen=True)
class History:
    """The run under audit. ``folder`` is where its tables lie; ``declared`` is the resolved
    experiment of a run that has no folder.
    """

    folder: Path
    file: EventFile
    started: RunStarted
    declared: dict[str, Any] | None = None

    @property
    def events(self) -> Sequence[Event]:
        return self.file.events

    @cached_property
    def lines(self) -> dict[int, int]:
        """The line of each event, by its identity."""
        return {id(event): number for number, event in enumerate(self.events, 1)}

    @cached_property
    def topology(self) -> Topology:
        return Topology(self.started.topology)

    @cached_property
    def jobs(self) -> dict[str, JobHistory]:
        """Every job any event names, by first mention."""
        out: dict[str, JobHistory] = {}
        for event in self.events:
            job_id = job_of(event)
            if job_id is not None:
                out.setdefault(job_id, JobHistory(job_id)).events.append(event)
        return out

    @cached_property
    def requested(self) -> list[JobHistory]:
        """Every job that was submitted."""
        return [job for job in self.jobs.values() if job.request]

    def reserved(self) -> Iterator[tuple[Mapping[str, Any], JobReserved]]:
        """Every reservation of a submitted job with the job's request, job by job."""
        for job in self.requested:
            for event in job.all(JobReserved):
                yield job.request, event

    @property
    def end_s(self) -> float:
        return self.events[-1].t

    @property
    def live_slack_s(self) -> float:
        """Time by which a live run may be late, since processes take a moment to start and to be
        ended: a second, and one per cent of the run's length. Its replay has its times. Nothing in
        a simulated one.
        """
        return 1.0 + 0.01 * self.end_s if self.started.backend != "sim" else 0.0

    @property
    def machine_second_s(self) -> float:
        """A second of a live run's machine, in the experiment's time; 0 in a simulated run."""
        resolved: Any = self.resolved
        try:
            scale = float(resolved["scale"]["time"])
        except (LookupError, TypeError, ValueError):
            scale = 1.0  # the file itself is another check's
        return scale if self.started.backend != "sim" and math.isfinite(scale) else 0.0

    def each(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def status(self) -> str:
        """The status that the run ended with."""
        ends = self.each(RunEnded)
        return ends[-1].status if ends else "interrupted"

    @cached_property
    def resolved(self) -> dict[str, Any] | str:
        """``spec.resolved.json``, or what is wrong with it."""
        if self.declared is not None:
            return self.declared
        # The policies of an early run share the file above them.
        for folder in (self.folder, self.folder.parent):
            if os.path.lexists(folder / RESOLVED):
                return parsed(folder / RESOLVED)
        return "is missing: the jobs asked for are unknown"

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """Invariants that the policy declared for itself in ``spec.resolved.json``."""
        declared = None if isinstance(self.resolved, str) else self.resolved.get("claims")
        if isinstance(declared, list):
            return tuple(str(claim) for claim in declared)
        if self.policy == "easy" and "estimates=user" in self.started.policy:
            return ("head-not-delayed-by-user-estimates",)
        return _CLAIMS_OF_EARLIER_FOLDERS.get(self.policy, ())

    @property
    def policy(self) -> str:
        """The policy's name without its parameters: ``dcloud-ts`` of ``dcloud-ts-gamma=0.12``."""
        return re.split(r"-[a-z_]+=", self.started.policy, maxsplit=1)[0]


def job_of(event: Event) -> str | None:
    """The job an event is about; None for the run's own events."""
    if isinstance(event, JobSubmitted):
        return str(event.job["id"])
    job_id = getattr(event, "job_id", None)
    return job_id if isinstance(job_id, str) else None


def parsed(path: Path) -> dict[str, Any] | str:
    """The object in a JSON file, or what is wrong with it. Raises BadInput where this user may not
    read it.
    """
    try:
        value = read_json(path)
    except BadInput as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        return error.message.removeprefix(str(path)).removeprefix(": ")
    if value is None and not path.is_file():
        return "is missing"
    return value if isinstance(value, dict) else "is not an object"


def about(a: float, b: float, slack_s: float = 0.0) -> bool:
    """``a <= b`` but for the rounding of sums of floats (and ``slack_s``)."""
    return a <= b + slack_s + 1e-9 * max(1.0, abs(a), abs(b))


# -- the data centre as the run declared it


class Topology:
    """``topology`` of ``run_started``: slots per server, links, and the trees by their root.

    ``memory_mib`` is None where memory limits nothing. A tree that lists no
    parents and uplinks is all that hangs below its root by links.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.names: Sequence[str] = record["names"]
        self.slots: Sequence[int] = record["slots"]
        self.memory_mib: Sequence[int] | None = record.get("memory_mib")
        self.lower, self.upper, self.capacity_bps = (
            record["links"][key] for key in ("lower", "upper", "capacity_bps")
        )
        self.all_trees: Sequence[Mapping[str, Any]] = record["trees"]
        self.trees = {tree["root"]: tree for tree in self.all_trees}
        self._above: dict[int, tuple[Sequence[int], Sequence[int]]] = {}

    @property
    def n_nodes(self) -> int:
        return len(self.names)

    @property
    def n_directed(self) -> int:
        """Directed links: 2·l upward, 2·l + 1 downward."""
        return 2 * len(self.capacity_bps)

    def node(self, number: int) -> str:
        return self.names[number] if 0 <= number < self.n_nodes else str(number)

    def link(self, directed: int) -> str:
        """A directed link's ends, in the direction of the traffic."""
        if not 0 <= directed < self.n_directed:
            return str(directed)
        ends = [self.lower[directed // 2], self.upper[directed // 2]]
        return " -> ".join(self.node(end) for end in (ends[::-1] if directed % 2 else ends))

    def problems(self) -> list[str]:
        """Faults that keep the arrays from being a data centre; other checks rely on none."""
        n = self.n_nodes
        if not len(self.lower) == len(self.upper) == len(self.capacity_bps):
            return ["the links' arrays differ in length"]
        out = []
        if len(self.slots) > n or any(count < 0 for count in self.slots):
            out.append("slots do not match the nodes")
        if self.memory_mib is not None and len(self.memory_mib) != len(self.slots):
            out.append("memory does not match the servers")
        for number, ends in enumerate(zip(self.lower, self.upper, strict=True)):
            if not all(0 <= end < n for end in ends):
                out.append(f"link {number} ends at a node that does not exist")
            if self.capacity_bps[number] < 0:
                out.append(f"link {number} has a capacity below 0")
        for tree in self.all_trees:
            out += self._tree_problems(tree)
        return out

    def _tree_problems(self, tree: Mapping[str, Any]) -> list[str]:
        root, parent, uplink = tree["root"], tree.get("parent", ()), tree.get("uplink", ())
        if tree.keys() == {"root"}:
            return [] if 0 <= root < self.n_nodes else [f"the tree's root {root} does not exist"]
        if len(parent) != self.n_nodes or len(uplink) != self.n_nodes:
            return [f"the tree below {root} has not one entry a node"]
        for node, (above, link) in enumerate(zip(parent, uplink, strict=True)):
            if not -1 <= above < self.n_nodes or link < -1 or (node == root and above >= 0):
                return [f"the tree below {root}: node {node} cannot have {above} above it"]
            # Only a flat cluster's nodes stand below their root without links.
            if above >= 0 and link < 0 and self.lower:
                return [f"the tree below {root}: no link leads from {node} to {above}"]
            ends = (self.lower[link], self.upper[link]) if link in range(len(self.lower)) else ()
            if link >= 0 and ends != (node, above):
                return [f"the tree below {root}: link {link} does not lead from {node} to {above}"]
        return [] if 0 <= root < self.n_nodes else [f"the tree's root {root} does not exist"]

    def misplaced(self, root: int, vms_on: Sequence[Sequence[int]], n_vms: int) -> list[str]:
        """Faults of a placement, its bandwidth apart."""
        if root not in self.trees:
            return [f"its root {root} is the root of no tree"]
        servers = [server for server, _ in vms_on]
        out = []
        if len(set(servers)) != len(servers):
            out.append("a server is named twice")
        if total := sum(count for _, count in vms_on) - n_vms:
            out.append(f"{n_vms + total} VMs are placed, {n_vms} were asked for")
        for server, count in vms_on:
            if not 0 <= server < len(self.slots):
                out.append(f"node {server} is not a server")
            elif count < 1:
                out.append(f"{count} VMs on {self.node(server)}")
            elif self._path(root, server) is None:
                out.append(f"{self.node(server)} is not below {self.node(root)}")
        return out

    def _path(self, root: int, server: int) -> list[int] | None:
        """The links from a server up to the root; None where they do not lead there."""
        parent, uplink = self._tree(root)
        links: list[int] = []
        node, steps = server, 0
        while node != root:
            if parent[node] < 0 or steps > self.n_nodes:
                return None
            if uplink[node] >= 0:
                links.append(uplink[node])
            node = parent[node]
            steps += 1
        return links

    def _tree(self, root: int) -> tuple[Sequence[int], Sequence[int]]:
        """The node above each node in a tree, and the link to it; -1 where there is none, or
        where links lead down to the node in two ways.
        """
        if root not in self._above:
            listed = self.trees[root]
            found = (listed["parent"], listed["uplink"]) if "parent" in listed else None
            self._above[root] = found or self._hanging(root)
        return self._above[root]

    def _hanging(self, root: int) -> tuple[Sequence[int], Sequence[int]]:
        parent, uplink = [-1] * self.n_nodes, [-1] * self.n_nodes
        if not self.lower:  # a flat cluster's nodes hang below their root without links
            parent[: len(self.slots)] = [root] * len(self.slots)
        waiting, reached = [root], {root}
        for upper in waiting:
            for link in self._links_below.get(upper, ()):
                lower = self.lower[link]
                parent[lower], uplink[lower] = (-1, -1) if lower in reached else (upper, link)
                if lower not in reached:
                    waiting.append(lower)
                reached.add(lower)
        return parent, uplink

    @cached_property
    def _links_below(self) -> dict[int, list[int]]:
        out: dict[int, list[int]] = {}
        for link, upper in enumerate(self.upper):
            out.setdefault(upper, []).append(link)
        return out

    def hose(self, root: int, vms_on: Iterable[Sequence[int]], rate_bps: int) -> dict[int, int]:
        """min(X, N-X)·B in both directions of every link with VMs on both of its sides."""
        below: dict[int, int] = {}
        n = 0
        for server, count in vms_on:
            n += count
            for link in self._path(root, server) or ():
                below[link] = below.get(link, 0) + count
        need = {}
        for link, x in below.items():
            if amount := min(x, n - x) * rate_bps:
                need[2 * link] = need[2 * link + 1] = amount
        return need


# -- checks and their results


Status = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """Something wrong, and where: the file and its line (None: the file as a whole)."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


@dataclass(frozen=True)
class Check:
    """One invariant. ``applies`` gives the reason why it does not, or None where it does.

    One with ``claims`` is proved of policies that declare one of them.
    """

    name: str
    says: str
    find: Callable[[History], Found]
    applies: Callable[[History], str | None] = lambda _: None
    claims: tuple[str, ...] = ()

    def why_not(self, history: History) -> str | None:
        """The reason why the check does not apply to a run; None where it does."""
        if self.claims and not set(self.claims) & set(history.claims):
            return f"{history.policy} does not claim it"
        return self.applies(history)


@dataclass(frozen=True)
class Result:
    """A check's outcome. ``findings`` holds the first ones, ``n_findings`` counts them all."""

    name: str
    says: str
    status: Status
    why: str
    n_findings: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Audit:
    """The whole audit of one run."""

    path: str
    run: str
    policy: str
    n_events: int
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        return all(result.status != "failed" for result in self.results)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def has_file(name: str) -> Callable[[History], str | None]:
    """Condition of checks on a file that an interrupted run may lack: not if it is there, if only
    as a folder or a device.
    """
    return lambda history: (
        None
        if history.status == "completed" or os.path.lexists(history.folder / name)
        else f"the run never wrote {name}"
    )


def mode_of(history: History) -> str:
    """The enforcement of reservations in a run; folders of earlier versions were strict."""
    named = history.resolved.get("enforcement") if isinstance(history.resolved, dict) else None
    return str(named) if named in ("work-conserving", "none") else "strict"


def is_enforced(mode: str) -> Callable[[History], str | None]:
    """Condition of the check of one mode."""

    def why_not(history: History) -> str | None:
        found = mode_of(history)
        if history.started.backend != "live":
            return "only a live network enforces"
        if found == "none":
            return "enforcement is none: no reservation was enforced"
        if found != mode:
            return f"enforcement is {found}"
        sampled_too = mode != "strict" or history.each(LinkSample)
        return None if sampled_too else "no link was sampled"

    return why_not
