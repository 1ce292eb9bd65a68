"""Check of a plug-in's source: its decisions call no clock, randomness or I/O.

Made when a policy or an embedder from outside is loaded. Functions that
``decide``, ``price`` and ``embed`` call, by their names in the plug-in's own
files, are looked at; what only its constructor or its loading calls is not: a
policy may read files when it is made.

This finds mistakes. It confines nobody: names that are made at run time, and
other packages' code, are not looked at (:mod:`testbed.labs.sandbox` confines).
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from testbed.plugins import Loaded, PluginError, module_files

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

DECISIONS = frozenset({"decide", "price", "embed"})
"""Methods that answer the engine; all else is looked at if they call it."""

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

_CLOCKS = (
    "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns"
    " process_time process_time_ns thread_time thread_time_ns clock_gettime"
)
_NAMES = {
    **{f"time.{name}": CLOCK for name in _CLOCKS.split()},
    "time.sleep": WAITS,
    "datetime.datetime.now": CLOCK,
    "datetime.datetime.today": CLOCK,
    "datetime.datetime.utcnow": CLOCK,
    "datetime.date.today": CLOCK,
    "os.urandom": RANDOM,
    "random.SystemRandom": RANDOM,
    "uuid.uuid1": RANDOM,
    "uuid.uuid4": RANDOM,
    "open": IO,
    "print": IO,
    "input": IO,
    "io.open": IO,
    "sys.stdin": IO,
    "sys.stdout": IO,
    "sys.stderr": IO,
    "numpy.fromfile": IO,
    "numpy.genfromtxt": IO,
    "numpy.load": IO,
    "numpy.loadtxt": IO,
    "numpy.memmap": IO,
    "numpy.save": IO,
    "numpy.savetxt": IO,
}
"""Names that no decision may use, and what they do."""

_MODULES = {
    "asyncio": THREAD,
    "concurrent.futures": THREAD,
    "http": IO,
    "multiprocessing": THREAD,
    "numpy.random": RANDOM,
    "os": IO,
    "random": RANDOM,
    "secrets": RANDOM,
    "shutil": IO,
    "socket": IO,
    "sqlite3": IO,
    "subprocess": IO,
    "tempfile": IO,
    "threading": THREAD,
    "urllib.request": IO,
}
"""Modules of which no decision may use any name but those of ``_PURE``."""

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

_NEED_ARGUMENTS = {
    # Without the last of so many arguments they read the clock.
    "time.asctime": (1, CLOCK),
    "time.ctime": (1, CLOCK),
    "time.gmtime": (1, CLOCK),
    "time.localtime": (1, CLOCK),
    "time.strftime": (2, CLOCK),
    # Without a seed they take one from the system.
    "random.Random": (1, RANDOM),
    "numpy.random.MT19937": (1, RANDOM),
    "numpy.random.PCG64": (1, RANDOM),
    "numpy.random.PCG64DXSM": (1, RANDOM),
    "numpy.random.Philox": (1, RANDOM),
    "numpy.random.RandomState": (1, RANDOM),
    "numpy.random.SFC64": (1, RANDOM),
    "numpy.random.SeedSequence": (1, RANDOM),
    "numpy.random.default_rng": (1, RANDOM),
}

_FILE_METHODS = frozenset(
    {"read_bytes", "read_text", "write_bytes", "write_text"}
)
"""Methods of ``pathlib.Path``; the object's type is not known from the text."""


@dataclass(frozen=True)
class ImpureUse:
    """A use of something that no decision may do; lines and columns from 1."""

    file: Path
    line: int
    column: int
    name: str
    action: str


def check_source(loaded: Loaded) -> None:
    """Raises PluginError for a policy or embedder whose decisions are impure.

    The error is at the first such place and names the lines of the others.
    """
    texts = {file.path: file.text for file in loaded.source.files}
    if not texts and loaded.source.module is not None:
        texts = module_files(loaded.source.module)
    classes = None
    if isinstance(loaded.found, type):
        classes = frozenset(base.__name__ for base in loaded.found.__mro__)
    uses = list(impure_uses(texts, classes))
    if not uses:
        return
    first = uses[0]
    others = ""
    if len(uses) > 1:
        lines = ", ".join(str(use.line) for use in uses[1:])
        others = f" (also in line {lines})"
    message = (
        f"a decision {first.action} ({first.name}){others}:"
        f" {HINTS[first.action]}"
    )
    raise PluginError(message, first.file, first.line, first.column)


