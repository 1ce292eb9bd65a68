"""A person's Ryu or os-ken applications in place of ours: loaded and started.

They are named as for ``ryu-manager``: files and modules, each with one
application, and the library's options. Files are read before root is given up,
as the experiment file is, and executed only afterwards. Modules that they
import are looked for beside them first.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import os
import pwd
import re
import resource
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path
from traceback import StackSummary, extract_tb, format_exception_only
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from controller.app_packages import package_folders
from controller.library import PACKAGES, LibraryName, choose_library

if TYPE_CHECKING:
    from socket import socket

# Size of the log, and of every other file that the application writes.
FILE_SIZE_MAX_BYTES = 64 << 20
# Memory of each of its processes: heap and threads' stacks.
MEMORY_MAX_BYTES = 1 << 30
# Stack of a thread. os-ken has two threads a switch, by default of 8 MiB.
STACK_BYTES = 1 << 20
# Threads and processes beside those that its user has at the start. Ryu's
# threads are green.
THREADS_MAX: dict[LibraryName, int] = {"ryu": 64, "os-ken": 1024}

THREADS = re.compile(
    r"^Uid:\t(\d+).*^Threads:\t(\d+)", re.MULTILINE | re.DOTALL
)
# Packages of this program; a person's module may have the name of one.
OURS = ("controller", "jobs")


class UnusableApps(ValueError):
    """Applications or options that the library or these switches cannot use."""


@dataclass(frozen=True)
class OwnFile:
    """An application's file.

    ``imports``: dotted names of modules, and of names imported from them, in
    this file and in modules beside it. ``beside``: those modules' files.
    """

    path: Path
    source: bytes
    imports: tuple[str, ...]
    beside: tuple[Path, ...] = ()

    @classmethod
    def read(cls, path: Path) -> OwnFile:
        """The file as it is now.

        Raises OSError; SyntaxError or ValueError where it is no Python.
        """
        source = path.read_bytes()
        imports = list(_imported(_parsed(source, str(path))))
        beside = _add_imports_beside(path.absolute().parent, imports)
        return cls(path.absolute(), source, tuple(imports), tuple(beside))

    def load(self) -> str:
        """Executes the file as a module; returns the module's name.

        It is the file's, as under ``ryu-manager``: applications find each other
        and the sources of events by it. A file that another has imported is
        not executed again.
        """
        name = self.path.stem
        path = str(self.path)
        # The library, a package or another file may have loaded another module
        # of this name, which it keeps.
        while (known := sys.modules.get(name)) is not None:
            if getattr(known, "__file__", None) == path:
                return name
            name = f"own_{name}"
        module = ModuleType(name)
        module.__file__ = path
        # Before it is executed, as an import does it: what it defines may
        # look up its own module.
        sys.modules[name] = module
        # Its lines in tracebacks, where the file is out of reach by now.
        lines = self.source.decode(errors="replace").splitlines(
            keepends=True
        )
        # An entry without a time is not compared with the file.
        linecache.cache[path] = (len(self.source), None, lines, path)
        # Not with this module's own future imports.
        code = compile(self.source, path, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102
        return name


@dataclass(frozen=True)
class OwnApps:
    """Applications that are started together, in this order.

    A text is a module of the library's or of a package, such as
    ``ryu.app.ofctl_rest``. ``options`` are arguments as ``ryu-manager`` takes
    them. ``python``: an interpreter whose packages they may import.
    """

    parts: tuple[OwnFile | str, ...]
    options: tuple[str, ...] = ()
    python: str | None = None

    @classmethod
    def read(
        cls,
        names: Iterable[str],
        options: Sequence[str],
        python: str | None = None,
    ) -> OwnApps:
        """Applications by path or by module, as they are now.

        A path has a slash. Raises as `OwnFile.read`.
        """
        parts: list[OwnFile | str] = []
        for name in names:
            if "/" in name:
                parts.append(OwnFile.read(Path(name)))
            else:
                parts.append(name)
        return cls(tuple(parts), tuple(options), python)

    @property
    def files(self) -> list[OwnFile]:
        """Those that are files."""
        return [part for part in self.parts if isinstance(part, OwnFile)]

    @property
    def imports(self) -> Iterator[str]:
        """Dotted names that any of them imports, or is."""
        for part in self.parts:
            if isinstance(part, OwnFile):
                yield from part.imports
            else:
                yield part

    def library(self, wanted: str | None) -> LibraryName:
        """The library that they import; ``wanted`` if that is both or none.

        Raises `LibraryMissing`; UnusableApps where one needs Ryu and another
        os-ken.
        """
        needed: dict[LibraryName, str] = {}
        for part in self.parts:
            if isinstance(part, OwnFile):
                name = part.path.name
                used = _libraries(part.imports)
            else:
                name = part
                used = _libraries([part])
            # A file that imports both tries one after the other, and runs on
            # either.
            if len(used) == 1:
                needed[used.pop()] = name
        if len(needed) > 1:
            raise UnusableApps(
                f"{needed['ryu']} is for Ryu and {needed['os-ken']} for os-ken: "
                "a process runs on one of them"
            )
        return choose_library(next(iter(needed), wanted))

    def import_library(self, openflow: Any) -> None:
        """Imports the library's modules that they name, and what those require.

        ``openflow`` is `controller.app`. Without root the modules may be out of
        reach. The other library cannot be imported from now on: it would come
        without its threads.
        """
        package = PACKAGES[openflow.LIBRARY]
        openflow.import_options()
        for name in self.imports:
            if name.partition(".")[0] == package:
                # Not each is a module; what does not import fails again where
                # the file asks for it.
                with suppress(Exception):
                    importlib.import_module(name)
        for name in required_apps():
            with suppress(Exception):
                importlib.import_module(name)
        for other in PACKAGES.values():
            if other != package:
                # An import of a name that stands for None fails.
                sys.modules[other] = cast(ModuleType, None)

    def find_packages(self) -> None:
        """Has packages of their interpreter found before those of this one.

        The library and what it has imported stay this one's. Raises
        UnusableApps.
        """
        if self.python is not None:
            try:
                sys.path[:0] = package_folders(self.python)
            except ValueError as error:
                raise UnusableApps(str(error)) from None

    def start(
        self,
        openflow: Any,
        listeners: Sequence[socket],
        uids: Container[int],
    ) -> int | None:
        """Loads and starts them on `listeners`, for switches of these users.

        Returns the port of their web pages; None without any. Raises whatever
        the files raise.
        """
        _limit_resources(openflow.LIBRARY)
        # Before any file is executed, as under ``ryu-manager``.
        openflow.configure(self.options)
        names = []
        # Backwards: the first file's folder ends up first on the path, and
        # as the current one.
        for folder in reversed(self._folders()):
            with suppress(OSError):
                # They may open files beside them; the folder may be closed to
                # this user.
                os.chdir(folder)
            sys.path.insert(0, str(folder))
            _leave_names_to(folder)
        for part in self.parts:
            if isinstance(part, OwnFile):
                names.append(part.load())
            else:
                names.append(part)
        openflow.start_modules(names, required_apps(), listeners, uids)
        return cast("int | None", openflow.serve_pages())

    def _folders(self) -> list[Path]:
        """Folders of the files, without repetition."""
        return list(dict.fromkeys(file.path.parent for file in self.files))

    def explained(self, error: BaseException) -> str:
        """An error as ``line 12: NameError: …``, of several files with its name.

        The line is the files' last on the way to the error.
        """
        if isinstance(error, UnusableApps):
            return str(error)
        text = format_exception_only(error)[-1].strip()
        if isinstance(error, ModuleNotFoundError):
            text += self._why_missing(error)
        return self._located(text, extract_tb(error.__traceback__))

    def explained_wait(self, stack: StackSummary) -> str:
        """A start that only waits, with its line."""
        text = (
            "the start only waits here; constructors may ask no application"
        )
        return self._located(text, stack)

    def explained_work(self, stack: StackSummary, seconds: float) -> str:
        """A start that computes without end, with its line."""
        text = (
            f"the start computes here, after {seconds:g} s of a processor;"
            " what takes longer belongs in a thread (hub.spawn)"
        )
        return self._located(text, stack)

    def explained_start(self, stack: StackSummary) -> str:
        """A start that goes well so far, with its line."""
        return self._located("is still starting", stack)

    def _located(self, text: str, stack: StackSummary) -> str:
        paths = {str(file.path): file.path.name for file in self.files}
        for frame in reversed(stack):
            if frame.filename not in paths:
                continue
            where = f"line {frame.lineno}"
            if len(self.parts) > 1:
                where = f"{paths[frame.filename]}, {where}"
            return f"{where}: {text}"
        return text

    def _why_missing(self, error: ModuleNotFoundError) -> str:
        """The reason of a missing module, as the end of a sentence; or nothing."""
        missing = str(error.name)
        top, _, inside = missing.partition(".")
        if sys.modules.get(top, error) is None:
            return "; a process runs on Ryu or on os-ken, not on both"
        if top == PACKAGES["os-ken"] and inside.startswith("app."):
            return "; os-ken has no web server and no applications: Ryu has"
        for file in self.files:
            near = _module_files(file.path.parent, top)
            if any(path in file.beside for path in near):
                return _closed_way(file.path.parent)
        return ""


def required_apps() -> list[str]:
    """Applications that loaded modules require, as of an API that asks them.

    The library notes them at whatever imported such a module first, which may
    be a module beside the application.
    """
    names: dict[str, None] = {}
    for module in list(sys.modules.values()):
        names.update(dict.fromkeys(getattr(module, "_REQUIRED_APP", ())))
    return list(names)


def _closed_way(folder: Path) -> str:
    """A closed folder on the way to ``folder``, as the end of a sentence."""
    for part in (*reversed(folder.parents), folder):
        if not os.access(part, os.X_OK):
            return (
                f"; it is beside the application, which runs as {_user()}, "
                f"and {part} is closed to that user: chmod o+x, "
                "or place the files elsewhere"
            )
    return f"; it is beside the application, and closed to {_user()}"


def _user() -> str:
    uid = os.getuid()
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}, a number of its own"


def _leave_names_to(folder: Path) -> None:
    """Forgets modules of this program's where a folder has some of that name."""
    for top in OURS:
        if any(map(os.path.isfile, _module_files(folder, top))):
            for name in list(sys.modules):
                if name.partition(".")[0] == top:
                    del sys.modules[name]


