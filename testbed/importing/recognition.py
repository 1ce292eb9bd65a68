"""Kinds of files that can be imported, recognised by their content."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from jobs.workload.packed_files import CutOff, opened, unpacked_bytes
from jobs.workload.traces import TraceErrors
from testbed.errors import BadInput
from testbed.importing.alibaba_tasks import is_alibaba, read_alibaba
from testbed.importing.batsim_workload import (
    is_batsim_workload,
    read_batsim_workload,
    read_json,
)
from testbed.importing.containerlab import ContainerlabTopology
from testbed.importing.gml import is_gml, read_gml
from testbed.importing.graphml import Graphml
from testbed.importing.imported import (
    Imported,
    Job,
    Names,
    Network,
    Notes,
    RegularTree,
    refusal,
)
from testbed.importing.network_graph import Graph, network_of
from testbed.importing.safe_documents import read_xml
from testbed.importing.simgrid_platform import Platform
from testbed.spec.document import MAX_FILE_BYTES, SpecErrors
from testbed.spec.experiment_file import parse_experiment

Kind = Literal[
    "containerlab",
    "graphml",
    "gml",
    "batsim-platform",
    "batsim-workload",
    "alibaba",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
NETWORKS: tuple[Kind, ...] = (
    "containerlab",
    "graphml",
    "gml",
    "batsim-platform",
)
MOST_BYTES = 16 << 20
"""Limit of files that are read whole; a trace of tasks is read by lines."""
_LOOKED_AT = 4096
_HINT = f"--kind says which it is: {', '.join(KINDS)}"


def import_files(
    paths: Sequence[Path],
    kind: Kind | None = None,
    first: int | None = None,
    *,
    whole: bool = False,
    lenient: bool = False,
) -> Imported:
    """The experiment of one file, or of a network and a workload.

    Raises BadInput with a sentence for what cannot be imported.
    """
    kinds = [kind or kind_of_file(path) for path in paths]
    _check_kinds(kinds)
    importer = _Importer(first=first, whole=whole, lenient=lenient)
    # Networks first, since False is less than True: durations and bandwidths
    # of the workload depend on the network.
    for file_kind, path in sorted(
        zip(kinds, paths, strict=True),
        key=lambda pair: pair[0] not in NETWORKS,
    ):
        importer.take(file_kind, path)
    imported = importer.imported(kinds, paths)
    _check(imported, paths[0])
    return imported


def _check_kinds(kinds: Sequence[Kind]) -> None:
    """Raises BadInput unless there is one network, one workload, or both."""
    n_networks = sum(kind in NETWORKS for kind in kinds)
    if n_networks > 1 or len(kinds) - n_networks > 1:
        shown = ", ".join(kinds)
        raise BadInput(
            f"{len(kinds)} files ({shown}) are no network and its workload",
            "import one file, or one of each",
        )


def kind_of_file(path: Path) -> Kind:
    """The kind of a file. Raises BadInput where it has none of them."""
    text = _beginning(path)
    # Before the whole file is read: a cluster's trace is gigabytes.
    if is_alibaba(text):
        return "alibaba"
    content = _content(path)
    start = text.lstrip()
    if start.startswith("<"):
        return _kind_of_xml(content, path)
    if start.startswith("{"):
        if is_batsim_workload(read_json(content, path)):
            return "batsim-workload"
    elif is_gml(text):
        return "gml"
    elif start.startswith(";"):
        raise BadInput(
            f"{path}: is a log in the Standard Workload Format",
            "experiments read it as it is: workload: {kind: swf, path: …}",
        )
    # JSON is YAML too, and containerlab reads both.
    ContainerlabTopology(path).read(content, Notes())
    return "containerlab"


def _beginning(path: Path) -> str:
    """The first characters of a file, unpacked."""
    begin = io.StringIO()
    try:
        with opened(path) as lines:
            for line in lines:
                # A file without line ends is one line, which may be
                # gigabytes.
                begin.write(line[:_LOOKED_AT])
                if begin.tell() > _LOOKED_AT:
                    break
    except CutOff as error:
        raise refusal(path, str(error)) from None
    return begin.getvalue()


def _kind_of_xml(content: bytes, path: Path) -> Kind:
    root = read_xml(content, path)
    if root.tag == "graphml":
        return "graphml"
    if root.tag == "platform":
        return "batsim-platform"
    message = f"is XML of another kind: <{root.tag[:40]}>"
    raise BadInput(refusal(path, message).message, _HINT)


def _content(path: Path) -> bytes:
    try:
        return unpacked_bytes(path, MOST_BYTES)
    except CutOff as error:
        raise refusal(path, str(error)) from None


@dataclass
class _Importer:
    """The parts of an experiment, collected from files."""

    first: int | None
    whole: bool
    lenient: bool
    notes: Notes = field(default_factory=Notes)
    network: Network | None = None
    topology: Network | RegularTree | None = None
    jobs: tuple[Job, ...] = ()
    name: str = ""

    def take(self, kind: Kind, path: Path) -> None:
        """Adds what a file has. Raises BadInput."""
        if kind in NETWORKS:
            self._take_network(kind, path)
            return
        if kind == "alibaba":
            self._take_alibaba(path)
            return
        self.topology, self.jobs = read_batsim_workload(
            _content(path),
            path,
            network=self.network,
            first=self.first,
            notes=self.notes,
        )

    def _take_network(self, kind: Kind, path: Path) -> None:
        graph = _graph(kind, path, self.notes)
        self.name = graph.name
        self.network = network_of(graph, self.notes, path, whole=self.whole)
        self.topology = self.network

    def _take_alibaba(self, path: Path) -> None:
        try:
            self.topology, self.jobs = read_alibaba(
                path,
                self.network,
                self.first,
                self.notes,
                lenient=self.lenient,
            )
        except TraceErrors as error:
            raise _refusal_of_lines(path, error) from None

    def imported(
        self, kinds: Sequence[Kind], paths: Sequence[Path]
    ) -> Imported:
        """The experiment of all that was taken."""
        names = Names.of_jobs()
        sources = []
        for kind, path in zip(kinds, paths, strict=True):
            sources.append(f"{path.name} ({kind})")
        topology = self.topology
        if topology is None:
            raise BadInput("no file has a network or jobs")
        jobs = self.jobs
        if isinstance(topology, Network) and not jobs:
            jobs = (_example_job(topology),)
            self.notes.choices.append(
                "the workload: the file has no jobs, this one is an example"
            )
        return Imported(
            name=names.of(self.name or paths[0].stem),
            source=" and ".join(sources),
            notes=self.notes,
            topology=topology,
            jobs=jobs,
            policy="fcfs" if self.jobs else "vc",
        )


def _graph(kind: Kind, path: Path, notes: Notes) -> Graph:
    """A network's graph. Raises BadInput."""
    content = _content(path)
    if kind == "containerlab":
        lab = ContainerlabTopology(path)
        lab.read(content, notes)
        return lab.graph
    read = read_gml if kind == "gml" else read_xml
    root = read(content, path)
    reader: Graphml | Platform = Graphml(path)
    if kind == "batsim-platform":
        reader = Platform(path)
    reader.read(root, notes)
    return reader.graph


