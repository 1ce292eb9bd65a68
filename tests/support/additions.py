"""One small addition of each kind that ``docs/architecture.md`` explains.

An addition names every file that it touches: a new file with its text, or a
text that is put before or behind the one place of an existing file that a
pattern matches. :func:`apply` writes it into a copy of the product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NewFile:
    """A file that the addition brings; NAME in the page stands for its stem."""

    path: str
    text: str


@dataclass(frozen=True)
class Insertion:
    """A text behind the only match of a regular expression in a file."""

    path: str
    behind: str
    text: str


@dataclass(frozen=True)
class Addition:
    """A row of the page: its subject, its edits, and a program that uses it.

    ``program`` is Python, run beside the copy; it prints ``added``.
    """

    subject: str
    edits: tuple[NewFile | Insertion, ...]
    program: str

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(edit.path for edit in self.edits)


def apply(addition: Addition, product: Path) -> None:
    """Writes an addition into a copy of the product; ValueError if it cannot."""
    for edit in addition.edits:
        file = product / edit.path
        if isinstance(edit, NewFile):
            file.write_text(edit.text, "utf-8")
            continue
        text = file.read_text("utf-8")
        matches = list(
            re.finditer(edit.behind, text, re.MULTILINE | re.DOTALL)
        )
        if len(matches) != 1:
            message = (
                f"{edit.path}: {len(matches)} matches of {edit.behind!r}"
            )
            raise ValueError(message)
        end = matches[0].end()
        file.write_text(text[:end] + edit.text + text[end:], "utf-8")


POLICY = Addition(
    "policy",
    (
        NewFile(
            "testbed/schedulers/NAME.py",
            '''\
"""A policy that refuses everything."""

from testbed.schedulers.actions import Arrived, Reject
from testbed.schedulers.policy import PolicyKind


class Closed:
    name = "closed"

    def decide(self, view, event):
        if isinstance(event, Arrived):
            return [Reject(event.job_id, "closed today")]
        return []


POLICIES = (
    PolicyKind("closed", "refuses everything", lambda embedder, _: Closed()),
)
''',
        ),
    ),
    """\
from testbed.schedulers.registry import policy_kind

assert policy_kind("closed").summary == "refuses everything"
print("added")
""",
)

EMBEDDER = Addition(
    "embedder",
    (
        NewFile(
            "testbed/embedding/NAME.py",
            '''\
"""An embedder that finds no place."""

from testbed.embedding.placement import Refusal


class Nowhere:
    name = "nowhere"

    def embed(self, datacentre, residual, n_vms, rate_bps, *, largest_bps=0):
        return Refusal("nowhere is room")


EMBEDDERS = (Nowhere(),)
''',
        ),
    ),
    """\
from testbed.embedding.base import embedder

assert embedder("nowhere").name == "nowhere"
print("added")
""",
)

TOPOLOGY = Addition(
    "topology",
    (
        NewFile(
            "topologies/NAME.py",
            '''\
"""Servers around one switch."""

from topologies.tree import tree


def star(servers, link_bps, slots):
    return tree((servers,), (link_bps,), slots)
''',
        ),
        Insertion(
            "testbed/spec/topology_section.py",
            r"^from topologies\.mininet_topo import .*\n",
            "from topologies.NAME import star\n",
        ),
        Insertion(
            "testbed/spec/topology_section.py",
            r"(?=^class CustomServer\()",
            '''\
class StarTopology(RegularTopology):
    """Servers around one switch."""

    kind: Literal["star"]
    servers: Count
    links: Links
    slots_per_server: Slots = 1

    def build(self) -> DataCentre:
        return star(self.servers, self.links[0].capacity, self.slots_per_server)


''',
        ),
        Insertion(
            "testbed/spec/topology_section.py",
            r"Annotated\[FlatTopology, Tag\(\"flat\"\)\]",
            '\n    | Annotated[StarTopology, Tag("star")]',
        ),
    ),
    """\
import testbed

