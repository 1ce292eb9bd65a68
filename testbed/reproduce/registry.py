"""All reproductions by name. A paper joins with its figures' tuple, and nothing else changes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from testbed.errors import BadInput
from testbed.reproduce.adaba.figures import ADABA_FIGURES
from testbed.reproduce.cmbf.figures import CMBF_FIGURES
from testbed.reproduce.dcloud.figures import DCLOUD_FIGURES
from testbed.reproduce.figure import Figure
from testbed.reproduce.jsa.figures import JSA_FIGURES
from testbed.reproduce.mbfcbs.figures import MBFCBS_FIGURES

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