def _limit_resources(library: LibraryName) -> None:
    import threading  # not before green threads are in place

    _limit(resource.RLIMIT_FSIZE, FILE_SIZE_MAX_BYTES)
    # Since Linux 4.7 it counts every private writable mapping: large blocks
    # of malloc and threads' stacks, not the heap alone.
    _limit(resource.RLIMIT_DATA, MEMORY_MAX_BYTES)
    # The kernel counts all that its user runs, in whatever process.
    n_threads = _threads_of(os.getuid())
    _limit(resource.RLIMIT_NPROC, n_threads + THREADS_MAX[library])
    threading.stack_size(STACK_BYTES)


def _limit(kind: int, most: int) -> None:
    """Bounds a resource of this process and its children, no higher than it is."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))


def _threads_of(uid: int) -> int:
    """Threads of all processes of a user."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended
            match = THREADS.search(status.read_text("utf-8", "replace"))
            if match is not None and int(match[1]) == uid:
                count += int(match[2])
    return count


def _libraries(imports: Iterable[str]) -> set[LibraryName]:
    packages = {name.partition(".")[0] for name in imports}
    return {
        name for name, package in PACKAGES.items() if package in packages
    }


def _module_files(folder: Path, name: str) -> Iterator[Path]:
    path = folder.joinpath(*name.split("."))
    yield path.with_suffix(".py")
    yield path / "__init__.py"


