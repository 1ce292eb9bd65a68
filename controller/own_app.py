"""A person's Ryu or os-ken application in place of ours: loaded and started.

The file is read before root is given up, as the experiment file is, and runs
only afterwards. Its own modules are looked for beside it first.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import os
import re
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb, format_exception_only
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from controller.library import PACKAGES, LibraryName, choose_library

if TYPE_CHECKING:
    from socket import socket

# The name under which the file is loaded: another module may have its own.
MODULE = "own_controller_app"
# Of the log, and of every other file that the application writes.
FILE_SIZE_MAX_BYTES = 64 << 20
# Of each of its processes: heap and threads' stacks.
MEMORY_MAX_BYTES = 1 << 30
# Of a thread: two for each switch of os-ken's would else have 8 MiB each.
STACK_BYTES = 1 << 20
# Threads and processes beside those that its user has at the start. Ryu's
# threads are green.
THREADS_MAX: dict[LibraryName, int] = {"ryu": 64, "os-ken": 1024}

THREADS = re.compile(
    r"^Uid:\t(\d+).*^Threads:\t(\d+)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class OwnApp:
    """An application's file.

    ``imports``: dotted names of modules, and of names imported from them.
    """

    path: Path
    source: bytes
    imports: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> OwnApp:
        """The file as it is now.

        Raises OSError; SyntaxError or ValueError where it is no Python.
        """
        source = path.read_bytes()
        tree = ast.parse(source, str(path))
        return cls(path.absolute(), source, tuple(_imported(tree)))

    def library(self, wanted: str | None) -> LibraryName:
        """The library that it imports; ``wanted`` if that is both or none.

        Raises `LibraryMissing`.
        """
        packages = {name.partition(".")[0] for name in self.imports}
        used = []
        for name, package in PACKAGES.items():
            if package in packages:
                used.append(name)
        if len(used) == 1:
            return choose_library(used[0])
        return choose_library(wanted)

    def import_library(self, library: LibraryName) -> None:
        """Imports the library's modules that it names.

        They may be out of reach without root.
        The other library is not to be found from now on: it would come without
        its threads.
        """
        for name in self.imports:
            if name.partition(".")[0] == PACKAGES[library]:
                # Not each is a module; what does not import fails again where
                # the file asks for it.
                with suppress(Exception):
                    importlib.import_module(name)
        for package in PACKAGES.values():
            if package != PACKAGES[library]:
                sys.modules[package] = cast(ModuleType, None)

    def start(
        self,
        openflow: Any,
        listeners: Sequence[socket],
    ) -> None:
        """Loads it and starts its applications on `listeners`.

        ``openflow`` is `controller.app`. Raises whatever the file raises.
        """
        _limit_resources(openflow.LIBRARY)
        folder = self.path.parent
        with suppress(OSError):
            # It may open files beside it; the folder may be closed to this
            # user.
            os.chdir(folder)
        sys.path.insert(0, str(folder))
        openflow.configure()
        self._execute()
        openflow.start_module(MODULE, listeners)

    def _execute(self) -> None:
        name = str(self.path)
        module = ModuleType(MODULE)
        module.__file__ = name
        sys.modules[MODULE] = module
        # Its lines in tracebacks, where the file is out of reach by now.
        lines = self.source.decode(errors="replace").splitlines(keepends=True)
        linecache.cache[name] = (len(self.source), None, lines, name)
        # Not with this module's own future imports.
        code = compile(self.source, name, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102

    def explained(self, error: BaseException) -> str:
        """An error of the file as ``line 12: NameError: …``.

        The line is the file's last on the way to the error.
        """
        text = format_exception_only(error)[-1].strip()
        line = None
        for frame in extract_tb(error.__traceback__):
            if frame.filename == str(self.path):
                line = frame.lineno
        if line is None:
            return text
        return f"line {line}: {text}"


def _limit_resources(library: LibraryName) -> None:
    import threading  # not before green threads are in place

    _limit(resource.RLIMIT_FSIZE, FILE_SIZE_MAX_BYTES)
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


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif (
            isinstance(node, ast.ImportFrom) and node.module and not node.level
        ):
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
