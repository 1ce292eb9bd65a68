"""One interpretation a paper: the same for all its series, figures and both backends."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from reproductions.catalogue import FIGURES, LIVE_FIGURES, PAPERS, paper_of
from reproductions.configuration import Variant
from reproductions.interpretations import (
    ABOUT,
    AS_JUDGED,
    INTERPRETATIONS,
    LIVE_ONLY,
    OTHERWISE,
    SENSITIVITY,
    Interpretation,
)
from reproductions.jsa.jsa_optimality import OptimalityCases
from reproductions.stored_results import sections
from tests.support.played_settings import (
    Point,
    changed,
    compared_keys,
    completed,
    contradictions,
    differences,
    document_of,
    needless,
    played_by,
    points_of,
    points_of_paper,
    runs,
    settings_of,
    stated,
)

SERIES_ARE_WORKLOADS = (
    "cmbf-cpu-estimate",
    "cmbf-migration-cost",
    "cmbf-capacity",
    "cmbf-waiting",
)


@pytest.mark.parametrize("name", sorted(sections()))
def test_the_series_of_a_figure_meet_one_workload_on_one_scale(
    name: str,
) -> None:
    if name in (*SENSITIVITY, *SERIES_ARE_WORKLOADS):
        pytest.skip("its series are workloads")
    met: dict[object, Any] = {}
    for _, x, run in runs(sections()[name]):
        for played in played_by(run):
            if played.variant is None:
                continue
            document = document_of(played.variant)
            values = [
                document.get(key)
                for key in ("workload", "scale", "topology", "embedder")
            ]
            if name.startswith("adaba"):
                # Its series are embedders.
                values.pop()
            key = (x, document["workload"].get("path"))
            assert met.setdefault(key, values) == values


# -- every setting of every point ----------------------------------------------


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_s_figures_differ_in_nothing_but_what_is_listed(
    paper: str,
) -> None:
    assert differences(points_of_paper(paper)) == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_point_is_as_the_interpretation_states(paper: str) -> None:
    assert contradictions(paper, points_of_paper(paper)) == []


@pytest.mark.parametrize("paper", PAPERS)
def test_nothing_is_listed_that_is_as_everywhere(paper: str) -> None:
    assert needless(points_of_paper(paper)) == []


@pytest.mark.parametrize("name", sorted(sections()))
def test_something_of_every_figure_is_compared_at_every_point(
    name: str,
) -> None:
    figure = sections()[name]
    reached = {(point.series, point.x) for point in points_of(name)}
    expected = set(figure.points)
    if name in SENSITIVITY:
        judged = AS_JUDGED[name]
        expected = {point for point in expected if point[0] in judged}
    assert _compared(name)
    assert expected
    assert reached == expected


@cache
def _compared(name: str) -> list[str]:
    paper = paper_of(sections()[name])
    known = stated(paper, INTERPRETATIONS[paper])
    return compared_keys(name, points_of_paper(paper), list(known))


@pytest.mark.parametrize("paper", PAPERS)
def test_simulated_and_live_figures_are_compared_in_network_workload_and_policies(
    paper: str,
) -> None:
    for live in (False, True):
        wanted = {"topology", "workload", "policies"}
        if live and paper == "cmbf":
            # Two worked examples and one node: nothing is drawn.
            wanted.remove("workload")
        keys: set[str] = set()
        for point in points_of_paper(paper):
            if point.figure.endswith("-live") == live:
                keys.update(_compared(point.figure))
        assert _sections_of(keys) >= wanted


def _sections_of(keys: set[str]) -> set[str]:
    return {key.split(".")[0] for key in keys}


# -- and these tests fail where something is otherwise ---------------------------


@pytest.mark.parametrize("name", sorted(sections()))
def test_a_figure_with_another_value_of_any_compared_setting_is_found(
    name: str,
) -> None:
    keys = _compared(name)
    paper = paper_of(sections()[name])
    points = [
        _otherwise(point, keys) if point.figure == name else point
        for point in points_of_paper(paper)
    ]
    lines = [*differences(points), *contradictions(paper, points)]
    assert set(keys) <= {line.split(": ")[0] for line in lines}


def _otherwise(point: Point, keys: list[str]) -> Point:
    other = {key: "otherwise" for key in keys if key in point.settings}
    return replace(point, settings={**point.settings, **other})


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("dcloud-fig4", "topology.links", "10 Gbit/s"),
        ("dcloud-fig6", "workload.vms", "{mean: 120, sigma: 10}"),
        ("dcloud-fig7", "workload.pattern", "ring"),
        ("dcloud-fig8", "topology.oversubscription", "[1, 8]"),
        ("dcloud-fig9", "workload.reading", "literal"),
        ("dcloud-charging", "topology.oversubscription", "[1, 1]"),
        ("dcloud-fig10-live", "enforcement", "work-conserving"),
        ("dcloud-fig11-live", "workload.duration.sigma", "16 min"),
        ("jsa-fig4b", "workload.bandwidth", "100 Mbit/s"),
        ("jsa-fig4c", "workload.volume", "fixed"),
        ("jsa-fig5a-live", "workload.least_bandwidth", "1 Mbit/s"),
        ("jsa-fig5d-live", "workload.pattern", "all-to-all"),
        ("jsa-interpretations", "workload.spacing", "20 s"),
        ("adaba-fig4", "topology.network", "tree"),
        ("adaba-fig5", "workload.bandwidth.max_b_cap", "none"),
        ("bgmbf-fig6", "embedder", "greedy"),
        ("bgmbf-fig8", "topology.slots_per_server", "4"),
        ("adaba-fig4-live", "workload.bandwidth.sigma", "10 %"),
        ("bgmbf-kth-live", "workload.zero_run_time", "skip"),
        ("cmbf-fig3", "workload.cpu.low", "20 %"),
        ("cmbf-fig4", "topology.nodes", "100"),
        ("cmbf-fig1-live", "topology.slots_per_server", "2"),
        ("mbfcbs-fig8", "topology.memory_per_server", "1 GiB"),
        ("mbfcbs-fig6", "workload.mix", "equal"),
        ("mbfcbs-leases-live", "workload.shortest", "15 min"),
    ],
)
def test_a_figure_that_plays_another_setting_is_found(
    name: str, key: str, value: str
) -> None:
    lines = _with(name, changed(name, ((key, value),)))
    assert any(line.startswith(key) for line in lines), lines


def _with(name: str, points: tuple[Point, ...]) -> list[str]:
    """The objections where a figure's points are these."""
    paper = paper_of(sections()[name])
    others = [
        point for point in points_of_paper(paper) if point.figure != name
    ]
    every = completed([*others, *points])
    return [*differences(every), *contradictions(paper, every)]


