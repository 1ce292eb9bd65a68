"""Good files: the values they become, defaults, sweeps, overrides, and files that they name."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jobs.demand import Compute, DemandCurve, Iperf3, Program
from jobs.request import JobRequest
from testbed.expectations import ApplicationExpectation, Band, Expectation
from testbed.spec.document import SpecErrors, find_file, search_path
from testbed.spec.experiment import Experiment, PolicySpec, Scale
from testbed.spec.experiment_file import load_experiment, parse_experiment
from tests.unit.workload.traces import skip_without_traces_of

EXAMPLES = Path(__file__).parents[3] / "examples"

SHORT = """\
topology: {kind: flat, nodes: 3}
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 2, bandwidth: 10 Mbit/s, duration: 2 s}
"""


def parse(text: str, **overrides: object) -> Experiment:
    return parse_experiment(text, Path("folder/some file.yaml"), overrides)


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem
)
def test_examples_are_sound(path: Path) -> None:
    skip_without_traces_of(path.read_text("utf-8"))
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert experiment.source_text == path.read_text("utf-8")
    resolved = json.loads(json.dumps(experiment.resolved, allow_nan=False))
    assert resolved["topology"]["kind"] == experiment.datacentre.kind
    if experiment.workload_facts:
        assert (
            resolved["workload_facts"]["jobs"] == len(experiment.jobs) > 0
        )
    else:
        assert [job["id"] for job in resolved["jobs"]] == [
            job.id for job in experiment.jobs
        ]
    # What a failure stops keeps no estimate.
    banded = (
        resolved["expect"]["estimate_ratio"]
        or resolved["expect"]["applications"]
    )
    assert banded or experiment.failures


def test_the_short_form_has_defaults() -> None:
    experiment = parse(SHORT)
    assert experiment.name == "some-file"
    assert experiment.seed == 1
    assert experiment.scale == Scale(1.0, 1.0)
    assert experiment.embedder == "oktopus"
    assert experiment.policies == (PolicySpec("vc"),)
    assert experiment.expect == Expectation()
    assert experiment.datacentre.total_slots == 3
    assert experiment.jobs == (
        JobRequest(
            "a",
            submit_s=0.0,
            n_vms=2,
            bandwidth_bps=10_000_000,
            duration_s=2.0,
        ),
    )


def test_the_bandwidth_scaling_example() -> None:
    experiment = load_experiment(EXAMPLES / "bandwidth-scaling.yaml")
    assert experiment.datacentre.n_servers == 16
    assert experiment.datacentre.total_slots == 32
    assert set(experiment.datacentre.link_capacity_bps.tolist()) == {10**9}
    assert experiment.scale == Scale(rate=0.04, time=1.0)
    assert experiment.policies == (PolicySpec("scripted"),)
    chains = {"sort": [], "wordcount": []}
    for job in experiment.jobs:
        assert job.application is not None
        assert job.bandwidth_bps == 750_000_000
        assert job.duration_s == 6.0
        chains[job.application].append((job.id, job.granted_bps, job.after))
    for name, chain in chains.items():
        rates = [750, 600, 450, 300, 150]
        before = [None, *(f"{name}-{rate}" for rate in rates[:-1])]
        assert chain == [
            (f"{name}-{rate}", rate * 10**6, after)
            for rate, after in zip(rates, before, strict=True)
        ]
    assert {
        job.demand.kind
        for job in experiment.jobs
        if job.application == "wordcount"
    } == {"demand"}
    assert experiment.expect == Expectation(
        applications={
            "sort": ApplicationExpectation(Band(0.98, 1.01)),
            "wordcount": ApplicationExpectation(Band(None, 1.01), 0.9),
        },
        fidelity="ok",
    )


def test_every_key_of_a_job() -> None:
    experiment = parse(
        """\
