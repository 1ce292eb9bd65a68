"""The settings that figures play, point by point, and where those of a paper
differ.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import yaml

from reproductions.catalogue import paper_of
from reproductions.configuration import Settings, Together, Variant
from reproductions.interpretations import (
    ABOUT,
    AS_JUDGED,
    INTERPRETATIONS,
    LIVE_ONLY,
    OTHERWISE,
    Interpretation,
)
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import AnyFigure, Figure
from reproductions.stored_results import sections
from testbed.schedulers.registry import policy_kind
from testbed.spec.document import Document, Location, Place
from testbed.spec.experiment_file import ExperimentFile
from testbed.spec.policy_section import read_policies
from testbed.spec.workload_section import BandwidthRule

Values = Mapping[str, Any]
WRITTEN = "jobs"
"""The kind of workload whose jobs are written down: nothing is drawn."""
COMPARED = ("topology", "interference", "workload")
"""Sections of a file; ``scale`` is how much smaller the live network is."""


@dataclass(frozen=True)
class Point:
    """A point of a figure with its settings by dotted key, in the product's own
    units and with its defaults.
    """

    figure: str
    series: str
    x: float
    settings: Values


@dataclass(frozen=True)
class Played:
    """A file with settings, or none where a configuration has no file; the entry
    of ``policies``; and whether the workload is the file's.
    """

    policy: str
    variant: Variant | None = None
    workload: bool = True


def played_by(run: Any) -> Iterator[Played]:
    """The experiments behind a point."""
    if isinstance(run, Variant):
        yield Played(run.policy, run)
    elif isinstance(run, Together):
        for _, part in run.parts:
            yield from played_by(part.variant)
    elif hasattr(run, "extractor"):
        yield from played_by(run.variant)
    elif hasattr(run, "variant"):
        yield Played(run.variant.policy, run.variant, workload=False)
    elif hasattr(run, "entry"):
        yield Played(run.entry)


def runs(figure: AnyFigure) -> Iterator[tuple[str, float, Any]]:
    """The run of each point that has the interpretation; of a sensitivity
    figure's those of the series that are as judged.
    """
    for series, x in figure.points:
        if series not in AS_JUDGED.get(figure.section, (series,)):
            continue
        if isinstance(figure, LiveFigure):
            yield series, x, figure.variant(series, x, False)  # noqa: FBT003
        elif isinstance(figure, Figure):
            yield series, x, figure.configuration(series, x, 1, False)  # noqa: FBT003


def document_of(variant: Variant) -> dict[str, Any]:
    """The experiment file with the variant's settings in place of its own."""
    document = copy.deepcopy(_file(variant))
    for key, value in variant.settings:
        put(document, key, value)
    return document


@cache
def _read(text: bytes) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)
    return document


def _file(variant: Variant) -> dict[str, Any]:
    return _read(variant.path.read_bytes())


def put(document: dict[str, Any], key: str, value: str) -> None:
    """Sets a value by dotted key, as on the command line."""
    at: Any = document
    *above, last = key.replace("[", ".").replace("]", "").split(".")
    for name in above:
        if isinstance(at, list):
            at = at[int(name)]
            continue
        if at.get(name) is None:
            at[name] = {}
        at = at[name]
    at[last] = yaml.load(value, yaml.CSafeLoader)


def settings_of(
    document: Mapping[str, Any],
    policy: str,
    *,
    workload: bool = True,
) -> dict[str, Any]:
    """Every setting of a document under a policy."""
    form = ExperimentFile.model_validate(document)
    values: dict[str, Any] = {"enforcement": form.enforcement}
    for name in COMPARED:
        section = getattr(form, name)
        values[name] = None if section is None else section.model_dump()
    kind = form.topology.kind
    if not workload:
        del values["workload"]
    elif form.workload.kind == WRITTEN:
        values["workload"] = {"kind": WRITTEN}
    elif values["workload"].get("bandwidth", "") is None and kind != "flat":
        values["workload"]["bandwidth"] = BandwidthRule().model_dump()
    if kind == "tree":
        values["topology"].update(_of_tree(values["topology"]))
    else:
        values["topology"]["links"] = _fastest(values["topology"])
    return {
        **flat(values),
        **parameters_of(policy, form.embedder),
    }


