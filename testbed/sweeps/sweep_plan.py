"""The plan of a sweep: its keys, values, files and metrics, all checked before
the first run.
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
PLUGIN_PREFIX = "plug-in "
"""Prefix of an installed plug-in's name among the names of files."""
# The path of an installed plug-in, which is not sent to workers.
NOWHERE = Path()
DEFAULT_METRICS = (
    "acceptance_rate",
    "wait_mean_s",
    "response_mean_s",
    "vm_utilisation",
)
"""Metrics of a sweep's table if neither file nor command line name any."""
SPREADS = ("estimate_ratio", "iperf3_ratio")
MAX_NAMED = 10
"""The most repeated values that a message names."""
# Fields of a summary that are no metrics.
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
    """Names of metrics; a spread's parts are ``estimate_ratio.mean``, …"""
    for metric in fields(Summary):
        if metric.name in SPREADS:
            for part in fields(Spread):
                yield f"{metric.name}.{part.name}"
        elif metric.name not in _NO_METRICS:
            yield metric.name


METRICS = tuple(_metrics_of_summary())
"""Numbers of a run's summary, by name."""


@dataclass(frozen=True)
class PlanOptions:
    """The command line's options for a sweep.

    Keys in ``over`` are added to the file's, or replace them where they are the
    same. ``stop`` and ``metrics`` replace the file's. ``least``: the fewest
    seeds; None leaves the number of the file's rule.
    """

    over: tuple[SweptKey, ...] = ()
    stop: Stop | None = None
    metrics: tuple[str, ...] = ()
    live: bool = False
    least: int | None = None


FileChange = Mapping[str, FileRef | None]
"""Files in which a cell differs from the first cell, by name; None for a file
that only the first cell reads.
"""


