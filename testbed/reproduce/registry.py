"""All reproductions by name. A paper joins with its figures' tuple, and nothing else changes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from testbed.errors import BadInput
from testbed.reproduce.adaba.figures import ADABA_FIGURES
from testbed.reproduce.dcloud.figures import DCLOUD_FIGURES
from testbed.reproduce.figure import Figure
from testbed.reproduce.mbfcbs.cluster import FIGURE_4 as MBFCBS_4
from testbed.reproduce.mbfcbs.cluster import FIGURE_5 as MBFCBS_5
from testbed.reproduce.mbfcbs.simulated import FIGURE_6 as MBFCBS_6
from testbed.reproduce.mbfcbs.simulated import FIGURE_7 as MBFCBS_7
from testbed.reproduce.mbfcbs.simulated import FIGURE_8 as MBFCBS_8
from testbed.reproduce.mbfcbs.simulated import FIGURE_9 as MBFCBS_9
from testbed.reproduce.mbfcbs.simulated import FIGURE_10 as MBFCBS_10
from testbed.reproduce.mbfcbs.simulated import FIGURE_11 as MBFCBS_11

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (*DCLOUD_FIGURES, *ADABA_FIGURES)}
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
        MBFCBS_4,
        MBFCBS_5,
        MBFCBS_6,
        MBFCBS_7,
        MBFCBS_8,
        MBFCBS_9,
        MBFCBS_10,
        MBFCBS_11,
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
