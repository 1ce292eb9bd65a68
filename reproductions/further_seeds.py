"""A stored result and one of further seeds, as one result.

Seeds that were computed or measured once are not taken again because more are
wanted: on another day, or another machine, ``testbed reproduce NAME --after N``
takes those behind the first N. Both are compact records, as
:mod:`reproductions.stored_results` keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.errors import BadInput

Record = Mapping[str, Any]
# Results that differ in one of these are not of one distribution, or nobody
# can tell.
ALIKE = ("name", "size", "played", "code", "ledger")
VALUES_OF = "values of "
"""The beginning of a measure's key in a compact record."""


def joined(stored: Record, further: Record) -> dict[str, Any]:
    """The record of the seeds of both, which lists under ``parts`` what was
    taken on which machine.

    Whoever adds seeds has seen the verdicts of those before. So the number of
    these is a look, beside those that had been planned, and the number of all
    is another one.

    Raises BadInput where the two are of different programs, settings or rules,
    or of a program that was changed, and where the further seeds are not those
    that follow.
    """
    _require_alike(stored, further)
    _require_next(stored, further)
    seeds = stored["seeds"] + further["seeds"]
    stages = {*(stored["stages"] or (stored["seeds"],)), seeds}
    record = dict(stored)
    record["seeds"] = seeds
    record["stages"] = sorted(stages)
    record["cpu_s"] = stored["cpu_s"] + further["cpu_s"]
    record["parts"] = [*parts_of(stored), *parts_of(further)]
    if "runs" in stored:
        record["runs"] = [*stored["runs"], *further["runs"]]
    for name in stored:
        if name.startswith(VALUES_OF):
            record[name] = _values(stored[name], further[name])
    return record


def parts_of(record: Record) -> list[dict[str, Any]]:
    """The seeds that were taken together, with the machine of each."""
    if "parts" in record:
        return list(record["parts"])
    part = {
        "first_seed": record.get("first_seed", 1),
        "seeds": record["seeds"],
        "machine": record["machine"],
    }
    return [part]


def _require_alike(stored: Record, further: Record) -> None:
    name = stored["name"]
    for key in ALIKE:
        if stored.get(key) != further.get(key):
            raise BadInput(
                f"{name}: the further seeds have another {key}: "
                f"{further.get(key)}, and not {stored.get(key)}",
                "take them with the stored result's program",
            )
    if stored["code"].get("dirty") is not False:
        raise BadInput(
            f"{name}: nobody can tell whether both are of one program",
            "take all seeds again at a commit",
        )


def _require_next(stored: Record, further: Record) -> None:
    wanted = stored.get("first_seed", 1) + stored["seeds"]
    first = further["first_seed"]
    if first != wanted:
        raise BadInput(
            f"{stored['name']}: the further seeds begin with {first}, and "
            f"{wanted} follows the stored ones",
            f"testbed reproduce {stored['name']} --after {stored['seeds']}",
        )


def _values(stored: list[Any], further: list[Any]) -> list[Any]:
    """A measure's values by series, x and seed, those of both."""
    more = {(series, x): by_seed for series, x, by_seed in further}
    values = []
    for series, x, by_seed in stored:
        values.append([series, x, [*by_seed, *more[series, x]]])
    return values
