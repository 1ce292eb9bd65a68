"""The ledger of claims: ``claims/NAME.yaml``, one file a figure, committed
before the runs that it judges.

A claim of a figure is the paper's sentence or number, what was published for
it, and a rule: entries of a quantity and the band that it must lie in. An
entry with several measures, series or places stands for all combinations.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeVar

import yaml

from reproductions.claim_checks import (
    STATUSES,
    Band,
    Check,
    Claim,
    FormerRule,
)
from reproductions.grid_quantities import (
    BetweenGains,
    BetweenMeasures,
    Change,
    Difference,
    Gain,
    GainGrowth,
    GainStep,
    Largest,
    LeastStep,
    Level,
    LogRatio,
    Measure,
    Quantity,
    ShareOf,
    SlopeChange,
    Spread,
    Step,
)
from reproductions.published_figure import AnyFigure
from testbed.record.provenance import commit_of
from testbed.spec.unit_types import as_list

LEDGER = Path(__file__).with_name("claims")
DIGITS = 16
Entry = Mapping[str, Any]
Measures = Mapping[str, Measure]
AnyFigureT = TypeVar("AnyFigureT", bound=AnyFigure)


class LedgerError(ValueError):
    """A file of the ledger that cannot be read, with its name and claim."""


# Raised for values of a wrong type or form, also by the loader's
# constructors, as for the date 2001-99-99.
MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class FigureClaims:
    """A figure's file: its claims, and the digest of its bytes.

    ``where``: the section of the paper. ``size`` and ``seeds``: what the rules
    need. ``first_seed``: the first seed that judges; values of seeds before
    it were known when the rules were written.
    """

    section: str
    where: str
    size: str
    seeds: int
    first_seed: int
    claims: tuple[Claim, ...]
    digest: str


def path_of(section: str) -> Path:
    """The file of a figure, by the name of its section."""
    return LEDGER / f"{section}.yaml"


def named(figure: AnyFigure) -> dict[str, str | None]:
    """The state of the ledger by which a figure is judged: digest and commit.

    The commit is null where the file has none: in an installed package, after
    changes, or where the figure is judged by other rules than the file's.
    """
    path = path_of(figure.section)
    commit = None
    if path.exists() and digest_of(path.read_bytes()) == figure.ledger:
        commit = commit_of(path)
    return {"digest": figure.ledger, "commit": commit}


def digest_of(content: bytes) -> str:
    """The name of a state of a file: the beginning of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def with_claims(
    figure: AnyFigureT, measures: Sequence[Measure]
) -> AnyFigureT:
    """The figure with the claims that the ledger has for it.

    ``measures``: those that rules may name. Raises LedgerError.
    """
    content = path_of(figure.section).read_bytes()
    return judged_by(figure, content, measures)


def judged_by(
    figure: AnyFigureT, content: bytes, measures: Sequence[Measure]
) -> AnyFigureT:
    """The figure with the claims of a file of the ledger, as it was at some
    time. Raises LedgerError.
    """
    known = {measure.name: measure for measure in measures}
    entry = read(content, figure.section, known)
    return replace(
        figure,
        claims=entry.claims,
        ledger=entry.digest,
        where=entry.where,
        seeds=entry.seeds,
        first_seed=entry.first_seed,
        needed=entry.seeds,
    )


def read(content: bytes, section: str, measures: Measures) -> FigureClaims:
    """A file of the ledger. Raises LedgerError, which names the claim."""
    try:
        # The C loader: some forty files are read before a command begins.
        document = yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, *MALFORMED) as error:
        raise LedgerError(f"{section}.yaml: {error}") from error
    try:
        where = str(document["where"])
        # Files from before sizes stood in the ledger have none.
        size = str(document.get("size", ""))
        seeds = int(document["seeds"])
        first_seed = int(document.get("first_seed", 1))
        entries = [dict(entry) for entry in document["claims"]]
    except MALFORMED as error:
        raise LedgerError(
            f"{section}.yaml: where, seeds, first_seed or claims: {error}"
        ) from error
    claims = []
    for entry in entries:
        try:
            claims.append(_claim(entry, where, measures))
        except MALFORMED as error:
            text = entry.get("claim", "a claim without its sentence")
            raise LedgerError(f"{section}.yaml: {text}: {error}") from error
    return FigureClaims(
        section=section,
        where=where,
        size=size,
        seeds=seeds,
        first_seed=first_seed,
        claims=tuple(claims),
        digest=digest_of(content),
    )


