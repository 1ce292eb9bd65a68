"""JSA's Figure 4 with deadlines that are no multiples of running times: such
multiples may be why EDF, which then takes short jobs first, is ahead
(docs/decisions/34).

In place of a multiple a deadline is the running time and a slack, which is drawn
whatever the job takes. Without a spread of the slack, the order of deadlines is
that of running times; the wider it spreads, the less it tells of them.
"""

from __future__ import annotations

from reproductions.configuration import RunConfiguration
from reproductions.jsa.jsa_rewards import (
    FOUR,
    FULL,
    MET,
    QUICK,
    REWARD,
    large_run,
)
from reproductions.published_figure import Figure, Panel

# What the factors of 2 to 7 leave a job of the trace's median running time,
# 27 s, on average.
SLACK_S = 90.0
SPREADS_S = (0.0, 45.0, 90.0)


def _spread(
    series: str, spread_s: float, seed: int, quick: bool
) -> RunConfiguration:
    least_s = SLACK_S - spread_s
    most_s = SLACK_S + spread_s
    return large_run(
        series,
        seed,
        quick=quick,
        deadline_slack=f"[{least_s:g} s, {most_s:g} s]",
    )


DEADLINES = Figure(
    name="jsa-deadlines",
    title="Deadlines that tell less and less of running times",
    source="JSA, Fig. 4(a)",
    x_label="spread of the slack, 90 s and less or more by up to [s]",
    xs=SPREADS_S,
    series=FOUR,
    configuration=_spread,
    panels=(Panel(REWARD), Panel(MET)),
    size=FULL.words,
    quick_size=QUICK.words,
    seeds=5,
)
