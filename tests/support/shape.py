"""Size and shape of the product, as figures with budgets.

    python -m tests.support.shape            print all figures
    python -m tests.support.shape --check    exit 1 where one is above its budget
    python -m tests.support.shape --json

Tokens and densities are those of ``tests.support.density``. *The way of a
job* is every module, outside the audit and the report, in which a function
takes or returns one of the values in which a job travels (document,
experiment, request, job state, action, event, completion, table row), traced
while ``testbed simulate`` plays an experiment of one job. The live way
(``--live``, needs root and Open vSwitch) counts the modules that
``testbed run`` adds to it in the command's own process.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx

from tests.support.density import density, tree_of

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "testbed",
    "controller",
    "jobs",
    "topologies",
    "examples",
    "reproductions",
    "bench",
)
DENSE = ("topologies", "jobs", "controller", "testbed")
"""Parts whose density is watched."""
LABS = Path("testbed/labs")
"""Part that the number of tokens leaves out: courses, beside the product."""
APART = ("reproductions", "bench")
"""Parts of the product that lengths of functions leave out."""
FEATURE_TOKENS: dict[str, int] = {
    "deadlines with a slack of their own; python -m testbed": 126,
    "long functions in parts": 609,
    "papers' tables a line a check, main results as lists; UTF-16 told": 23,
    "tables of sweeps with values that are not finite": 32,
    "logs without a job say why; folders in place of files": 32,
    "policies that are async, or whose leases are a text": 34,
    "import: stated capacities that cannot be read": 201,
    "from Python: arguments of wrong types in a sentence": 142,
    "hints that name the option of the folder": 13,
    "policy new: no name of an installed package": 50,
    "import: tasks that fit the network beside them": 65,
    "import: reasons of jobs that are all left out": 124,
    "tables, audit and page of many jobs in a sixth less time; /etc/hosts named once": 418,
    "privileges that cannot be given up, apart from a saved state": 42,
    "a claim of policies without bandwidth; rejections of all jobs in a sentence": 85,
    "files of prompt lines that cannot be read; capacities beside addresses": 85,
    "shortest jobs of exponential, longest of swim": 130,
    "faults in a dozen modules: cleanup, ports, pauses, Mininet; stages": 460,
    "flows of all jobs in one array in the simulator": 701,
    "readers of replies that are kept between questions": 30,
    "interrupts of machine code within machine code": 15,
    "faults in twelve more modules: settings of TCP, ranges with steps": 185,
    "faults that a fresh reader of twelve modules found": 200,
    "reasons of more than seven programs, sizes as numbers": 60,
    "timeouts as a reason of scaling; refused segments": 50,
    "drops of classes that a program's own VMs fill": 2_500,
    "ranks of Open MPI that sleep while they wait": 200,
    "Spark in VMs, ready before the start": 1_720,
    "each cap judged by its own bucket": 80,
    "verdicts on what moving took, and on jobs that reservations stop": 870,
    "what frozen VMs still send, by the one that is furthest behind": 110,
    "times below ten milliseconds": 30,
    "what was read is counted before a signal": 120,
    "pages of reports by keys and on A4": 40,
    "outcomes of sweeps, comparisons and policy checks in sentences": 6150,
    "acknowledgements of segments that arrive one by one": 180,
    "programs that start without a copy of their agent": 200,
    "a run below a sweep is interrupted once, whoever was": 61,
    "launched commands that are ended by force": 80,
    "jobs that move at their reservation's end; best effort after it": 1_300,
    "families of claims, seeds in stages, other interpretations as figures": 520,
    "first windows of four packets": 30,
    "shared colours in legends; folders of ended runs; inverted masks; plainer loops": 104,
    "processors that a live run's jobs compute on": 220,
    "a page of two runs with pictures; sweeps compared": 1450,
    "edited results of sweeps": 190,
    "measurements at 1 Mbit/s; switches under SCHED_IDLE": 180,
    "no links of others in run folders": 600,
    "damaged journals are set aside; what a killed doctor leaves": 620,
    "text from outside, made harmless in one place": 420,
    "a controller's own user and namespaces": 640,
    "a rate with room and the search for the largest": 200,
    "one load test where an invalid run is expected; one repetition": 38,
    "cleanup journals written anew": 130,
    "a share of the processors that no VM takes": 186,
    "private temporary folders": 620,
    "switches by unix sockets, and whose connections they are": 860,
    "folders of VMs, and processes hidden from them": 1_560,
    "bounds of trace archives": 410,
    "isolated Python children": 300,
    "capture of packets": 4_180,
    "closed streams, ignored signals, background programs, ports of others": 680,
    "paths that begin with ~": 290,
    "starts of applications that compute without end; uploads by their files": 330,
    "local sweeps without Dask": 600,
    "a stopped controller is told": 420,
    "units of elsewhere, embedders from files, all errors without a kind": 1400,
    "verdicts on times that are two-sided; transfers of one VM": 400,
    "what to write for bytes, commas, misspelt files, several runs; unknown paces": 521,
    # Drops by their cost, wake-ups by a job's band, each part of a switch,
    # traffic without a reservation and of what moved; all jobs in the bench.
    "direct evidence of all kinds of jobs and of each part of a switch": 3_785,
    "terminals and environments of programs in VMs": 1_420,
    "the controller's ports are held by the network's process": 330,
    "removal of fork bombs": 240,
    "groups made beside admissions, calls repeated soon; late entries; forged replies": 537,
    "short names of runs, times in compare": 1280,
    "the doctor's checks before a run; socket buffers and control groups in containers": 480,
    "a person's controller has no verdict on the machine": 130,
    "limits of VMs: memory, processes": 860,
    "runs in progress, interrupted ones, the page over all policies": 2070,
    "flow rules of others are removed and told": 400,
    "filter of system calls of programs in VMs": 1_020,
    "direct evidence of each live job, and what it makes of the verdict": 3500,
    "evidence behind full links, of short jobs and beside busy VMs; its gaps named": 2_000,
    "a job's traffic to its last byte; waits of programs in VMs": 1220,
    "users of VMs": 480,
    "bandwidth scaling with a measured profile: file, runs, ratios, picture": 4_560,
    "shuffles with all flows at once": 190,
    "paces of flows at once, told when a rate changes": 310,
    "traffic of launched programs": 990,
    "reasons of bandwidth scaling: verdicts, latencies, several files, picture": 1_890,
    "elastic jobs of a fixed volume; a figure with measured profiles": 330,
    "acknowledgements in a job's volume": 110,
    "shared memory of programs in VMs; busy loops as an attack": 280,
    "demand curves: what agents lost, and traffic beside them": 220,
    "testbed python, audits in columns, names of links, more archives": 700,
    "axes of quantities, reasons and provenance on a sweep's page": 900,
    "names and addresses of Mininet files; prompts that act or refuse": 2_500,
    "capacities of links that change": 1_400,
    "Mininet files in a process of their own: scripts, functions, defaults, notes": 3_740,
    "applications as by ryu-manager: options, several, pages": 2_560,
    "a controller that runs already": 940,
    "packages of a person's environment for applications": 440,
    # What others' formats have.
    "columns, byte orders and archives of traces; other files told": 930,
    "jobs and policies of a run in progress, on its page": 135,
    "processor time of computing VMs as evidence; sweeps without values": 915,
    "evidence of disturbed jobs and of demand curves": 1300,
    "standstills of the controller": 790,
    "links with a capacity in each direction": 1631,
    "users of VMs by sudo, and id-mapped folders": 813,
    "links with delay, jitter, loss and queues": 4_770,
    "import of containerlab, GraphML, Batsim and Alibaba's tasks": 14_600,
    "a list of runs, and their removal": 1_600,
    "run folders read from open folders; shared memory of VMs": 499,
    "commits of files, and results whose commit cannot be checked out": 150,
    "a live page of runs and networks, runs as one file, metrics": 15_640,
    "distributions and a sentence above several policies": 1_060,
    "outcomes and failures in a report's first sentences; shares of all jobs": 2_580,
    "no sockets beyond a network namespace; libraries' settings": 179,
    "packages of a requirements file, installed as their user": 1_970,
    "graphs in GML": 770,
    "closed outputs; interrupts while a command is imported": 267,
    "interrupts of machine code": 48,
    "temporary folders of killed commands": 405,
    "all lines of id maps; assertions at the prompt; folders of refused runs": 256,
    "addresses and controllers at the prompt, refused": 110,
    "a machine whose /run is read-only": 25,
    "switches of foreign controllers are connected last": 170,
    "options of Mininet files without an effect; arguments in vain": 320,
    "captures that end with what they capture": 240,
    "counts of one in the singular, by every verb": 500,
    "what can be read once alone is no trace": 49,
    "short commands that read no event": 130,
    # Agents as a remote shell, ranks that start together, their output and
    # ends, names and process numbers in VMs, launchers of MPI and Dask, and
    # their keys in files.
    "programs launched in a job's VMs": 7765,
    "the network's share of a scaled program's time": 214,
    # Sockets' memory, the machine's numbers, inherited priorities, the filter
    # of controllers and students' code, folders of labs and sweeps.
    "no garbage collections while a command starts": 33,
    "descriptions of files' keys are read where one is shown": 363,
    "what a VM, a controller and a student's code may hold and call": 1_227,
    # The report's and the page's bars, tables of pictures, top of a run, the
    # page of a sweep and of a policy's check, completion, a bench of viewers.
    "servers over time, pictures as files, runs and sweeps followed": 8_840,
    "pictures of comparisons, policy checks, sweeps and marks as files": 1_366,
    "a switch's and a link's text on the page of the network": 428,
    # Some 160: hidden folders, real-time signals, plug-ins that print or exit,
    # folders named through links, damaged records, endless output and loops.
    "defects that fresh readers found": 2_584,
    "rules that judge nothing, heads behind overdue jobs, own links of Mininet files": 2_654,
    "the file's embedder as a default; networks of another version": 159,
    "no terminal, token or descriptor for strangers; exact p̃; points of labs in words": 981,
    "gains in two measures compared; leases in order up to the first without room": 100,
    "arguments of sweeps, labels that repeat, forgotten jobs, limits in the value's unit": 1_310,
    "records of failures in runs in which nothing fails": 42,
    "followers of jobs that never left, in the audit": 113,
    "exact times of simulated runs in the audit": 192,
    "tiers, shortened ends and rescaled grants in the audit": 79,
    "arrivals before the jobs that they follow have left, in the audit": 95,
}
"""Tokens that a feature added to the product after its size was settled, by
what they are for; they join the budget of tokens."""
INTERFACE_NAMES = ("Experiment",)
"""Class names that may have two meanings: `testbed.Experiment` is the Python
interface's face of an experiment."""
MAY_REPEAT = ("__init__", "__main__", "base")
SMALL_LINES = 60
SIMULATED_WAY = "modules on the simulated way"
ASIDE = ("testbed/audit", "testbed/report")
"""Folders beside the way of a job: they read what a run has left."""

