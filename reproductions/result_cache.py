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
from operator import methodcaller
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

# The modules of this package that every result depends on; a
# configuration's own module is added to them.
SHARED = (
    "reproductions.configuration",
    "reproductions.extractors",
    # Cases that no experiment file states take policies' parameters from it.
    "reproductions.interpretations",
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
    # Equal values of two kinds of configurations are different runs.
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
    """The measures of a record; None where it is damaged, or is of another
    configuration.
    """
    if record is None:
        return None
    try:
        if record["configuration"] != _plain(configuration):
            return None
        measures = {}
        for name, value in record["measures"].items():
            measures[str(name)] = float(value)
        return measures
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _plain(configuration: Configuration) -> Any:
    """A configuration as JSON gives it back: tuples are lists."""
    return json.loads(json.dumps(configuration.to_json()))


def _kind(configuration: Configuration) -> str:
    kind = type(configuration)
    return f"{kind.__module__}.{kind.__qualname__}"


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
        """The task of a configuration. A trace that this machine does not have
        is left out: the run itself names its origin.
        """
        names: Iterable[str] = getattr(configuration, "traces", ())
        refs = {}
        for name in names:
            path = find_file(name, FOLDER)
            if path is not None:
                refs[name] = FileRef(name, sha256_of(path), path.absolute())
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
    missing = []
    for name, ref in files.items():
        if find_file(name, FOLDER) is None:
            missing.append(ref)
    with ExitStack() as stack:
        if missing:
            folder = Path(
                stack.enter_context(TemporaryDirectory(dir=context.scratch))
            )
            for ref in missing:
                (folder / ref.name).symlink_to(context.path(ref))
            # The runs look for traces along this variable.
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
    measures_of: dict[Configuration, Measures] = {}
    missing = []
    total = 0.0
    for configuration in wanted:
        measures = stored(configuration, store)
        if measures is None:
            missing.append(configuration)
            total += configuration.cost()
        else:
            measures_of[configuration] = measures
    # A long run that starts last would keep one processor busy alone.
    missing.sort(key=methodcaller("cost"), reverse=True)
    kept = len(measures_of)
    done = 0.0
    report(
        SweepProgress(
            done=kept, of=len(wanted), cost=done, of_cost=total, kept=kept
        )
    )
    by_key = {
        key(configuration): configuration for configuration in missing
    }
    tasks = map(ConfigurationTask.of, missing)
    for task, outcome in executor.results(tasks):
        if outcome.failure is not None or outcome.result is None:
            raise outcome.error
        configuration = by_key[task.key]
        # Stored at once: an interrupted figure continues from here.
        store.put(task.key, outcome.result, outcome.provenance)
        measures_of[configuration] = outcome.result["measures"]
        done += configuration.cost()
        report(
            SweepProgress(
                done=len(measures_of),
                of=len(wanted),
                cost=done,
                of_cost=total,
                kept=kept,
            )
        )
    return measures_of
