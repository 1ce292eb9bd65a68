"""AdaBa's Figures 4 and 5: the jobs accepted where none waits."""

from __future__ import annotations

from reproductions.adaba.adaba_setup import (
    ACCEPTED,
    CPU,
    FULL,
    KTH,
    NASA,
    QUICK,
    both_logs,
    jobs_of,
    random_jobs,
    size_words,
)
from reproductions.configuration import RunConfiguration, Together
from reproductions.published_figure import Figure, Panel

ADABA = "AdaBa"
BEST = "best fit"
OKTOPUS = "Oktopus"
GREEDY = "greedy"
FIRST = "first fit"
EMBEDDERS = {
    ADABA: "adaba",
    BEST: "best-fit",
    OKTOPUS: "oktopus",
    GREEDY: "greedy",
    FIRST: "first-fit",
}
SERIES = (ADABA, BEST, OKTOPUS, GREEDY)


# -- Figure 4 ------------------------------------------------------------------

MEANS = (50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0)


def _random(
    series: str, mean_mbps: float, seed: int, quick: bool
) -> RunConfiguration:
    return random_jobs(
        EMBEDDERS[series], seed, mean_mbps, jobs=jobs_of(quick=quick)
    )


FIGURE_4 = Figure(
    name="adaba-fig4",
    title="Accepted jobs by mean bandwidth",
    source="AdaBa, Fig. 4",
    x_label="mean bandwidth per VM [Mbit/s]",
    xs=MEANS,
    # First fit is in one sentence of the text, and not in the picture.
    series=(*SERIES, FIRST),
    configuration=_random,
    panels=(Panel(ACCEPTED),),
    also=(CPU,),
    size=(
        f"{size_words(quick=False)}; random jobs of 8 VMs on average, load "
        "0.5"
    ),
    quick_size=(
        f"{size_words(quick=True)}; random jobs of 8 VMs on average, load "
        "0.5"
    ),
)

# -- Figure 5 ------------------------------------------------------------------

LOADS = (0.2, 0.4, 0.6, 0.8, 1.0)
KTH_ACCEPTED = KTH.measure("acceptance", "accepted jobs", "%", 100.0)
NASA_ACCEPTED = NASA.measure("acceptance", "accepted jobs", "%", 100.0)


def _logs(series: str, load: float, seed: int, quick: bool) -> Together:
    return both_logs(
        "vc", EMBEDDERS[series], seed, load, jobs=jobs_of(quick=quick)
    )


FIGURE_5 = Figure(
    name="adaba-fig5",
    title="Accepted jobs of two logs by load",
    source="AdaBa, Fig. 5",
    x_label="system load",
    xs=LOADS,
    series=SERIES,
    configuration=_logs,
    panels=(Panel(KTH_ACCEPTED), Panel(NASA_ACCEPTED)),
    also=(CPU,),
    size=FULL,
    quick_size=QUICK,
)