def _add_imports_beside(folder: Path, imports: list[str]) -> list[Path]:
    """Adds the imports of the modules in the folder that are imported, directly
    or by one another. Returns their files.
    """
    seen: list[Path] = []
    # The list grows in the loop: a module's own imports are looked up, too.
    for imported in imports:
        # An import of ``a.b`` executes the package ``a`` before.
        for name in accumulate(imported.split("."), "{}.{}".format):
            for path in _module_files(folder, name):
                # A pipe of that name would never end.
                if path in seen or not os.path.isfile(path):  # noqa: PTH113 - may be closed
                    continue
                seen.append(path)
                package = name
                if path.name != "__init__.py":
                    package = name.rpartition(".")[0]
                # Its faults are reported where it is executed.
                with suppress(OSError, SyntaxError, ValueError):
                    tree = _parsed(path.read_bytes(), str(path))
                    imports += _imported(tree, package)
    return seen


def _parsed(source: bytes, name: str) -> ast.AST:
    """Raises SyntaxError, ValueError."""
    try:
        return ast.parse(source, name)
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"{name} is nested too deeply") from error


def _imported(tree: ast.AST, package: str = "") -> Iterator[str]:
    """Dotted names of modules, and of names imported from them.

    ``package``: the module's, to which relative imports refer; empty where it
    has none: those fail.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            # One that leaves the outermost package fails too.
            with suppress(ImportError):
                module = resolve_name(relative, package)
                yield module
                for alias in node.names:
                    yield f"{module}.{alias.name}"