@dataclass(frozen=True)
class SweepPlan:
    """A checked sweep.

    - ``data``: the content of the file without its sweep section.
    - ``over``: the swept keys, the seed last.
    - ``accepts``: the worst fidelity that the file accepts.
    - ``policy``: label of the first cell's policy.
    - ``files``: files that the first cell reads, by name.
    - ``changes``: by key and value (as YAML), the files in which a cell with
      this value differs from the first cell.
    - ``labels``: labels of swept policies, by value (as YAML).
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
        """The swept keys without the seed: each combination of their values
        has a row in tables.
        """
        if self.has_seeds:
            return self.over[:-1]
        return self.over

    @property
    def backend(self) -> str:
        return "live" if self.live else "sim"

    @property
    def rule_metrics(self) -> tuple[str, ...]:
        """The metrics whose confidence intervals the stop rule checks."""
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
        """Names of the keys in tables: ``policy`` for the key ``policies``."""
        columns = [swept.key for swept in self.over]
        if POLICIES in columns:
            columns[columns.index(POLICIES)] = "policy"
        return tuple(columns)

    @property
    def combined_columns(self) -> tuple[str, ...]:
        """The columns of :attr:`combined`."""
        return self.columns[: len(self.combined)]


def plan_sweep(
    path: Path, text: str, options: PlanOptions | None = None
) -> SweepPlan:
    """The plan of the sweep in a file's text.

    Checks each value by loading the experiment with it and the first values of
    all other keys. Raises SpecErrors with all problems, or BadInput if neither
    the file nor the options have a sweep.
    """
    options = options or PlanOptions()
    document = read_document(text, str(path))
    section = _section(document, options)
    over = _over(document, options)
    stop = _stop(section, options)
    _check(document, section, options, over=over, stop=stop)
    values = _LoadedValues(path, text, over)
    data = dict(document.data)
    # A cell's key does not depend on the sweep that the cell belongs to.
    data.pop("sweep", None)
    base = values.base
    in_file_live = section is not None and section.backend == "live"
    return SweepPlan(
        path=path,
        text=text,
        name=base.name,
        data=data,
        over=over,
        stop=stop,
        metrics=_metrics(section, options),
        live=options.live or in_file_live,
        accepts=data.get("expect", {}).get("fidelity", "ok"),
        policy=base.policies[0].label,
        files=values.files,
        changes=values.changes,
        labels=values.labels,
    )


def _check(
    document: Document,
    section: SweepSection | None,
    options: PlanOptions,
    *,
    over: Sequence[SweptKey],
    stop: Stop | None,
) -> None:
    """Raises SpecErrors with all problems but those of single values."""
    check_size(over, Location(document))
    _check_metrics(document, section, options)
    if stop is not None and not (over and over[-1].key == SEED):
        _at_stop(document, options).report(
            "there are no seeds to stop at: add seed: 1..20 to over"
        )
    problems = [
        *document.problems,
        *_given_twice(options.over),
        *_overlaps(over),
    ]
    # A sweep that is too large has too many values to compare.
    if not problems:
        problems += _repeated(over)
    if problems:
        raise SpecErrors(problems)


def _section(
    document: Document, options: PlanOptions
) -> SweepSection | None:
    """The file's sweep section; None if only the options have a sweep.

    Raises SpecErrors, or BadInput if neither has one.
    """
    location = Location(document)
    if not isinstance(document.data, dict):
        message = "must be a mapping with topology and workload"
        raise SpecErrors([Problem(location.place, "", message)])
    if "sweep" not in document.data:
        if not options.over:
            raise BadInput(
                f"{location.place.source} has no sweep: section",
                "say what to vary: --over workload.load=0.2,0.4 --over seed=1..10",
            )
        return None
    section = read_section(SweepSection, location / "sweep")
    if document.problems:
        raise SpecErrors(document.problems)
    return section


def _over(document: Document, options: PlanOptions) -> tuple[SweptKey, ...]:
    """The swept keys: the file's, then those that the options add, then the
    seed. An option's key replaces the same key of the file.
    """
    location = Location(document)
    written: Iterable[SweptKey] = ()
    if "sweep" in document.data:
        written = read_over(location / "sweep" / "over")
    keys = {swept.key: swept for swept in (*written, *options.over)}
    entries = document.data.get(POLICIES)
    several = isinstance(entries, list) and len(entries) > 1
    if several and POLICIES not in keys:
        keys[POLICIES] = _swept_policies(location / POLICIES)
    # The sort is stable: only the seed moves.
    return tuple(sorted(keys.values(), key=lambda swept: swept.key == SEED))


def _swept_policies(location: Location) -> SweptKey:
    """The file's policies as values of a swept key: each cell has one."""
    parts = tuple(
        ((entry,), (location / index).place)
        for index, entry in enumerate(location.value)
    )
    return SweptKey(POLICIES, location.place, parts)


def _given_twice(over: Sequence[SweptKey]) -> Iterator[Problem]:
    """Problems of keys of several options: only the last would be swept."""
    seen = set()
    for swept in over:
        if swept.key in seen:
            yield Problem(
                swept.place,
                swept.key,
                "is there twice: give all its values to one --over",
            )
        seen.add(swept.key)


def _overlaps(over: Sequence[SweptKey]) -> Iterator[Problem]:
    """Problems of a key inside another key, or inside the sweep section."""
    paths = [key_path(swept.key) for swept in over]
    for index, path in enumerate(paths):
        place = over[index].place
        name = over[index].key
        if path[:1] == ("sweep",):
            yield Problem(place, name, "is the sweep itself")
        for earlier, other in zip(over, paths[:index], strict=False):
            # If one path begins with the other, a value of the shorter path
            # would replace that of the longer.
            if path[: len(other)] == other[: len(path)]:
                yield Problem(
                    place,
                    name,
                    f"overlaps with {earlier.key}: sweep one of them",
                )


def _repeated(over: Sequence[SweptKey]) -> Iterator[Problem]:
    """Problems of values that a key has twice: a seed would count twice."""
    for swept in over:
        twice = _values_twice(swept)
        if twice:
            names = ", ".join([*twice][:MAX_NAMED])
            if len(twice) > MAX_NAMED:
                names += f" and {len(twice) - MAX_NAMED:,} more"
            verb = "is" if len(twice) == 1 else "are"
            yield Problem(
                next(iter(twice.values())),
                swept.key,
                f"{names} {verb} there twice",
            )


