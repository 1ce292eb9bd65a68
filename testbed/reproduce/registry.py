"""All reproductions by name. A paper joins with its figures' tuple, and nothing else changes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from testbed.errors import BadInput
from testbed.reproduce.adaba.acceptance import FIGURE_4 as ADABA_4
from testbed.reproduce.adaba.acceptance import FIGURE_5 as ADABA_5
from testbed.reproduce.adaba.scheduling import FIGURE_6 as BGMBF_6
from testbed.reproduce.adaba.scheduling import FIGURE_7 as BGMBF_7
from testbed.reproduce.adaba.scheduling import FIGURE_8 as BGMBF_8
from testbed.reproduce.dcloud.arrivals import FIGURE_8, FIGURE_9
from testbed.reproduce.dcloud.oversubscription import FIGURE_7
from testbed.reproduce.dcloud.parameters import FIGURE_4, FIGURE_5, FIGURE_6
from testbed.reproduce.dcloud.strategies import CHARGING
from testbed.reproduce.figure import Figure

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        FIGURE_4,
        FIGURE_5,
        FIGURE_6,
        FIGURE_7,
        FIGURE_8,
        FIGURE_9,
        CHARGING,
        ADABA_4,
        ADABA_5,
        BGMBF_6,
        BGMBF_7,
        BGMBF_8,
    )
}


def figures(names: Sequence[str]) -> list[Figure]:
    """The named figures, each once, in the order given. Raises BadInput naming all unknown ones."""
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        near = [m for name in unknown for m in difflib.get_close_matches(name, FIGURES, 1)]
        hint = f" (did you mean {', '.join(dict.fromkeys(near))}?)" if near else ""
        raise BadInput(
            f"no reproduction is called {', '.join(unknown)}{hint}",
            f"known are {', '.join(FIGURES)}",
        )
    return [FIGURES[name] for name in dict.fromkeys(names)]
