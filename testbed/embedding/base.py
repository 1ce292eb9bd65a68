"""The embedders by the names that experiment files use.

An embedder is a pure function from a residual data centre to a placement or a
reason. One becomes known by standing in the ``EMBEDDERS`` of a module of this
package; nothing else has to be edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from testbed.embedding.placement import Embedder
from testbed.errors import BadInput
from testbed.plugins import Source, installed


def declared(package: str, attribute: str) -> Iterator[Any]:
    """Yields what modules of a package list under a name, in order of the
    modules' names.
    """
    for module in iter_modules(
        import_module(package).__path__, f"{package}."
    ):
        yield from getattr(import_module(module.name), attribute, ())


@cache
def _embedders() -> Mapping[str, Embedder]:
    return {
        known.name: known
        for known in declared("testbed.embedding", "EMBEDDERS")
    }


_of_files: dict[str, tuple[Embedder, Source]] = {}


def offer(made: Embedder, source: Source) -> str:
    """Makes an embedder of somebody's file known in this process; its name.

    That is how the experiment file writes it, with a number where another
    file's has that name already.
    """
    name = source.written
    number = 1
    while name in _of_files and not _same_text(_of_files[name][1], source):
        number += 1
        name = f"{source.written} ({number})"
    made.name = name
    _of_files.setdefault(name, (made, source))
    return name


def _same_text(first: Source, second: Source) -> bool:
    """True for files of the same contents, wherever they are."""
    return [file.text for file in first.files] == [
        file.text for file in second.files
    ]


def embedder_names() -> tuple[str, ...]:
    """All known names, sorted: ours, and those of installed packages."""
    return tuple(sorted({*_embedders(), *installed("embedders")}))


def embedder_source(name: str) -> Source | None:
    """The origin of an embedder of a file or an installed package; None of one
    of ours.
    """
    if name in _of_files:
        return _of_files[name][1]
    if name in _embedders():
        return None
    return installed("embedders")[name].source


def embedder(name: str) -> Embedder:
    """The embedder of that name; BadInput lists the known ones for any other."""
    known = _embedders()
    if name in known:
        return known[name]
    if name in _of_files:
        return _of_files[name][0]
    plugin = installed("embedders").get(name)
    if plugin is not None:
        from testbed.embedding.installed_embedder import checked_embedder

        return checked_embedder(plugin.name, plugin.load())
    close = get_close_matches(name, embedder_names(), n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    names = ", ".join(embedder_names())
    raise BadInput(f"unknown embedder {name!r}{hint}; known: {names}")
