"""CMBF live: its two worked examples, and what two VMs on a node do to each other."""

from __future__ import annotations

from reproductions.claims import Band, Claim
from reproductions.cmbf.examples import (
    AMBF,
    AMCBF,
    CMBF,
    CMCBF,
    FIGURE_1,
    FIGURE_2,
    LATE,
    MOVED,
    TIERS,
    Example,
    end_of,
    measures_of,
    nodes_in_use,
    tiers_apart,
)
from reproductions.cmbf.interference import IDLE_USED, LOSS, SHARE
from reproductions.cmbf.interference import measures as of_two_vms
from reproductions.figure import Panel
from reproductions.live.claims import OURS, audited, held, replays_alike, sound
from reproductions.live.figure import Curves, LiveFigure
from reproductions.live.measures import COMPLETION, FIDELITY, WALL, simulated
from reproductions.live.trial import Trial
from reproductions.quantities import Measure

WITHIN = Band(high=5.0)
NOWHERE = Band(high=0.0)
XS_1, XS_2 = (6.0,), (5.0,)
POLICIES = {
    CMBF: "{name: cmbf, migration_cost: 0 s}",
    AMBF: "{name: ambf, migration_cost: 0 s}",
    CMCBF: "{name: cmcbf, migration_cost: 0 s}",
    AMCBF: "{name: amcbf, migration_cost: 0 s}",
}


def _figure_1(series: str, x: float, quick: bool) -> Trial:  # noqa: ARG001 - one size
    return Trial("cmbf-fig1.yaml", POLICIES[series])


def _figure_2(series: str, x: float, quick: bool) -> Trial:  # noqa: ARG001 - one size
    return Trial("cmcbf-fig2.yaml", POLICIES[series])


def _ends(series: tuple[str, ...], xs: tuple[float, ...]) -> Claim:
    text = "Every job ends within 5 % of the example's time"
    return Claim(text, OURS, held(LATE, WITHIN, series, xs))


def _each(example: Example) -> tuple[Measure, ...]:
    """Every job's end, to be written down."""
    return tuple(end_of(job) for job in sorted(example.ends))


EXAMPLE_1 = LiveFigure(
    name="cmbf-fig1",
    title="Six jobs on six nodes",
    source="CMBF, Fig. 1",
    x_label="nodes",
    xs=XS_1,
    series=(CMBF, AMBF),
    trial=_figure_1,
    own=measures_of,
    curves=(Curves("nodes in use", "time [min]", nodes_in_use, XS_1[0], (0.0, 26.0)),),
    panels=(Panel(LATE), Panel(simulated(LATE))),
    claims=(
        Claim("CMBF evicts J5 alone, when J2 ends, and it goes on when J4 ends; J4 starts at 5, J3 "
              "at 20", "as told in Section 4.1", held(MOVED, NOWHERE, (CMBF,), XS_1)),
        Claim("AMBF preempts nobody; J4 starts at 15, J3 at 20", "as told in Section 4.1",
              held(MOVED, NOWHERE, (AMBF,), XS_1)),
        _ends((CMBF, AMBF), XS_1),
        sound((CMBF, AMBF), XS_1),
        audited((CMBF, AMBF), XS_1),
        replays_alike((CMBF, AMBF), XS_1),
    ),
    also=(*_each(FIGURE_1[CMBF]), MOVED, simulated(MOVED), COMPLETION, FIDELITY, WALL),
    printed=(LATE, MOVED, FIDELITY),
    size="6 nodes of a tenth of a processor, a minute of the example in 3 s, live",
    quick_size="the same",
    exact=True,
    seeds=1,
)  # fmt: skip