def _fastest(topology: Mapping[str, Any]) -> int | None:
    """The link of a server."""
    links = topology.get("links")
    if not links:
        return None
    capacity: int = links[-1]["capacity"]
    return capacity


def _of_tree(topology: Mapping[str, Any]) -> dict[str, Any]:
    """A tree's server link and oversubscription, from the root down, however
    they are written.
    """
    ratios = topology["oversubscription"]
    if ratios is None:
        capacities = [link["capacity"] for link in topology["links"]]
        below = zip(topology["fanout"][1:], capacities[1:], strict=True)
        ratios = [
            fanout * capacity / above
            for (fanout, capacity), above in zip(
                below, capacities, strict=False
            )
        ]
    return {
        "links": _fastest(topology),
        "oversubscription": [float(ratio) for ratio in ratios],
    }


def parameters_of(policy: str, embedder: str | None) -> dict[str, Any]:
    """A policy's parameters with their defaults, and who places its VMs."""
    data = {"policies": [yaml.load(policy, yaml.CSafeLoader)]}
    document = Document(data=data, places={(): Place("policies")})
    (spec,) = read_policies(Location(document) / "policies", "")
    assert not document.problems, document.problems
    kind = policy_kind(spec.name)
    values = {key: taken.default for key, taken in kind.takes.items()}
    values.update(spec.parameters)
    placing = {}
    takes_embedder = "embedder" in values
    own_embedder = values.pop("embedder", None)
    # Without one of its own a policy takes the file's.
    if takes_embedder and embedder is not None:
        placing["embedder"] = own_embedder or embedder
    named = {
        f"policies.{spec.name}.{key}": value
        for key, value in values.items()
    }
    return {**placing, **named}


def flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Values by dotted key; a mapping's own key has no value."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            leaves.update(flat(value, f"{above}{key}."))
        else:
            leaves[above + key] = value
    return leaves


# -- a paper's points ------------------------------------------------------------


@cache
def points_of(figure_name: str) -> tuple[Point, ...]:
    """The points of a figure; none where nothing of it can be compared."""
    figure = sections()[figure_name]
    return tuple(
        Point(figure_name, series, x, _settings(played, ()))
        for series, x, run in runs(figure)
        for played in played_by(run)
    )


def changed(figure_name: str, settings: Settings) -> tuple[Point, ...]:
    """The same with settings in place of the figure's own."""
    figure = sections()[figure_name]
    return tuple(
        Point(figure_name, series, x, _settings(played, settings))
        for series, x, run in runs(figure)
        for played in played_by(run)
    )


def _settings(played: Played, settings: Settings) -> dict[str, Any]:
    if played.variant is None:
        return parameters_of(played.policy, None)
    variant = replace(
        played.variant, settings=(*played.variant.settings, *settings)
    )
    return settings_of(
        document_of(variant), played.policy, workload=played.workload
    )


def names_of(paper: str) -> list[str]:
    """The figures of a paper, simulated ones first."""
    return [
        name
        for name, figure in sections().items()
        if paper_of(figure) == paper
    ]


@cache
def points_of_paper(paper: str) -> tuple[Point, ...]:
    """All points of all figures, completed."""
    points = [
        point for name in names_of(paper) for point in points_of(name)
    ]
    return tuple(completed(points))


# -- comparing ------------------------------------------------------------------


def excused(figure_name: str) -> frozenset[str]:
    """The keys that a figure may have otherwise."""
    keys = set(ABOUT.get(figure_name, ()))
    for other in (*OTHERWISE, *LIVE_ONLY):
        if figure_name in other.figures:
            keys.update(other.keys)
    return frozenset(keys)


def completed(points: Sequence[Point]) -> list[Point]:
    """The points with nothing for each key of a section that they leave out."""
    keys = {key for point in points for key in point.settings}
    return [
        replace(point, settings=_completed(point.settings, keys))
        for point in points
    ]


def _completed(settings: Values, keys: set[str]) -> dict[str, Any]:
    values = dict(settings)
    for key, value in settings.items():
        if value is not None:
            continue
        below = [other for other in keys if other.startswith(f"{key}.")]
        if below:
            del values[key]
            values.update(dict.fromkeys(below))
    return values