def _values_twice(swept: SweptKey) -> dict[str, Place]:
    """Values (as YAML) that a key repeats, and the place of the repetition."""
    seen: set[str] = set()
    twice: dict[str, Place] = {}
    # A single part is a value or a range, neither of which repeats a value.
    if len(swept.parts) == 1:
        return twice
    for values, place in swept.parts:
        for text in map(as_yaml, values):
            if text in seen:
                twice.setdefault(text, place)
            seen.add(text)
    return twice


def _stop(
    section: SweepSection | None, options: PlanOptions
) -> Stop | None:
    """The stop rule; None without one.

    A rule in the options takes from the file's rule what it lacks.
    """
    written = None if section is None else section.stop
    rule = None
    if written is not None:
        rule = Stop(written.interval, written.metric or "", written.least)
    if options.stop is None:
        return rule
    if rule is None:
        return options.stop
    return replace(
        rule,
        interval=options.stop.interval,
        metric=options.stop.metric or rule.metric,
        least=options.least or rule.least,
    )


def _metrics(
    section: SweepSection | None, options: PlanOptions
) -> tuple[str, ...]:
    written = section.metrics if section is not None else None
    return tuple(
        dict.fromkeys(options.metrics or written or DEFAULT_METRICS)
    )


def _at_stop(document: Document, options: PlanOptions) -> Location:
    """The location of the stop rule, in the command line or in the file."""
    if options.stop is None:
        return Location(document) / "sweep" / "stop"
    return _on_command_line(document, "stop")


def _on_command_line(document: Document, option: str) -> Location:
    """An option as a location, so that the document reports its problems."""
    document.places[(option,)] = Place(f"--{option}")
    return Location(document, (option,))


def _check_metrics(
    document: Document, section: SweepSection | None, options: PlanOptions
) -> None:
    """Reports names in file and options that are no metrics."""
    location = Location(document) / "sweep"
    named = [
        (_on_command_line(document, "metric"), name)
        for name in options.metrics
    ]
    if section is not None:
        for index, name in enumerate(section.metrics or ()):
            named.append((location / "metrics" / index, name))
        if section.stop is not None and section.stop.metric:
            named.append(
                (location / "stop" / "metric", section.stop.metric)
            )
    if options.stop is not None and options.stop.metric:
        where = _on_command_line(document, "stop")
        named.append((where, options.stop.metric))
    for where, name in named:
        if name not in METRICS:
            where.report(unknown_name("metric", name, METRICS))


# -- values and their files


def overrides(
    keys: Sequence[SweptKey], values: Sequence[Any]
) -> tuple[tuple[str, str], ...]:
    """Keys and values (as YAML) of a cell, as ``--set`` takes them."""
    texts = []
    for swept, value in zip(keys, values, strict=True):
        # In a file ``policies`` is a list; a cell's value is an entry of it.
        written = [value] if swept.key == POLICIES else value
        texts.append((swept.key, as_yaml(written)))
    return tuple(texts)


