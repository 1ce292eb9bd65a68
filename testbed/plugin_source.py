"""Check of a plug-in's source: its decisions use no clock, randomness or I/O.

It runs when a policy or an embedder from outside is loaded. It reads
``decide``, ``price`` and ``embed``, and every function of the plug-in's own
files whose name they mention, directly or through others. It leaves out what
only the constructor or the loading calls: a policy may read files when it is
made.

The check finds mistakes and confines nobody: it sees neither names that are
made at run time nor other packages' code (:mod:`testbed.labs.sandbox`
confines).
"""

from __future__ import annotations

import ast
from collections.abc import (
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from testbed.plugins import Loaded, PluginError, module_files

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# Methods that the engine calls for a decision.
DECISIONS = frozenset({"decide", "price", "embed"})

CLOCK = "reads the clock"
RANDOM = "draws random numbers"
IO = "does input or output"
WAITS = "waits"
THREAD = "starts a thread or a process"
HINTS = {
    CLOCK: "a policy knows the time by view.now_s",
    RANDOM: "a replay repeats each decision: break ties by arrival or id",
    IO: "read files in __init__; give reasons in Wait and Reject",
    WAITS: "a policy asks for a later decision with Wake(at_s)",
    THREAD: "a policy decides in the call that asks it",
}

# Full names that no decision may use -> their actions.
_NAMES = {
    **dict.fromkeys(
        (
            "datetime.datetime.now",
            "datetime.datetime.today",
            "datetime.datetime.utcnow",
            "datetime.date.today",
            "time.clock_gettime",
            "time.clock_gettime_ns",
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.perf_counter_ns",
            "time.process_time",
            "time.process_time_ns",
            "time.thread_time",
            "time.thread_time_ns",
            "time.time",
            "time.time_ns",
        ),
        CLOCK,
    ),
    **dict.fromkeys(
        ("os.urandom", "random.SystemRandom", "uuid.uuid1", "uuid.uuid4"),
        RANDOM,
    ),
    **dict.fromkeys(
        (
            "input",
            "io.open",
            "numpy.fromfile",
            "numpy.genfromtxt",
            "numpy.load",
            "numpy.loadtxt",
            "numpy.memmap",
            "numpy.save",
            "numpy.savetxt",
            "numpy.savez",
            "numpy.savez_compressed",
            "open",
            "print",
            "sys.stderr",
            "sys.stdin",
            "sys.stdout",
        ),
        IO,
    ),
    "time.sleep": WAITS,
}

# Modules of which a decision may use only what is in ``_PURE`` -> the action of
# the rest.
_MODULES = {
    **dict.fromkeys(("numpy.random", "random", "secrets"), RANDOM),
    **dict.fromkeys(
        (
            "http",
            "os",
            "shutil",
            "socket",
            "sqlite3",
            "subprocess",
            "tempfile",
            "urllib.request",
        ),
        IO,
    ),
    **dict.fromkeys(
        ("asyncio", "concurrent.futures", "multiprocessing", "threading"),
        THREAD,
    ),
}

_PURE = frozenset(
    {
        "numpy.random.BitGenerator",
        "numpy.random.Generator",
        "os.fspath",
        "os.path.basename",
        "os.path.commonprefix",
        "os.path.dirname",
        "os.path.join",
        "os.path.normpath",
        "os.path.split",
        "os.path.splitext",
        "os.sep",
    }
)

# Functions that are pure with enough arguments -> the number of these, and the
# action with fewer.
_NEED_ARGUMENTS = {
    # Without a time these take the present one.
    **dict.fromkeys(
        ("time.asctime", "time.ctime", "time.gmtime", "time.localtime"),
        (1, CLOCK),
    ),
    "time.strftime": (2, CLOCK),
    # Without a seed these take one from the system.
    **dict.fromkeys(
        (
            "numpy.random.MT19937",
            "numpy.random.PCG64",
            "numpy.random.PCG64DXSM",
            "numpy.random.Philox",
            "numpy.random.RandomState",
            "numpy.random.SFC64",
            "numpy.random.SeedSequence",
            "numpy.random.default_rng",
            "random.Random",
        ),
        (1, RANDOM),
    ),
}

# Methods of ``pathlib.Path``, known by their names alone: the text does not
# tell an object's type.
_FILE_METHODS = frozenset(
    {"read_bytes", "read_text", "write_bytes", "write_text"}
)


@dataclass(frozen=True, order=True)
class ImpureUse:
    """A place in a file where a decision does what no decision may do.

    ``line`` and ``column`` count from 1; ``name`` is the full name that is used
    there, ``action`` its fault, a key of ``HINTS``.
    """

    file: Path
    line: int
    column: int
    name: str
    action: str


def check_source(loaded: Loaded) -> None:
    """Raises PluginError for a policy or embedder whose decisions are impure.

    The error is at the first impure use, and names the lines of the others.
    """
    texts = {file.path: file.text for file in loaded.source.files}
    if not texts and loaded.source.module is not None:
        texts = module_files(loaded.source.module)
    classes = None
    if isinstance(loaded.value, type):
        classes = frozenset(base.__name__ for base in loaded.value.__mro__)
    uses = list(impure_uses(texts, classes))
    if not uses:
        return
    first, *further = uses
    lines = []
    for use in further:
        line = str(use.line)
        if use.file != first.file:
            line = f"{use.file.name}:{line}"
        lines.append(line)
    others = ""
    if lines:
        others = f" (also in line {', '.join(lines)})"
    message = (
        f"a decision {first.action} ({first.name}){others}:"
        f" {HINTS[first.action]}"
    )
    raise PluginError(message, first.file, first.line, first.column)


def impure_uses(
    texts: Mapping[Path, bytes], classes: Container[str] | None = None
) -> Iterator[ImpureUse]:
    """Yields the impure uses in decisions and in what they call.

    Uses are in the order of files and lines. ``texts``: the source of each
    file; a file that is no Python is left out, as its loading fails by itself.
    ``classes``: names of the classes whose decisions count; None: all.
    """
    sources = []
    for path, text in texts.items():
        try:
            sources.append(_Source(path, ast.parse(text)))
        except (SyntaxError, ValueError):
            continue
    called = _called_functions(sources, classes)
    for source in sources:
        nodes = []
        inside: set[int] = set()
        for function in source.functions:
            if id(function.node) in called:
                nodes.append(function.node)
                _, *parts = ast.walk(function.node)
                inside.update(map(id, parts))
        # A set: a lambda may have several names.
        uses: set[ImpureUse] = set()
        for node in nodes:
            # A function inside another one is looked at with that one, whose
            # variables it sees.
            if id(node) not in inside:
                uses.update(source.uses_in(node))
        yield from sorted(uses)


def _called_functions(
    sources: Iterable[_Source], classes: Container[str] | None
) -> set[int]:
    """Identities (``id``) of the decisions, and of the functions they reach.

    A name reaches every function that has it: one too many does less harm than
    one too few. Methods of other classes that have a decision's name are left
    out, and so are constructors, which may read files whoever calls them.
    """
    decisions = []
    by_name: dict[str, list[Function]] = {}
    for source in sources:
        for function in source.functions:
            name = function.name
            class_name = function.class_name
            decides = name in DECISIONS
            if decides and (classes is None or class_name in classes):
                decisions.append(function.node)
            # A function outside classes may have such a name by chance.
            elif name != "__init__" and not (decides and class_name):
                by_name.setdefault(name, []).append(function.node)
    reached: set[int] = set()
    to_visit = decisions
    while to_visit:
        node = to_visit.pop()
        if id(node) in reached:
            continue
        reached.add(id(node))
        for inner in ast.walk(node):
            to_visit += by_name.get(_mentioned(inner), [])
    return reached


def _mentioned(node: ast.AST) -> str:
    """The name that a node uses, without what stands before a dot."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return ""


@dataclass(frozen=True)
class _NamedFunction:
    """A function, or a lambda that is assigned to a name.

    ``class_name``: the class around it, or empty. ``name`` is empty for a
    lambda in a table, which any decision may call.
    """

    class_name: str
    name: str
    node: Function


class _Source:
    """A parsed file: its functions, and the full names of what it imports."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path = path
        self.functions: list[_NamedFunction] = []
        self._full_names: dict[str, str] = {}
        self._note_functions(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._note_imports(node)

    def _note_functions(self, tree: ast.Module) -> None:
        to_visit: list[tuple[ast.AST, str]] = [(tree, "")]
        # No recursion: a sum of many terms is as deep a tree.
        while to_visit:
            node, class_name = to_visit.pop()
            if isinstance(node, ast.ClassDef):
                class_name = node.name
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named = _NamedFunction(class_name, node.name, node)
                self.functions.append(named)
            elif isinstance(
                node, ast.Assign | ast.AnnAssign
            ) and isinstance(node.value, ast.Lambda):
                for name in map(_mentioned, _targets(node)):
                    named = _NamedFunction(class_name, name, node.value)
                    self.functions.append(named)
            children = ast.iter_child_nodes(node)
            to_visit += [(child, class_name) for child in children]

    def _note_imports(self, node: ast.Import | ast.ImportFrom) -> None:
        prefix = ""
        if isinstance(node, ast.ImportFrom):
            # The plug-in's own modules keep their leading dots: ".random" is
            # not "random".
            prefix = f"{'.' * node.level}{node.module}."
        for alias in node.names:
            # ``import os.path`` binds ``os``, which is its own full name.
            name = alias.asname or alias.name
            self._full_names[name] = prefix + alias.name

    def uses_in(self, function: Function) -> Iterator[ImpureUse]:
        """Yields the impure uses in a function."""
        # A variable of the function hides what the file imports, and Python's
        # own functions.
        hidden = dict.fromkeys(_variables(function), "?")
        full_names = self._full_names | hidden
        # By the identity of the node that is called, and of what stands before
        # a dot.
        arguments = {}
        before_dots = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                passed = [*node.args, *node.keywords]
                arguments[id(node.func)] = len(passed)
            elif isinstance(node, ast.Attribute):
                before_dots.add(id(node.value))
        for node in ast.walk(function):
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            # Of ``a.b.c`` the whole is looked at, and not ``a.b`` again.
            if id(node) in before_dots:
                continue
            name = _full_name(node, full_names)
            action = _action(name, arguments.get(id(node)))
            if action is not None:
                yield ImpureUse(
                    file=self.path,
                    line=node.lineno,
                    column=node.col_offset + 1,
                    name=name,
                    action=action,
                )


def _targets(node: ast.Assign | ast.AnnAssign) -> Sequence[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target]


def _variables(function: Function) -> Iterator[str]:
    """Names of a function's parameters, and of what it assigns to."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _full_name(node: ast.expr, full_names: Mapping[str, str]) -> str:
    """``numpy.random.rand`` of ``np.random.rand``; ``?.read`` of a value's.

    ``full_names``: those of names that stand for others.
    """
    if isinstance(node, ast.Name):
        return full_names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_full_name(node.value, full_names)}.{node.attr}"
    # ``__import__("time").time``
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "__import__"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
    ):
        return str(node.args[0].value)
    return "?"


def _action(name: str, arguments: int | None) -> str | None:
    """The impure action that a full name stands for; None for a pure one.

    ``arguments``: their number where the name is called; None: it is only
    mentioned.
    """
    if name in _NEED_ARGUMENTS:
        needed, action = _NEED_ARGUMENTS[name]
        if arguments is not None and arguments < needed:
            return action
        return None
    if name.rpartition(".")[2] in _FILE_METHODS and arguments is not None:
        return IO
    # Names that begin with a listed one count too: sys.stderr.write.
    prefix = name
    while prefix and prefix not in _PURE and prefix not in _NEED_ARGUMENTS:
        if prefix in _NAMES:
            return _NAMES[prefix]
        if prefix in _MODULES and prefix != name:
            return _MODULES[prefix]
        prefix = prefix.rpartition(".")[0]
    return None