def by_key(
    points: Sequence[Point],
) -> dict[str, dict[str, dict[str, None]]]:
    """For every key of completed points its values as text, each with the
    figures that have it.
    """
    values: dict[str, dict[str, dict[str, None]]] = {}
    for point in points:
        for key, value in point.settings.items():
            figures = values.setdefault(key, {})
            figures.setdefault(repr(value), {})[point.figure] = None
    return values


def differences(points: Sequence[Point]) -> list[str]:
    """The settings that figures have otherwise, and are not listed with."""
    lines = []
    for key, values in by_key(points).items():
        compared = {
            value: [name for name in names if key not in excused(name)]
            for value, names in values.items()
        }
        kept = {value: names for value, names in compared.items() if names}
        if len(kept) > 1:
            lines.append(f"{key}: {kept}")
    return lines


def needless(points: Sequence[Point]) -> list[str]:
    """The settings that figures are listed with, and have as the others do."""
    values = by_key(points)
    present = {point.figure for point in points}
    lines = []
    for name in present:
        for key in excused(name):
            if not _is_needed(name, values.get(key, {}), key):
                lines.append(f"{name}: {key}")
    return lines


def _is_needed(
    name: str, values: Mapping[str, Mapping[str, None]], key: str
) -> bool:
    others = {
        value
        for value, names in values.items()
        if any(key not in excused(other) for other in names)
    }
    if not others:
        return len(values) > 1
    had = {value for value, names in values.items() if name in names}
    return bool(had - others)


def stated(
    paper: str, interpretation: Interpretation
) -> dict[str, set[str]]:
    """The interpretation's values by key, as they are played."""
    expected: dict[str, set[str]] = defaultdict(set)
    for key, value in _stated_parameters(interpretation).items():
        expected[key].add(repr(value))
    texts = {
        **{f"workload.{k}": v for k, v in interpretation.workload.items()},
        **interpretation.in_files,
    }
    for key, text in texts.items():
        for name, value in _as_played(paper, key, text).items():
            expected[name].add(repr(value))
    return expected


def _stated_parameters(interpretation: Interpretation) -> dict[str, Any]:
    expected: dict[str, Any] = {}
    for by_policy in (interpretation.policies, interpretation.by_default):
        for policy, parameters in by_policy.items():
            pairs = ", ".join(f"{k}: {v}" for k, v in parameters.items())
            entry = f"{{name: {policy}, {pairs}}}"
            values = parameters_of(entry, None)
            for key in parameters:
                name = f"policies.{policy}.{key}"
                expected[name] = values[name]
    return expected


@cache
def _as_played(paper: str, key: str, text: str) -> Mapping[str, Any]:
    """A value in the product's units: in a file that has such a key."""
    for name in names_of(paper):
        for _, _, run in runs(sections()[name]):
            for played in played_by(run):
                if played.variant is None or not played.workload:
                    continue
                document = document_of(played.variant)
                known = settings_of(document, played.policy)
                names = [
                    other
                    for other in known
                    if other == key or other.startswith(f"{key}.")
                ]
                if not names:
                    continue
                put(document, key, text)
                values = settings_of(document, played.policy)
                played_values = {other: values[other] for other in names}
                return MappingProxyType(played_values)
            break
    raise KeyError(f"{paper}: no figure has {key}")


def contradictions(
    paper: str,
    points: Sequence[Point],
    interpretation: Interpretation | None = None,
) -> list[str]:
    """The settings that are not as the interpretation states them."""
    known = stated(paper, interpretation or INTERPRETATIONS[paper])
    lines = []
    values = by_key(points)
    for key, expected in known.items():
        had = {
            value: [name for name in names if key not in excused(name)]
            for value, names in values.get(key, {}).items()
        }
        kept = {value: names for value, names in had.items() if names}
        if not set(kept) or not set(kept) <= expected:
            lines.append(f"{key}: {sorted(expected)} stated, {kept} played")
    return lines


def compared_keys(
    figure_name: str, points: Sequence[Point], known: Sequence[str]
) -> list[str]:
    """The keys of a figure that are compared: with another figure's, or with
    what is stated.
    """
    excuses = excused(figure_name)
    keys = []
    for key, values in by_key(points).items():
        figures = {
            name
            for names in values.values()
            for name in names
            if key not in excused(name)
        }
        if key in excuses or figure_name not in figures:
            continue
        if len(figures) > 1 or key in known:
            keys.append(key)
    return keys
