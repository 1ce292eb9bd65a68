"""MBFCBS's Figures 6 to 11: 50 hosts of 6 cores (Section 5.2)."""

from __future__ import annotations

from functools import partial

from reproductions.claims import NEGATIVE, POSITIVE, Band, Check, Claim, falls, more, steady
from reproductions.figure import Figure, Panel
from reproductions.mbfcbs.cell import LeaseCell
from reproductions.mbfcbs.types import BetweenTypes
from reproductions.quantities import Change, Difference, Measure

MBFCBS, VMCT, PRIORITY = "MBFCBS", "V-MCT", "priority"
POLICIES = {MBFCBS: "mbfcbs", VMCT: "v-mct", PRIORITY: "priority"}
OTHERS = (VMCT, PRIORITY)

SUCCESS = Measure("success", "success rate", "%", 100.0)
AR = Measure("success_ar", "success rate of AR", "%", 100.0)
IM = Measure("success_im", "success rate of IM", "%", 100.0)
BE = Measure("success_be", "success rate of BE", "%", 100.0)
USE = Measure("use", "core use until the last end", "%", 100.0)
USE_EARLY = Measure("use_early", "core use while leases arrive", "%", 100.0)
COMPLETION = Measure("completion_h", "mean time to completion", "h", digits=2)
MAKESPAN = Measure("makespan_h", "makespan", "h", digits=2)

COUNTS = (100.0, 200.0, 400.0, 600.0, 800.0, 1000.0)
BUSY = (600.0, 800.0, 1000.0)
"""From where on some policy rejects leases."""
MANY = (800.0, 1000.0)

_WORDS = (
    "leases of 1 to 6 cores, 1 h on average, that arrive in some 7 h; the most are a load of 1.5"
)
SIZE = f"50 hosts of 6 cores; {_WORDS}"
QUICK_SIZE = f"10 hosts of 6 cores, a fifth of the leases; {_WORDS}"


def _cell(series: str, count: float, seed: int, quick: bool) -> LeaseCell:
    share = 5 if quick else 1
    return LeaseCell(
        POLICIES[series], seed, int(count) // share, hosts=50 // share, load=0.0015 * count
    )


# -- Figure 6 -------------------------------------------------------------------------------------

SHARES = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0)


def _shares(series: str, advance: float, seed: int, quick: bool) -> LeaseCell:
    del quick
    share = advance / 100.0
    return LeaseCell(
        POLICIES[series],
        seed,
        100,
        hosts=5,
        advance=share,
        immediate=(1.0 - share) / 2.0,
        load=1.5,
    )


_FIGURE_6_SIZE = "5 hosts of 6 cores; 100 leases of 1 to 6 cores, a load of 1.5; IM and BE alike"

FIGURE_6 = Figure(
    name="mbfcbs-fig6",
    title="Success by the share of advance reservations",
    source="MBFCBS, Fig. 6",
    x_label="share of advance reservations [%]",
    xs=SHARES,
    series=(MBFCBS,),
    cell=_shares,
    panels=(Panel(AR), Panel(IM), Panel(BE)),
    claims=(
        Claim(
            "The success rate of IM falls drastically with more AR requests",
            "falls",
            (Check(Change(IM, MBFCBS, SHARES[0], SHARES[-1]), Band(high=-15.0)),),
            reading="by 15 points or more from 10 to 60 % AR",
        ),
        Claim(
            "The success rate of IM falls with more AR requests",
            "falls",
            (Check(Change(IM, MBFCBS, SHARES[0], SHARES[-1]), NEGATIVE),),
            reading="by any amount",
        ),
    ),
    size=_FIGURE_6_SIZE,
    quick_size=_FIGURE_6_SIZE,
)

_by_leases = partial(
    Figure, x_label="leases", xs=COUNTS, cell=_cell, size=SIZE, quick_size=QUICK_SIZE
)

# -- Figure 7 -------------------------------------------------------------------------------------

FIGURE_7 = _by_leases(
    name="mbfcbs-fig7",
    title="Success of MBFCBS by type of lease",
    source="MBFCBS, Fig. 7",
    series=(MBFCBS,),
    panels=(Panel(AR), Panel(IM), Panel(BE)),
    claims=(
        Claim(
            "A higher success rate of AR than of IM requests",
            "AR > IM",
            tuple(Check(BetweenTypes(AR, IM, MBFCBS, x), POSITIVE) for x in MANY),
            reading="at 800 and 1,000 leases, where MBFCBS rejects some",
        ),
        Claim(
            "The success rate of BE is greater than that of IM requests",
            "BE > IM",
            tuple(Check(BetweenTypes(BE, IM, MBFCBS, x), POSITIVE) for x in MANY),
            reading="at 800 and 1,000 leases",
        ),
        Claim(
            "AR has the highest success rate",
            "AR > BE",
            tuple(Check(BetweenTypes(AR, BE, MBFCBS, x), POSITIVE) for x in MANY),
            reading="at 800 and 1,000 leases",
            remark="runs end when every lease has ended: best effort waits and then succeeds",
        ),
        Claim(
            "AR requests get guaranteed service",
            "high",
            steady(AR, MBFCBS, COUNTS, 5.0),
            reading="their success differs by at most 5 points over all numbers of leases",
        ),
    ),
)