EXPERIMENT = """\
name: one-job
seed: 1
topology: {kind: tree, fanout: [2, 2], links: [1 Gbit/s, 1 Gbit/s], slots_per_server: 2}
scale: {rate: 0.1}
policies: [vc]
workload:
  kind: jobs
  jobs:
    - {id: a, at: 0 s, vms: 3, bandwidth: 100 Mbit/s, duration: 3 s}
"""

TRAVELS = frozenset(
    [
        "Document",
        "Experiment",
        "JobRequest",
        "JobState",
        "Start",
        "Arrived",
        "Ended",
        "Completion",
        "JobRow",
    ]
)
"""Names of the classes in which a job travels; of events the base class ``Event`` counts."""


@dataclass(frozen=True)
class Figure:
    """A figure, the most that it may be, and the most that is wanted.

    A budget is what has been reached: it is lowered with each step towards
    what is wanted, and never raised. None: there is none.
    """

    name: str
    value: int | float
    budget: int | float | None = None
    detail: tuple[str, ...] = ()
    wanted: int | float | None = None

    @property
    def good(self) -> bool:
        return self.budget is None or self.value <= self.budget


# -- what is written ------------------------------------------------------------------------------


@cache
def files() -> tuple[Path, ...]:
    """The product's Python files, tracked or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *PRODUCT],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return tuple(
        Path(name)
        for name in sorted(set(listed))
        # A link is a name of a file that is counted where it is.
        if name.endswith(".py")
        and (ROOT / name).is_file()
        and not (ROOT / name).is_symlink()
    )


@cache
def source(path: Path) -> str:
    return (ROOT / path).read_text("utf-8")


def lines(path: Path) -> int:
    return source(path).count("\n")


def counted() -> tuple[Path, ...]:
    return tuple(path for path in files() if path.parts[0] not in APART)


def repeated_names() -> list[str]:
    """Module names that occur more than once."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in files():
        if path.stem not in MAY_REPEAT:
            places[path.stem].append(str(path.parent))
    return [
        f"{name}: {', '.join(where)}"
        for name, where in sorted(places.items())
        if len(where) > 1
    ]


