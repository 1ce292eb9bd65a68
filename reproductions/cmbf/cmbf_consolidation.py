"""CMBF's Figures 3 and 4: six schedulers over Feitelson-style and Jann-style jobs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from reproductions.claims import Band, Check, Claim, about, more, mostly
from reproductions.cmbf.cell import ModelName, NodesCell
from reproductions.cmbf.grid import (
    AMBF,
    AMCBF,
    BUSY,
    CMBF,
    CMCBF,
    CPU,
    EASY,
    FCFS,
    LABELS,
    MIGRATIONS,
    POLICIES,
    RESPONSE,
    SIX,
    SLOWDOWN,
    USE,
    Largest,
    jobs_of,
    size_words,
)
from reproductions.cmbf.remarks import why
from reproductions.figure import Figure, Panel
from reproductions.quantities import Difference, Gain, Measure

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)
SATURATED = 1.2
"""More work than 320 nodes can do one process at a time: every queue grows to the end."""
XS = (*LOADS, SATURATED)
BOTH = (RESPONSE, SLOWDOWN)


def _order(measure: Measure) -> Claim:
    """The figures' outcome in one line (NOTES' shape targets)."""
    ranks = (AMCBF, CMCBF, EASY, AMBF, CMBF, FCFS)
    return Claim(
        f"In {measure.label}: AMCBF, CMCBF, EASY, AMBF, CMBF, FCFS",
        "AMCBF ≤ CMCBF < EASY < AMBF < CMBF < FCFS",
        tuple(
            Check(Difference(measure, worse, better, x), Band(0.0, strictly=better != AMCBF))
            for better, worse in pairwise(ranks)
            for x in LOADS
        ),
        reading="each neighbour in the order, at every load up to 0.9",
    )


def _claims(use_gain: float, saturated_gain: float) -> tuple[Claim, ...]:
    every = [(m, x) for m in BOTH for x in LOADS]
    return (
        Claim(
            "CMBF and AMBF outperform FCFS by a big margin",
            "CMBF, AMBF ≪ FCFS",
            tuple(
                Check(Gain(m, one, FCFS, x), Band(high=-50.0))
                for one in (CMBF, AMBF)
                for m, x in every
            ),
            reading="at most half of FCFS's response time and slowdown at every load up to 0.9",
        ),
        Claim(
            "CMBF and AMBF have worse response time and slowdown than EASY",
            "CMBF, AMBF > EASY",
            tuple(c for one in (CMBF, AMBF) for m in BOTH for c in more(m, one, (EASY,), LOADS)),
            reading="at every load up to 0.9",
        ),
        Claim(
            "CMCBF and AMCBF significantly outperform FCFS, CMBF, AMBF and EASY",
            "CMCBF, AMCBF < EASY, AMBF, CMBF, FCFS",
            tuple(
                c
                for one in (CMCBF, AMCBF)
                for other in (FCFS, CMBF, AMBF, EASY)
                for m in BOTH
                for c in more(m, other, (one,), LOADS)
            ),
            reading="in response time and slowdown at every load up to 0.9",
        ),
        Claim(
            f"Consolidation uses the nodes better than EASY, by up to {use_gain:g} %",
            f"up to +{use_gain:g} %",
            tuple(
                check
                for one in (CMCBF, AMCBF)
                for check in about(
                    Largest(USE, tuple(Gain(USE, one, EASY, x) for x in LOADS)), use_gain, use_gain
                )
            ),
            reading="the largest gain at loads up to 0.9, from none to twice the published one",
        ),
        Claim(
            f"At saturation consolidation uses the CPUs {saturated_gain:g} % better than EASY",
            f"+{saturated_gain:g} %",
            tuple(
                check
                for one in (CMCBF, AMCBF)
                for check in about(
                    Gain(USE, one, EASY, SATURATED), saturated_gain, 0.5 * saturated_gain
                )
            ),
            reading=f"work done per node and second at load {SATURATED:g}, within half of the gain",
        ),
        Claim(
            "AMBF performs better than CMBF in response time and slowdown",
            "AMBF < CMBF",
            tuple(c for m in BOTH for c in more(m, CMBF, (AMBF,), LOADS)),
        ),
        Claim(
            "AMCBF is slightly better than CMCBF in response time and slowdown",
            "AMCBF ≤ CMCBF",
            tuple(
                c
                for m in BOTH
                for c in mostly([Difference(m, CMCBF, AMCBF, x) for x in LOADS], 0.0)
            ),
            reading="at most loads, in either measure",
        ),
        Claim(
            "AMCBF migrates slightly fewer jobs than CMCBF",
            "AMCBF < CMCBF",
            more(MIGRATIONS, CMCBF, (AMCBF,), LOADS),
        ),
        Claim(
            "AMBF migrates significantly fewer jobs than CMBF",
            "AMBF ≪ CMBF",
            tuple(Check(Gain(MIGRATIONS, AMBF, CMBF, x), Band(high=-30.0)) for x in LOADS),
            reading="by at least 30 %",
        ),
        _order(RESPONSE),
        _order(SLOWDOWN),
    )


MOST_MIGRATIONS = Claim(
    "CMBF migrates more jobs than AMCBF and CMCBF",
    "CMBF > CMCBF, AMCBF",
    more(MIGRATIONS, CMBF, (CMCBF, AMCBF), LOADS),
    reading="every going on after a preemption, every move from behind to the front elsewhere",
    remark="more than half of what CMCBF and AMCBF count are background jobs that come to the "
    "front on other nodes; if only jobs that lose their place in front count, CMBF has two to six "
    "times as many as they. At saturation it is level with CMCBF and ahead of AMCBF "
    "([0451](decisions/0451-what-counts-as-a-migration.md))",
)
"""Said of the JWorkload alone (Section 5.3, item 4)."""


def _figure(
    name: str,
    source: str,
    model: ModelName,
    gain: float,
    saturated: float,
    own: tuple[Claim, ...] = (),
) -> Figure:
    def cell(series: str, load: float, seed: int, quick: bool) -> NodesCell:
        return NodesCell(model, POLICIES[series], seed, load, jobs_of(model, quick=quick))

    claims = (replace(c, remark=why(model, c.text)) for c in _claims(gain, saturated))
    return Figure(
        name=name,
        title=f"Six schedulers over {LABELS[model]}",
        source=source,
        x_label="system load",
        xs=XS,
        series=SIX,
        cell=cell,
        panels=tuple(Panel(measure) for measure in (RESPONSE, SLOWDOWN, MIGRATIONS, USE)),
        claims=(*claims, *own),
        also=(BUSY, CPU),
        size=size_words(model, quick=False),
        quick_size=size_words(model, quick=True),
    )


FIGURE_3 = _figure("cmbf-fig3", "CMBF, Fig. 3", "feitelson", 2.4, 11.0)
FIGURE_4 = _figure("cmbf-fig4", "CMBF, Fig. 4", "jann", 3.1, 16.0, (MOST_MIGRATIONS,))
