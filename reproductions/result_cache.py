"""Run configurations as tasks of a sweep, each computed at most once.

A result is filed under the digest of its configuration, of the sources that
compute it and of the libraries' versions: a stopped figure continues where it
stopped, and a changed program never shows old values as its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reproductions.grid_quantities import Measures
from reproductions.published_figure import Configuration
from testbed.spec.document import find_file
from testbed.sweeps.computing_sources import (
    modules_digest,
    source,
    versions,
)
from testbed.sweeps.result_store import (
    Record,
    Report,
    ResultStore,
    SweepProgress,
)
from testbed.sweeps.tasks import Context, Executor, FileRef, sha256_of

SHARED = (
    "reproductions.configuration",
    "reproductions.extractors",
    "reproductions.occupancy",
)
FOLDER = Path(__file__).parent


@cache
def sources_digest(module: str) -> str:
    """The digest of everything that computes a configuration of the class in
    ``module``.
    """
    digest = hashlib.sha256(f"{modules_digest()}{versions()}".encode())
    for name in (*SHARED, module):
        digest.update(source(name).read_bytes())
    return digest.hexdigest()


def key(configuration: Configuration) -> str:
    """The digest of all that a configuration's result depends on."""
    content = json.dumps(
        [_kind(configuration), configuration.to_json()], sort_keys=True
    )
    content += sources_digest(type(configuration).__module__)
    return hashlib.sha256(content.encode()).hexdigest()


def stored(
    configuration: Configuration, store: ResultStore
) -> Measures | None:
    """The stored measures; None where there are none, damaged ones, or
    another's.
    """
    return _measures(configuration, store.get(key(configuration)))


def _measures(
    configuration: Configuration, record: Record | None
) -> Measures | None:
    try:
        if record is None or record["configuration"] != _plain(
            configuration
        ):
            return None
        return {
            str(name): float(value)
            for name, value in record["measures"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _plain(configuration: Configuration) -> Any:
    return json.loads(json.dumps(configuration.to_json()))


def _kind(configuration: Configuration) -> str:
    return f"{type(configuration).__module__}.{type(configuration).__qualname__}"


@dataclass(frozen=True)
class ConfigurationTask:
    """A configuration for an executor. ``files`` are the published traces that
    it reads.
    """

    configuration: Configuration
    key: str
    live: bool = False
    files: Mapping[str, FileRef] = field(default_factory=dict)

    @classmethod
    def of(cls, configuration: Configuration) -> ConfigurationTask:
        names: Iterable[str] = getattr(configuration, "traces", ())
        found = {name: find_file(name, FOLDER) for name in names}
        refs = {
            name: FileRef(name, sha256_of(path), path.absolute())
            for name, path in found.items()
            if path is not None  # the run itself says where it is to be had
        }
        return cls(configuration, key(configuration), files=refs)

    def run(self, context: Context) -> Mapping[str, Any]:
        with _found(self.files, context):
            measures = self.configuration.run()
        return {
            "result": {
                "kind": _kind(self.configuration),
                "configuration": _plain(self.configuration),
                "measures": dict(measures),
            }
        }


@contextmanager
def _found(
    files: Mapping[str, FileRef], context: Context
) -> Iterator[None]:
    """Lets traces that this machine does not have be found under their names."""
    missing = [
        ref
        for name, ref in files.items()
        if find_file(name, FOLDER) is None
    ]
    with ExitStack() as stack:
        if missing:
            folder = Path(
                stack.enter_context(TemporaryDirectory(dir=context.scratch))
            )
            for ref in missing:
                (folder / ref.name).symlink_to(context.path(ref))
            before = os.environ.get("TESTBED_DATA", "")
            os.environ["TESTBED_DATA"] = os.pathsep.join(
                (str(folder), before)
            )
            stack.callback(os.environ.__setitem__, "TESTBED_DATA", before)
        yield


def compute(
    configurations: Iterable[Configuration],
    store: ResultStore,
    executor: Executor,
    report: Report,
) -> dict[Configuration, Measures]:
    """Measures of all configurations: from the store where they are there,
    computed otherwise.

    Whatever stops it, what was finished is stored whole; called again it
    computes the rest. The costliest go first, so that the processors end
    together.
    """
    wanted = list(dict.fromkeys(configurations))
    found = {
        one: measures
        for one in wanted
        if (measures := stored(one, store)) is not None
    }
    missing = [one for one in wanted if one not in found]
    missing.sort(key=lambda one: one.cost(), reverse=True)
    kept, total = len(found), sum(one.cost() for one in missing)
    done = 0.0
    report(
        SweepProgress(
            done=kept, of=len(wanted), cost=done, of_cost=total, kept=kept
        )
    )
    tasks = {key(one): one for one in missing}
    for task, outcome in executor.results(
        map(ConfigurationTask.of, missing)
    ):
        if outcome.failure is not None or outcome.result is None:
            raise outcome.error
        configuration = tasks[task.key]
        store.put(task.key, outcome.result, outcome.provenance)
        found[configuration] = outcome.result["measures"]
        done += configuration.cost()
        report(
            SweepProgress(
                done=len(found),
                of=len(wanted),
                cost=done,
                of_cost=total,
                kept=kept,
            )
        )
    return found
