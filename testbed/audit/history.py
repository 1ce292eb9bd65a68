"""Input and output of every check: the events of a run by line and by job, its
topology; findings and results.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from testbed.errors import BadInput
from testbed.events import (
    Event,
    JobEvent,
    JobMigrated,
    JobRerooted,
    JobRescaled,
    JobReserved,
    JobResumed,
    JobSubmitted,
    JobTierSwitched,
    LinkSample,
    RunEnded,
    RunStarted,
)
from testbed.record.folder import RESOLVED
from testbed.record.metrics import Recording
from testbed.record.stored_json import read_json

Kind = TypeVar("Kind", bound=Event)
Made = TypeVar("Made")

LEVELS = ("ok", "suspect", "invalid")
"""Levels of a note on fidelity, from good to bad."""
OUTCOMES = ("finished", "rejected", "killed", "unfinished")

_CLAIMS_OF_EARLIER_FOLDERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("dcloud", "dcloud-ts", "dcloud-bs"), ("within-deadline",)
    ),
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
Findings = Iterator[tuple[Place, str]]
"""A check's findings: the place of a fault and a sentence on it, fault by fault."""
Pairs = Sequence[Sequence[int]]
"""``[[server, VMs], …]`` or ``[[directed link, bit/s], …]``."""


class AuditedHold(NamedTuple):
    """VMs on servers and bit/s on directed links that a job takes.

    ``tier``: of the VMs; each tier has as many slots as the servers have.
    """

    vms_on: Pairs = ()
    links: Pairs = ()
    tier: str = "foreground"

    def changed(self, event: Event) -> AuditedHold:
        """The hold after an event, which may replace some of its values."""
        match event:
            case JobReserved() | JobMigrated():
                return AuditedHold(event.vms_on, event.links, event.tier)
            case JobRescaled() | JobRerooted():
                return AuditedHold(self.vms_on, event.links, self.tier)
            case JobResumed() | JobTierSwitched():
                return AuditedHold(self.vms_on, self.links, event.tier)
        return self


