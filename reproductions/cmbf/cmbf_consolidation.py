"""CMBF's Figures 3 and 4: six schedulers over Feitelson-style and Jann-style
jobs.
"""

from __future__ import annotations

from reproductions.cmbf.cmbf_setup import (
    BUSY,
    CPU,
    LABELS,
    MIGRATIONS,
    RESPONSE,
    SIX,
    SLOWDOWN,
    USE,
    ModelName,
    nodes,
    size_words,
)
from reproductions.configuration import RunConfiguration
from reproductions.published_figure import Figure, Panel

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)
# More work than 320 nodes can do one process at a time: every queue grows
# to the end.
SATURATED = 1.2
XS = (*LOADS, SATURATED)


def _figure(
    name: str,
    source: str,
    model: ModelName,
) -> Figure:
    def configuration(
        series: str, load: float, seed: int, quick: bool
    ) -> RunConfiguration:
        return nodes(model, series, seed, load, quick=quick)

    return Figure(
        name=name,
        title=f"Six schedulers over {LABELS[model]}",
        source=source,
        x_label="system load",
        xs=XS,
        series=SIX,
        configuration=configuration,
        panels=(
            # FCFS is two orders of magnitude above those that are compared.
            Panel(RESPONSE, logarithmic=True),
            Panel(SLOWDOWN, logarithmic=True),
            Panel(MIGRATIONS),
            Panel(USE),
        ),
        also=(BUSY, CPU),
        size=size_words(model, quick=False),
        quick_size=size_words(model, quick=True),
    )


FIGURE_3 = _figure("cmbf-fig3", "CMBF, Fig. 3", "feitelson")
FIGURE_4 = _figure("cmbf-fig4", "CMBF, Fig. 4", "jann")