experiment = testbed.load({
    "name": "around", "seed": 1, "policies": ["vc"],
    "topology": {"kind": "star", "servers": 3, "links": "1 Gbit/s"},
    "workload": {"kind": "jobs", "jobs": [
        {"id": "a", "at": "0 s", "vms": 2, "bandwidth": "1 Mbit/s", "duration": "3 s"},
    ]},
})
print("added")
""",
)

JOB_KIND = Addition(
    "job kind",
    (
        Insertion(
            "jobs/demand.py",
            r"^JobKind = Literal\[",
            '"nap", ',
        ),
        Insertion(
            "jobs/demand.py",
            r"(?=^KINDS: )",
            '''\
@dataclass(frozen=True, slots=True)
class Nap(Compute):
    """VMs that are there and do nothing."""

    kind = "nap"
    summary = "does nothing"


''',
        ),
        Insertion(
            "jobs/demand.py", r'"compute": Compute,\n', '    "nap": Nap,\n'
        ),
        Insertion(
            "jobs/demand.py",
            r"(?=^    if command is not None:\n        return Command\()",
            '    if kind == "nap":\n        return Nap()\n',
        ),
        Insertion(
            "testbed/plan/agent_plans.py",
            r"^from jobs\.demand import ",
            "Nap, ",
        ),
        Insertion(
            "testbed/plan/agent_plans.py",
            r"(?=^    if isinstance\(demand, Command\):\n)",
            """\
    if isinstance(demand, Nap):
        seconds = job.true_s / scale.time
        return tuple(ComputePlan(vm.index, 0.0, seconds) for vm in tenant.vms)
""",
        ),
    ),
    """\
import testbed
from testbed.plan import agent_plans

job = {"id": "a", "at": "0 s", "vms": 2, "kind": "nap", "duration": "3 s"}
testbed.load({
    "name": "asleep", "seed": 1, "policies": ["fcfs"],
    "topology": {"kind": "flat", "nodes": 2},
    "workload": {"kind": "jobs", "jobs": [job]},
})
assert agent_plans.Nap.summary == "does nothing"
print("added")
""",
)

VERB = Addition(
    "verb",
    (
        NewFile(
            "testbed/cli/NAME.py",
            '''\
"""``testbed NAME``: a greeting."""

from testbed.cli import console


def NAME() -> None:
    """Print a greeting."""
    console.print_text("added")
''',
        ),
        Insertion(
            "testbed/cli/command_line.py",
            r"^VERBS = \{\n",
            '    "NAME": "Greet.",\n',
        ),
    ),
    """\
from testbed.cli.main import run

assert run(["NAME"]) == 0
""",
)

STANDING_VERB = Addition(
    "verb on a standing network",
    (
        NewFile(
            "testbed/cli/NAME.py",
            '''\
"""``testbed NAME``: the keeper's greeting."""

from testbed.cli import console
from testbed.standing.keeper_protocol import Greet, ask


def NAME() -> None:
    """Print the keeper's greeting."""
    console.print_text(ask(Greet(), str))
''',
        ),
        Insertion(
            "testbed/cli/command_line.py",
            r"^VERBS = \{\n",
            '    "NAME": "Greet.",\n',
        ),
        Insertion(
            "testbed/standing/keeper_protocol.py",
            r"(?=^@dataclass\(frozen=True\)\nclass ShowLinks\()",
            "@dataclass(frozen=True)\nclass Greet(KeeperRequest):\n"
            '    """Asks for a greeting."""\n\n\n',
        ),
        Insertion(
            "testbed/standing/keeper.py",
            r"(?=^    ShowLinks,\n)",
            "    Greet,\n",
        ),
        Insertion(
            "testbed/standing/keeper.py",
            r"(?=^            case ShowLinks\(\):\n)",
            '            case Greet():\n                return "added"\n',
        ),
    ),
    """\
from testbed.cli.NAME import NAME
from testbed.standing.keeper import Keeper
from testbed.standing.keeper_protocol import Greet

print(Keeper._handle(Keeper.__new__(Keeper), Greet()))
""",
)

WORKLOAD = Addition(
    "workload",
    (
        NewFile(
            "testbed/spec/NAME.py",
            '''\
"""Tenants that arrive one a minute."""

from typing import Literal

import numpy as np

from testbed.spec.generated_sections import TenantWorkload


class MinuteWorkload(TenantWorkload):
    """One job a minute."""

    kind: Literal["minute"]
    jobs: int

    def arrivals_s(self, here, seed):
        return 60.0 * np.arange(self.jobs)