def test_an_optimum_compared_with_another_queue_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The paper's points are kept for later tests: never those of the patch.
    points_of_paper("jsa")
    with monkeypatch.context() as patched:
        patched.setattr(
            OptimalityCases, "entry", "{name: edf, queue: block}"
        )
        points = changed("jsa-optimality", ())
    lines = _with("jsa-optimality", points)
    assert any(line.startswith("policies.edf.queue") for line in lines)


def _replaced(
    interpretation: Interpretation, part: str, key: str, value: str
) -> Interpretation:
    """An interpretation with a value in place of its own; ``policies`` and
    ``by_default`` have keys such as ``bl.coupling``.
    """
    values = {**getattr(interpretation, part)}
    if part in ("policies", "by_default"):
        policy, parameter = key.split(".")
        values[policy] = {**values[policy], parameter: value}
    else:
        values[key] = value
    return replace(interpretation, **{part: values})


@pytest.mark.parametrize(
    ("paper", "part", "key", "value"),
    [
        ("dcloud", "workload", "reading", "literal"),
        ("dcloud", "workload", "pattern", "all-to-all"),
        ("dcloud", "policies", "bl.coupling", "lockstep"),
        ("dcloud", "policies", "dcloud.gamma", "0.0"),
        ("dcloud", "by_default", "bl.allocation", "even"),
        ("dcloud", "in_files", "topology.oversubscription", "[1, 8]"),
        ("dcloud", "in_files", "enforcement", "none"),
        (
            "dcloud",
            "in_files",
            "workload.duration",
            "{mean: 1 h, sigma: 0 s}",
        ),
        ("jsa", "workload", "bandwidth", "100 Mbit/s"),
        ("jsa", "workload", "least_bandwidth", "1 Mbit/s"),
        ("jsa", "policies", "edf.queue", "block"),
        ("jsa", "policies", "oktopus-batch.late", "run"),
        ("jsa", "in_files", "workload.speedup", "[0, 0.1]"),
        ("jsa", "in_files", "workload.volume", "fixed"),
        ("adaba", "in_files", "topology.network", "tree"),
        ("adaba", "in_files", "topology.links", "10 Gbit/s"),
        ("adaba", "in_files", "embedder", "greedy"),
        ("adaba", "in_files", "workload.bandwidth.max_b_cap", "none"),
        ("adaba", "in_files", "workload.bandwidth.sigma", "10 %"),
        ("adaba", "in_files", "workload.load", "0.8"),
        ("adaba", "by_default", "sbf.skip", "true"),
        ("adaba", "by_default", "bgmbf.evict", "needed"),
        ("adaba", "policies", "bgmbf.migration_cost", "20 s"),
        ("cmbf", "policies", "ambf.migration_cost", "0 s"),
        ("cmbf", "by_default", "cmcbf.cpu", "unknown"),
        ("cmbf", "in_files", "embedder", "oktopus"),
        ("cmbf", "in_files", "workload.cpu.low", "20 %"),
        ("mbfcbs", "by_default", "priority.criterion", "work"),
        ("mbfcbs", "in_files", "workload.shortest", "15 min"),
    ],
)
def test_another_interpretation_is_found(
    paper: str, part: str, key: str, value: str
) -> None:
    other = _replaced(INTERPRETATIONS[paper], part, key, value)
    name = key.rsplit(".", maxsplit=1)[-1]
    lines = contradictions(paper, points_of_paper(paper), other)
    assert len(lines) == 1
    assert name in lines[0].split(": ")[0]


