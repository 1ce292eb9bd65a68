"""Links with a capacity in each direction, from the file to the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.audit.declared_topology import topology_faults
from testbed.audit.history import Topology
from testbed.cli.main import run as command
from testbed.record.topology_record import topology_record
from testbed.spec.experiment_file import parse_experiment
from tests.support.schema import schema_validator
from topologies.flat import flat

MBIT = 10**6
JOBS = """
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""
TREE = "kind: tree, fanout: [2, 3], slots_per_server: 1"
TWO = "{up: 50 Mbit/s, down: 100 Mbit/s}"
CUSTOM = f"""kind: custom, servers: [{{name: a, slots: 2}}], switches: [r],
  links: [{{lower: a, upper: r, capacity: {TWO}}}]"""
FAT_TREE = "kind: fat-tree, k: 4, slots_per_server: 1"
SECTIONS = {
    "one for all levels": (f"{TREE}, links: {TWO}", {(50, 100)}),
    "by level": (
        f"{TREE}, links: [{TWO}, 1 Gbit/s]",
        {(50, 100), (1000, 1000)},
    ),
    "by ratios": (
        f"{TREE}, links: {TWO}, oversubscription: [2]",
        {(50, 100), (75, 150)},
    ),
    "fat-tree": (f"{FAT_TREE}, links: {TWO}", {(50, 100)}),
    "pooled": (
        f"{FAT_TREE}, network: pooled, links: [{TWO}, {TWO}, 1 Gbit/s]",
        {(100, 200), (200, 400), (1000, 1000)},
    ),
    "custom": (CUSTOM, {(50, 100)}),
}
every_section = pytest.mark.parametrize(
    ("section", "capacities"), SECTIONS.values(), ids=SECTIONS
)


def text_of(section: str) -> str:
    return f"topology: {{{section}}}{JOBS}"


@every_section
def test_each_direction_has_its_capacity(
    section: str, capacities: set[tuple[int, int]]
) -> None:
    text = text_of(section)
    centre = parse_experiment(text, Path("x.yaml")).datacentre
    both = (centre.directed_capacity_bps.reshape(-1, 2) // MBIT).tolist()
    assert {(up, down) for up, down in both} == capacities
    validator = schema_validator()
    assert validator.is_valid(yaml.safe_load(text))


@every_section
def test_the_audit_knows_both_directions(
    section: str, capacities: set[tuple[int, int]]
) -> None:
    experiment = parse_experiment(text_of(section), Path("x.yaml"))
    declared = json.loads(json.dumps(experiment.resolved["topology"]))
    record: dict[str, Any] = topology_record(experiment.datacentre)
    run = Topology(record)
    assert list(topology_faults(declared, run)) == []
    assert run.problems() == []
    for key in ("capacity_bps", "capacity_down_bps"):
        bps = list(record["links"][key])
        bps[-1] += 1
        links = {**record["links"], key: bps}
        faults = list(
            topology_faults(declared, Topology({**record, "links": links}))
        )
        assert len(faults) == 1
        assert faults[0].startswith(f"topology: links[{len(bps) - 1}] is")
        short = {**record["links"], key: bps[:-1]}
        assert Topology({**record, "links": short}).problems() == [
            "the links' arrays differ in length"
        ]


def test_a_damaged_topology_of_any_size_is_a_finding() -> None:
    record = topology_record(flat(1, 1))
    declared = {
        "kind": "fat-tree",
        "k": 1e200,
        "network": "x",
        "link_bps": [],
    }
    assert list(topology_faults(declared, Topology(record))) == [
        "topology is not that of the run"
    ]


def test_equal_capacities_are_one() -> None:
    section = f"{TREE}, links: {{up: 1 Gbit/s, down: 1000 Mbit/s}}"
    experiment = parse_experiment(text_of(section), Path("x.yaml"))
    plain = parse_experiment(
        text_of(f"{TREE}, links: 1 Gbit/s"), Path("x.yaml")
    )
    assert experiment.resolved["topology"] == plain.resolved["topology"]
    record = topology_record(experiment.datacentre)
    assert record == topology_record(plain.datacentre)
    assert "capacity_down_bps" not in record["links"]


def test_validate_names_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text_of(f"{TREE}, links: [{TWO}, 1 Gbit/s]"))
    assert command(["validate", str(file)]) == 0
    summary = "8 links of 50 Mbit/s up, 100 Mbit/s down and 1 Gbit/s;"
    assert summary in capsys.readouterr().out


@pytest.mark.parametrize("value", ["{up: 1 Gbit/s}", "{down: 5}", "[]"])
def test_the_schema_refuses_what_the_file_may_not_have(value: str) -> None:
    text = text_of(
        CUSTOM.replace(TWO, value)
        if value != "[]"
        else f"{TREE}, links: [{value}]"
    )
    validator = schema_validator()
    assert not validator.is_valid(yaml.safe_load(text))
