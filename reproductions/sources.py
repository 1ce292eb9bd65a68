"""Which of our sources a class computes with, and their digest.

A result is filed under the digest of everything it depends on, so that a changed program never
shows old figures as its own, and a change elsewhere computes nothing again.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from functools import cache
from pathlib import Path

OURS = ("topologies", "jobs", "controller", "testbed", "reproductions")


@cache
def digest_behind(module: str) -> str:
    """The digest of a module's source and of all our modules it imports, however indirectly."""
    digest = hashlib.sha256()
    for name in modules_behind(module):
        digest.update(f"{name}\0".encode())
        digest.update(_source(name).read_bytes())
    return digest.hexdigest()


def modules_behind(module: str) -> tuple[str, ...]:
    """The module and all of ours that it imports, at its top or inside a function, sorted."""
    found: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += _imported(_source(name))
    return tuple(sorted(found))


def _imported(path: Path) -> list[str]:
    out: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            out += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # What is imported from a package may be a module of it, or a name in its __init__.
            out.append(node.module)
            out += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in out if name.split(".")[0] in OURS and _is_module(name)]


@cache
def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _source(name: str) -> Path:
    # A program started with ``-m`` goes by another name than it is imported by.
    spec = importlib.util.find_spec(name) if name != "__main__" else sys.modules[name].__spec__
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name)
    return Path(spec.origin)