def rules_in(content: bytes) -> str:
    """The digest of what judges in a file of the ledger: its seeds, and every
    sentence with its rule. Quotations, causes and statuses are no part of it.

    A file without a first seed has the digest that it had before there were
    first seeds.
    """
    document = yaml.load(content, yaml.CSafeLoader)
    claims = [
        [entry["claim"], entry["rule"]] for entry in document["claims"]
    ]
    judging = [document["seeds"], claims]
    if "first_seed" in document:
        judging.append(document["first_seed"])
    return digest_of(json.dumps(judging).encode())


def _claim(entry: Entry, where: str, measures: Measures) -> Claim:
    # A misspelt status would leave the paper's family unseen.
    status = entry["status"]
    if status not in STATUSES:
        raise ValueError(f"status {status}: use {', '.join(STATUSES)}")
    checks = tuple(_checks(entry["rule"], measures))
    # A conjunction of nothing would hold whatever the values are.
    if not checks:
        raise ValueError("its rule has no check")
    former = [FormerRule(**one) for one in entry.get("replaced", ())]
    return Claim(
        text=entry["claim"],
        published=str(entry["published"]),
        checks=checks,
        status=status,
        quote=entry.get("quote", ""),
        where=entry.get("where", where),
        headline=entry.get("headline", False),
        interpretation=entry.get("interpretation", ""),
        cause=entry.get("cause", ""),
        beside=tuple(_checks(entry.get("beside", ()), measures)),
        replaced=tuple(former),
    )


def _checks(
    entries: Sequence[Entry], measures: Measures
) -> Iterator[Check]:
    for entry in entries:
        # A limit that is misspelt would be no limit.
        unknown = entry.keys() - KEYS
        if unknown:
            raise ValueError(
                f"unknown in a rule: {', '.join(map(str, unknown))}"
            )
        band = _band(entry)
        for quantity in _quantities(entry, measures):
            yield Check(quantity, band)


LIMITS = ("low", "high", "above", "below", "within_factor")
KEYS = frozenset(
    (
        *LIMITS,
        "quantity",
        "measure",
        "minus",
        "of",
        "than",
        "at",
        "from",
        "via",
        "to",
        "along",
        "relative",
        "among",
        "exceeding",
    )
)
"""What an entry of a rule may state."""


def _band(entry: Entry) -> Band:
    """The band of an entry: one or two limits, both strict or neither.

    Raises ValueError where it has none, mixes strict with other limits, or no
    value is in it.
    """
    band = _limited(entry)
    # Also where a limit is not a number.
    if not band.low <= band.high:
        raise ValueError(f"no value is {band}")
    return band


def _limited(entry: Entry) -> Band:
    if "within_factor" in entry:
        # Of a ratio's logarithm: as far below 1 as above.
        most = math.log(entry["within_factor"])
        return Band(-most, most)
    strictly = "above" in entry or "below" in entry
    if not any(limit in entry for limit in LIMITS):
        raise ValueError(f"no band: give one of {', '.join(LIMITS)}")
    if strictly and ("low" in entry or "high" in entry):
        raise ValueError("above and below do not go with low and high")
    low = entry.get("above", entry.get("low", -math.inf))
    high = entry.get("below", entry.get("high", math.inf))
    return Band(float(low), float(high), strictly)


def _quantities(entry: Entry, measures: Measures) -> list[Quantity]:
    """The quantities of an entry: all combinations of what it lists."""
    kind = entry["quantity"]
    if "among" in entry:
        among: list[Quantity] = []
        for inner in entry["among"]:
            among += _quantities(inner, measures)
        return [_of_several(kind, entry, tuple(among))]
    # Each of these may be a list, or a single value.
    names = [key for key in ("measure", "of", "than", "at") if key in entry]
    listed = [as_list(entry[name]) for name in names]
    quantities: list[Quantity] = []
    for values in product(*listed):
        single = {**entry, **dict(zip(names, values, strict=True))}
        if kind in BY_STEP:
            quantities += _steps(kind, single, measures[single["measure"]])
        else:
            quantities.append(_quantity(kind, single, measures))
    return quantities


