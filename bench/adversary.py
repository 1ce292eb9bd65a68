"""Attacks on the testbed by programs, students, users and files: how many were
tried, and how many got through.

Each is first made on a target without the testbed's guard. There it has to get
through, or it shows nothing: such a row is missed as one that gets through is.
Needs root and a checkout, whose tests make the attacks.
"""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from typing import Any

from bench.progress import Progress, Step
from bench.samples import Result
from testbed.errors import BadInput

TARGET = "none gets through"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="this attack alone, or those that have it in their names; repeat it",
    )


def run(quick: bool, args: argparse.Namespace) -> list[Result]:
    """A row for each attack, and one for all."""
    if os.geteuid() != 0:
        raise BadInput(
            "attacks need root", "sudo python -m bench adversary"
        )
    # No attack is left out: that would show nothing.
    del quick
    chosen = chosen_attacks(args.only)
    progress = Progress(
        [Step(attack.name, attack.expected_s) for attack in chosen]
    )
    results = []
    for attack in chosen:
        with progress.step():
            results.append(row_of(attack))
    return [*results, together(results)]


def chosen_attacks(only: list[str] | None) -> list[Any]:
    """Attacks with one of these in their names. Raises BadInput."""
    # Not imported above: an installation without a checkout has no tests.
    every = list(import_module("tests.adversary.catalogue").attacks())
    if not only:
        return every
    names = [attack.name for attack in every]
    wanted = set()
    for part in only:
        wanted |= _meant(part, names)
    if not wanted:
        raise BadInput(
            f"no attack is named {only[0]!r}",
            f"there are: {', '.join(names)}",
        )
    return [attack for attack in every if attack.name in wanted]


def _meant(part: str, names: list[str]) -> set[str]:
    """Attacks of that name; where there is none, those with it in their names."""
    if part in names:
        return {part}
    return {name for name in names if part in name}


def row_of(attack: Any) -> Result:
    """Row of an attack; missed, with the reason, where it could not be made.

    A machine that is too busy for one attack ends no other: there are forty,
    which take a quarter of an hour.
    """
    try:
        return attacked(attack)
    except Exception as error:  # noqa: BLE001 - whatever an attack raises
        reason = f"{type(error).__name__}: {error}"
        return Result(
            name=attack.name,
            unit="got through",
            samples=(0.0,),
            target=TARGET,
            meets=False,
            extra={
                "about": attack.about,
                "attempts": 0,
                "not_made": reason,
            },
        )


def attacked(attack: Any) -> Result:
    """An attack's row: the unguarded target first."""
    extra: dict[str, Any] = {"about": attack.about}
    can_harm = True
    if attack.on_unguarded is not None:
        weak = attack.on_unguarded()
        extra["unguarded_attempts"], extra["unguarded_through"] = weak
        can_harm = weak.through > 0
    tries = attack.on_testbed()
    extra["attempts"] = tries.attempts
    # An attack of which nothing was tried shows nothing.
    held = tries.through == 0 and tries.attempts > 0
    return Result(
        name=attack.name,
        unit="got through",
        samples=(float(tries.through),),
        target=TARGET,
        meets=held and can_harm,
        extra=extra,
    )


def together(results: list[Result]) -> Result:
    """The sums of all rows."""
    attempts = 0
    through = 0.0
    meets = True
    for result in results:
        attempts += result.extra["attempts"]
        through += result.samples[0]
        meets = meets and bool(result.meets)
    return Result(
        name="all attacks",
        unit="got through",
        samples=(through,),
        target=TARGET,
        meets=meets,
        extra={"attempts": attempts},
    )


def table(results: list[Result]) -> str:
    """Attack, attempts, got through; on the unguarded target in brackets."""
    head = ("attack", "attempts", "got through", "unguarded target")
    lines = ["{:28} {:>9} {:>12}   {}".format(*head)]
    for result in results:
        attempts = result.extra["attempts"]
        lines.append(
            f"{result.name:28} {attempts:>9,} "
            f"{result.samples[0]:>12,.0f}   {_remarks(result)}"
        )
    return "\n".join(lines)


def _remarks(result: Result) -> str:
    """The unguarded target's figures, and a missed row's reason."""
    extra = result.extra
    remarks = ""
    if "unguarded_attempts" in extra:
        through = extra["unguarded_through"]
        remarks = f"{through:,} of {extra['unguarded_attempts']:,}"
    if not result.meets:
        remarks += "   MISSED"
    if "not_made" in extra:
        remarks += f" (not made: {extra['not_made']})"
    return remarks
