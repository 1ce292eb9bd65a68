"""A sweep as it was asked for, checked before anything runs: keys, values,
files, metrics.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from testbed.errors import BadInput
from testbed.plugins import Source, imported_digest
from testbed.record.metrics import Spread, Summary
from testbed.spec.document import (
    Document,
    Location,
    Place,
    Problem,
    SpecErrors,
    read_document,
    unknown_name,
)
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import key_path, parse_experiment
from testbed.spec.sweep_section import (
    SEED,
    SweepSection,
    SweptKey,
    as_yaml,
    check_size,
    read_over,
)
from testbed.spec.validation import read_section
from testbed.sweeps.intervals import Stop
from testbed.sweeps.tasks import FileRef, sha256_of

POLICIES = "policies"
INSTALLED = "plug-in "
"""Before the name of what is not a file to be sent."""
NOWHERE = Path()
SHOWN = (
    "acceptance_rate",
    "wait_mean_s",
    "response_mean_s",
    "vm_utilisation",
)
"""The metrics of a table that was asked for none."""
SPREADS = ("estimate_ratio", "iperf3_ratio")
NAMED = 10
"""Values that a message names, of those that are there twice."""
_NO_METRICS = (
    "name",
    "policy",
    "backend",
    "seed",
    "status",
    "classes",
    "fidelity",
    "wall_s",
)


def _metrics_of_summary() -> Iterator[str]:
    for metric in fields(Summary):
        if metric.name in SPREADS:
            for part in fields(Spread):
                yield f"{metric.name}.{part.name}"
        elif metric.name not in _NO_METRICS:
            yield metric.name


METRICS = tuple(_metrics_of_summary())
"""Numbers of a run's summary, by name."""


@dataclass(frozen=True)
class Asked:
    """The command line's sweep, in place of or beside the file's."""

    over: tuple[SweptKey, ...] = ()
    stop: Stop | None = None
    metrics: tuple[str, ...] = ()
    live: bool = False


FileChange = Mapping[str, FileRef | None]
"""The files that a value adds to those of the first cell; None for one that it
takes away.
"""


@dataclass(frozen=True)
class SweepPlan:
    """A checked sweep.

    ``over``: the keys, the seeds last. ``data``: the file without its sweep.
    ``files``: those that the first cell reads. ``changes``: the files of other
    values where they differ from ``files``, by key and value as YAML.
    ``labels``: the policies' labels by value. ``accepts``: the worst fidelity
    that the file accepts.
    """

    path: Path
    text: str
    name: str
    data: Mapping[str, Any]
    over: tuple[SweptKey, ...]
    stop: Stop | None
    metrics: tuple[str, ...]
    live: bool
    accepts: str
    policy: str
    files: Mapping[str, FileRef]
    changes: Mapping[tuple[str, str], FileChange] = field(
        default_factory=dict
    )
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_seeds(self) -> bool:
        return bool(self.over) and self.over[-1].key == SEED

    @cached_property
    def combined(self) -> tuple[SweptKey, ...]:
        """The keys but for the seed."""
        if self.has_seeds:
            return self.over[:-1]
        return self.over

    @property
    def backend(self) -> str:
        return "live" if self.live else "sim"

    @property
    def rule_metrics(self) -> tuple[str, ...]:
        """The metrics whose intervals the stop rule looks at."""
        if self.stop is not None and self.stop.metric:
            return (self.stop.metric,)
        return self.metrics

    @property
    def size(self) -> int:
        """The number of all cells."""
        cells = 1
        for key in self.over:
            cells *= len(key)
        return cells

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys' names in tables: a cell has one policy."""
        columns = [swept.key for swept in self.over]
        if POLICIES in columns:
            columns[columns.index(POLICIES)] = "policy"
        return tuple(columns)

    @property
    def combined_columns(self) -> tuple[str, ...]:
        """The columns of :attr:`combined`."""
        return self.columns[: len(self.combined)]


