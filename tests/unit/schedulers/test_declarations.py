"""Policies are known by their own declarations: a new module is enough."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import testbed.schedulers
from testbed.errors import BadInput
from testbed.play.playing import begin_folder
from testbed.record.folder import RESOLVED, RunFolder
from testbed.schedulers.policy import CLAIMS, Parameter, PolicyKind
from testbed.schedulers.registry import (
    by_name,
    known_policies,
    own_policies,
    policy_kind,
)
from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import parse_experiment
from testbed.spec.json_schema import experiment_schema

MODULE = """
from dataclasses import dataclass
from testbed.schedulers.policy import PolicyKind, parameter
from testbed.schedulers.vc import VirtualCluster

@dataclass(frozen=True)
class PatientParameters:
    depth: int = parameter(3, "jobs behind the head that are tried", limits=(1, 100))
    patience_s: float = parameter(60.0, "time until it gives up", unit="s")

class Patient(VirtualCluster):
    def __init__(self, embedder, given):
        super().__init__(embedder)
        self.name, self.given = "patient", given

POLICIES = (
    PolicyKind("patient", "fcfs with patience", Patient, PatientParameters, embeds=True,
               claims=lambda given: ("no-preemption",) if given.depth == 3 else ()),
)
"""

FILE = """
name: patience
topology: {{kind: tree, fanout: [2, 2], links: [1 Gbit/s, 1 Gbit/s], slots_per_server: 2}}
policies: [{policy}]
workload:
  kind: jobs
  jobs: [{{id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 6 s}}]
"""


@pytest.fixture
def patient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    (tmp_path / "patient.py").write_text(MODULE, encoding="utf-8")
    path = [*testbed.schedulers.__path__, str(tmp_path)]
    monkeypatch.setattr(testbed.schedulers, "__path__", path)
    own_policies.cache_clear()
    yield
    own_policies.cache_clear()
    sys.modules.pop("testbed.schedulers.patient", None)


@pytest.mark.usefixtures("patient")
def test_a_new_module_makes_its_policy_known_to_files_and_messages() -> (
    None
):
    experiment = parse_experiment(
        FILE.format(policy="{name: patient, depth: 7, patience: 2 min}"),
        Path("p.yaml"),
    )
    policy = experiment.policies[0]
    assert policy.label == "patient-depth=7-patience=120.0"
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(
            FILE.format(policy="{name: patient, depth: 700, patients: 1}"),
            Path("p"),
        )
    assert [problem.message for problem in caught.value.problems] == [
        "must lie between 1 and 100, not at 700",
        "is no parameter of patient (did you mean 'patience'?)",
    ]
    with pytest.raises(
        BadInput, match=r"known are .*oktopus-batch, patient, priority"
    ):
        policy_kind("patent")


@pytest.mark.usefixtures("patient")
def test_it_is_in_the_schema_with_its_help() -> None:
    entries = experiment_schema()["properties"]["policies"]["items"][
        "anyOf"
    ]
    assert "patient" in entries[0]["enum"]
    own = next(
        e
        for e in entries[1:]
        if e["properties"]["name"] == {"const": "patient"}
    )
    assert own["description"] == "fcfs with patience"
    assert own["properties"]["depth"] == {
        "description": "jobs behind the head that are tried",
        "default": 3,
    }


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("depth", "claims"), [(3, ["no-preemption"]), (4, [])]
)
def test_its_claims_are_in_the_run_folder(
    depth: int, claims: list[str], tmp_path: Path
) -> None:
    experiment = parse_experiment(
        FILE.format(policy=f"{{name: patient, depth: {depth}}}"),
        Path("p.yaml"),
    )
    folder = RunFolder(tmp_path)
    begin_folder(
        folder,
        experiment,
        experiment.policies[0],
        backend="simulated",
        command=[],
        facts={},
    )
    assert json.loads((tmp_path / RESOLVED).read_text())["claims"] == claims


def test_two_policies_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two policies are called 'vc'"):
        by_name([policy_kind("vc"), policy_kind("vc")])


@pytest.mark.parametrize(
    "kind", known_policies().values(), ids=lambda kind: kind.name
)
def test_every_policy_declares_known_claims_and_explains_its_keys(
    kind: PolicyKind,
) -> None:
    choices: list[dict[str, object]] = [{}]
    for key, takes in kind.takes.items():
        assert takes.help
        # The embedder's default is the experiment's.
        if key != "embedder":
            assert takes.objection(takes.default) is None
        choices += [{key: choice} for choice in takes.choices]
    for values in choices:
        assert set(kind.claims_of(values)) <= set(CLAIMS)


def test_easy_claims_what_its_estimates_allow() -> None:
    kind = policy_kind("easy")
    assert kind.claims_of({}) == (
        "head-not-delayed",
        "no-preemption",
        "no-starvation-without-bandwidth",
    )
    stated = kind.claims_of({"estimates": "user"})
    assert stated == ("head-not-delayed-by-user-estimates", "no-preemption")


def test_a_parameter_s_unit_is_in_its_field_and_not_in_its_key() -> None:
    takes = policy_kind("mbfcbs").takes
    assert list(takes) == ["preemption", "earliest", "slot", "depth"]
    assert takes["slot"] == Parameter(
        "slot",
        600.0,
        "α, the calendar's bucket",
        "s",
        (),
        (1.0, 1_000_000.0),
    )


def test_best_effort_policies_name_the_network_that_they_assume() -> None:
    assert policy_kind("ps-p").sharing_of({}).weights == "proximate"
    assert (
        policy_kind("ps-p")
        .sharing_of({"coupling": "slowest"})
        .flow_dependency
        == "slowest"
    )
    assert policy_kind("bl").sharing_of({}).flow_dependency == "slowest"
    assert "coupling" not in policy_kind("vc").takes