name: full
seed: 9
topology: {kind: fat-tree, k: 4, links: [4 Gbit/s, 2 Gbit/s, 1 Gbit/s], slots_per_server: 2}
scale: {rate: 0.5, time: 60}
embedder: exact
policies: [vc, {name: scripted}]
workload:
  kind: jobs
  jobs:
    - id: a
      at: 1 min
      vms: 3
      bandwidth: 750 Mbit/s
      granted: 600 Mbit/s
      duration: 6 s
      deadline: 60 s
      kind: demand
      pattern: all-to-all
      application: sort
      demand: [{until: 70 %, at: 120 Mbit/s}, {until: 1, at: 900 Mbit/s}]
      cpu: 12 %
    - {id: b, after: a, at: 500 ms, kind: compute, vms: 1, duration: 1 h}
expect:
  estimate_ratio: {min: 1, max: 1.5}
  fidelity: suspect
"""
    )
    assert experiment.name == "full"
    assert experiment.seed == 9
    assert experiment.scale == Scale(0.5, 60.0)
    assert experiment.embedder == "exact"
    assert [policy.name for policy in experiment.policies] == [
        "vc",
        "scripted",
    ]
    assert experiment.topology["link_bps"] == [4 * 10**9, 2 * 10**9, 10**9]
    assert experiment.jobs == (
        JobRequest(
            "a", 60.0, 3, 750_000_000, 6.0,
            deadline_s=60.0, application="sort",
            demand=DemandCurve(
                ((0.7, 120_000_000), (1.0, 900_000_000)), "all-to-all", cpu_share=0.12
            ),
            granted_bps=600_000_000,
        ),
        JobRequest("b", 0.5, 1, 0, 3600.0, demand=Compute(), after="a"),
    )  # fmt: skip
    assert experiment.expect == Expectation(
        Band(1, 1.5), fidelity="suspect"
    )


def test_a_measurement_with_iperf3_is_a_kind_of_job() -> None:
    entry = SHORT.replace(
        "{id: a,", "{id: a, kind: iperf3, pattern: all-to-all,"
    )
    (job,) = parse(entry).jobs
    assert job == JobRequest(
        "a", 0.0, 2, 10_000_000, 2.0, demand=Iperf3("all-to-all")
    )
    assert job.to_json()["kind"] == "iperf3"
    wrong = SHORT.replace(
        "{id: a,", "{id: a, kind: iperf3, cpu: 10 %, speedup: 0.1,"
    )
    with pytest.raises(SpecErrors) as refused:
        parse(wrong)
    assert [problem.message for problem in refused.value.problems] == [
        "means nothing to an iperf3 job", "means nothing to an iperf3 job",
    ]  # fmt: skip


def test_a_program_says_how_it_is_launched(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("1")
    entry = SHORT.replace(
        "{id: a,",
        "{id: a, kind: program, launch: mpi, mpi: mpich, ranks_per_vm: 2,"
        " command: [./in.txt, -v], files: [./in.txt], prepare: [ls],"
        " expect: [PASSED],",
    )
    (job,) = parse_experiment(entry, tmp_path / "x.yaml").jobs
    file = str(tmp_path / "in.txt")
    demand = Program(
        words=(file, "-v"),
        launch="mpi",
        mpi="mpich",
        ranks_per_vm=2,
        files=(file,),
        prepare=("ls",),
        expected=("PASSED",),
    )
    assert job == JobRequest("a", 0.0, 2, 10_000_000, 2.0, demand=demand)
    record = job.to_json()
    assert record["kind"] == "program"
    assert record["command"] == (file, "-v")
    assert (record["launch"], record["mpi"]) == ("mpi", "mpich")
    # Stated as any job's: p·b/b'.
    assert demand.estimate_s(job, 5_000_000) == 4.0


def test_a_library_that_is_not_there_is_said_with_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    entry = SHORT.replace(
        "{id: a,", "{id: a, kind: program, launch: mpi, command: [hpcc],"
    )
    (note,) = parse(entry).notes
    assert note == (
        "for a live run mpirun.openmpi is missing (Debian: openmpi-bin):"
        " sudo apt-get install openmpi-bin"
    )


def test_a_driver_of_spark_needs_java(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = SHORT.replace(
        "{id: a,",
        "{id: a, kind: program, launch: spark, command: [python3, a.py],",
    )
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (note,) = parse(entry).notes
    assert note == (
        "for a live run java is missing (Debian: default-jre-headless):"
        " sudo apt-get install default-jre-headless"
    )
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert parse(entry).notes == ()


def test_after_a_sweep_is_after_its_last_job() -> None:
    experiment = parse(
        SHORT.replace(
            "duration: 2 s}",
            "duration: 2 s, sweep: {granted: [10 Mbit/s, 1500 kbit/s]}}\n"
            "    - {id: b, after: a, vms: 2, bandwidth: 10 Mbit/s, duration: 2 s}",
        )
    )
    assert [
        (job.id, job.after, job.application) for job in experiment.jobs
    ] == [
        ("a-10000k", None, "a"),
        ("a-1500k", "a-10000k", "a"),
        ("b", "a-1500k", None),
    ]


def test_a_sweep_may_follow_a_job_that_comes_later_in_the_file() -> None:
    experiment = parse(
        SHORT.replace(
            "duration: 2 s}",
            "duration: 2 s, after: b, at: 3 s, sweep: {granted: [10 Mbit/s, 1 Mbit/s]}}\n"
            "    - {id: b, vms: 2, bandwidth: 10 Mbit/s, duration: 2 s}",
        )
    )
    assert [
        (job.id, job.after, job.submit_s) for job in experiment.jobs
    ] == [
        ("a-10", "b", 3.0),
        ("a-1", "a-10", 3.0),
        ("b", None, 0.0),
    ]


def test_anchors_and_byte_order_marks_are_fine(tmp_path: Path) -> None:
    text = SHORT.replace("10 Mbit/s", "&rate 10 Mbit/s").replace(
        "2 s}", "2 s, granted: *rate}"
    )
    path = tmp_path / "bom.yaml"
    path.write_text(text, "utf-8-sig")
    job = load_experiment(path).jobs[0]
    assert job.granted_bps == job.bandwidth_bps == 10_000_000


def test_overrides_replace_add_and_are_recorded() -> None:
    experiment = parse(
        SHORT,
        **{
            "seed": 8,
            "scale.rate": "0.05",
            "policies": "[scripted]",
            "workload.jobs[0].vms": "3",
            "workload.jobs.0.duration": "4 s",
        },
    )
    assert experiment.seed == 8
    assert experiment.scale.rate == 0.05
    assert experiment.policies == (PolicySpec("scripted"),)
    assert experiment.jobs[0].n_vms == 3
    assert experiment.jobs[0].duration_s == 4.0
    assert experiment.resolved["overrides"]["scale.rate"] == "0.05"


def test_overrides_that_are_no_texts_are_values() -> None:
    overrides = {
        "scale": {"rate": 1e-05, "time": np.float64(2.5)},
        "seed": np.int64(9),
        "workload.jobs[0].vms": 3,
        "workload.jobs[0].pattern": "all-to-all",
        "workload.jobs[0].at_once": True,
    }
    experiment = parse(SHORT, **overrides)
    assert experiment.scale == Scale(rate=1e-05, time=2.5)
    assert experiment.seed == 9
    assert experiment.jobs[0].demand.at_once


def test_a_rate_that_the_live_run_finds() -> None:
    experiment = parse(SHORT, **{"scale.rate": "auto"})
    assert (experiment.scale.rate, experiment.scale.auto) == (1.0, True)
    assert experiment.resolved["scale"]["auto"]
    assert not experiment.scale.largest
    assert parse(SHORT, **{"scale.rate": "largest"}).scale.largest
    assert not parse(SHORT, **{"scale.rate": "1"}).scale.auto


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (
            "scale.rate",
            "aut",
            "scale.rate: must be a number, auto or largest, not the text 'aut'",
        ),
        ("seed", "-1", "--set seed=-1: seed: must be at least 0, not -1"),
        (
            "sede",
            "1",
            "--set sede=1: sede: is an unknown key (did you mean 'seed'?)",
        ),
        (
            "scale.rate",
            "no",
            "--set scale.rate=no: scale.rate: YAML 1.1 reads no as false",
        ),
        (
            "scale",
            "{rate: 0}",
            "--set scale={rate: 0}: scale.rate: must be above 0, not 0",
        ),
        (
            "workload.jobs[7].vms",
            "1",
            "workload.jobs[7].vms: is not a place in this file",
        ),
        (
            f"workload.jobs[{'1' * 5000}]",
            "1",
            "is not a place in this file",
        ),
        (
            "workload.kind.x",
            "1",
            "workload.kind.x: is not a place in this file",
        ),
        ("", "1", "--set =1: is not a place in this file"),
        ("seed", "[", "--set seed=[: seed: not YAML: "),
        ("seed", "", "--set seed=: seed: is empty"),
    ],
)
def test_bad_overrides_are_named(key: str, text: str, message: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse(SHORT, **{key: text})
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_topology_in_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = (
        "servers: [{name: s, slots: 2}, {name: z, slots: 1}]\nswitches: [t]\nlinks:\n"
        "  - {lower: s, upper: t, capacity: 5 Mbit/s}\n"
        "  - {lower: z, upper: t, capacity: 5 Mbit/s}\n"
    )
    text = SHORT.replace(
        "{kind: flat, nodes: 3}", "{kind: custom, path: lab.yaml}"
    ).replace("10 Mbit/s", "5 Mbit/s")
    data = tmp_path / "data"
    data.mkdir()
    (data / "lab.yaml").write_text(lab)
    (tmp_path / "main.yaml").write_text(text)
    with pytest.raises(SpecErrors, match=r"there is no file 'lab\.yaml'"):
        load_experiment(tmp_path / "main.yaml")
    monkeypatch.setenv("TESTBED_DATA", f"/nowhere:{data}")
    experiment = load_experiment(tmp_path / "main.yaml")
    assert experiment.datacentre.n_servers == 2
    assert experiment.topology["links"][1] == {
        "lower": "z",
        "upper": "t",
        "capacity_bps": 5_000_000,
    }


def test_reading_a_file_creates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(SHORT)
    load_experiment(path)
    path.write_text("topology: 3")
    with pytest.raises(SpecErrors):
        load_experiment(path)
    assert [each.name for each in tmp_path.iterdir()] == ["x.yaml"]


ENFORCED = """
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 1}
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s, application: x}]}
expect: {estimate_ratio: {min: 0.98, max: 1.02}, applications: {x: {estimate_ratio: {min: 0.9}}}}
"""


def test_reservations_are_strict_unless_the_file_says_otherwise() -> None:
    experiment = parse_experiment(ENFORCED, Path("a.yaml"))
    assert (
        experiment.enforcement
        == experiment.resolved["enforcement"]
        == "strict"
    )
    assert experiment.expect.estimate_ratio == Band(0.98, 1.02)


@pytest.mark.parametrize(
    ("mode", "late_above"), [("work-conserving", 1.05), ("none", None)]
)
def test_where_reservations_do_not_limit_a_job_may_end_early(
    mode: str, late_above: float | None
) -> None:
    experiment = parse_experiment(
        ENFORCED, Path("a.yaml"), {"enforcement": mode}
    )
    assert experiment.resolved["enforcement"] == mode
    expect = experiment.expect
    assert expect.estimate_ratio == Band(None, 1.02)
    assert expect.applications["x"].estimate_ratio is None
    assert expect.late_above == late_above
    assert expect.early_below is None


def test_the_cache_is_the_callers_also_under_sudo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "4321")
    monkeypatch.setenv("SUDO_GID", "4321")
    account = SimpleNamespace(pw_dir="/home/ann")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account)
    *_, cache = search_path(Path())
    assert cache == Path("/home/ann/.cache/testbed")


def test_a_user_without_a_home_has_no_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container with a user id that no account has."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: {}["nobody"])
    assert find_file("none.swf", Path()) is None