def impure_uses(
    texts: Mapping[Path, bytes], classes: Container[str] | None = None
) -> Iterator[ImpureUse]:
    """Yields impure uses in what decisions call, in order of file and line.

    ``classes``: those whose decisions count; None: all. A text that is no
    Python is left to the loader, which names its fault.
    """
    sources = []
    for path, text in texts.items():
        try:
            sources.append(_Source(path, ast.parse(text)))
        except (SyntaxError, ValueError):
            continue
    called = _called_functions(sources, classes)
    for source in sources:
        places = set()
        for function in source.functions:
            if id(function.node) not in called:
                continue
            for use in source.uses_in(function.node):
                # A function inside another one is walked with both.
                if use not in places:
                    places.add(use)
                    yield use


def _called_functions(
    sources: Iterable[_Source], classes: Container[str] | None
) -> set[int]:
    """Identities of the functions that decisions reach, by names alone.

    A name stands for every function that has it: rather one too many. Decisions
    of other classes do not count, nor do constructors: they may read files,
    whoever calls them.
    """
    decisions = []
    by_name: dict[str, list[Function]] = {}
    for source in sources:
        for function in source.functions:
            if function.name in DECISIONS:
                if classes is None or function.class_name in classes:
                    decisions.append(function.node)
            elif function.name != "__init__":
                by_name.setdefault(function.name, []).append(function.node)
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
    """A function or a lambda with a name; ``class_name`` is empty outside."""

    class_name: str
    name: str
    node: Function


class _Source:
    """A parsed file: its functions, and the full names behind its aliases."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path = path
        self.functions: list[_NamedFunction] = []
        self._full_names: dict[str, str] = {}
        self._note_functions(tree, class_name="")
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._note_import(node)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    name = alias.asname or alias.name
                    self._full_names[name] = f"{node.module}.{alias.name}"

    def _note_functions(self, parent: ast.AST, class_name: str) -> None:
        for node in ast.iter_child_nodes(parent):
            inner_class = class_name
            if isinstance(node, ast.ClassDef):
                inner_class = node.name
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named = _NamedFunction(class_name, node.name, node)
                self.functions.append(named)
            elif isinstance(node, ast.Assign) and isinstance(
                node.value, ast.Lambda
            ):
                for target in node.targets:
                    name = _mentioned(target)
                    named = _NamedFunction(class_name, name, node.value)
                    self.functions.append(named)
            self._note_functions(node, inner_class)

    def _note_import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname is not None:
                self._full_names[alias.asname] = alias.name
            else:
                # ``import os.path`` binds ``os``.
                top = alias.name.partition(".")[0]
                self._full_names[top] = top

    def uses_in(self, function: Function) -> Iterator[ImpureUse]:
        """Yields the impure uses in a function."""
        arguments = _argument_counts(function)
        inner_attributes = {
            id(node.value)
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute)
        }
        for node in ast.walk(function):
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            # Of ``a.b.c`` the whole is looked at, and not ``a.b`` again.
            if id(node) in inner_attributes:
                continue
            name = self._full_name(node)
            action = _action(name, arguments.get(id(node)))
            if action is not None:
                yield ImpureUse(
                    file=self.path,
                    line=node.lineno,
                    column=node.col_offset + 1,
                    name=name,
                    action=action,
                )

    def _full_name(self, node: ast.expr) -> str:
        """``numpy.random.rand`` of ``np.random.rand``; ``?.read`` of a value."""
        if isinstance(node, ast.Name):
            return self._full_names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self._full_name(node.value)}.{node.attr}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "__import__"
            and len(node.args) == 1
            and isinstance(node.args[0], ast.Constant)
        ):
            return str(node.args[0].value)
        return "?"


def _argument_counts(function: Function) -> dict[int, int]:
    """Numbers of arguments of the calls in a function, by the called node."""
    counts = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            counts[id(node.func)] = len(node.args) + len(node.keywords)
    return counts


def _action(name: str, arguments: int | None) -> str | None:
    """The impure action of a name; ``arguments``: of its call, if it is one."""
    if name in _NEED_ARGUMENTS:
        needed, action = _NEED_ARGUMENTS[name]
        lacks_arguments = arguments is not None and arguments < needed
        if lacks_arguments:
            return action
        return None
    if name.rpartition(".")[2] in _FILE_METHODS and arguments is not None:
        return IO
    # A name below a listed one too: sys.stderr.write, datetime.now().date.
    prefix = name
    while prefix and prefix not in _PURE and prefix not in _NEED_ARGUMENTS:
        if prefix in _NAMES:
            return _NAMES[prefix]
        if prefix in _MODULES and prefix != name:
            return _MODULES[prefix]
        prefix = prefix.rpartition(".")[0]
    return None
