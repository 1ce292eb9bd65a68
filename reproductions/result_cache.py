"""Results of run configurations on disk, each computed at most once, on several processors.

A result is filed under the digest of its configuration and of the sources that compute it: a
stopped figure continues where it stopped, and a changed program never shows old values as its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from reproductions.grid_quantities import Measures
from reproductions.published_figure import Configuration
from testbed.results.folder import RunFolder, caller

COMPUTING = ("topologies", "jobs", "testbed")
SHOWING = ("testbed.cli", "testbed.report", "testbed.plan", "testbed.backends.emu",
           "testbed.results.audit")  # fmt: skip
"""Packages that no simulated run's measures depend on."""
SHARED = ("reproductions.configuration", "reproductions.extractors", "reproductions.occupancy")


@cache
def sources_digest(module: str) -> str:
    """The digest of everything that computes a configuration of the class in ``module``."""
    digest = hashlib.sha256(_packages_digest().encode())
    for name in (*SHARED, module):
        digest.update(_source(name).read_bytes())
    return digest.hexdigest()


@cache
def _packages_digest() -> str:
    digest = hashlib.sha256()
    for name, path in computing_modules():
        digest.update(f"{name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def computing_modules() -> Iterator[tuple[str, Path]]:
    """The modules that simulated runs are computed with, by name."""
    for package in COMPUTING:
        top = _source(package).parent
        for path in sorted(top.rglob("*.py")):
            name = ".".join((package, *path.relative_to(top).with_suffix("").parts))
            if not any(name == shown or name.startswith(f"{shown}.") for shown in SHOWING):
                yield name, path


def _source(name: str) -> Path:
    # A program started with ``-m`` goes by another name than it is imported by.
    spec = importlib.util.find_spec(name) if name != "__main__" else sys.modules[name].__spec__
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name)
    return Path(spec.origin)


class ResultCache:
    """A folder of results, one small JSON file each, owned by the user who called sudo."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder.absolute(), caller())

    def name(self, configuration: Configuration) -> str:
        """The file of a configuration's result."""
        content = json.dumps([_kind(configuration), configuration.to_json()], sort_keys=True)
        content += sources_digest(type(configuration).__module__)
        return f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"

    def get(self, configuration: Configuration) -> Measures | None:
        """The stored result; None where there is none, a damaged one, or another's."""
        try:
            path = self._folder.path / self.name(configuration)
            record: Any = json.loads(path.read_text("utf-8"))
            if record["configuration"] != json.loads(json.dumps(configuration.to_json())):
                return None
            return {str(name): float(value) for name, value in record["measures"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, configuration: Configuration, measures: Measures) -> None:
        """Store a result, whole or not at all."""
        record = {
            "kind": _kind(configuration),
            "configuration": configuration.to_json(),
            "measures": dict(measures),
        }
        self._folder.write_json(self.name(configuration), record)


def _kind(configuration: Configuration) -> str:
    return f"{type(configuration).__module__}.{type(configuration).__qualname__}"


@dataclass(frozen=True)
class Progress:
    """Runs done, and their cost; ``kept`` of them were found stored."""

    done: int
    of: int
    cost: float
    of_cost: float
    kept: int


Report = Callable[[Progress], None]


def compute(
    configurations: Iterable[Configuration], store: ResultCache, processes: int, report: Report
) -> dict[Configuration, Measures]:
    """Measures of all configurations: from the store where they are there, computed otherwise.

    Whatever stops it, what was finished is stored whole; called again it computes the rest. The
    costliest go first, so that the processors end together.
    """
    wanted = list(dict.fromkeys(configurations))
    found = {one: measures for one in wanted if (measures := store.get(one)) is not None}
    missing = [one for one in wanted if one not in found]
    missing.sort(key=lambda one: one.cost(), reverse=True)
    kept, total = len(found), sum(one.cost() for one in missing)
    done = 0.0
    report(Progress(kept, len(wanted), done, total, kept))
    for configuration, measures in _computed(missing, processes):
        store.put(configuration, measures)
        found[configuration] = measures
        done += configuration.cost()
        report(Progress(len(found), len(wanted), done, total, kept))
    return found


def _computed(
    configurations: list[Configuration], processes: int
) -> Iterator[tuple[Configuration, Measures]]:
    if processes == 1 or len(configurations) < 2:
        for configuration in configurations:
            yield configuration, configuration.run()
        return
    import joblib

    # One at a time: an interrupt loses no finished run that is queued behind another.
    run = joblib.Parallel(n_jobs=processes, return_as="generator_unordered", batch_size=1)
    results = run(joblib.delayed(_run)(configuration) for configuration in configurations)
    try:
        yield from results
    finally:
        results.close()


def _run(configuration: Configuration) -> tuple[Configuration, Measures]:
    return configuration, configuration.run()
