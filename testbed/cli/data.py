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
    known = look_for(Path.cwd())
    if asked is Question.PATH:
        _path(known, name, as_json=as_json)
        return
    if name is not None:
        known = [_named(known, name)]
    if asked is Question.LIST:
        _list(known, as_json=as_json)
        return
    # An absent trace is a failure only where it was asked for by name.
    if name is not None:
        _present(known[0])
    _check(known, as_json=as_json)


def _named(known: list[FoundTrace], name: str) -> FoundTrace:
    """The trace of that name, or the only one whose name begins so. Raises
    BadInput.
    """
    matching = [
        trace
        for trace in known
        if name in (trace.trace.name, _short(trace))
    ]
    # A whole name before beginnings: one may begin as another.
    if not matching:
        beginning = name.lower()
        matching = [
            trace
            for trace in known
            if _short(trace).lower().startswith(beginning)
        ]
    if len(matching) != 1:
        names = list(map(_short, matching or known))
        raise BadInput(unknown_name("trace", name, names))
    return matching[0]


def _short(trace: FoundTrace) -> str:
    return Path(trace.trace.name).name


def _folders() -> list[str]:
    """The folders in which traces are looked for."""
    return list(map(str, search_path(Path.cwd())))


def _present(trace: FoundTrace) -> Path:
    """A trace's path. Raises MachineCannot, with its origin, where it is not on
    this machine.
    """
    if trace.path is not None:
        return trace.path
    published = trace.trace
    raise MachineCannot(
        f"{published.name} is in none of {', '.join(_folders())}",
        f"get it from its origin, {published.origin}, and put its folder into TESTBED_DATA;"
        f" unpacked its SHA-256 is {published.sha256}",
    )


def _path(
    known: list[FoundTrace], name: str | None, *, as_json: bool
) -> None:
    if name is None:
        raise BadInput(
            "testbed data path needs a NAME", "testbed data list shows them"
        )
    # First as a path in an experiment file, then as a trace's name.
    path = find_file(name, Path.cwd()) or _present(_named(known, name))
    console.print_result(
        {"name": name, "path": str(path)}, str(path), as_json=as_json
    )


def _list(known: list[FoundTrace], *, as_json: bool) -> None:
    if as_json:
        console.print_json({"folders": _folders(), "traces": known})
        return
    for trace in known:
        published = trace.trace
        jobs = number_of(published.jobs, "job")
        console.print_text(
            f"{published.name}: {published.what}, {jobs} ({published.format})"
        )
        console.print_text(f"    {trace.path or 'not found'}")
        console.print_text(f"    origin: {published.origin}")
        console.print_text(f"    sha256 (unpacked): {published.sha256}")
        console.print_text(f"    {published.thanks}")
    console.print_text(f"looked for in: {', '.join(_folders())}")


def _check(known: list[FoundTrace], *, as_json: bool) -> None:
    results = list(map(verified_trace, known))
    if as_json:
        console.print_json(
            [trace.to_json() | trace.result for trace in results]
        )
    else:
        for trace in results:
            console.print_text(_line(trace))
    if any(
        trace.problem is not None and trace.path is not None
        for trace in results
    ):
        raise typer.Exit(1)


def _line(trace: FoundTrace) -> str:
    """``ok   NAME: 28,476 jobs, PATH``, or what is wrong with it."""
    name = trace.trace.name
    if trace.problem is None and trace.jobs is not None:
        return (
            f"ok     {name}: {number_of(trace.jobs, 'job')}, {trace.path}"
        )
    if trace.path is None:
        return f"absent {name}: origin {trace.trace.origin}"
    return f"WRONG  {name}: {trace.problem} ({trace.path})"
