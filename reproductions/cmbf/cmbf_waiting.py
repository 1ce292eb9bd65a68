"""Why AMCBF does not halve EASY's response times: how much of a response is
waiting, and what EASY owes to running times that it knows exactly.
"""

from __future__ import annotations

from reproductions.cmbf.cmbf_setup import (
    AMCBF,
    CPU,
    EASY,
    LABELS,
    MIGRATIONS,
    RESPONSE,
    SLOWDOWN,
    ModelName,
    nodes,
    size_words,
)
from reproductions.configuration import RunConfiguration
from reproductions.extractors import WAIT_METRICS
from reproductions.grid_quantities import Measure
from reproductions.interpretation_rows import panels_of, rows_of
from reproductions.published_figure import Figure

BEYOND = Measure(
    "beyond",
    "share of response times beyond running alone",
    unit="%",
    factor=100.0,
)
# Users state up to ten times their running time.
OVERESTIMATE = 10.0
STATED = "EASY by what users state"
SERIES = (EASY, STATED, AMCBF)
MODELS: dict[str, ModelName] = {
    LABELS["feitelson"]: "feitelson",
    LABELS["jann"]: "jann",
}
ROWS = rows_of(SERIES, MODELS)
LOADS = (0.5, 0.7, 0.9)


def _waiting(
    row: str, load: float, seed: int, quick: bool
) -> RunConfiguration:
    series, label = ROWS[row]
    by_statements = series == STATED
    policy = EASY if by_statements else series
    return nodes(
        MODELS[label],
        policy,
        seed,
        load,
        quick=quick,
        overestimate=OVERESTIMATE,
        by_statements=by_statements,
        extractor=WAIT_METRICS,
    )


WAITING = Figure(
    name="cmbf-waiting",
    title="What of a response is waiting, and EASY without exact times",
    source="CMBF, Fig. 3 and 4",
    x_label="system load",
    xs=LOADS,
    series=tuple(ROWS),
    configuration=_waiting,
    panels=(
        *panels_of(BEYOND, SERIES, MODELS),
        *panels_of(SLOWDOWN, SERIES, MODELS),
    ),
    also=(RESPONSE, MIGRATIONS, CPU),
    size=size_words("feitelson", "jann", quick=False),
    quick_size=size_words("feitelson", "jann", quick=True),
    seeds=3,
)
