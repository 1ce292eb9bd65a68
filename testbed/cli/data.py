"""``testbed data list | path NAME | check [NAME]``: published traces on this
machine.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import console
from testbed.cli.options import Json
from testbed.errors import BadInput, MachineCannot
from testbed.spec.document import find_file, search_path, unknown_name
from testbed.spec.trace_sections import FoundTrace, look_for, verified_trace
from testbed.units import number_of


class Question(StrEnum):
    """The parts of the command."""

    LIST = "list"
    PATH = "path"
    CHECK = "check"


Asked = Annotated[
    Question,
    typer.Argument(
        metavar="list|path|check",
        help="list: the traces known by name; path NAME: where that one is; check: read those that"
        " are here and compare their checksums.",
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="A trace's name, or how it begins."
    ),
]


def data(
    asked: Asked = Question.LIST, name: Name = None, as_json: Json = False
) -> None:
    """Say which published traces experiments can use, where they are looked for
    and come from.

    Nothing is downloaded. Exit codes: 1 a trace that is not the published one,
    2 an unknown name, 3 the trace asked for is not on this machine.
    """
    here = Path.cwd()
    known = look_for(here)
    if asked is Question.PATH:
        _path(known, name, here, as_json=as_json)
    elif asked is Question.LIST:
        _list(
            known if name is None else [_named(known, name)],
            here,
            as_json=as_json,
        )
    else:
        _check(
            known if name is None else [_named(known, name)],
            name,
            here,
            as_json=as_json,
        )


def _named(known: list[FoundTrace], name: str) -> FoundTrace:
    """The trace of that name, or the only one whose name begins so. Raises
    BadInput.
    """
    short = [
        one for one in known if _short(one).lower().startswith(name.lower())
    ]
    exact = [one for one in known if name in (one.trace.name, _short(one))]
    if len(exact or short) != 1:
        names = list(map(_short, short or known))
        raise BadInput(unknown_name("trace", name, names))
    return (exact or short)[0]


def _short(one: FoundTrace) -> str:
    return Path(one.trace.name).name


def _folders(here: Path) -> str:
    return ", ".join(map(str, search_path(here)))


def _present(one: FoundTrace, here: Path) -> Path:
    """Where a trace is. Raises MachineCannot, with its origin, where it is not
    here.
    """
    if one.path is not None:
        return one.path
    raise MachineCannot(
        f"{one.trace.name} is in none of {_folders(here)}",
        f"get it from its origin, {one.trace.origin}, and put its folder into TESTBED_DATA;"
        f" unpacked its SHA-256 is {one.trace.sha256}",
    )


def _path(
    known: list[FoundTrace], name: str | None, here: Path, *, as_json: bool
) -> None:
    if name is None:
        raise BadInput(
            "testbed data path needs a NAME", "testbed data list shows them"
        )
    found = find_file(name, here) or _present(_named(known, name), here)
    if as_json:
        console.print_json({"name": name, "path": str(found)})
    else:
        console.print_text(str(found))


def _list(known: list[FoundTrace], here: Path, *, as_json: bool) -> None:
    if as_json:
        folders = list(map(str, search_path(here)))
        console.print_json(
            {"folders": folders, "traces": [one.to_json() for one in known]}
        )
        return
    for one in known:
        trace = one.trace
        console.print_text(
            f"{trace.name}: {trace.what}, {number_of(trace.jobs, 'job')} ({trace.format})"
        )
        console.print_text(
            f"    {'not found' if one.path is None else one.path}"
        )
        console.print_text(f"    origin: {trace.origin}")
        console.print_text(f"    sha256 (unpacked): {trace.sha256}")
        console.print_text(f"    {trace.thanks}")
    console.print_text(f"looked for in: {_folders(here)}")


def _check(
    known: list[FoundTrace], name: str | None, here: Path, *, as_json: bool
) -> None:
    if name is not None:
        _present(known[0], here)
    results = list(map(verified_trace, known))
    if as_json:
        console.print_json([one.to_json() | one.result for one in results])
    else:
        for one in results:
            console.print_text(_line(one))
    if any(
        one.problem is not None and one.path is not None for one in results
    ):
        raise typer.Exit(1)


def _line(one: FoundTrace) -> str:
    """``ok   NAME: 28,476 jobs, PATH``, or what is wrong with it."""
    if one.problem is None and one.jobs is not None:
        return f"ok     {one.trace.name}: {number_of(one.jobs, 'job')}, {one.path}"
    if one.path is None:
        return f"absent {one.trace.name}: origin {one.trace.origin}"
    return f"WRONG  {one.trace.name}: {one.problem} ({one.path})"
