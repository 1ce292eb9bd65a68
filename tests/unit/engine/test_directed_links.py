"""Links with two capacities: reserving policies lose nothing, neither direction is overbooked.

Brute force and a data centre of the smaller capacities are the oracles: a hose takes as much of
both directions, so whatever fits one fits the other.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from testbed import events
from testbed.audit import audit
from testbed.embedding.base import embedder, embedder_names
from testbed.embedding.placement import Placement
from testbed.record.conclusion import conclude
from testbed.record.folder import RunFolder
from testbed.reservation.ledger import Ledger
from testbed.schedulers.policy import SharingModel
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment
from tests.unit.embedding.oracles import Case, brute_force
from tests.unit.engine.test_random_failures import played
from tests.unit.sim.test_proximate import rates_of
from topologies.custom import custom
from topologies.datacentre import DataCentre
from topologies.tree import tree

POLICIES = (
    *("vc", "dcloud", "dcloud-ts", "dcloud-bs", "fcfs", "sbf", "sdf"),
    *("bgmbf", "jsa", "simple-jsa", "edf", "oktopus-batch"),
)
UNLIKE = (
    "{up: 2 Gbit/s, down: 1.2 Gbit/s}, {up: 1 Gbit/s, down: 1.5 Gbit/s},"
    " {up: 700 Mbit/s, down: 1 Gbit/s}"
)
NARROW = "1.2 Gbit/s, 1 Gbit/s, 700 Mbit/s"


def text_of(policy: str, by: str, links: str) -> str:
    return f"""\
name: unlike
seed: 3
topology: {{kind: tree, fanout: [2, 2, 3], links: [{links}], slots_per_server: 4}}
embedder: {by}
policies: [{policy}]
workload: {{kind: poisson, per_hour: 40, hours: 2, deadline_ratio: {{mean: 3}},
  vms: {{mean: 9}}, bandwidth: {{mean: 200 Mbit/s}}, duration: {{mean: 20 min}}}}
"""


def decisions(history: Sequence[events.Event]) -> list[dict[str, Any]]:
    """Decisions alone, without the words, which name a link's direction."""
    decided = []
    for event in history[1:]:
        record = {"kind": event.name, **asdict(event)}
        record.pop("reason", None)
        decided.append(record)
    return decided


def load(path: Path, text: str) -> Experiment:
    path.write_text(text)
    return load_experiment(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "by"),
    [
        *((policy, "oktopus") for policy in POLICIES),
        *(("vc", name) for name in sorted(embedder_names())),
    ],
)
def test_reserving_policies_decide_as_by_the_smaller_capacities(
    tmp_path: Path, policy: str, by: str
) -> None:
    unlike = load(tmp_path / "unlike.yaml", text_of(policy, by, UNLIKE))
    narrow = load(tmp_path / "narrow.yaml", text_of(policy, by, NARROW))
    history = played(unlike)
    assert decisions(history) == decisions(played(narrow))
    kinds = Counter(event.name for event in history)
    assert kinds["job_started"] >= 10
    folder = written(tmp_path, unlike, history)
    assert findings(folder) == {}


def written(
    base: Path, experiment: Experiment, history: Sequence[events.Event]
) -> RunFolder:
    folder = RunFolder.create(base, "unlike", experiment.seed)
    with folder.open_events() as log:
        for event in history:
            log(event)
    folder.write_json(
        "spec.resolved.json",
        {**experiment.resolved, "policy": experiment.policies[0].label},
    )
    conclude(folder, wall_s=0.0)
    return folder


def findings(folder: RunFolder) -> dict[str, list[str]]:
    return {
        result.name: [str(found) for found in result.findings]
        for result in audit(folder.path).results
        if result.findings
    }