# -- who imports whom -----------------------------------------------------------------------------


@cache
def import_graph() -> nx.DiGraph:
    """Imports at the top of modules; those for type checkers alone do not count."""
    modules = {
        _dotted(path): path
        for path in files()
        if path.parts[0] != "examples"
    }
    graph = nx.DiGraph()
    graph.add_nodes_from(modules)
    for name, path in modules.items():
        for imported in _imports(tree_of(source(path)).body, modules):
            if imported != name:
                graph.add_edge(name, imported)
    return graph


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(body: list[ast.stmt], modules: dict[str, Path]) -> set[str]:
    imported: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    imported.add(inner if inner in modules else node.module)
        elif isinstance(node, ast.If):
            for_types = "TYPE_CHECKING" in ast.dump(node.test)
            bodies = [] if for_types else [*node.body, *node.orelse]
            imported |= _imports(bodies, modules)
    return {name for name in imported if name in modules}


def circles() -> list[str]:
    """Modules that name each other, wherever the imports stand: in functions
    and for type checkers too.
    """
    modules = {
        _dotted(path): path
        for path in files()
        if path.parts[0] != "examples"
    }
    graph = nx.DiGraph()
    for name, path in modules.items():
        for node in ast.walk(tree_of(source(path))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for imported in _imports([node], modules) - {name}:
                    graph.add_edge(name, imported)
    return [
        " <-> ".join(sorted(members))
        for members in nx.strongly_connected_components(graph)
        if len(members) > 1
    ]


def ambiguous_classes() -> list[str]:
    """Public classes that share their name with one of another module."""
    modules_of: defaultdict[str, list[str]] = defaultdict(list)
    for path in files():
        if path.parts[0] not in DENSE:
            continue
        for node in tree_of(source(path)).body:
            public = isinstance(node, ast.ClassDef) and node.name[0] != "_"
            if public and node.name not in INTERFACE_NAMES:
                modules_of[node.name].append(_dotted(path))
    return [
        f"{name}: {', '.join(modules)}"
        for name, modules in sorted(modules_of.items())
        if len(modules) > 1
    ]


def longest_chain() -> list[str]:
    """The longest chain of imports; a circle counts as one."""
    circles = nx.condensation(import_graph())
    return [
        min(circles.nodes[node]["members"])
        for node in nx.dag_longest_path(circles)
    ]


def imported_once() -> list[str]:
    graph = import_graph()
    return [name for name in graph if graph.in_degree(name) == 1]


# -- the way of one job ---------------------------------------------------------------------------


class _Way:
    """A profiler that notes modules through which the job passes."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.called: set[str] = set()

    def __call__(self, frame: Any, kind: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if (
            kind not in ("call", "return")
            or not name.startswith(str(ROOT))
            or ".venv" in name
        ):
            return
        module = str(Path(name).relative_to(ROOT))
        aside = module.startswith((*ASIDE, "tests"))
        if frame.f_code.co_name == "<module>" or aside:
            return
        self.called.add(module)
        if kind == "return":
            values = [argument]
        else:
            code = frame.f_code
            names = code.co_varnames[
                : code.co_argcount + code.co_kwonlyargcount
            ]
            values = [
                frame.f_locals[parameter]
                for parameter in names
                if parameter in frame.f_locals
            ]
        if any(map(_carries_the_job, values)):
            self.passed[module] += 1


def _carries_the_job(value: object) -> bool:
    if (
        isinstance(value, tuple | list)
        and value
        and type(value).__name__ not in TRAVELS
    ):
        value = value[0]
    bases = {base.__name__ for base in type(value).__mro__}
    return type(value).__name__ in TRAVELS or "Event" in bases


def way(verb: str) -> _Way:
    """Plays one job with ``testbed VERB`` in this process and returns what it passed."""
    from testbed.cli.main import run

    seen = _Way()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "one-job.yaml"
        file.write_text(EXPERIMENT, "utf-8")
        silent = io.StringIO()
        with (
            contextlib.redirect_stdout(silent),
            contextlib.redirect_stderr(silent),
        ):
            # Once before, without the profiler: late imports are done then.
            for profiler in (None, seen):
                sys.setprofile(profiler)
                code = run(
                    [
                        verb,
                        str(file),
                        "--out",
                        f"{folder}/{profiler is None}",
                    ]
                )
                sys.setprofile(None)
        if code != 0:
            raise SystemExit(
                f"testbed {verb} ended with {code}:\n{silent.getvalue()}"
            )
    return seen


# -- the command ----------------------------------------------------------------------------------


def static_figures() -> list[Figure]:
    """Figures of the source alone, in the order in which they are printed."""
    chain = longest_chain()
    repeated = repeated_names()
    named_in_turn = circles()
    ambiguous = ambiguous_classes()
    small = []
    for path in counted():
        if lines(path) < SMALL_LINES and path.stem not in MAY_REPEAT:
            small.append(str(path))
    return [
        *density_figures(),
        Figure("files", len(files())),
        Figure(
            "module names that repeat", len(repeated), 0, tuple(repeated)
        ),
        Figure("import depth", len(chain), 14, tuple(chain)),
        Figure(
            "circles of modules",
            len(named_in_turn),
            0,
            tuple(named_in_turn),
        ),
        Figure(
            "class names with two meanings",
            len(ambiguous),
            0,
            tuple(ambiguous),
        ),
        Figure(
            f"modules under {SMALL_LINES} lines",
            len(small),
            None,
            tuple(small),
        ),
        Figure("modules with one importer", len(imported_once())),
    ]


def density_figures() -> list[Figure]:
    """Density of the product, and its tokens without the labs'."""
    dense = [path for path in files() if path.parts[0] in DENSE]
    without_labs = [path for path in dense if LABS not in path.parents]
    tokens = density(map(source, without_labs)).tokens
    total = density(map(source, dense))
    return [
        Figure(
            "tokens, testbed.labs apart",
            tokens,
            362_488 + sum(FEATURE_TOKENS.values()),
            wanted=330_000 + sum(FEATURE_TOKENS.values()),
        ),
        Figure("tokens, testbed.labs too", total.tokens),
        Figure("lines", total.lines),
        Figure("code lines", total.code_lines),
        Figure(
            "tokens a code line",
            round(total.tokens_per_line, 2),
            7.0,
        ),
        Figure(
            "code lines over 90 characters [%]",
            round(total.long_percent, 1),
            0.5,
            wanted=1,
        ),
        Figure(
            "conditional expressions per 1,000 code lines",
            round(total.conditional_per_thousand, 1),
            6.6,
            wanted=12,
        ),
        Figure(
            "comprehensions per 1,000 code lines",
            round(total.comprehensions_per_thousand, 1),
            18.3,
            wanted=20,
        ),
        Figure(
            "tokens a function, median",
            total.function_median,
            63,
            wanted=50,
        ),
        Figure(
            "tokens a function, 90th percentile",
            total.function_p90,
            147,
            wanted=155,
        ),
        Figure(
            "lines that are no comments [%]",
            round(100 - total.comment_percent, 1),
            96.1,
            wanted=96,
        ),
    ]


def traced_figures(*, live: bool = False) -> list[Figure]:
    """Figures of the way of one job; ``live`` plays it on the live network too."""
    simulated = way("simulate")
    passed = sorted(simulated.passed)
    figures = [
        Figure(SIMULATED_WAY, len(passed), 20, tuple(passed)),
        Figure("modules called meanwhile", len(simulated.called)),
    ]
    if live:
        more = sorted(set(way("run").passed) - set(passed))
        figures.append(
            Figure(
                "modules that the live way adds", len(more), 16, tuple(more)
            )
        )
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Size and shape of the product."
    )
    parser.add_argument(
        "--check", action="store_true", help="exit 1 above a budget"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--quiet", action="store_true", help="no lists below the figures"
    )
    parser.add_argument(
        "--way", action="store_true", help="the way of one job alone"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="the live way too (root, Open vSwitch)",
    )
    options = parser.parse_args()
    figures = [
        *([] if options.way else static_figures()),
        *traced_figures(live=options.live),
    ]
    if options.json:
        print(json.dumps([vars(figure) for figure in figures], indent=1))
    else:
        for figure in figures:
            print(_line(figure))
            if not options.quiet:
                print(
                    "".join(f"    {line}\n" for line in figure.detail),
                    end="",
                )
    return (
        1
        if options.check and not all(figure.good for figure in figures)
        else 0
    )


def _line(figure: Figure) -> str:
    text = f"{figure.name:44} {figure.value:>8,}"
    if figure.budget is not None:
        text += f"  (at most {figure.budget:,})"
    if figure.wanted is not None and figure.value > figure.wanted:
        text += f"  wanted {figure.wanted:,}"
    return text if figure.good else f"{text}  ABOVE"


if __name__ == "__main__":
    raise SystemExit(main())