def plan_sweep(
    path: Path, text: str, asked: Asked | None = None
) -> SweepPlan:
    """The sweep of a file's text. Raises SpecErrors or BadInput with everything
    that is wrong.

    The experiment is loaded once per value: each value beside the first ones of
    the other keys.
    """
    asked = asked or Asked()
    document = read_document(text, str(path))
    section = _section(document, asked)
    over = _over(document, asked)
    stop = _stop(section, asked)
    _check(document, section, asked, over=over, stop=stop)
    loaded = _Values(path, text, over)
    data = dict(document.data)
    # A cell is the same cell whatever sweep it belongs to.
    data.pop("sweep", None)
    base = loaded.base
    in_file_live = section is not None and section.backend == "live"
    return SweepPlan(
        path=path,
        text=text,
        name=base.name,
        data=data,
        over=over,
        stop=stop,
        metrics=_metrics(section, asked),
        live=asked.live or in_file_live,
        accepts=data.get("expect", {}).get("fidelity", "ok"),
        policy=base.policies[0].label,
        files=loaded.files,
        changes=loaded.changes,
        labels=loaded.labels,
    )


def _check(
    document: Document,
    section: SweepSection | None,
    asked: Asked,
    *,
    over: Sequence[SweptKey],
    stop: Stop | None,
) -> None:
    """Raises SpecErrors for what is wrong before any value is looked at."""
    check_size(over, Location(document))
    _check_metrics(document, section, asked)
    if stop is not None and not (over and over[-1].key == SEED):
        _at_stop(document, asked).report(
            "there are no seeds to stop at: add seed: 1..20 to over"
        )
    # Values are unfolded only of a sweep whose size is right.
    problems = [*document.problems, *_overlaps(over)] or [*_repeated(over)]
    if problems:
        raise SpecErrors(problems)


def _section(document: Document, asked: Asked) -> SweepSection | None:
    """The file's sweep; SpecErrors where it has none and none is asked for."""
    location = Location(document)
    if not isinstance(document.data, dict):
        message = "must be a mapping with topology and workload"
        raise SpecErrors([Problem(location.place, "", message)])
    if "sweep" not in document.data:
        if not asked.over:
            raise BadInput(
                f"{location.place.source} has no sweep: section",
                "say what to vary: --over workload.load=0.2,0.4 --over seed=1..10",
            )
        return None
    section = read_section(SweepSection, location / "sweep")
    if document.problems:
        raise SpecErrors(document.problems)
    return section


def _over(document: Document, asked: Asked) -> tuple[SweptKey, ...]:
    """The file's keys, the command line's in place of them or after them, the
    seeds last.
    """
    location = Location(document)
    written: Iterable[SweptKey] = ()
    if "sweep" in document.data:
        written = read_over(location / "sweep" / "over")
    keys = {swept.key: swept for swept in (*written, *asked.over)}
    entries = document.data.get(POLICIES)
    several = isinstance(entries, list) and len(entries) > 1
    if several and POLICIES not in keys:
        keys[POLICIES] = _swept_policies(location / POLICIES)
    # Stable: the others stay as they stand.
    return tuple(sorted(keys.values(), key=lambda swept: swept.key == SEED))


def _swept_policies(location: Location) -> SweptKey:
    """Several policies of the file as values: a cell has one."""
    parts = tuple(
        ((entry,), (location / index).place)
        for index, entry in enumerate(location.value)
    )
    return SweptKey(POLICIES, location.place, parts)


def _overlaps(over: Sequence[SweptKey]) -> Iterator[Problem]:
    """A key inside another one, which would replace its values."""
    paths = [key_path(swept.key) for swept in over]
    for index, path in enumerate(paths):
        place = over[index].place
        name = over[index].key
        if path[:1] == ("sweep",):
            yield Problem(place, name, "is the sweep itself")
        # One path is the beginning of the other: either would replace the
        # other's value.
        for before, other in zip(over, paths[:index], strict=False):
            if path[: len(other)] == other[: len(path)]:
                yield Problem(
                    place,
                    name,
                    f"overlaps with {before.key}: sweep one of them",
                )


def _repeated(over: Sequence[SweptKey]) -> Iterator[Problem]:
    """Values that a key has twice: one seed would count as two."""
    for swept in over:
        # One part is a value, or a range, which has none twice.
        twice = _twice(swept) if len(swept.parts) > 1 else {}
        if twice:
            names = ", ".join([*twice][:NAMED])
            if len(twice) > NAMED:
                names += f" and {len(twice) - NAMED:,} more"
            verb = "is" if len(twice) == 1 else "are"
            yield Problem(
                next(iter(twice.values())),
                swept.key,
                f"{names} {verb} there twice",
            )