def _refusal_of_lines(path: Path, error: TraceErrors) -> BadInput:
    problem = error.problems[0]
    message = f"{path}:{problem.line}:{problem.column}: {problem.message}"
    if error.total > 1:
        message += f" and {error.total - 1:,} more"
    hint = None
    if error.lines_alone:
        hint = "--lenient leaves such lines out"
    return BadInput(message, hint)


def _example_job(network: Network) -> Job:
    """Two VMs at a tenth of a server's link."""
    # Two at least: one VM alone has nobody to send to.
    vms = min(2, network.slots)
    bandwidth_bps = max(1, network.server_link_bps // 10)
    return Job(
        name="example",
        at_s=0.0,
        vms=vms,
        duration_s=10.0,
        bandwidth_bps=bandwidth_bps if vms > 1 else 0,
        pattern="ring",
    )


def _check(imported: Imported, path: Path) -> None:
    """Raises BadInput where `testbed validate` would refuse the experiment."""
    text = imported.text()
    size = len(text.encode())
    if size > MAX_FILE_BYTES:
        raise BadInput(
            f"{path}: makes an experiment of {size:,} bytes, at most"
            f" {MAX_FILE_BYTES:,} are read",
            "--first takes fewer jobs" if len(imported.jobs) > 1 else None,
        )
    try:
        parse_experiment(text, path)
    except SpecErrors as errors:
        problem = errors.problems[0]
        raise refusal(path, f"{problem.path}: {problem.message}") from None
