"""A person's Ryu or os-ken application in place of ours: read, loaded and started.

The file is read before root is given up, as the experiment file is, and runs only afterwards. Its
own modules are looked for beside it first.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import os
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
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE_MAX_BYTES, FILE_SIZE_MAX_BYTES))
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


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