class _LoadedValues:
    """The experiment loaded with each value of a sweep; the first values of all
    keys make the base.

    Raises SpecErrors with the problems of all values.
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
                self._load_value(index, value, place)
        if self._problems:
            raise SpecErrors(self._problems)

    def _load_value(self, index: int, value: Any, place: Place) -> None:
        """Loads the experiment with a value, and notes the value's files."""
        # All other keys have their first values, since loading every
        # combination would take hours.
        key = self._over[index].key
        sample = [*self._first]
        sample[index] = value, place
        experiment = self.base
        # The base has the first values. They are the same objects.
        if value is not self._first[index][0]:
            try:
                experiment = self._loaded(sample, key)
            except SpecErrors as errors:
                self._problems += errors.problems
                return
        if key == POLICIES:
            self._add_label(value, place, experiment.policies[0].label)
        change = self._changed_files(used_files(experiment))
        if change:
            self.changes[key, as_yaml(value)] = change

    def _add_label(self, value: Any, place: Place, label: str) -> None:
        """Notes a policy's label; reports one that stands for another policy
        too: their rows could not be told apart.
        """
        written = as_yaml(value)
        if written not in self.labels and label in self.labels.values():
            message = (
                f"{label} is there twice: give one of the two another name"
            )
            self._problems.append(Problem(place, POLICIES, message))
        self.labels[written] = label

    def _changed_files(self, refs: Mapping[str, FileRef]) -> FileChange:
        """The files that differ from those of the base."""
        change: dict[str, FileRef | None] = {}
        # Sorted: a cell's key depends on the order, and a set has none.
        for name in sorted(self.files.keys() | refs.keys()):
            if self.files.get(name) != refs.get(name):
                change[name] = refs.get(name)
        return change

    def _loaded(
        self, sample: Sequence[tuple[Any, Place]], varied: str = ""
    ) -> Experiment:
        """The experiment with a sample, a value and its place for each key.

        ``varied``: the key whose value is not the first; empty for the base.
        Raises SpecErrors with the places of values.
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
        """A problem at the place of the swept value that causes it."""
        written = {}
        for (key, text), (_, place) in zip(texts, sample, strict=True):
            if varied in ("", key):
                written[key] = (text, place)
        for key, (text, place) in written.items():
            # The place that parse_experiment gives to the value itself.
            if problem.place.source == f"--set {key}={text}":
                message = problem.message + _brackets(place)
                return Problem(place, problem.path, message)
        if not varied:
            return problem
        # The base has no such problem: the varied value causes it elsewhere.
        text, place = written[varied]
        where = f"{problem.path}: " if problem.path else ""
        return Problem(
            place, varied, f"with {text}, {where}{problem.message}"
        )


def _brackets(place: Place) -> str:
    """A hint where an option's values have brackets, as in a file; empty
    elsewhere. On the command line a list in brackets is a single value.
    """
    option, _, values = place.source.partition("=")
    if option.startswith("--over ") and re.fullmatch(r"\[[^][]*\]", values):
        return f": several values stand without brackets, {option}=A,B"
    return ""


def used_files(experiment: Experiment) -> dict[str, FileRef]:
    """The files that a loaded experiment has read, by their names in it.

    A plug-in's digest is that of the text that was executed, an installed
    plug-in's that of its version and sources. Any other file is read again.
    """
    # Plug-ins come first, so that their files are not read again.
    files = _plugin_refs(experiment)
    for name, path in experiment.files.items():
        if name not in files:
            files[name] = FileRef(name, sha256_of(path), path.absolute())
    return {name: files[name] for name in sorted(files)}


def _plugin_refs(experiment: Experiment) -> dict[str, FileRef]:
    """The files of all policies' plug-ins, by name."""
    sources = {}
    for policy in experiment.policies:
        for use in experiment.plugins_of(policy):
            sources[use.source.written] = use.source
    refs: dict[str, FileRef] = {}
    for source in sources.values():
        if source.module is None:
            refs |= _file_refs(source)
        else:
            # Nothing is sent: a worker without the same package is refused.
            identity = json.dumps(_identity(source)).encode()
            digest = hashlib.sha256(identity).hexdigest()
            refs[f"{PLUGIN_PREFIX}{source.written}"] = FileRef(
                source.written, digest, NOWHERE
            )
    return refs


def _file_refs(source: Source) -> dict[str, FileRef]:
    """The files of a plug-in, by their names as seen from the experiment."""
    # An experiment names a plug-in ``FILE:NAME``; the first file is FILE.
    written = source.written.rpartition(":")[0]
    folder = Path(source.files[0].name).parent
    refs = {}
    for file in source.files:
        name = written
        # A Path would drop a leading "./" of the name in the experiment.
        if file is not source.files[0]:
            inside = Path(file.name).relative_to(folder)
            name = str(Path(written).parent / inside)
        digest = hashlib.sha256(file.text).hexdigest()
        refs[name] = FileRef(name, digest, file.path)
    return refs


def _identity(source: Source) -> list[str | None]:
    """Version and sources of an installed plug-in, equal on all machines that
    have the same plug-in.

    Raises PluginError if this process has imported other sources of it.
    """
    contents = [
        hashlib.sha256(file.text).hexdigest() for file in source.files
    ]
    # The version alone is not enough: it stays while the sources of an
    # editable installation change.
    sources = imported_digest(source.module or "")
    return [source.distribution, source.version, sources, *contents]
