"""MBFCBS's Figures 4 to 11: a small cluster beside Haizea's default, and 50
hosts of 6 cores.
"""

from __future__ import annotations

from functools import partial

from reproductions.configuration import RunConfiguration, Variant, settings
from reproductions.extractors import LEASE_METRICS
from reproductions.grid_quantities import (
    Measure,
)
from reproductions.published_figure import Figure, Panel

# -- Figures 4 and 5: the small cluster (Section 5.1) --------------------------

MBFCBS = "MBFCBS"
DEFAULT = "Haizea's default"
SMALL_POLICIES = {
    MBFCBS: "mbfcbs",
    DEFAULT: "{name: mbfcbs, preemption: false, earliest: false, depth: 1}",
}
SMALL_COUNTS = (10.0, 20.0, 30.0, 40.0)

ACCEPTED = Measure("accepted", "accepted leases")
USE = Measure("use", "core use until the last end", unit="%", factor=100.0)
USE_EARLY = Measure(
    "use_early", "core use while leases arrive", unit="%", factor=100.0
)

SMALL_SIZE = (
    "4 hosts of 4 cores, leases of 1, 2 and 4 cores, 1 h on average; 40 "
    "leases are a load of 1.6"
)


def _few(
    series: str, count: float, seed: int, quick: bool
) -> RunConfiguration:
    del quick  # it takes a second as it is
    values = settings(jobs=int(count), load=0.04 * count)
    variant = Variant(
        "mbfcbs/mbfcbs-small.yaml", SMALL_POLICIES[series], values
    )
    return RunConfiguration(variant, seed, LEASE_METRICS, _cost_ms(count))


def _cost_ms(leases: float) -> float:
    """The approximate processor time of a run, in milliseconds."""
    return 0.8 * leases + 20.0


_small = partial(
    Figure,
    x_label="leases",
    xs=SMALL_COUNTS,
    series=tuple(SMALL_POLICIES),
    configuration=_few,
    size=SMALL_SIZE,
    quick_size=SMALL_SIZE,
)

FIGURE_4 = _small(
    name="mbfcbs-fig4",
    title="Accepted requests in a small cluster",
    source="MBFCBS, Fig. 4",
    panels=(Panel(ACCEPTED),),
)

FIGURE_5 = _small(
    name="mbfcbs-fig5",
    title="Utilisation of a small cluster",
    source="MBFCBS, Fig. 5",
    panels=(Panel(USE), Panel(USE_EARLY)),
)

# -- Figures 6 to 11 (Section 5.2) ---------------------------------------------

VMCT = "V-MCT"
PRIORITY = "priority"
POLICIES = {MBFCBS: "mbfcbs", VMCT: "v-mct", PRIORITY: "priority"}

SUCCESS = Measure("success", "success rate", unit="%", factor=100.0)
AR = Measure("success_ar", "success rate of AR", unit="%", factor=100.0)
IM = Measure("success_im", "success rate of IM", unit="%", factor=100.0)
BE = Measure("success_be", "success rate of BE", unit="%", factor=100.0)
COMPLETION = Measure(
    "completion_h", "mean time to completion", "h", digits=2
)
MAKESPAN = Measure("makespan_h", "makespan", "h", digits=2)
PREEMPTIONS = Measure("preemptions", "preemptions")

COUNTS = (100.0, 200.0, 400.0, 600.0, 800.0, 1000.0)

_WORDS = (
    "leases of 1 to 6 cores, 1 h on average, that arrive in some 7 h; the "
    "most are a load of 1.5"
)
SIZE = f"50 hosts of 6 cores; {_WORDS}"
QUICK_SIZE = f"10 hosts of 6 cores, a fifth of the leases; {_WORDS}"


def _many(
    series: str, count: float, seed: int, quick: bool
) -> RunConfiguration:
    share = 5 if quick else 1
    leases = int(count) // share
    values = settings(jobs=leases, load=0.0015 * count)
    hosts = (("topology.nodes", str(50 // share)),)
    variant = Variant(
        "mbfcbs/mbfcbs-large.yaml", POLICIES[series], (*hosts, *values)
    )
    return RunConfiguration(variant, seed, LEASE_METRICS, _cost_ms(leases))


# -- Figure 6 ------------------------------------------------------------------

SHARES = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0)


def _shares(
    series: str, advance: float, seed: int, quick: bool
) -> RunConfiguration:
    del quick  # it takes a second as it is
    return with_advance(POLICIES[series], advance, seed, load=1.5)


def with_advance(
    entry: str, advance_percent: float, seed: int, *, load: float
) -> RunConfiguration:
    """The run of a policy with so many advance reservations; the other leases
    are immediate or best effort, as many of each.
    """
    share = advance_percent / 100.0
    values = settings(
        jobs=100, load=load, advance=share, immediate=(1.0 - share) / 2.0
    )
    variant = Variant(
        "mbfcbs/mbfcbs-large.yaml",
        entry,
        (("topology.nodes", "5"), *values),
    )
    return RunConfiguration(variant, seed, LEASE_METRICS, _cost_ms(100))


FIGURE_6_SIZE = (
    "5 hosts of 6 cores; 100 leases of 1 to 6 cores, a load of 1.5; IM and "
    "BE alike"
)

FIGURE_6 = Figure(
    name="mbfcbs-fig6",
    title="Success by the share of advance reservations",
    source="MBFCBS, Fig. 6",
    x_label="share of advance reservations [%]",
    xs=SHARES,
    series=(MBFCBS,),
    configuration=_shares,
    panels=(Panel(AR), Panel(IM), Panel(BE)),
    size=FIGURE_6_SIZE,
    quick_size=FIGURE_6_SIZE,
)

_by_leases = partial(
    Figure,
    x_label="leases",
    xs=COUNTS,
    configuration=_many,
    size=SIZE,
    quick_size=QUICK_SIZE,
)

# -- Figure 7 ------------------------------------------------------------------

FIGURE_7 = _by_leases(
    name="mbfcbs-fig7",
    title="Success of MBFCBS by type of lease",
    source="MBFCBS, Fig. 7",
    series=(MBFCBS,),
    panels=(Panel(AR), Panel(IM), Panel(BE)),
)

# -- Figures 8 to 11 -----------------------------------------------------------

FIGURE_8 = _by_leases(
    name="mbfcbs-fig8",
    title="Success rate of the three algorithms",
    source="MBFCBS, Fig. 8",
    series=tuple(POLICIES),
    panels=(Panel(SUCCESS),),
    also=(AR, IM, BE),
)

FIGURE_9 = _by_leases(
    name="mbfcbs-fig9",
    title="Utilisation under the three algorithms",
    source="MBFCBS, Fig. 9",
    series=tuple(POLICIES),
    panels=(Panel(USE), Panel(USE_EARLY)),
)

FIGURE_10 = _by_leases(
    name="mbfcbs-fig10",
    title="Total completion time of the three algorithms",
    source="MBFCBS, Fig. 10",
    series=tuple(POLICIES),
    panels=(Panel(COMPLETION),),
)

FIGURE_11 = _by_leases(
    name="mbfcbs-fig11",
    title="Makespan of the three algorithms",
    source="MBFCBS, Fig. 11",
    series=tuple(POLICIES),
    panels=(Panel(MAKESPAN),),
    also=(PREEMPTIONS,),
)
