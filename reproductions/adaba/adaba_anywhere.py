"""AdaBa's Figure 4 where the others fill any servers of the data centre."""

from __future__ import annotations

from reproductions.adaba.adaba_acceptance import (
    ADABA,
    BEST,
    FIRST,
    GREEDY,
    MEANS,
    OKTOPUS,
)
from reproductions.adaba.adaba_setup import (
    ACCEPTED,
    CPU,
    jobs_of,
    random_jobs,
    size_words,
)
from reproductions.configuration import RunConfiguration
from reproductions.interpretation_rows import labels_of
from reproductions.published_figure import Figure, Panel

# Oktopus' own paper has it search subtree by subtree.
AS_JUDGED = {ADABA: "adaba", OKTOPUS: "oktopus"}
ANYWHERE = {BEST: "BestFit", GREEDY: "Greedy", FIRST: "FirstFit"}
LABELS = dict(
    zip(labels_of(ANYWHERE, "anywhere"), ANYWHERE.values(), strict=True)
)


def _among_all(
    series: str, mean_mbps: float, seed: int, quick: bool
) -> RunConfiguration:
    if series in AS_JUDGED:
        embedder = AS_JUDGED[series]
    else:
        embedder = f"{{class: ./anywhere.py:{LABELS[series]}}}"
    return random_jobs(embedder, seed, mean_mbps, jobs=jobs_of(quick=quick))


OTHERS_ANYWHERE = Figure(
    name="adaba-anywhere",
    title="Accepted jobs where all but AdaBa and Oktopus fill any servers",
    source="AdaBa, Fig. 4",
    x_label="mean bandwidth per VM [Mbit/s]",
    xs=MEANS,
    series=(*AS_JUDGED, *LABELS),
    configuration=_among_all,
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
    seeds=5,
)
