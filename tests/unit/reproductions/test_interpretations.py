"""One interpretation a paper: the same for all its series, figures and both backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from reproductions.catalogue import FIGURES, LIVE_FIGURES, PAPERS, paper_of
from reproductions.configuration import (
    RunConfiguration,
    Together,
    Variant,
)
from reproductions.interpretations import (
    INTERPRETATIONS,
    LIVE_ONLY,
    SENSITIVITY,
)
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import AnyFigure, Figure
from reproductions.stored_results import sections

SWEPT = {
    "dcloud-fig4": "gamma",
    "dcloud-profiles": "gamma",
    "cmbf-cpu-estimate": "cpu",
    "cmbf-migration-cost": "migration_cost",
}
"""Parameters of policies that a figure is about."""
SERIES_ARE_WORKLOADS = (
    "cmbf-cpu-estimate",
    "cmbf-migration-cost",
    "cmbf-capacity",
)


def of_paper(paper: str) -> list[AnyFigure]:
    return [
        figure
        for name, figure in sections().items()
        if paper_of(figure) == paper and name not in SENSITIVITY
    ]


def variants(figure: AnyFigure) -> Iterator[tuple[str, float, Variant]]:
    """The variants played for each point, with the series and the x."""
    for series, x in figure.points:
        if isinstance(figure, LiveFigure):
            yield series, x, figure.variant(series, x, False)  # noqa: FBT003
        elif isinstance(figure, Figure):
            run = figure.configuration(series, x, 1, False)  # noqa: FBT003
            for single in parts(run):
                yield series, x, single.variant


def parts(run: object) -> list[RunConfiguration]:
    if isinstance(run, Together):
        return [part for _, part in run.parts]
    if isinstance(run, RunConfiguration):
        return [run]
    return []


WRITTEN = ("jobs",)
"""Kinds of workloads that draw no requests."""


def played(variant: Variant) -> dict[str, Any]:
    """The experiment file with the variant's settings in place of its own."""
    document: dict[str, Any] = yaml.safe_load(
        variant.path.read_text("utf-8")
    )
    for key, value in variant.settings:
        at = document
        *above, last = key.replace("[", ".").replace("]", "").split(".")
        for name in above:
            at = at[int(name)] if isinstance(at, list) else at[name]
        at[last] = yaml.safe_load(value)
    return document


@pytest.mark.parametrize("name", sorted(sections()))
def test_the_series_of_a_figure_meet_one_workload_on_one_scale(
    name: str,
) -> None:
    if name in (*SENSITIVITY, *SERIES_ARE_WORKLOADS):
        pytest.skip("its series are workloads")
    met: dict[object, Any] = {}
    for _, x, variant in variants(sections()[name]):
        document = played(variant)
        found = [
            document.get(key)
            for key in ("workload", "scale", "topology", "embedder")
        ]
        if name.startswith("adaba"):
            # Its series are embedders.
            found.pop()
        key = (x, document["workload"].get("path"))
        assert met.setdefault(key, found) == found


@pytest.mark.parametrize("paper", PAPERS)
def test_a_policy_has_the_same_parameters_in_every_figure(
    paper: str,
) -> None:
    stated = INTERPRETATIONS[paper].policies
    for figure in of_paper(paper):
        for _, _, variant in variants(figure):
            entry = yaml.safe_load(variant.policy)
            if not isinstance(entry, dict):
                assert entry not in stated, (figure.section, entry)
                continue
            for key, value in stated.get(entry["name"], {}).items():
                forced = (
                    key == "migration_cost" and figure.section in LIVE_ONLY
                )
                if SWEPT.get(figure.section) != key and not forced:
                    assert str(entry[key]) == value, figure.section


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["dcloud", "jsa"])
def test_workloads_are_those_of_the_interpretation(paper: str) -> None:
    stated = INTERPRETATIONS[paper].workload
    for figure in of_paper(paper):
        for _, _, variant in variants(figure):
            workload = played(variant)["workload"]
            if workload["kind"] in WRITTEN:
                continue
            for key, value in stated.items():
                assert workload[key] == value, (figure.section, key)


@pytest.mark.slow
def test_dcloud_s_requests_have_the_deviations_of_g_but_where_nothing_is_drawn() -> (
    None
):
    for figure in of_paper("dcloud"):
        for _, x, variant in variants(figure):
            workload = played(variant)["workload"]
            if workload["kind"] in WRITTEN:
                continue
            for name in ("vms", "bandwidth", "duration", "deadline_ratio"):
                allowed = {"mean"}
                if figure.section == "dcloud-fig5" and x == 1.0:
                    # r = 1 leaves no job room.
                    allowed |= {"sigma"}
                    assert workload["deadline_ratio"]["sigma"] == 0
                assert set(workload[name]) <= allowed, figure.section


def test_what_is_otherwise_is_named_among_the_figures() -> None:
    assert set(SENSITIVITY) <= set(FIGURES)
    live = {name.removesuffix("-live") for name in LIVE_ONLY}
    assert live <= set(LIVE_FIGURES)
    for name in SENSITIVITY:
        for claim in FIGURES[name].claims:
            assert claim.status == "own check"