# -- the lists -------------------------------------------------------------------


def test_one_network_is_one_however_its_links_are_written() -> None:
    variant = Variant("jsa/jsa-fig5.yaml", "jsa")
    written = settings_of(document_of(variant), "jsa")
    short = replace(
        variant,
        settings=(
            ("topology.links", "1 Gbit/s"),
            ("topology.oversubscription", "[5, 5]"),
        ),
    )
    assert settings_of(document_of(short), "jsa") == written


def test_what_is_otherwise_is_named_among_the_figures() -> None:
    assert set(SENSITIVITY) <= set(FIGURES)
    assert set(AS_JUDGED) == set(SENSITIVITY)
    for name, judged in AS_JUDGED.items():
        assert set(judged) <= set(FIGURES[name].series)
    assert set(ABOUT) <= set(sections())
    for other in (*OTHERWISE, *LIVE_ONLY):
        assert set(other.figures) <= set(sections())
        assert other.reason
    live = {
        name.removesuffix("-live")
        for other in LIVE_ONLY
        for name in other.figures
    }
    assert live <= set(LIVE_FIGURES)
    for name in SENSITIVITY:
        for claim in FIGURES[name].claims:
            assert claim.status == "own check"


def test_jobs_of_a_fixed_volume_are_a_row_of_jsa_s_sensitivity_figure() -> (
    None
):
    figure = FIGURES["jsa-interpretations"]
    rows = [series for series in figure.series if "p·b/b'" in series]
    assert len(rows) == 4
    for series in rows:
        run = figure.configuration(series, 50.0, 1, True)  # noqa: FBT003
        for played in played_by(run):
            assert played.variant is not None
            document = document_of(played.variant)
            assert document["workload"]["volume"] == "fixed"
