"""All reproductions by name. A paper is a package here whose ``__init__`` lists
its figures.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from reproductions.claim_ledger import with_claims
from reproductions.grid_quantities import Measure
from reproductions.live_figure import EVERY_LIVE, LiveFigure
from reproductions.published_figure import AnyFigure, Figure
from reproductions.published_values import with_published
from testbed.errors import BadInput

PAPERS = ("dcloud", "jsa", "adaba", "cmbf", "mbfcbs")

_MODULES = {
    paper: importlib.import_module(f"reproductions.{paper}")
    for paper in PAPERS
}


def _by_name(kind: str) -> dict[str, Any]:
    """The figures that the papers' packages list under ``kind``, with the
    ledger's claims and published values.
    """
    found = {}
    for module in _MODULES.values():
        for figure in getattr(module, kind):
            judged = with_claims(figure, measures_for(figure))
            found[figure.name] = with_published(judged)
    return found


def measures_for(figure: AnyFigure) -> list[Measure]:
    """The measures that a figure's rules may name, each name once.

    A figure's own measure has the name for itself: leases that are accepted are
    a number, jobs of other live figures a share.
    """
    # Later measures replace earlier ones of the same name.
    measures: dict[str, Measure] = {}
    if isinstance(figure, LiveFigure):
        for measure in EVERY_LIVE:
            measures[measure.name] = measure
    for panel in figure.tables:
        measures[panel.measure.name] = panel.measure
    return list(measures.values())


FIGURES: dict[str, Figure] = _by_name("FIGURES")
LIVE_FIGURES: dict[str, LiveFigure] = _by_name("LIVE_FIGURES")
"""The figures that are measured on the live network. A name may be in both."""


def folder_of(figure: AnyFigure) -> str:
    """The name of the folder of its results. A live figure whose name a
    simulated one has, too, has a folder of its own.
    """
    is_shared = figure.name in FIGURES and figure.name in LIVE_FIGURES
    if is_shared:
        return figure.section
    return figure.name


def paper_of(figure: AnyFigure) -> str:
    """The paper that a figure is of."""
    for paper, module in _MODULES.items():
        for known in (*module.FIGURES, *module.LIVE_FIGURES):
            if known.name == figure.name:
                return paper
    raise KeyError(figure.name)


def figures(names: Sequence[str]) -> list[Figure]:
    """The named figures, each once, in the order given. Raises BadInput naming
    all unknown ones.
    """
    live_only = _only_in(LIVE_FIGURES, FIGURES, names)
    if live_only:
        raise BadInput(
            f"{', '.join(live_only)}: measured on the live network only",
            f"sudo testbed reproduce {' '.join(live_only)} --live",
        )
    # A name typed twice is computed once.
    _require_known(names, FIGURES, "no reproduction")
    return [FIGURES[name] for name in dict.fromkeys(names)]


def live_figures(names: Sequence[str]) -> list[LiveFigure]:
    """The named live figures, likewise."""
    simulated = _only_in(FIGURES, LIVE_FIGURES, names)
    if simulated:
        raise BadInput(
            f"{', '.join(simulated)}: only simulated, so leave --live away",
            f"live are {', '.join(LIVE_FIGURES)}",
        )
    _require_known(names, LIVE_FIGURES, "no live reproduction")
    return [LIVE_FIGURES[name] for name in dict.fromkeys(names)]


def _only_in(
    kind: Mapping[str, AnyFigure],
    other_kind: Mapping[str, AnyFigure],
    names: Sequence[str],
) -> list[str]:
    """The names of figures that exist in one kind alone."""
    return [
        name for name in names if name in kind and name not in other_kind
    ]


def _require_known(
    names: Sequence[str], known: Mapping[str, AnyFigure], nothing: str
) -> None:
    """Raises BadInput for names that are not ``known``; ``nothing`` begins its
    message.
    """
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    # The name may be one of the other kind: both are looked through.
    every = {**LIVE_FIGURES, **FIGURES}
    near: dict[str, None] = {}
    for name in unknown:
        near.update(
            dict.fromkeys(difflib.get_close_matches(name, every, 1))
        )
    hint = ""
    if near:
        hint = f" (did you mean {', '.join(near)}?)"
    raise BadInput(
        f"{nothing} is called {', '.join(unknown)}{hint}",
        f"known are {', '.join(known)}",
    )