def _of_several(
    kind: str, entry: Entry, among: tuple[Quantity, ...]
) -> Quantity:
    if not among:
        raise ValueError(f"{kind} among nothing")
    measure = among[0].measure
    if kind not in OF_SEVERAL:
        raise ValueError(f"quantity {kind} is not of several others")
    if kind == "share":
        return ShareOf(measure, among, float(entry["exceeding"]))
    return Largest(measure, among)


# Quantities of two series at the same place.
PAIRS: Mapping[str, Callable[..., Quantity]] = {
    "difference": Difference,
    "gain": Gain,
    "log-ratio": LogRatio,
}
OF_SEVERAL = ("share", "largest")
"""Quantities of several others."""
BETWEEN = ("between", "between-gains")
"""Quantities of two measures."""
FROM_TO = ("change", "relative-change", "gain-growth", "slope-change")
"""Quantities of a series, or of two, between two places."""
ALONG = ("spread", "least-rise", "least-fall")
"""Quantities of a series over several places."""
BY_STEP = ("rise-by-step", "fall-by-step", "gain-growth-by-step")
"""Rises and falls of a curve, or of a gain, from each place to the next."""


def _quantity(kind: str, entry: Entry, measures: Measures) -> Quantity:
    measure = measures[entry["measure"]]
    of = entry["of"]
    if kind in FROM_TO:
        return _from_to(kind, entry, measure)
    if kind in ALONG:
        return _along(kind, entry, measure)
    if kind in PAIRS:
        return PAIRS[kind](measure, of, entry["than"], float(entry["at"]))
    if kind in BETWEEN:
        return _between(kind, entry, measure, measures[entry["minus"]])
    if kind == "level":
        return Level(measure, of, float(entry["at"]))
    raise ValueError(f"quantity {kind} is unknown")


def _between(
    kind: str, entry: Entry, measure: Measure, minus: Measure
) -> Quantity:
    of = entry["of"]
    x = float(entry["at"])
    if kind == "between":
        return BetweenMeasures(measure, minus, of, x)
    return BetweenGains(
        measure=measure, minus=minus, series=of, other=entry["than"], x=x
    )


def _from_to(kind: str, entry: Entry, measure: Measure) -> Quantity:
    of = entry["of"]
    start = float(entry["from"])
    end = float(entry["to"])
    if kind == "slope-change":
        via = float(entry["via"])
        return SlopeChange(measure, of, start=start, via=via, end=end)
    if kind == "gain-growth":
        return GainGrowth(
            measure=measure,
            series=of,
            other=entry["than"],
            start=start,
            end=end,
        )
    return Change(
        measure=measure,
        series=of,
        start=start,
        end=end,
        relative=kind == "relative-change",
    )


def _xs(entry: Entry) -> tuple[float, ...]:
    """The places of a curve. Raises ValueError where there are fewer than two:
    a curve of one place neither rises nor spreads.
    """
    xs = tuple(map(float, entry["along"]))
    if len(xs) < 2:
        raise ValueError("along needs two places")
    return xs


def _steps(kind: str, entry: Entry, measure: Measure) -> list[Quantity]:
    """The rises or falls of a curve between neighbouring places, a quantity
    each.
    """
    steps: list[Quantity] = []
    for start, end in pairwise(_xs(entry)):
        places = {"start": start, "end": end}
        if kind == "gain-growth-by-step":
            other = entry["than"]
            steps.append(GainStep(measure, entry["of"], other, **places))
            continue
        if kind == "fall-by-step":
            # A fall is the rise on the way back.
            places = {"start": end, "end": start}
        relative = bool(entry.get("relative", False))
        steps.append(
            Step(measure, entry["of"], **places, relative=relative)
        )
    return steps


def _along(kind: str, entry: Entry, measure: Measure) -> Quantity:
    of = entry["of"]
    xs = _xs(entry)
    if kind == "spread":
        return Spread(measure, of, xs)
    # A fall is a rise of the negative.
    sign = 1.0 if kind == "least-rise" else -1.0
    return LeastStep(measure, of, xs, sign)
