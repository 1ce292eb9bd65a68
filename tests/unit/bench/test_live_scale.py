"""Computations of the live benchmarks: parts, the highest load, time left, verdicts, fits."""

from __future__ import annotations

import argparse
import json
from math import nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import live_scale, switch_pass
from bench.live_cost import Cost, CostSampler, shares
from bench.live_network import weight_for
from bench.live_scale import SIZES, Played, highest
from bench.progress import Step, time_left_s
from bench.switch_pass import Pass, fit, idle_plan
from testbed import events
from testbed.cli.main import run
from testbed.plan.network_plan import network_plan
from testbed.plan.switch_parts import switch_parts
from topologies.fat_tree import fat_tree


@pytest.mark.parametrize("k", [4, 6])
@pytest.mark.parametrize("n_parts", [1, 2, 3, 4])
def test_a_network_is_shared_out_into_as_many_parts_as_asked_for(
    k: int, n_parts: int
) -> None:
    plan = network_plan(fat_tree(k, 1_000_000_000, 2))
    assert len(switch_parts(plan, weight_for(plan, n_parts))) == n_parts


@given(st.floats(0.1, 1000.0), st.floats(0.25, 4.0))
def test_the_highest_load_lies_between_a_good_and_a_bad_one(
    limit: float, first: float
) -> None:
    asked: list[float] = []

    def passes(rate: float) -> bool:
        asked.append(rate)
        return rate <= limit

    good, bad = highest(first, 128.0, passes)
    assert good <= limit
    if bad is None:
        assert 2 * good > 128.0
    else:
        assert bad > limit
        assert bad == first / 8 if good == 0.0 else bad <= 1.5 * good
    assert len(asked) == len(set(asked))
    assert {good, bad} - {0.0, None} <= set(asked)


def test_time_left_follows_the_pace_so_far() -> None:
    steps = [Step("a", 10.0), Step("b", 30.0), Step("c", 20.0)]
    assert time_left_s(steps, 0, 3.0) == 60.0
    assert time_left_s(steps, 1, 20.0) == 100.0
    assert time_left_s(steps, 3, 99.0) == 0.0


@pytest.mark.parametrize(
    ("ratios", "verdict", "meets"),
    [
        ([1.001] * 14, "ok", True),
        ([1.001] * 14, "suspect", False),
        ([1.001] * 13, "ok", False),  # one did not finish
        ([1.011] * 14, "ok", False),  # exact to 2 %, its median not to 1 %
        ([1.001] * 13 + [1.021], "ok", False),
        ([0.989] * 14, "ok", False),
        ([], "failed", False),
    ],
)
def test_exact_means_near_in_median_and_at_the_edge_and_ok(
    ratios: list[float], verdict: str, *, meets: bool
) -> None:
    played = Played(1.0, tuple(ratios), verdict=verdict)
    assert live_scale._exactness("x", SIZES[8], played).meets is meets


def test_cost_that_nobody_sampled_is_a_missed_target() -> None:
    rows = live_scale._costs("x", SIZES[8], Cost())
    assert [row.meets for row in rows if row.target] == [False, False]


def test_cost_beyond_its_targets_is_missed() -> None:
    cores = {"testbed": [0.04, 0.06, 0.07], "switches": [1.0, 1.0, 1.0]}
    rows = live_scale._costs(
        "x", SIZES[8], Cost(cores, {"agents": 2}, [3_900_000, 4_100_000])
    )
    assert {row.name: row.meets for row in rows} == {
        "testbed, x": False, "switches, x": None, "an agent's memory (PSS), x": False,
    }  # fmt: skip
    good = Cost({"testbed": [0.04, 0.05, 0.07]}, {}, [3_900_000])
    assert [
        row.meets for row in live_scale._costs("x", SIZES[8], good)
    ] == [
        True,
        True,
    ]


def test_only_processes_of_both_samples_count() -> None:
    assert shares([1, 2, 3], {1: 1.0, 2: 5.0}, {1: 1.5, 3: 9.0}) == [0.5]


def test_nothing_is_sampled_before_all_jobs_run() -> None:
    with CostSampler(2, 1) as sampler:
        sampler(events.JobStarted(0.0, "a", 1))
    assert sampler.cost == Cost()


@pytest.mark.parametrize(
    "given",
    ["--only round", "--k 5", "--parts half", "--only exact,", "--k 4;6"],
)
def test_a_wrong_choice_is_a_usage_error(given: str) -> None:
    parser = argparse.ArgumentParser()
    live_scale.add_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(given.split())


def test_choices_are_lists() -> None:
    parser = argparse.ArgumentParser()
    live_scale.add_options(parser)
    chosen = parser.parse_args(
        ["--only", "exact,cost", "--k", "8", "--parts", "planned,2"]
    )
    assert (chosen.only, chosen.k, chosen.parts) == (
        ("exact", "cost"),
        (8,),
        (None, 2),
    )


@pytest.mark.slow
@given(st.floats(1.0, 50.0), st.floats(1.0, 200.0), st.floats(100.0, 900.0))
def test_the_fit_finds_what_a_port_and_a_bridge_add(
    port: float, bridge: float, alone: float
) -> None:
    taken = [
        Pass(
            b,
            p,
            (1.0,),
            (alone + b * p * port + b * bridge) / 1e3,
            0.0,
            5 + b,
            nan,
            nan,
            nan,
        )
        for b, p in switch_pass.CASES
    ]
    rows = {row.name: row.samples[0] for row in fit(taken)}
    assert rows["a ping, without idle bridges"] == pytest.approx(
        alone, abs=1e-3
    )
    assert rows["a port adds to a ping"] == pytest.approx(port, abs=1e-3)
    assert rows["a bridge adds to a ping"] == pytest.approx(
        bridge, abs=1e-3
    )
    assert rows["a bridge adds to the memory"] == pytest.approx(1.0)


@pytest.mark.parametrize(("bridges", "ports"), switch_pass.CASES)
def test_idle_bridges_have_as_many_ports_as_asked_for(
    bridges: int, ports: int
) -> None:
    plan = idle_plan(bridges, ports)
    counts = [
        len(plan.ports_of_bridge[bridge.name]) for bridge in plan.bridges
    ]
    assert counts == [2, 2, *([ports] * bridges), 1]
    names = [port.name for port in plan.ports]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 15


@pytest.mark.short("6-3")
@pytest.mark.slow
@pytest.mark.parametrize(("k", "expected"), [(4, 3), (6, 3), (8, 6)])
def test_crossing_jobs_have_vms_in_several_pods(
    k: int, expected: int, tmp_path: Path
) -> None:
    file = tmp_path / "crossing.yaml"
    text = live_scale.experiment_text(SIZES[k].crossing, 1.0, 30.0)
    file.write_text(text)
    assert run(["simulate", str(file), "--out", f"{tmp_path}/runs"]) == 0
    (lines,) = tmp_path.glob("runs/*/events.jsonl")
    servers_per_pod = k * k // 4
    crossing = 0
    for line in lines.read_text().splitlines():
        record = json.loads(line)
        assert record.get("outcome") != "rejected"
        if record["event"] == "job_reserved":
            pods = {
                server // servers_per_pod for server, _ in record["vms_on"]
            }
            crossing += len(pods) > 1
    assert crossing == expected
