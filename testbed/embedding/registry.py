"""Embedders by the names that experiment files use."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from testbed.embedding.adaba import AdaBa
from testbed.embedding.base import Embedder
from testbed.embedding.best_fit import BestFit
from testbed.embedding.exact import Exact
from testbed.embedding.first_fit import FirstFit
from testbed.embedding.greedy import Greedy
from testbed.embedding.oktopus import Oktopus
from testbed.embedding.vmplace import VMPlace
from testbed.errors import BadInput

_EMBEDDERS: dict[str, Callable[[], Embedder]] = {
    kind.name: kind for kind in (AdaBa, BestFit, Exact, FirstFit, Greedy, Oktopus, VMPlace)
}


def embedder_names() -> tuple[str, ...]:
    """All known names, sorted."""
    return tuple(sorted(_EMBEDDERS))


def embedder(name: str) -> Embedder:
    """The embedder of that name; BadInput lists the known ones for any other."""
    try:
        return _EMBEDDERS[name]()
    except KeyError:
        close = get_close_matches(name, _EMBEDDERS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise BadInput(
            f"unknown embedder {name!r}{hint}; known: {', '.join(embedder_names())}"
        ) from None
