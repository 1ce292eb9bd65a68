"""A person's Ryu or os-ken application in place of ours: read, loaded and started.

The file is read before root is given up, as the experiment file is, and runs only afterwards. Its
own modules are looked for beside it first.
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

MODULE = "own_controller_app"
"""The name under which the file is loaded, whatever its own: another module may have that."""
FILE_SIZE_MAX_BYTES = 64 << 20
"""Of the log, and of every other file that the application writes."""
MEMORY_MAX_BYTES = 1 << 30
"""Of each of its processes: heap and threads' stacks."""
STACK_BYTES = 1 << 20
"""Of a thread: two for each switch of os-ken's would else have 8 MiB each."""
THREADS_MAX: dict[LibraryName, int] = {"ryu": 64, "os-ken": 1024}
"""Threads and processes beside those that its user has at the start. Ryu's threads are green."""

THREADS = re.compile(r"^Uid:\t(\d+).*^Threads:\t(\d+)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class OwnApp:
    """An application's file. ``imports``: dotted names of modules, and of what is in them."""

    path: Path
    source: bytes
    imports: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> OwnApp:
        """The file as it is now. Raises OSError; SyntaxError or ValueError where it is no Python"""
        source = path.read_bytes()
        return cls(path.absolute(), source, tuple(_imported(ast.parse(source, str(path)))))

    def library(self, wanted: str | None) -> LibraryName:
        """The library that it imports; ``wanted`` decides where it imports either or none.

        Raises `LibraryMissing`.
        """
        packages = {name.partition(".")[0] for name in self.imports}
        used = [name for name, package in PACKAGES.items() if package in packages]
        return choose_library(used[0] if len(used) == 1 else wanted)

    def import_library(self, library: LibraryName) -> None:
        """Import the library's modules that it names, which may be out of reach without root.

        The other library is not to be found from now on: it would come without its threads.
        """
        for name in self.imports:
            if name.partition(".")[0] == PACKAGES[library]:
                # Not each is a module; what does not import fails again where the file asks for it.
                with suppress(Exception):
                    importlib.import_module(name)
        for package in PACKAGES.values():
            if package != PACKAGES[library]:
                sys.modules[package] = cast(ModuleType, None)

    def start(self, openflow: Any, listeners: Sequence[socket]) -> None:
        """Load it and start its applications on `listeners`; ``openflow`` is `controller.app`.

        Raises whatever the file raises.
        """
        import threading  # not before green threads are in place

        _limit(resource.RLIMIT_FSIZE, FILE_SIZE_MAX_BYTES)
        _limit(resource.RLIMIT_DATA, MEMORY_MAX_BYTES)
        # The kernel counts all that its user runs, in whatever process.
        _limit(resource.RLIMIT_NPROC, _threads_of(os.getuid()) + THREADS_MAX[openflow.LIBRARY])
        threading.stack_size(STACK_BYTES)
        with suppress(OSError):
            os.chdir(self.path.parent)
        sys.path.insert(0, str(self.path.parent))
        module = sys.modules[MODULE] = ModuleType(MODULE)
        module.__file__ = name = str(self.path)
        # Its lines in tracebacks, where the file is out of reach by now.
        lines = self.source.decode(errors="replace").splitlines(keepends=True)
        linecache.cache[name] = (len(self.source), None, lines, name)
        openflow.configure()
        exec(compile(self.source, name, "exec", dont_inherit=True), vars(module))  # noqa: S102
        openflow.start_module(MODULE, listeners)

    def explained(self, error: BaseException) -> str:
        """An error of the file as ``line 12: NameError: …``, its last line on the way there."""
        last = format_exception_only(error)[-1].strip()
        lines = [
            at.lineno for at in extract_tb(error.__traceback__) if at.filename == str(self.path)
        ]
        return f"line {lines[-1]}: {last}" if lines else last


def _limit(what: int, most: int) -> None:
    """Bounds a resource of this process and its children, no higher than it is."""
    hard = resource.getrlimit(what)[1]
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (bound, bound))


def _threads_of(uid: int) -> int:
    """Threads of all processes of a user."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended
            found = THREADS.search(status.read_text("utf-8", "replace"))
            count += int(found[2]) if found and int(found[1]) == uid else 0
    return count


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
