"""Workloads from logs and models in experiment files: keys, mistakes, what is said of the jobs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.spec.document import SpecErrors
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import parse_experiment

FLAT = "topology: {kind: flat, nodes: 10}\n"
TREE = "topology: {kind: tree, fanout: [5], links: 1 Gbit/s, slots_per_server: 2}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of four jobs, on a machine without any other."""
    monkeypatch.setenv("TESTBED_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = [
        line(1, 100, 40, 2, 90),
        line(2, 110, 30, 4, 20),
        line(3, 120, 0, 1),
        line(4, 200, -1),
    ]
    (tmp_path / "log.swf").write_text("; MaxProcs: 10\n" + "".join(lines))
    return tmp_path


def line(
    number: int,
    submit: int,
    run_s: int,
    requested: int = 1,
    stated: int = -1,
) -> str:
    fields = [
        number,
        submit,
        -1,
        run_s,
        -1,
        -1,
        -1,
        requested,
        stated,
        *[-1] * 9,
    ]
    return " ".join(map(str, fields)) + "\n"


def parse(folder: Path, workload: str, topology: str = FLAT) -> Experiment:
    return parse_experiment(
        f"{topology}workload: {{{workload}}}\n", folder / "x.yaml"
    )


def errors(folder: Path, workload: str, topology: str = FLAT) -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        parse(folder, workload, topology)
    return [str(p).replace(f"{folder}/", "") for p in caught.value.problems]


def test_a_log_beside_the_file_becomes_jobs(
    folder: Path,
) -> None:
    experiment = parse(folder, "kind: swf, path: log.swf")
    assert [
        (j.id, j.submit_s, j.n_vms, j.duration_s, j.estimate_s)
        for j in experiment.jobs
    ] == [
        ("job-00001", 0.0, 2, 40.0, 90.0),
        ("job-00002", 10.0, 4, 30.0, 30.0),
        ("job-00003", 20.0, 1, 1.0, None),
    ]
    assert {job.bandwidth_bps for job in experiment.jobs} == {0}


def test_where_the_jobs_come_from_is_in_the_resolved_file_and_in_words(
    folder: Path,
) -> None:
    experiment = parse(folder, "kind: swf, path: log.swf, load: 0.5")
    facts = json.loads(json.dumps(experiment.resolved, allow_nan=False))[
        "workload_facts"
    ]
    assert (facts["records"], facts["jobs"], facts["load"]) == (4, 3, 0.5)
    assert facts["skipped"] == {"running time unknown": 1}
    assert facts["header"] == {"MaxProcs": ["10"]}
    assert len(facts["sha256"]) == 64
    assert "skipped 1: running time unknown" in experiment.workload_notes
    work = 2 * 40 + 4 * 30 + 1
    assert experiment.jobs[-1].submit_s == pytest.approx(work / (10 * 0.5))


def test_on_a_network_bandwidth_is_assigned_and_the_seed_settles_it(
    folder: Path,
) -> None:
    given = "kind: swf, path: log.swf, bandwidth: {mean: 200 Mbit/s}"
    asked = [job.bandwidth_bps for job in parse(folder, given, TREE).jobs]
    assert asked == [
        job.bandwidth_bps for job in parse(folder, given, TREE).jobs
    ]
    assert all(36_363_636 <= bps <= 363_636_364 for bps in asked)
    assert len(set(asked)) == 3


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("kind: swf", "x.yaml:2:11: workload.path: is required"),
        (
            "kind: swf, path: log.swff",
            "there is no file 'log.swff' beside this one",
        ),
        (
            "kind: swf, path: ../",
            "workload.path: '../' is a folder or a device, not a file",
        ),
        (
            "kind: swf, path: log.swf, shortest: 2 h",
            "not one of its jobs can be scheduled: log.swf: 4 records",
        ),
        (
            "kind: swf, path: log.swf, shortest: 2 h",
            "; skipped 3: ",
        ),
        (
            "kind: swf, path: KTH-SP2-1996-2.1-cln.swf",
            "Parallel Workloads Archive, log l_kth_sp2",
        ),
        (
            "kind: swf, path: log.swf, first: 0",
            "workload.first: must be at least 1, not 0",
        ),
        (
            "kind: swf, path: log.swf, first: 1, load: 1",
            "all jobs are submitted at once",
        ),
        (
            "kind: swf, path: log.swf, load: 60 %",
            "workload.load: must be a number",
        ),
        (
            "kind: swf, path: log.swf, bandwidth: {}",
            "a flat data centre has no links",
        ),
        (
            "kind: swf, path: log.swf, cpu: {low: 60 %, high: 50 %}",
            "low must be above 0 and not",
        ),
        (
            "kind: swf, path: log.swf, cpu: {told: 1, error: 1 %}",
            "remove one",
        ),
        (
            "kind: swf, path: log.swf, zero_run_time: drop",
            "must be one of raise, skip",
        ),
        (
            "kind: feitelson, jobs: 1",
            "workload.jobs: must be at least 2, not 1",
        ),
        (
            "kind: jann, serial: 90 %",
            "serial lies above 0 and below below_20",
        ),
        (
            "kind: jann, run_cv2: 0.5",
            "a squared coefficient of variation of at least 1",
        ),
    ],
)
def test_mistakes_are_named(folder: Path, workload: str, said: str) -> None:
    assert said in "\n".join(errors(folder, workload))