''',
        ),
        Insertion(
            "testbed/spec/experiment_file.py",
            r"^from testbed\.spec\.job_entries import JobListWorkload\n",
            "from testbed.spec.NAME import MinuteWorkload\n",
        ),
        Insertion(
            "testbed/spec/experiment_file.py",
            r"Annotated\[JobListWorkload, Tag\(\"jobs\"\)\]",
            '\n    | Annotated[MinuteWorkload, Tag("minute")]',
        ),
    ),
    """\
import testbed

experiment = testbed.load({
    "name": "minutes", "seed": 1, "policies": ["vc"],
    "topology": {"kind": "tree", "fanout": [2, 2], "links": "1 Gbit/s",
                 "slots_per_server": 2},
    "workload": {"kind": "minute", "jobs": 3, "vms": {"mean": 2, "sigma": 1},
                 "bandwidth": {"mean": "10 Mbit/s"}},
})
print("added")
""",
)

CLAIM = Addition(
    "claim",
    (
        Insertion(
            "reproductions/claims/mbfcbs-fig4.yaml",
            r"claims:\n",
            """\
- claim: added
  published: more
  status: free
  rule:
  - {quantity: level, measure: accepted, of: MBFCBS, at: 40, above: 0}
""",
        ),
    ),
    """\
from reproductions.catalogue import FIGURES

print(FIGURES["mbfcbs-fig4"].claims[0].text)
""",
)

SIMULATED = """\
import json
from pathlib import Path

from testbed.cli.main import run

file = Path("added.yaml")
file.write_text(
    "name: added\\n"
    "topology: {kind: flat, nodes: 2}\\n"
    "policies: [fcfs]\\n"
    "workload: {kind: jobs, jobs: [\\n"
    "  {id: a, at: 0 s, vms: 1, kind: compute, duration: 3 s}]}\\n"
)
assert run(["simulate", str(file), "--out", "runs", "--json"]) == 0
(folder,) = Path("runs").glob("*-added-*")
"""
"""A program that simulates one job and audits its folder."""

EVENT = Addition(
    "event",
    (
        Insertion(
            "testbed/events.py",
            r"(?=^@dataclass\(frozen=True\)\nclass JobPreempted\(JobEvent\))",
            "@dataclass(frozen=True)\nclass JobNoted(JobEvent):\n    note: str\n\n\n",
        ),
        Insertion(
            "testbed/engine/engine.py",
            r"events\.JobStarted\([^)]*\)\n            \)\n",
            '        self.emit(events.JobNoted, job_id, "added")\n',
        ),
        Insertion(
            "testbed/record/job_lives.py",
            r"(?=^    events\.JobPreempted: _preempted,\n)",
            "    events.JobNoted: lambda lives, life, event: None,\n",
        ),
        Insertion(
            "testbed/record/job_history.py",
            r'(?=^    events\.JobPreempted: "is preempted)',
            '    events.JobNoted: "is noted: {event.note}",\n',
        ),
        Insertion(
            "testbed/audit/event_order.py",
            r'(?=^        "job_rescaled": "running",\n)',
            '        "job_noted": "running",\n',
        ),
    ),
    SIMULATED
    + """\
lines = (folder / "events.jsonl").read_text().splitlines()
notes = [json.loads(line)["note"] for line in lines if "job_noted" in line]
assert run(["audit", str(folder)]) == 0
assert run(["explain", str(folder), "a"]) == 0
print(*notes)
""",
)

COLUMN = Addition(
    "column",
    (
        Insertion(
            "testbed/record/job_lives.py",
            r"^    preemptions: int = 0\n",
            "    starts: int = 0\n",
        ),
        Insertion(
            "testbed/record/job_lives.py",
            r"^def _started\(.*?-> None:\n",
            "    life.starts += 1\n",
        ),
        Insertion(
            "testbed/record/metrics.py",
            r"(?=^    iperf3_bps: float \| None = None\n)",
            "    starts: int = 0\n",
        ),
    ),
    SIMULATED
    + """\
header, row = (folder / "jobs.csv").read_text().splitlines()
values = dict(zip(header.split(","), row.split(",")))
assert values["starts"] == "1"
assert run(["audit", str(folder)]) == 0
print("added")
""",
)