def _twice(swept: SweptKey) -> dict[str, Place]:
    """The values that occur again, and where they first do."""
    seen: set[str] = set()
    twice: dict[str, Place] = {}
    for values, place in swept.parts:
        for text in map(as_yaml, values):
            if text in seen:
                twice.setdefault(text, place)
            seen.add(text)
    return twice


def _stop(section: SweepSection | None, asked: Asked) -> Stop | None:
    """The command line's rule, completed by the file's; None without any."""
    written = None if section is None else section.stop
    rule = None
    if written is not None:
        rule = Stop(written.interval, written.metric or "", written.least)
    if asked.stop is None or rule is None:
        return asked.stop or rule
    return replace(
        rule,
        interval=asked.stop.interval,
        metric=asked.stop.metric or rule.metric,
    )


def _metrics(section: SweepSection | None, asked: Asked) -> tuple[str, ...]:
    written = section.metrics if section is not None else None
    return tuple(dict.fromkeys(asked.metrics or written or SHOWN))


def _at_stop(document: Document, asked: Asked) -> Location:
    """The place of the stop rule: the command line's, or the file's."""
    if asked.stop is None:
        return Location(document) / "sweep" / "stop"
    return _on_command_line(document, "stop")


def _on_command_line(document: Document, option: str) -> Location:
    """A place of the command line, for messages of this document."""
    document.places[(option,)] = Place(f"--{option}")
    return Location(document, (option,))


def _check_metrics(
    document: Document, section: SweepSection | None, asked: Asked
) -> None:
    """Reports names that are no metrics, wherever they were given."""
    location = Location(document) / "sweep"
    named = [
        (_on_command_line(document, "metric"), name)
        for name in asked.metrics
    ]
    if section is not None:
        for index, name in enumerate(section.metrics or ()):
            named.append((location / "metrics" / index, name))
        if section.stop is not None and section.stop.metric:
            named.append(
                (location / "stop" / "metric", section.stop.metric)
            )
    if asked.stop is not None and asked.stop.metric:
        where = _on_command_line(document, "stop")
        named.append((where, asked.stop.metric))
    for where, name in named:
        if name not in METRICS:
            where.report(unknown_name("metric", name, METRICS))


# -- the values, one by one


def overrides(
    keys: Sequence[SweptKey], values: Sequence[Any]
) -> tuple[tuple[str, str], ...]:
    """A cell's values in place of the file's, as ``--set`` takes them."""
    texts = []
    for swept, value in zip(keys, values, strict=True):
        # The file's key is a list of policies, of which a cell has one.
        written = [value] if swept.key == POLICIES else value
        texts.append((swept.key, as_yaml(written)))
    return tuple(texts)