def test_a_cap_of_bandwidth_is_a_bandwidth_or_none(folder: Path) -> None:
    rule = "kind: swf, path: log.swf, bandwidth: {{max_b_cap: {}}}"
    assert "or none" in errors(folder, rule.format(455), TREE)[0]
    greatest = max(
        job.bandwidth_bps
        for job in parse(folder, rule.format("none"), TREE).jobs
    )
    assert greatest > 455_000_000


def test_all_that_is_wrong_with_a_log_is_named_by_its_own_lines(
    folder: Path,
) -> None:
    with (folder / "log.swf").open("a") as log:
        log.write(
            "1 2 3\n"
            + line(5, 150, 10)
            + line(4, 210, 10)
            + line(6, 220, -7)
        )
    assert errors(folder, "kind: swf, path: log.swf") == [
        "log.swf:6:5: has 3 fields, not 18: the line is cut off",
        "log.swf:7:3: field 2 (submit time): 150 s is before line 5's 200 s",
        "log.swf:8:1: field 1 (job number): 4 stands in line 5 too",
        "log.swf:9:10: field 4 (run time): -7 is negative; -1 is for what is unknown",
        (
            "x.yaml:2:29: workload.path: 4 lines cannot be read;"
            " lenient: true (or --lenient) leaves them out"
        ),
    ]


def cut(folder: Path) -> bytes:
    """A compressed log that ends in its middle."""
    return gzip.compress((folder / "log.swf").read_bytes() * 50)[:-40]


BROKEN_XML = (
    b"<lease-workload><lease-requests><lease-request arrival='00:00:00.00'>"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.swf.gz", cut),
        ("cut.lwf", cut),
        ("cut.tsv", cut),
        ("empty.swf", lambda _: b""),
        ("empty.lwf", lambda _: b""),
        ("broken.lwf", lambda _: BROKEN_XML),
        ("doctype.lwf", lambda _: b"<!DOCTYPE a><a></a>"),
        ("nothing.swf", lambda _: b"1 2 3\n4 5 6\n"),
    ],
)
def test_leaving_lines_out_is_offered_where_it_helps(
    folder: Path, name: str, content: Callable[[Path], bytes]
) -> None:
    (folder / name).write_bytes(content(folder))
    kind = {"swf": "swf", "lwf": "lwf", "tsv": "swim"}[name.split(".")[1]]
    topology = (
        FLAT
        if kind != "lwf"
        else FLAT.replace("10}", "10, memory_per_server: 8 GiB}")
    )
    said = errors(folder, f"kind: {kind}, path: {name}", topology)
    assert any(f"{name}:" in text for text in said)
    assert "cannot be read" in said[-1]
    assert not any("lenient" in text for text in said)


@pytest.mark.slow
def test_lenient_on_the_command_line_leaves_wrong_lines_out_and_counts_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "log.swf").open("a") as log:
        log.write("1 2 3\n")
    (folder / "x.yaml").write_text(
        f"{FLAT}workload: {{kind: swf, path: log.swf}}\n"
    )
    run_folder = str(folder / "runs")
    assert (
        run(["simulate", str(folder / "x.yaml"), "--out", run_folder]) == 2
    )
    assert not (folder / "runs").exists()
    assert (
        run(
            [
                "simulate",
                str(folder / "x.yaml"),
                "--out",
                run_folder,
                "--lenient",
            ]
        )
        == 0
    )
    assert (
        "1 line left out, the first: line 6: has 3 fields"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("kind", ["feitelson", "jann"])
def test_models_say_what_they_were_set_to_and_what_was_drawn(
    folder: Path, kind: str
) -> None:
    experiment = parse(
        folder,
        f"kind: {kind}, jobs: 300, largest: 64, load: 0.4, overestimate: 3",
    )
    facts = experiment.resolved["workload_facts"]
    assert facts["jobs"] == len(experiment.jobs) == 300
    assert facts["load"] == 0.4
    assert {figure["what"] for figure in facts["calibration"]} >= {
        "mean running time"
    }
    assert any(
        note.startswith("calibration: share of serial")
        for note in experiment.workload_notes
    )
    for job in experiment.jobs:
        assert job.duration_s <= job.stated_s <= 3 * job.duration_s
        assert job.n_vms == len(job.cpu_uses)


def test_a_job_larger_than_the_data_centre_is_submitted_and_rejected_with_its_reason(
    folder: Path,
) -> None:
    (folder / "log.swf").write_text(line(1, 0, 10, 11) + line(2, 5, 10, 2))
    experiment = parse(folder, "kind: swf, path: log.swf")
    assert (
        "1 job has more VMs than there are slots"
        in experiment.workload_notes
    )
    assert len(experiment.jobs) == 2


@pytest.mark.parametrize("bps", [1, 2, 3])
def test_a_hadoop_job_asks_for_a_whole_bit_a_second_or_is_refused(
    folder: Path, bps: int
) -> None:
    trace = "a\t0\t0\t100\t100\t100\nb\t1\t1\t100\t0\t100\n"
    (folder / "t.tsv").write_text(trace)
    topology = TREE.replace("1 Gbit/s", f"{bps} bit/s")
    workload = "kind: swim, path: t.tsv, jobs: 1, batches: 1, vms: as-is"
    if bps > 1:
        (job,) = parse(folder, workload, topology).jobs
        assert job.bandwidth_bps == 1
        return
    (found,) = errors(folder, workload, topology)
    assert found == (
        "x.yaml:1:44: topology.links: a job asks for half of a server's link at most, and for"
        " 1 bit/s at least: give one of them 2 bit/s"
    )
