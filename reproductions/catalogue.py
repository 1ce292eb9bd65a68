"""All reproductions by name. A paper joins with its figures' tuple, and nothing else changes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from reproductions.adaba.figures import ADABA_FIGURES
from reproductions.adaba.live import ADABA_LIVE
from reproductions.cmbf.figures import CMBF_FIGURES
from reproductions.cmbf.live import CMBF_LIVE
from reproductions.dcloud.figures import DCLOUD_FIGURES
from reproductions.dcloud.live import DCLOUD_LIVE
from reproductions.figure import Exhibit, Figure
from reproductions.jsa.figures import JSA_FIGURES
from reproductions.jsa.live import JSA_LIVE
from reproductions.live.figure import LiveFigure
from reproductions.mbfcbs.figures import MBFCBS_FIGURES
from reproductions.mbfcbs.live import MBFCBS_LIVE
from testbed.errors import BadInput

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        *DCLOUD_FIGURES,
        *JSA_FIGURES,
        *ADABA_FIGURES,
        *CMBF_FIGURES,
        *MBFCBS_FIGURES,
    )
}


LIVE_FIGURES: dict[str, LiveFigure] = {
    figure.name: figure
    for figure in (*DCLOUD_LIVE, *JSA_LIVE, *ADABA_LIVE, *CMBF_LIVE, *MBFCBS_LIVE)
}
"""Those that are measured on the live network. A name may be in both."""


def exhibits() -> dict[str, Exhibit]:
    """All of them, simulated ones first; of a name in both the simulated one."""
    return {**LIVE_FIGURES, **FIGURES}


def figures(names: Sequence[str]) -> list[Figure]:
    """The named figures, each once, in the order given. Raises BadInput naming all unknown ones."""
    live_only = [name for name in names if name in LIVE_FIGURES and name not in FIGURES]
    if live_only:
        raise BadInput(
            f"{', '.join(live_only)}: measured on the live network only",
            f"sudo testbed reproduce {' '.join(live_only)} --live",
        )
    _known(names, FIGURES, "no reproduction")
    return [FIGURES[name] for name in dict.fromkeys(names)]


def live_figures(names: Sequence[str]) -> list[LiveFigure]:
    """The same of the live ones."""
    simulated = [name for name in names if name in FIGURES and name not in LIVE_FIGURES]
    if simulated:
        raise BadInput(
            f"{', '.join(simulated)}: only simulated, so leave --live away",
            f"live are {', '.join(LIVE_FIGURES)}",
        )
    _known(names, LIVE_FIGURES, "no live reproduction")
    return [LIVE_FIGURES[name] for name in dict.fromkeys(names)]


def _known(names: Sequence[str], known: Mapping[str, Exhibit], nothing: str) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        near = [m for name in unknown for m in difflib.get_close_matches(name, exhibits(), 1)]
        hint = f" (did you mean {', '.join(dict.fromkeys(near))}?)" if near else ""
        raise BadInput(
            f"{nothing} is called {', '.join(unknown)}{hint}", f"known are {', '.join(known)}"
        )
