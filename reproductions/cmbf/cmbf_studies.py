"""CMBF's Section 5.4: AMCBF with worse estimates, dearer migrations and busier
processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from reproductions.cmbf.cmbf_setup import (
    AMCBF,
    BUSY,
    CPU,
    EASY,
    LABELS,
    MIGRATIONS,
    RESPONSE,
    SLOWDOWN,
    USE,
    ModelName,
    nodes,
    size_words,
)
from reproductions.configuration import RunConfiguration
from reproductions.published_figure import Figure, Panel, SeriesStyle

MODELS: tuple[ModelName, ...] = ("feitelson", "jann")
# The text says "in most cases" and names none: these loads are the cases.
LOADS = (0.6, 0.7, 0.8)
UNKNOWN = "AMCBF, CPU use unknown"
FULL = size_words(*MODELS, quick=False)
QUICK = size_words(*MODELS, quick=True)


@dataclass(frozen=True)
class Case:
    """A policy over one model's jobs at one load: a series."""

    policy: str
    model: ModelName
    load: float

    @property
    def label(self) -> str:
        return f"{self.policy}, {LABELS[self.model]} at {self.load:g}"


def _cases(*policies: str) -> dict[str, Case]:
    """All models and loads under some policies, by their labels."""
    cases = {}
    for model, load, policy in product(MODELS, LOADS, policies):
        case = Case(policy, model, load)
        cases[case.label] = case
    return cases


def _styles(cases: Mapping[str, Case]) -> dict[str, SeriesStyle]:
    """A colour by policy, a line by load; the models are in panels of their
    own.
    """
    policies: list[str] = []
    styles = {}
    for label, case in cases.items():
        if case.policy not in policies:
            policies.append(case.policy)
        styles[label] = SeriesStyle(
            colour=policies.index(case.policy),
            line=LOADS.index(case.load),
            label=f"{case.policy}, load {case.load:g}",
        )
    return styles


def _panels(cases: Mapping[str, Case]) -> tuple[Panel, ...]:
    """Response time and slowdown of each model's jobs."""
    panels = []
    for measure, model in product((RESPONSE, SLOWDOWN), MODELS):
        shown = tuple(
            label for label, case in cases.items() if case.model == model
        )
        panels.append(Panel(measure, shown=shown, subject=LABELS[model]))
    return tuple(panels)


ALSO = (MIGRATIONS, USE, BUSY, CPU)

# -- how well CPU use is known -------------------------------------------------

ERRORS = (0.0, 0.1, 0.2, 0.4)
_BY_ERROR = _cases(EASY, AMCBF, UNKNOWN)


def _with_error(
    series: str, x: float, seed: int, quick: bool
) -> RunConfiguration:
    case = _BY_ERROR[series]
    if case.policy == EASY:
        return nodes(case.model, EASY, seed, case.load, quick=quick)
    error = None if case.policy == UNKNOWN else x
    return nodes(
        case.model, AMCBF, seed, case.load, quick=quick, cpu_error=error
    )


CPU_ESTIMATE = Figure(
    name="cmbf-cpu-estimate",
    title="AMCBF with worse and worse estimates of CPU use",
    source="CMBF, Section 5.4, item 1",
    x_label="largest error of an estimate, share of a node",
    xs=ERRORS,
    series=tuple(_BY_ERROR),
    configuration=_with_error,
    panels=_panels(_BY_ERROR),
    styles=_styles(_BY_ERROR),
    also=ALSO,
    size=FULL,
    quick_size=QUICK,
)

# -- what a migration costs ----------------------------------------------------

COSTS_S = (0.0, 20.0, 120.0, 360.0, 600.0, 1200.0)
_COST = _cases(EASY, AMCBF)


def _cost(
    series: str, x: float, seed: int, quick: bool
) -> RunConfiguration:
    case = _COST[series]
    if case.policy == EASY:
        return nodes(case.model, EASY, seed, case.load, quick=quick)
    return nodes(
        case.model, AMCBF, seed, case.load, quick=quick, migration_cost_s=x
    )


MIGRATION_COST = Figure(
    name="cmbf-migration-cost",
    title="AMCBF where migrations are dear",
    source="CMBF, Section 5.4, item 2",
    x_label="cost of a migration [s]",
    xs=COSTS_S,
    series=tuple(_COST),
    configuration=_cost,
    panels=_panels(_COST),
    styles=_styles(_COST),
    also=ALSO,
    size=FULL,
    quick_size=QUICK,
)

# -- what is left of a node ----------------------------------------------------

MEANS = (0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


def _capacity(
    series: str, x: float, seed: int, quick: bool
) -> RunConfiguration:
    case = _COST[series]
    # A use that is uniform between 2x - 1 and 1 has the mean x; it is never
    # 0.
    low = max(1e-4, round(2 * x - 1, 6))
    return nodes(
        case.model, case.policy, seed, case.load, quick=quick, cpu_low=low
    )


CAPACITY = Figure(
    name="cmbf-capacity",
    title="AMCBF where processes leave less and less of their nodes",
    source="CMBF, Section 5.4, item 3",
    x_label="mean CPU use of a process of a parallel job",
    xs=MEANS,
    series=tuple(_COST),
    configuration=_capacity,
    panels=_panels(_COST),
    styles=_styles(_COST),
    also=ALSO,
    size=FULL,
    quick_size=QUICK,
)