# -- Figures 8 to 11 ------------------------------------------------------------------------------

FIGURE_8 = _by_leases(
    name="mbfcbs-fig8",
    title="Success rate of the three algorithms",
    source="MBFCBS, Fig. 8",
    series=tuple(POLICIES),
    panels=(Panel(SUCCESS),),
    claims=(
        Claim(
            "MBFCBS has the highest success rate",
            "MBFCBS > V-MCT, priority",
            more(SUCCESS, MBFCBS, OTHERS, BUSY),
            reading="from 600 leases on, where some are rejected",
        ),
        Claim(
            "MBFCBS is at no number of leases worse than the others",
            "MBFCBS ≥ V-MCT, priority",
            tuple(
                Check(Difference(SUCCESS, MBFCBS, other, x), Band(low=-0.5))
                for other in OTHERS
                for x in COUNTS
            ),
            reading="by half a point at most",
        ),
        Claim(
            "Priority has the lowest success rate",
            "V-MCT > priority",
            more(SUCCESS, VMCT, (PRIORITY,), BUSY),
            remark="preempting lets more advance reservations start than V-MCT's order does; what "
            "fails in turn are immediate leases alone, best effort goes on later",
        ),
        Claim(
            "V-MCT's success rate falls with more requests",
            "falls",
            falls(SUCCESS, VMCT, COUNTS),
        ),
    ),
)

FIGURE_9 = _by_leases(
    name="mbfcbs-fig9",
    title="Utilisation under the three algorithms",
    source="MBFCBS, Fig. 9",
    series=tuple(POLICIES),
    panels=(Panel(USE), Panel(USE_EARLY)),
    claims=(
        Claim(
            "MBFCBS uses more of the cores than V-MCT",
            "MBFCBS > V-MCT",
            more(USE, MBFCBS, (VMCT,), BUSY),
            reading="from 600 leases on",
        ),
        Claim(
            "MBFCBS has the highest utilisation",
            "MBFCBS > V-MCT, priority",
            more(USE, MBFCBS, OTHERS, BUSY),
            reading="from 600 leases on",
            remark="priority reserves nothing ahead, so no core is kept free for a reservation",
        ),
        Claim(
            "Priority has the lowest utilisation",
            "V-MCT > priority",
            more(USE, VMCT, (PRIORITY,), BUSY),
            remark="what it interrupts is kept and done later: preempting wastes nothing",
        ),
    ),
)

FIGURE_10 = _by_leases(
    name="mbfcbs-fig10",
    title="Total completion time of the three algorithms",
    source="MBFCBS, Fig. 10",
    series=tuple(POLICIES),
    panels=(Panel(COMPLETION),),
    claims=(
        Claim(
            "Completion takes longer under MBFCBS than under V-MCT when there are many requests",
            "MBFCBS > V-MCT",
            more(COMPLETION, MBFCBS, (VMCT,), MANY),
            reading="at 800 and 1,000 leases",
        ),
        Claim(
            "Completion takes longest under priority",
            "priority > MBFCBS, V-MCT",
            more(COMPLETION, PRIORITY, (MBFCBS, VMCT), MANY),
            reading="at 800 and 1,000 leases",
            remark="the time that computing its vectors takes is not published, and not added",
        ),
    ),
)

FIGURE_11 = _by_leases(
    name="mbfcbs-fig11",
    title="Makespan of the three algorithms",
    source="MBFCBS, Fig. 11",
    series=tuple(POLICIES),
    panels=(Panel(MAKESPAN),),
    claims=(
        Claim(
            "The makespan is longer under MBFCBS than under V-MCT when there are many requests",
            "MBFCBS > V-MCT",
            more(MAKESPAN, MBFCBS, (VMCT,), MANY),
            reading="at 800 and 1,000 leases",
            remark="the last end is mostly that of a late advance reservation, the same for all",
        ),
        Claim(
            "The makespan is longest under priority",
            "priority > MBFCBS, V-MCT",
            more(MAKESPAN, PRIORITY, (MBFCBS, VMCT), MANY),
            reading="at 800 and 1,000 leases",
            remark="the time that computing its vectors takes is not published, and not added",
        ),
    ),
)
