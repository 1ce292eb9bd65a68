"""Numbers that papers publish, as marks of pictures: read from the ledger's
claims, which say where in the paper they stand.

A claim's ``published`` says the number and its first quantities what it is a
number of: a level is a point, a gain or a difference a relation to another
series, a change one to another x, and a largest value or a range limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from reproductions.claim_checks import Claim
from reproductions.claim_ledger import with_claims
from reproductions.grid_quantities import (
    Change,
    Difference,
    Gain,
    Largest,
    Level,
    Measure,
    Quantity,
)
from reproductions.published_figure import (
    AnyFigure,
    Limits,
    Panel,
    Point,
    Relation,
)

AnyFigureT = TypeVar("AnyFigureT", bound=AnyFigure)
Mark = tuple[Point, float] | Relation | Limits
"""A point with its value, a relation to another point, or limits."""

# The forms in which the ledger's files write what was published. A text of
# any other form has no mark.
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
LEVEL = re.compile(rf"(?:almost |\w+ [=≈] )?{_NUMBER}(?: %)?(?: succeed)?")
RANGE = re.compile(rf"{_NUMBER} to {_NUMBER} %")
AGAINST = re.compile(rf"{_NUMBER} against {_NUMBER} %")
TIMES = re.compile(rf"(?:almost )?{_NUMBER} ×")
MORE = re.compile(rf"(up to )?([+\-−]){_NUMBER} (?:%|points)")


def with_published(figure: AnyFigureT) -> AnyFigureT:
    """The figure with every published number that its panels' axes carry.

    Values that a panel has of its own stay.
    """
    panels = tuple(_with_marks(panel, figure) for panel in figure.panels)
    return replace(figure, panels=panels)


def published_points(
    figure: AnyFigure, measure: Measure
) -> Mapping[Point, float]:
    """The published values of a measure in a figure's file of the ledger."""
    known = [panel.measure for panel in figure.tables]
    judged = with_published(with_claims(figure, known))
    values: dict[Point, float] = {}
    for panel in judged.panels:
        if panel.measure.name == measure.name:
            values.update(panel.published)
    return values


def _with_marks(panel: Panel, figure: AnyFigure) -> Panel:
    # Values that a figure states itself come before the ledger's.
    values = dict(panel.published)
    relations = list(panel.relations)
    limits = list(panel.limits_published)
    for claim in figure.claims:
        for measure, mark in marks_of(claim):
            if measure != panel.measure.name:
                continue
            if isinstance(mark, Relation):
                relations.append(mark)
            elif isinstance(mark, Limits):
                limits.append(mark)
            else:
                point, value = mark
                values.setdefault(point, value)
    return replace(
        panel,
        published=values,
        relations=tuple(dict.fromkeys(relations)),
        limits_published=tuple(dict.fromkeys(limits)),
    )


def marks_of(claim: Claim) -> list[tuple[str, Mark]]:
    """The marks of a claim, each with the name of its measure; none where no
    number was published, or none that a picture's axis carries.
    """
    marks: list[tuple[str, Mark]] = []
    levels = []
    for check in claim.checks:
        quantity = check.quantity
        for mark in _marks(claim.published, quantity):
            marks.append((quantity.measure.name, mark))
        if isinstance(quantity, Level):
            levels.append(quantity)
    # The value at each place of a range is not published.
    in_range = RANGE.fullmatch(claim.published)
    if levels and in_range:
        low, high = map(_number, in_range.groups())
        limits = Limits(_places(levels), low, high)
        marks.append((levels[0].measure.name, limits))
    return marks


def _marks(published: str, quantity: Quantity) -> Iterator[Mark]:
    """The marks of a published number of a quantity."""
    match quantity:
        case Level():
            if level := LEVEL.fullmatch(published):
                point = (quantity.series, quantity.x)
                yield point, _number(level[1])
        case Difference() | Gain():
            yield from _of_pair(published, quantity)
        case Change():
            if more := MORE.fullmatch(published):
                yield Relation(
                    point=(quantity.series, quantity.end),
                    to=(quantity.series, quantity.start),
                    amount=_signed(more),
                    relative=quantity.relative,
                )
        case Largest():
            yield from _of_largest(published, quantity)


def _of_pair(published: str, quantity: Difference | Gain) -> Iterator[Mark]:
    point = (quantity.series, quantity.x)
    other = (quantity.other, quantity.x)
    relative = isinstance(quantity, Gain)
    if against := AGAINST.fullmatch(published):
        yield point, _number(against[1])
        yield other, _number(against[2])
    elif times := TIMES.fullmatch(published):
        amount = 100.0 * (_number(times[1]) - 1.0)
        yield Relation(point, other, amount, relative=True)
    elif more := MORE.fullmatch(published):
        yield Relation(point, other, _signed(more), relative=relative)


def _of_largest(published: str, quantity: Largest) -> Iterator[Mark]:
    """Limits, since the place of the largest value is not published."""
    # Where the largest is of gains, each of them is at most that.
    levels = [of for of in quantity.of if isinstance(of, Level)]
    level = LEVEL.fullmatch(published)
    if levels and level:
        yield Limits(_places(levels), None, _number(level[1]))
    more = MORE.fullmatch(published)
    for of in quantity.of:
        if more and isinstance(of, Gain):
            yield Relation(
                point=(of.series, of.x),
                to=(of.other, of.x),
                amount=_signed(more),
                relative=True,
                at_most=True,
            )


def _places(levels: Sequence[Level]) -> tuple[float, ...]:
    """The x of levels, each once."""
    return tuple(dict.fromkeys(level.x for level in levels))


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _signed(more: re.Match[str]) -> float:
    """The amount that a relation's words say."""
    amount = _number(more[3])
    if more[2] == "+":
        return amount
    return -amount