class _Values:
    """Every value of a sweep, loaded once; raises SpecErrors with all that are
    wrong.
    """

    def __init__(
        self, path: Path, text: str, over: Sequence[SweptKey]
    ) -> None:
        self._path = path
        self._text = text
        self._over = over
        self._first = [next(swept.samples()) for swept in over]
        self._problems: list[Problem] = []
        self.changes: dict[tuple[str, str], FileChange] = {}
        self.labels: dict[str, str] = {}
        self.base = self._loaded(self._first)
        self.files = used_files(self.base)
        for index, swept in enumerate(over):
            for value, place in swept.samples():
                self._take(index, value, place)
        if self._problems:
            raise SpecErrors(self._problems)

    def _take(self, index: int, value: Any, place: Place) -> None:
        """Loads a value beside the first ones of the other keys, and notes its
        files.
        """
        # All other keys at their first values: loading every combination
        # would take hours.
        key = self._over[index].key
        sample = [*self._first]
        sample[index] = value, place
        experiment = self.base
        # By identity: the first values are those of the base.
        if value is not self._first[index][0]:
            try:
                experiment = self._loaded(sample, key)
            except SpecErrors as errors:
                self._problems += errors.problems
                return
        if key == POLICIES:
            self.labels[as_yaml(value)] = experiment.policies[0].label
        change = self._change(used_files(experiment))
        if change:
            self.changes[key, as_yaml(value)] = change

    def _change(self, refs: Mapping[str, FileRef]) -> FileChange:
        """The files that differ from those of the base."""
        change: dict[str, FileRef | None] = {}
        # In order, so that a cell's key does not depend on that of a set.
        for name in sorted(self.files.keys() | refs.keys()):
            if self.files.get(name) != refs.get(name):
                change[name] = refs.get(name)
        return change

    def _loaded(
        self, sample: Sequence[tuple[Any, Place]], varied: str = ""
    ) -> Experiment:
        """The experiment with these values. Raises SpecErrors that name the
        places where they are written.
        """
        texts = overrides(self._over, [value for value, _ in sample])
        try:
            return parse_experiment(self._text, self._path, dict(texts))
        except SpecErrors as errors:
            raise SpecErrors(
                self._placed(problem, texts, sample, varied)
                for problem in errors.problems
            ) from None

    def _placed(
        self,
        problem: Problem,
        texts: Sequence[tuple[str, str]],
        sample: Sequence[tuple[Any, Place]],
        varied: str,
    ) -> Problem:
        """A problem at the place where its value is written."""
        written = {}
        for (key, text), (_, place) in zip(texts, sample, strict=True):
            written[key] = (text, place)
        for key in [varied] if varied else written:
            text, place = written[key]
            if problem.place.source == f"--set {key}={text}":
                message = problem.message + _brackets(place)
                return Problem(place, problem.path, message)
        if not varied:
            return problem
        text, place = written[varied]
        where = f"{problem.path}: " if problem.path else ""
        return Problem(
            place, varied, f"with {text}, {where}{problem.message}"
        )


def _brackets(place: Place) -> str:
    """A hint for an option's values in brackets, as a file has them: there they
    are a single value.
    """
    option, _, values = place.source.partition("=")
    if option.startswith("--over ") and re.fullmatch(r"\[[^][]*\]", values):
        return f": several values stand without brackets, {option}=A,B"
    return ""


def used_files(experiment: Experiment) -> dict[str, FileRef]:
    """The files that a loaded experiment has read, by their names in it.

    Contents are those of now, of plug-ins those that were executed. Installed
    plug-ins are known by version and sources.
    """
    # Plug-ins first: their digests are of what was executed, not of what
    # the files hold by now.
    files = _plugin_refs(experiment)
    for name, path in experiment.files.items():
        files.setdefault(
            name, FileRef(name, sha256_of(path), path.absolute())
        )
    return {name: files[name] for name in sorted(files)}


def _plugin_refs(experiment: Experiment) -> dict[str, FileRef]:
    sources = {}
    for policy in experiment.policies:
        for use in experiment.plugins_of(policy):
            sources[use.source.written] = use.source
    refs: dict[str, FileRef] = {}
    for source in sources.values():
        if source.module is None:
            refs |= _file_refs(source)
        else:
            # Nothing is sent: a worker has the same package or cannot be used.
            identity = json.dumps(_identity(source)).encode()
            digest = hashlib.sha256(identity).hexdigest()
            refs[f"{INSTALLED}{source.written}"] = FileRef(
                source.written, digest, NOWHERE
            )
    return refs


def _file_refs(source: Source) -> dict[str, FileRef]:
    """The files of a plug-in by their names beside the experiment's."""
    written = Path(source.written.rpartition(":")[0])
    folder = Path(source.files[0].name).parent
    refs = {}
    for file in source.files:
        beside = written.parent / Path(file.name).relative_to(folder)
        # As the experiment has it: a path loses a "./" at its beginning.
        name = str(beside)
        if file is source.files[0]:
            name = source.written.rpartition(":")[0]
        digest = hashlib.sha256(file.text).hexdigest()
        refs[name] = FileRef(name, digest, file.path)
    return refs


def _identity(source: Source) -> list[str | None]:
    """A package's plug-in, the same on every machine where it is the same.

    Raises PluginError where this process has imported other sources of it.
    """
    contents = [
        hashlib.sha256(file.text).hexdigest() for file in source.files
    ]
    # By its sources too: the version of an editable installation stays
    # while they change.
    sources = imported_digest(source.module or "")
    return [source.distribution, source.version, sources, *contents]
