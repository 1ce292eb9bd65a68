"""The ``sweep`` section: keys of the file and the values that each takes in
turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from math import prod
from numbers import Integral
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from testbed.spec.document import (
    Document,
    Location,
    Place,
    SpecErrors,
    read_document,
)
from testbed.spec.size_limits import within
from testbed.spec.unit_types import Share
from testbed.spec.validation import Section, value_in_words
from testbed.units import quantity

SEED = "seed"
LEAST = 3
MOST_LEAST = 1000
_PER = {
    "/h": "an hour",
    "/min": "a minute",
    "/s": "a second",
    "/d": "a day",
}
_RANGE = re.compile(r"(0|-?[1-9][0-9]{0,17})\.\.(0|-?[1-9][0-9]{0,17})")

OverSchema = WithJsonSchema(
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "anyOf": [
                {"type": "array", "minItems": 1},
                {"type": ["string", "number", "boolean"]},
            ]
        },
    }
)


class StopSection(Section):
    """The rule by which a combination of values needs no further seed."""

    interval: Share
    """enough seeds: the half width of the 95 % confidence interval is
    at most this share of the mean
    """
    metric: str | None = None
    """of this metric (default: of each that is shown)"""
    least: Annotated[int, Field(ge=2, le=MOST_LEAST)] = Field(
        LEAST, description=f"seeds that run in any case (default {LEAST})"
    )


class SweepSection(Section):
    """Values that keys of this file take in turn: ``testbed sweep`` runs all
    combinations.
    """

    over: Annotated[
        dict[str, Any], Field(min_length=1, max_length=20), OverSchema
    ]
    """values by key of this file, as workload.load: [0.2, 0.4], seed:
    1..20
    """
    stop: StopSection | None = None
    """when seeds are enough (default: all run)"""
    metrics: (
        Annotated[list[str], Field(min_length=1, max_length=20)] | None
    ) = None
    """the metrics of the table and the picture"""
    backend: Literal["sim", "live"] = "sim"
    """the simulator or the live network (default sim)"""


@dataclass(frozen=True)
class Axis:
    """An axis of a picture: its title, and where each value of a key is."""

    title: str
    places: Mapping[Any, float]


@dataclass(frozen=True)
class SweptKey:
    """A key with its values in order.

    ``parts`` are ranges and single values, each with its place.
    """

    key: str
    place: Place
    parts: tuple[tuple[Sequence[Any], Place], ...]

    def __len__(self) -> int:
        return sum(len(values) for values, _ in self.parts)

    def __iter__(self) -> Iterator[Any]:
        for values, _ in self.parts:
            yield from values

    def written(self) -> Iterator[Any]:
        """The values as a file has them, with ranges as ``1..20``."""
        for values, _ in self.parts:
            # A file cannot express ranges with other steps.
            as_range = isinstance(values, range) and values.step == 1
            if as_range and len(values) > 1:
                yield f"{values[0]}..{values[-1]}"
            else:
                yield from values

    @property
    def is_numeric(self) -> bool:
        """True where an axis has places for all values."""
        return all(
            isinstance(v, int | float) and not isinstance(v, bool)
            for v in self
        )

    @property
    def is_whole(self) -> bool:
        """True where all values are whole numbers of 64 bits."""
        return self.is_numeric and all(
            isinstance(v, int) and abs(v) < 2**63 for v in self
        )

    @cached_property
    def axis(self) -> Axis | None:
        """The values' places on an axis: numbers, or quantities of one kind in
        the unit of the first. None for other values.
        """
        if self.is_numeric:
            places = {value: float(value) for value in self}
            return Axis(self._title(""), places)
        quantities: dict[Any, tuple[str, str, float]] = {}
        for value in self:
            parsed = quantity(value) if isinstance(value, str) else None
            if parsed is None:
                return None
            quantities[value] = parsed
        return self._axis_of_quantities(quantities)

    def _axis_of_quantities(
        self, quantities: Mapping[str, tuple[str, str, float]]
    ) -> Axis | None:
        """The axis of quantities; None for quantities of several kinds.

        ``quantities``: by text, the kind, the unit, and the amount in the base
        unit.
        """
        kinds = {kind for kind, _, _ in quantities.values()}
        first, (_, unit, amount) = next(iter(quantities.items()))
        # An amount of 0 does not determine the unit's size.
        if len(kinds) != 1 or not amount:
            return None
        # From the base unit to the first value's unit.
        factor = float(first.removesuffix(unit)) / amount
        places = {}
        for value, (_, _, value_amount) in quantities.items():
            places[value] = value_amount * factor
        return Axis(self._title(unit), places)

    def _title(self, unit: str) -> str:
        """The key with its unit; a rate of jobs in words."""
        # A bare number counts per hour too.
        if self.key.endswith("per_hour"):
            return f"jobs {_PER[unit or '/h']} ({self.key})"
        if unit:
            return f"{self.key} [{unit}]"
        return self.key

    def samples(self) -> Iterator[tuple[Any, Place]]:
        """Every single value, and the ends of every range, with their places."""
        for values, place in self.parts:
            # If the ends of a range are valid, so are all numbers between.
            for index in sorted({0, len(values) - 1}):
                yield values[index], place


def read_over(location: Location) -> tuple[SweptKey, ...]:
    """The keys of ``over`` and their values; what is wrong with their form is
    reported.
    """
    keys = []
    if isinstance(location.value, dict):
        for key in location.value:
            where = location / key
            if where.is_readable:
                place = location.document.key_places[where.path]
                keys.append(SweptKey(key, place, tuple(_parts(where))))
    return tuple(keys)


def read_option(text: str) -> SweptKey:
    """``KEY=VALUE,VALUE…`` as the command line has it. Raises SpecErrors."""
    key, equals, values = text.partition("=")
    source = f"--over {text}"
    if not equals or not key.strip():
        document = Document(places={(): Place(source)})
        Location(document).report(
            "write it as KEY=VALUE,…, as workload.load=0.2,0.4"
        )
        raise SpecErrors(document.problems)
    # As a list in YAML, so that commas and quotes mean what they do in a
    # file.
    document = read_document(f"[{values}]", source)
    # All places are the option's: its text has no lines.
    document.places = dict.fromkeys(document.places, Place(source))
    parts = tuple(_parts(Location(document)))
    if document.problems:
        raise SpecErrors(document.problems)
    return SweptKey(key.strip(), Place(source), parts)


def check_sweep(section: SweepSection | None, location: Location) -> None:
    """Reports wrong forms of values, and too many combinations."""
    if section is not None and section["over"] is not None:
        check_size(read_over(location / "over"), location / "over")


def check_size(keys: Sequence[SweptKey], location: Location) -> None:
    """Reports more combinations, or more listed values of a key, than the
    limits.
    """
    for key in keys:
        if not within(
            location / key.key,
            len(key.parts),
            "listed values of a key",
            f"give {key.key} a range, or fewer values",
        ):
            return
    within(
        location,
        prod(map(len, keys)),
        "cells of a sweep",
        "split it, or take fewer values",
    )


def _parts(location: Location) -> Iterator[tuple[Sequence[Any], Place]]:
    """The values of a list, or a single value, with their places."""
    if location.value in ([], {}):
        location.report(
            f"needs a value, not {value_in_words(location.value)}"
        )
        return
    entries = [location]
    if isinstance(location.value, list):
        entries = [location / index for index in range(len(location.value))]
    for where in entries:
        values = _values(where) if where.is_readable else ()
        if values:
            yield values, where.place


def _values(location: Location) -> Sequence[Any]:
    """The value itself, or the numbers of a range. A wrong range has none, and is
    reported.
    """
    match = None
    if isinstance(location.value, str):
        match = _RANGE.fullmatch(location.value)
    if match is None:
        return (location.value,)
    first = int(match[1])
    last = int(match[2])
    if last < first:
        location.report(
            f"the range {location.value} ends before it begins: write {last}..{first}"
        )
        return ()
    if not within(
        location,
        last - first + 1,
        "cells of a sweep",
        "take a shorter range",
    ):
        return ()
    # It stays a range: a million seeds need no list.
    return range(first, last + 1)


def value_text(value: object) -> str:
    """A value of a swept key for people; true and false as in the file."""
    if isinstance(value, bool):
        return as_yaml(value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def as_yaml(value: Any) -> str:
    """A file's value as YAML that is read as the same value again."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        text = f"{Decimal(str(value)):f}"
        return text if "." in text else f"{text}.0"
    if isinstance(value, Integral):
        return str(value)
    if isinstance(value, Mapping):
        entries = []
        for key, entry in value.items():
            entries.append(f"{_text(str(key))}: {as_yaml(entry)}")
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_yaml, value))}]"
    return _text(str(value))


_NO_WORDS = ("true", "false", "yes", "no", "on", "off", "null")
"""Words that YAML 1.1 reads as something else."""


def _text(text: str) -> str:
    """A word as it is, anything else in quotes."""
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_/-]*", text)
    if plain and text.lower() not in _NO_WORDS:
        return text
    escaped = []
    for char in json.dumps(text, ensure_ascii=False):
        # YAML refuses raw control characters, or folds them as line ends.
        escaped.append(
            char if char.isprintable() else f"\\U{ord(char):08x}"
        )
    return "".join(escaped)