@dataclass
class JobHistory:
    """One job and all its events, in the order of the file."""

    job_id: str
    events: list[Event] = field(default_factory=list)
    firsts: dict[type[Event], Any] = field(default_factory=dict)
    """The first event of each kind."""

    def all(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    def first(self, kind: type[Kind]) -> Kind | None:
        return self.firsts.get(kind)

    @cached_property
    def request(self) -> Mapping[str, Any]:
        """The job's record, empty for a job that was never submitted."""
        submitted = self.first(JobSubmitted)
        if submitted is None:
            return {}
        return submitted.job

    @property
    def slots_per_vm(self) -> int:
        """Slots that each of its VMs takes: the cores of a lease, else 1."""
        return int(self.request.get("cores", 1))


@dataclass(frozen=True)
class History:
    """The run under audit.

    ``folder``: of its tables; ``declared``: the resolved experiment of a run
    that has no folder. Its start raises BadInput where the first event is
    another.
    """

    folder: Path
    file: Recording
    declared: dict[str, Any] | None = None
    made: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Results of functions that are :func:`once`."""

    @cached_property
    def started(self) -> RunStarted:
        return self.file.started

    @property
    def events(self) -> Sequence[Event]:
        return self.file.events

    @cached_property
    def lines(self) -> dict[int, int]:
        """The line of each event, by the event's ``id()``."""
        # Not by the event, as two lines may hold equal ones.
        return {
            id(event): number for number, event in enumerate(self.events, 1)
        }

    @cached_property
    def topology(self) -> Topology:
        # From run_started, not from the experiment: checks are of what ran.
        return Topology(self.started.topology)

    @cached_property
    def jobs(self) -> dict[str, JobHistory]:
        """Every job that an event names, in order of the first such event."""
        jobs: dict[str, JobHistory] = {}
        for event in self.events:
            job_id = job_of(event)
            if job_id is not None:
                if job_id not in jobs:
                    jobs[job_id] = JobHistory(job_id)
                job = jobs[job_id]
                job.events.append(event)
                job.firsts.setdefault(type(event), event)
        return jobs

    @cached_property
    def requested(self) -> list[JobHistory]:
        """Every job that was submitted."""
        return [job for job in self.jobs.values() if job.request]

    def reserved(self) -> Iterator[tuple[Mapping[str, Any], JobReserved]]:
        """Every reservation of a submitted job with the job's request, job by
        job.
        """
        for job in self.requested:
            for event in job.all(JobReserved):
                yield job.request, event

    @property
    def end_s(self) -> float:
        return self.events[-1].t

    @property
    def live(self) -> bool:
        """True for a run in real time, and for the replay of such a run."""
        return self.started.backend != "sim"

    @cached_property
    def live_slack_s(self) -> float:
        """Time by which a live run, or its replay, may be late; 0 in a
        simulated run.

        A second and one per cent of its length: processes take a moment to
        start and to be ended.
        """
        if self.live:
            return 1.0 + 0.01 * self.end_s
        return 0.0

    @cached_property
    def machine_second_s(self) -> float:
        """A second of a live run's machine, in the experiment's time; 0 in a
        simulated run.
        """
        if not self.live:
            return 0.0
        try:
            scale = float(self.stated("scale")["time"])
        except (LookupError, TypeError, ValueError, OverflowError):
            # The file itself is another check's.
            return 1.0
        if math.isfinite(scale):
            return scale
        return 0.0

    @cached_property
    def _by_kind(self) -> dict[type[Event], list[Any]]:
        by_kind: dict[type[Event], list[Any]] = defaultdict(list)
        for event in self.events:
            by_kind[type(event)].append(event)
        return by_kind

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        """The events of one kind, in order."""
        return self._by_kind.get(kind, [])

    @cached_property
    def status(self) -> str:
        """The status that the run ended with, as ``completed``."""
        ends = self.of_kind(RunEnded)
        if ends:
            return ends[-1].status
        return "interrupted"

    @cached_property
    def resolved(self) -> dict[str, Any] | str:
        """``spec.resolved.json``, or what is wrong with it."""
        if self.declared is not None:
            return self.declared
        # The policies of an early run share the file above them.
        for folder in (self.folder, self.folder.resolve().parent):
            if os.path.lexists(folder / RESOLVED):
                return parsed(folder / RESOLVED)
        return "is missing: the jobs asked for are unknown"

    def stated(self, key: str) -> Any:
        """A value of ``spec.resolved.json``; None where that has none."""
        if isinstance(self.resolved, dict):
            return self.resolved.get(key)
        return None

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """Invariants that the policy declared for itself in
        ``spec.resolved.json``.
        """
        declared = self.stated("claims")
        if isinstance(declared, list):
            return tuple(map(str, declared))
        if (
            self.policy == "easy"
            and "estimates=user" in self.started.policy
        ):
            return ("head-not-delayed-by-user-estimates",)
        return _CLAIMS_OF_EARLIER_FOLDERS.get(self.policy, ())

    @property
    def policy(self) -> str:
        """The policy's name without its parameters: ``dcloud-ts`` of
        ``dcloud-ts-gamma=0.12``.
        """
        return re.split(r"-[a-z_]+=", self.started.policy, maxsplit=1)[0]


def once(make: Callable[[History], Made]) -> Callable[[History], Made]:
    """Decorates a function of a history: its result is kept with the history."""

    @wraps(make)
    def kept(history: History) -> Made:
        if make not in history.made:
            history.made[make] = make(history)
        made: Made = history.made[make]
        return made

    return kept


def job_of(event: Event) -> str | None:
    """The job an event is about; None for the run's own events."""
    if isinstance(event, JobEvent):
        return event.job_id
    if isinstance(event, JobSubmitted):
        return str(event.job["id"])
    return None


def parsed(path: Path) -> dict[str, Any] | str:
    """The object in a JSON file, or a sentence's end on what is wrong with it.

    Raises BadInput where this user may not read it.
    """
    try:
        value = read_json(path)
    except BadInput as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        # `FILE: damaged`, or with the fault's line `FILE:2: damaged`.
        return error.message.removeprefix(str(path)).lstrip(": ")
    if value is None and not path.is_file():
        return "is missing"
    if isinstance(value, dict):
        return value
    return "is not an object"


def about(a: float, b: float, slack_s: float = 0.0) -> bool:
    """``a <= b + slack_s``, but for the rounding of sums of floats."""
    # The quick way first: of a long run this is asked a million times, and
    # nearly always true.
    if a <= b + slack_s:
        return True
    return a <= b + slack_s + 1e-9 * max(1.0, abs(a), abs(b))


# -- the data centre as the run declared it


class Topology:
    """``topology`` of ``run_started``: slots per server, links, and the trees
    by their root.

    ``memory_mib`` is None where memory limits nothing. A tree that lists no
    parents and uplinks consists of all that links lead down to from its root.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.names: Sequence[str] = record["names"]
        self.slots: Sequence[int] = record["slots"]
        self.memory_mib: Sequence[int] | None = record.get("memory_mib")
        links: Mapping[str, Sequence[int]] = record["links"]
        self.lower = links["lower"]
        self.upper = links["upper"]
        self.capacity_bps = links["capacity_bps"]
        self.capacity_down_bps = links.get(
            "capacity_down_bps", self.capacity_bps
        )
        self.all_trees: Sequence[Mapping[str, Any]] = record["trees"]
        self.trees = {tree["root"]: tree for tree in self.all_trees}
        self._above: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
        self._reached: dict[int, set[int]] = {}
        """Servers that are known to be below a root, by root."""

    @property
    def n_nodes(self) -> int:
        return len(self.names)

    @property
    def n_directed(self) -> int:
        """Directed links: 2·l upward, 2·l + 1 downward."""
        return 2 * len(self.capacity_bps)

    def carries_bps(self, directed: int) -> int:
        """The capacity of a directed link, in bit/s."""
        one_way = (self.capacity_bps, self.capacity_down_bps)[directed % 2]
        return one_way[directed // 2]

    def node(self, number: int) -> str:
        """A node's name; the number itself where there is no such node."""
        if 0 <= number < self.n_nodes:
            return self.names[number]
        return str(number)

    def link(self, directed: int) -> str:
        """A directed link's ends, in the direction of the traffic."""
        if not 0 <= directed < self.n_directed:
            return str(directed)
        lower = self.node(self.lower[directed // 2])
        upper = self.node(self.upper[directed // 2])
        if directed % 2:
            return f"{upper} -> {lower}"
        return f"{lower} -> {upper}"

    def problems(self) -> list[str]:
        """Faults that keep the arrays from being a data centre.

        Most other checks are made only where there are none.
        """
        arrays = (
            self.lower,
            self.upper,
            self.capacity_bps,
            self.capacity_down_bps,
        )
        if len(set(map(len, arrays))) > 1:
            # What follows would raise IndexError on the shortest.
            return ["the links' arrays differ in length"]
        problems = []
        fewest_slots = min(self.slots, default=0)
        if len(self.slots) > self.n_nodes or fewest_slots < 0:
            problems.append("slots do not match the nodes")
        memory = self.memory_mib
        if memory is not None and len(memory) != len(self.slots):
            problems.append("memory does not match the servers")
        problems += self._link_problems()
        for tree in self.all_trees:
            problem = self._tree_problem(tree)
            if problem:
                problems.append(problem)
        return problems

    def _link_problems(self) -> Iterator[str]:
        arrays = (self.capacity_bps, self.capacity_down_bps)
        capacities = zip(*arrays, strict=True)
        for number, two_ways_bps in enumerate(capacities):
            ends = (self.lower[number], self.upper[number])
            if min(ends) < 0 or max(ends) >= self.n_nodes:
                yield f"link {number} ends at a node that does not exist"
            if min(two_ways_bps) < 0:
                yield f"link {number} has a capacity below 0"

    def _tree_problem(self, tree: Mapping[str, Any]) -> str:
        """The first fault of a tree; empty where it has none."""
        root = tree["root"]
        # Only a tree that does not follow from its links lists its arrays.
        if tree.keys() != {"root"}:
            problem = self._arrays_problem(tree)
            if problem:
                return f"the tree below {root}{problem}"
        if 0 <= root < self.n_nodes:
            return ""
        return f"the tree's root {root} does not exist"

    def _arrays_problem(self, tree: Mapping[str, Any]) -> str:
        parent = tree.get("parent", ())
        uplink = tree.get("uplink", ())
        if len(parent) != self.n_nodes or len(uplink) != self.n_nodes:
            return " has not one entry a node"
        for node, (above, link) in enumerate(
            zip(parent, uplink, strict=True)
        ):
            problem = self._uplink_problem(tree["root"], node, above, link)
            if problem:
                return f": {problem}"
        return ""

    def _uplink_problem(
        self, root: int, node: int, above: int, link: int
    ) -> str:
        beyond = not -1 <= above < self.n_nodes or link < -1
        if beyond or (node == root and above >= 0):
            return f"node {node} cannot have {above} above it"
        if link < 0:
            # Only a flat cluster's nodes stand below their root without links.
            if above >= 0 and self.lower:
                return f"no link leads from {node} to {above}"
            return ""
        if link < len(self.lower):
            ends = (self.lower[link], self.upper[link])
            if ends == (node, above):
                return ""
        return f"link {link} does not lead from {node} to {above}"

    def misplaced(
        self, root: int, vms_on: Sequence[Sequence[int]], n_vms: int
    ) -> list[str]:
        """Faults of a placement, not of its bandwidth."""
        if root not in self.trees:
            return [f"its root {root} is the root of no tree"]
        if self._is_sound(root, vms_on, n_vms):
            return []
        faults = []
        servers = [server for server, _ in vms_on]
        if len(set(servers)) != len(servers):
            faults.append("a server is named twice")
        n_placed = sum(count for _, count in vms_on)
        if n_placed != n_vms:
            faults.append(
                f"{n_placed} VMs are placed, {n_vms} were asked for"
            )
        for server, count in vms_on:
            fault = self._server_fault(root, server, count)
            if fault:
                faults.append(fault)
        return faults

    def _server_fault(self, root: int, server: int, count: int) -> str:
        """The fault of VMs on one server; empty where there is none."""
        if not 0 <= server < len(self.slots):
            return f"node {server} is not a server"
        if count < 1:
            return f"{count} VMs on {self.node(server)}"
        if self._path(root, server) is None:
            return f"{self.node(server)} is not below {self.node(root)}"
        return ""

    def _is_sound(
        self, root: int, vms_on: Sequence[Sequence[int]], n_vms: int
    ) -> bool:
        """True for a placement without a fault, which most are: the quick way."""
        # With a server twice there are fewer counts than pairs.
        counts: dict[int, int] = dict(vms_on)  # type: ignore[arg-type]
        if len(counts) != len(vms_on) or sum(counts.values()) != n_vms:
            return False
        if min(counts.values(), default=1) < 1:
            return False
        # The way up is walked once for each server.
        reached = self._reached.setdefault(root, set())
        if reached.issuperset(counts):
            return True
        for server in counts:
            if not 0 <= server < len(self.slots):
                return False
            if self._path(root, server) is None:
                return False
            reached.add(server)
        return True

    def _path(self, root: int, server: int) -> list[int] | None:
        """The links from a server up to the root; None where it is not below."""
        parent, uplink = self._tree(root)
        links: list[int] = []
        node = server
        steps = 0
        while node != root:
            # In a damaged folder parents may lead round in a circle.
            if parent[node] < 0 or steps > self.n_nodes:
                return None
            if uplink[node] >= 0:
                links.append(uplink[node])
            node = parent[node]
            steps += 1
        return links

    def _tree(self, root: int) -> tuple[Sequence[int], Sequence[int]]:
        """For each node, the node above it in a tree and the link to that.

        Both are -1 where nothing is above, or links lead down in two ways.
        """
        if root not in self._above:
            listed = self.trees[root]
            if "parent" in listed:
                self._above[root] = (listed["parent"], listed["uplink"])
            else:
                self._above[root] = self._hanging(root)
        return self._above[root]

    def _hanging(self, root: int) -> tuple[Sequence[int], Sequence[int]]:
        """As :meth:`_tree`, of a tree that is all that links lead down to."""
        parent = [-1] * self.n_nodes
        uplink = [-1] * self.n_nodes
        if not self.lower:
            # A flat cluster's nodes hang below their root without links.
            n_servers = len(self.slots)
            parent[:n_servers] = [root] * n_servers
        # The list grows while it is read: a search by breadth.
        waiting = [root]
        reached = {root}
        for upper in waiting:
            for link in self._links_below.get(upper, ()):
                lower = self.lower[link]
                if lower in reached:
                    # A second way down: such a node is below no root.
                    parent[lower] = uplink[lower] = -1
                    continue
                parent[lower] = upper
                uplink[lower] = link
                reached.add(lower)
                waiting.append(lower)
        return parent, uplink

    @cached_property
    def _links_below(self) -> dict[int, list[int]]:
        """The links whose upper end is a node, by node."""
        below: dict[int, list[int]] = {}
        for link, upper in enumerate(self.upper):
            below.setdefault(upper, []).append(link)
        return below

    def hose(
        self, root: int, vms_on: Iterable[Sequence[int]], rate_bps: int
    ) -> dict[int, int]:
        """The hose's min(X, N-X)·B, in bit/s, in both directions of every link
        with VMs on both of its sides; by directed link.
        """
        vms_below: dict[int, int] = {}
        n = 0
        for server, count in vms_on:
            n += count
            for link in self._path(root, server) or ():
                vms_below[link] = vms_below.get(link, 0) + count
        need = {}
        for link, x in vms_below.items():
            if bps := min(x, n - x) * rate_bps:
                need[2 * link] = need[2 * link + 1] = bps
        return need


# -- checks and their results


Status = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Violation:
    """A fault and its place: a file and a line (None: the file as a whole)."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = (
            self.file if self.line is None else f"{self.file}:{self.line}"
        )
        return f"{place}: {self.message}"


@dataclass(frozen=True)
class Invariant:
    """A check of one invariant.

    ``says``: the invariant in words; ``find`` yields what breaks it. ``needs``
    returns what a run lacks for the check, None where it lacks nothing. With
    ``claims`` the check is made only of policies that declare one of them.
    """

    name: str
    says: str
    find: Callable[[History], Findings]
    needs: Callable[[History], str | None] = lambda _: None
    claims: tuple[str, ...] = ()

    def why_not(self, history: History) -> str | None:
        """The reason why the check does not apply to a run; None where it does."""
        if self.claims and not set(self.claims) & set(history.claims):
            return f"{history.policy} does not claim it"
        return self.needs(history)


@dataclass(frozen=True)
class Result:
    """A check's outcome: the first ``findings``, and the number of all.

    ``why``: the reason why the check does not apply.
    """

    name: str
    says: str
    status: Status
    why: str = ""
    n_findings: int = 0
    findings: tuple[Violation, ...] = ()


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


def needs_file(name: str) -> Callable[[History], str | None]:
    """The need for a file, which an interrupted run may lack.

    A folder or a device of that name is no lack: the check itself finds it.
    """

    def why_not(history: History) -> str | None:
        exists = os.path.lexists(history.folder / name)
        if exists or history.status == "completed":
            return None
        return f"the run never wrote {name}"

    return why_not


def mode_of(history: History) -> str:
    """The enforcement of reservations in a run; strict if none is named, as in
    folders of earlier versions.
    """
    mode = history.stated("enforcement")
    if mode in ("work-conserving", "none"):
        return str(mode)
    return "strict"


def needs_mode(mode: str) -> Callable[[History], str | None]:
    """The need for a live run whose reservations were enforced in ``mode``."""

    def why_not(history: History) -> str | None:
        if history.started.backend != "live":
            return "only a live network enforces"
        enforced = mode_of(history)
        if enforced == "none":
            return "enforcement is none: no reservation was enforced"
        if enforced != mode:
            return f"enforcement is {enforced}"
        if mode == "strict" and not history.of_kind(LinkSample):
            return "no link was sampled"
        return None

    return why_not
