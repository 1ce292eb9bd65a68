"""Sources and versions that results are computed with: part of every result's
key.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

COMPUTING = ("topologies", "jobs", "testbed")
SHOWING = (
    "testbed.cli",
    "testbed.report",
    "testbed.plan",
    "testbed.backends.emu",
    "testbed.audit",
    "testbed.sweeps",
    "testbed.labs",
)
"""Packages that no simulated run's measures depend on."""
MEASURING = (*COMPUTING, "controller")
NOT_LIVE = (
    "testbed.cli",
    "testbed.report",
    "testbed.sweeps",
    "testbed.labs",
)
"""Packages that no live run's measures depend on."""
JUDGING = "testbed.audit"
DECIDING = ("numpy", "numba", "pydantic")
"""Packages that results may depend on: driver and workers have the same
versions.
"""
PLAYING = ("testbed.sweeps.cell_runs", "testbed.sweeps.result_store")
PLAYING_LIVE = "testbed.sweeps.live_cell"


@cache
def versions() -> str:
    """Versions of Python (its minor one, as of workers) and of the deciding
    packages.
    """
    python = ".".join(map(str, sys.version_info[:2]))
    return " ".join((python, *map(metadata.version, DECIDING)))


@cache
def code_digest(*, live: bool = False) -> str:
    """The digest of everything that computes a cell's result; workers must
    agree on it.
    """
    digest = hashlib.sha256(modules_digest(live=live).encode())
    paths = list(map(source, PLAYING))
    if live:
        paths.append(source(PLAYING_LIVE))
    else:
        # Among a live run's modules the audit is already.
        paths += sorted(source(JUDGING).parent.rglob("*.py"))
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def modules_digest(*, live: bool = False) -> str:
    """The digest of all modules that runs are computed with, or measured with."""
    digest = hashlib.sha256()
    for name, path in computing_modules(live=live):
        # With its name: a module that moved is another program.
        digest.update(f"{name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def computing_modules(*, live: bool = False) -> Iterator[tuple[str, Path]]:
    """The modules that simulated runs are computed with, or live ones measured
    with, by name.
    """
    packages = MEASURING if live else COMPUTING
    apart = NOT_LIVE if live else SHOWING
    prefixes = tuple(f"{package}." for package in apart)
    for package in packages:
        top = source(package).parent
        for path in sorted((*top.rglob("*.py"), *top.rglob("*.c"))):
            parts = path.relative_to(top).with_suffix("").parts
            name = ".".join((package, *parts))
            # With a point at its end a package's name begins as its modules'.
            if not f"{name}.".startswith(prefixes):
                yield name, path


def source(name: str) -> Path:
    """The file of a module. Raises ModuleNotFoundError."""
    # A program started with ``-m`` goes by another name than it is imported by.
    spec = (
        importlib.util.find_spec(name)
        if name != "__main__"
        else sys.modules[name].__spec__
    )
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name)
    return Path(spec.origin)