EXAMPLE_2 = LiveFigure(
    name="cmcbf-fig2",
    title="Ten jobs on five nodes of two VMs",
    source="CMBF, Fig. 2",
    x_label="nodes",
    xs=XS_2,
    series=(CMCBF, AMCBF),
    trial=_figure_2,
    own=lambda run: {**measures_of(run), **tiers_apart(run)},
    curves=(Curves("nodes in use, in front", "time [min]", nodes_in_use, XS_2[0], (0.0, 31.0)),),
    panels=(Panel(LATE), Panel(simulated(LATE))),
    claims=(
        Claim("CMCBF has the paper's jobs in front and behind at 0, 5, 10, 15, 20 and 25 min",
              "as told in Section 4.2", held(TIERS, NOWHERE, (CMCBF,), XS_2),
              reading="looked at half a minute after each"),
        Claim("In AMCBF J9 does not preempt J10 while J8 is the head", "as told in Section 4.2",
              held(TIERS, NOWHERE, (AMCBF,), XS_2)),
        Claim("Evictions, migrations and changes of tier are the example's, in order", OURS,
              held(MOVED, NOWHERE, (CMCBF, AMCBF), XS_2)),
        _ends((CMCBF, AMCBF), XS_2),
        sound((CMCBF, AMCBF), XS_2),
        audited((CMCBF, AMCBF), XS_2),
        replays_alike((CMCBF, AMCBF), XS_2),
    ),
    also=(*_each(FIGURE_2[CMCBF]), MOVED, simulated(MOVED), TIERS, simulated(TIERS), COMPLETION,
          FIDELITY, WALL),
    printed=(LATE, MOVED, TIERS, FIDELITY),
    size="5 nodes of a tenth of a processor, CPU weights 10,000 to 1, a minute of the example in "
    "3 s, live",
    quick_size="the same",
    exact=True,
    seeds=1,
)  # fmt: skip

BURSTS = "bursts of 10 ms"
USES = (10.0, 30.0, 50.0, 70.0, 90.0, 96.0, 100.0)
LEAVING = tuple(use for use in USES if use < 96.0)
FULL = tuple(use for use in USES if use >= 96.0)
WALL_S, QUICK_S = 6.0, 3.0


def _interference(series: str, x: float, quick: bool) -> Trial:  # noqa: ARG001 - one series
    """At one CPU use: alone, then with a VM behind that has as much to do."""
    wall_s = QUICK_S if quick else WALL_S
    burst = f'"{x / 100:g}", "{wall_s:g}"'
    settings = [(f"workload.jobs[{k}].duration", f"{30 * wall_s:g} s") for k in range(3)]
    for k in range(2):
        settings += [
            (f"workload.jobs[{k}].cpu", f"{x:g} %"),
            (f"workload.jobs[{k}].command", f"[python3, ./apps/bursts.py, {burst}]"),
        ]
    return Trial(
        "cmbf-interference.yaml",
        "{name: cmcbf, cpu: unknown, migration_cost: 0 s}",
        tuple(settings),
    )


STUDY = LiveFigure(
    name="cmbf-interference",
    title="A background VM: what it costs, what it gets",
    source="CMBF, Section 3",
    x_label="CPU use of the process in front, alone [%]",
    xs=USES,
    series=(BURSTS,),
    trial=_interference,
    own=of_two_vms,
    panels=(
        Panel(LOSS),
        Panel(IDLE_USED, limits=(0.0, 110.0)),
        Panel(SHARE),
        Panel(simulated(LOSS)),
        Panel(simulated(IDLE_USED)),
        Panel(simulated(SHARE)),
    ),
    claims=(
        Claim("A job in front loses at most 3.7 % to one behind it", "0 to 3.7 %",
              held(LOSS, Band(high=3.7), (BURSTS,), USES),
              reading="below 0 where a processor that is never idle wakes up sooner"),
        Claim("One process behind another makes use of 80 to 100 % of the idle cycles",
              "80 to 100 %", held(IDLE_USED, Band(80.0, 101.0), (BURSTS,), LEAVING),
              reading="CPU uses below 96 %; idle is what the one in front left while both ran"),
        Claim("Where the process in front uses 96 % or more, one behind has next to nothing of it",
              "no benefit", held(SHARE, Band(high=5.0), (BURSTS,), FULL),
              reading="at most 5 % of a CPU"),
        sound((BURSTS,), USES),
        audited((BURSTS,), USES),
        replays_alike((BURSTS,), USES),
    ),
    also=(FIDELITY, WALL),
    printed=(LOSS, simulated(LOSS), IDLE_USED, simulated(IDLE_USED), SHARE, FIDELITY),
    size="two VMs on one processor, CPU weights 10,000 to 1; bursts of computing with waits "
    "between in front, computing all the time behind; 6 s, live",
    quick_size="the same for 3 s, live",
    seeds=1,
)  # fmt: skip

CMBF_LIVE = (EXAMPLE_1, EXAMPLE_2, STUDY)