@pytest.mark.parametrize("key", ["capacity_bps", "capacity_down_bps"])
def test_the_audit_sees_a_direction_that_is_overbooked(
    tmp_path: Path, key: str
) -> None:
    experiment = load(
        tmp_path / "unlike.yaml", text_of("vc", "oktopus", UNLIKE)
    )
    history = played(experiment)
    booked = next(
        event
        for event in history
        if isinstance(event, events.JobReserved) and event.links
    )
    directed, bps = next(
        (link, bps)
        for link, bps in booked.links
        if link % 2 == (key == "capacity_down_bps")
    )
    # The link carried less in this direction than was reserved there.
    topology = copy.deepcopy(dict(history[0].topology))
    topology["links"][key][directed // 2] = bps - 1
    lying = [
        events.RunStarted(**{**asdict(history[0]), "topology": topology})
    ]
    lying += history[1:]
    folder = written(tmp_path, experiment, lying)
    name = experiment.datacentre.link_name(directed)
    found = findings(folder)
    assert any(
        f"on {name}, which carries {bps - 1} bit/s" in text
        for text in found["links"]
    )
    assert all(name in text for text in found["links"])


def test_tables_and_measures_have_each_directions_capacity(
    tmp_path: Path,
) -> None:
    experiment = load(
        tmp_path / "unlike.yaml", text_of("vc", "oktopus", UNLIKE)
    )
    folder = written(tmp_path, experiment, played(experiment))
    rows = (folder.path / "links.csv").read_text().splitlines()[1:]
    stated = {}
    for row in rows:
        _, _, directed, _, _, capacity = row.split(",")
        stated[int(directed)] = int(capacity)
    directed_bps = experiment.datacentre.directed_capacity_bps
    assert stated == {k: directed_bps[k] for k in stated}
    summary = json.loads((folder.path / "summary.json").read_text())
    narrow = load(tmp_path / "x.yaml", text_of("vc", "oktopus", NARROW))
    other = written(tmp_path, narrow, played(narrow))
    narrow_summary = json.loads((other.path / "summary.json").read_text())
    # As much is reserved of links that carry more in sum.
    ratio = (
        directed_bps.sum() / narrow.datacentre.directed_capacity_bps.sum()
    )
    assert narrow_summary["link_utilisation"] == pytest.approx(
        summary["link_utilisation"] * ratio
    )


# ------------------------------------------------------------------- all placements


def random_centre(rng: random.Random) -> DataCentre:
    """A small tree of even or uneven depth, each direction with its capacity."""

    def capacity() -> dict[str, int]:
        return {"up": rng.randint(1, 12), "down": rng.randint(1, 12)}

    if rng.random() < 0.5:
        fanout = rng.choice([[3], [2, 2], [1, 3], [2, 1, 2]])
        links = [capacity() for _ in fanout]
        slots = rng.randint(1, 3)
        return tree(fanout, links, slots)
    uppers = {"x": "top", "a": "x", "b": "x", "c": "top", "d": "x"}
    return custom(
        {
            "servers": [
                {"name": name, "slots": rng.randint(1, 3)}
                for name in "abcd"
            ],
            "switches": ["x", "top"],
            "links": [
                {"lower": lower, "upper": upper, "capacity": capacity()}
                for lower, upper in uppers.items()
            ],
        }
    )


@pytest.mark.parametrize("name", ["oktopus", "exact", "vmplace"])
@pytest.mark.parametrize("seed", range(12))
def test_tenants_are_placed_if_and_only_if_each_direction_has_room(
    name: str, seed: int
) -> None:
    """Tenants come and go; every placement of each is tried beside the others."""
    rng = random.Random(f"{name} {seed}")
    centre = random_centre(rng)
    ledger = Ledger(centre)
    outcomes: Counter[bool] = Counter()
    for serial in range(25):
        holdings = list(ledger.holdings())
        if holdings and rng.random() < 0.4:
            ledger.release(rng.choice(holdings), 0.0)
        free = ledger.residual(0.0, None)
        n_vms = rng.randint(1, 6)
        rate_bps = rng.randint(0, 5)
        answer = embedder(name).embed(centre, free, n_vms, rate_bps)
        fits = isinstance(answer, Placement)
        outcomes[fits] += 1
        case = Case(centre, free, n_vms, rate_bps)
        assert fits == (brute_force(case) is not None)
        if isinstance(answer, Placement):
            ledger.reserve(f"j{serial}", answer, rate_bps, 0.0, None)
        ledger.check()
        within_capacity(ledger)
    assert min(outcomes.values()) > 0


def within_capacity(ledger: Ledger) -> None:
    """Sums of what crosses each direction, VM by VM, against the capacities."""
    centre = ledger.datacentre
    (only,) = centre.trees
    carried = [0] * (2 * centre.n_links)
    for held in ledger.holdings().values():
        below: Counter[int] = Counter()
        for server, count in held.placement.vms_on:
            for node in only.path_to_root(server)[:-1]:
                below[int(only.uplink[node])] += count
        n_vms = held.placement.n_vms
        for link, x in below.items():
            # Those below send to those above, and the other way round.
            carried[2 * link] += min(x, n_vms - x) * held.rate_bps
            carried[2 * link + 1] += min(n_vms - x, x) * held.rate_bps
    free = ledger.residual(0.0, None).free_bps
    used = centre.directed_capacity_bps - free
    assert used.tolist() == carried
    assert free.min(initial=0) >= 0


# ------------------------------------------------------------------- without guarantees


def test_flows_without_guarantees_have_each_direction_as_it_is() -> None:
    sharing = SharingModel("slowest")
    placed = {"a": ((0, 1), (1, 1))}
    for up, down, rate in ((10, 20, 10), (20, 10, 10), (10, 10, 10)):
        centre = tree([2], {"up": up, "down": down}, 1)
        assert rates_of(centre, placed, sharing)["a"] == pytest.approx(rate)
    # Two senders to one receiver: its link downward has room for both.
    centre = custom(
        {
            "servers": [{"name": s, "slots": 1} for s in "abc"],
            "switches": ["x"],
            "links": [
                {"lower": "a", "upper": "x", "capacity": 10},
                {"lower": "b", "upper": "x", "capacity": 10},
                {
                    "lower": "c",
                    "upper": "x",
                    "capacity": {"up": 10, "down": 20},
                },
            ],
        }
    )
    pairs = {"a": ((0, 1), (2, 1)), "b": ((1, 1), (2, 1))}
    # Upward c's link is shared by both, downward it is not the limit.
    found = rates_of(centre, pairs, sharing)
    assert found == pytest.approx({"a": 5, "b": 5})
    wide = centre.with_capacity(2, 20, 20)
    assert rates_of(wide, pairs, sharing) == pytest.approx(
        {"a": 10, "b": 10}
    )
