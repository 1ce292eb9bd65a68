"""``testbed simulate``: folders, tables, exit codes, the same bytes for the same seed."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
from pathlib import Path

import pytest

from testbed.cli import main
from tests.support.loops import loops

EXPERIMENT = """\
name: small-day
seed: 3
topology: {kind: tree, fanout: [2, 2, 3], links: [2 Gbit/s, 1.5 Gbit/s, 1 Gbit/s],
  slots_per_server: 4}
policies: [POLICIES]
workload:
  kind: poisson
  per_hour: 6
  hours: 8
  vms: {mean: 5}
  services: 10 %
  profiling_error: {low: -20 %, high: 20 %}
EXPECT
"""
ALL = "dcloud, dcloud-ts, dcloud-bs, {name: dcloud, gamma: 0 %}, vc, bl"


def experiment(
    tmp_path: Path, policies: str = ALL, expect: str = ""
) -> Path:
    path = tmp_path / "small-day.yaml"
    path.write_text(
        EXPERIMENT.replace("POLICIES", policies).replace("EXPECT", expect)
    )
    return path


def simulated(
    tmp_path: Path, *arguments: str, policies: str = ALL, expect: str = ""
) -> int:
    path = experiment(tmp_path, policies, expect)
    return main.run(
        ["simulate", str(path), "--out", str(tmp_path / "runs"), *arguments]
    )


def only_folder(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "runs").iterdir()
    return folder


@pytest.mark.usefixtures("undrawn")
@pytest.mark.long
@pytest.mark.slow
def test_every_policy_over_the_same_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(tmp_path, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["policy"] for one in shown] == [
        "dcloud", "dcloud-ts", "dcloud-bs", "dcloud-gamma=0.0", "vc", "bl",
    ]  # fmt: skip
    for one in shown:
        assert one["audit_passed"]
        assert one["backend"] == "sim"
        assert one["jobs"] == sum(
            one[key]
            for key in ("finished", "rejected", "killed", "unfinished")
        )
        assert one["unfinished"] == 0
        assert (one["revenue"] > 0) == (one["finished"] > 0)
    asked = set()
    for folder in only_folder(tmp_path).iterdir():
        if folder.is_dir():
            with (folder / "jobs.csv").open() as file:
                rows = list(csv.DictReader(file))
            asked.add(
                tuple(
                    (r["job_id"], r["submit_s"], r["n_vms"]) for r in rows
                )
            )
            assert (folder / "report.html").stat().st_size > 1000
    assert len(asked) == 1
    written = json.loads(
        (only_folder(tmp_path) / "summary.json").read_text()
    )
    assert [one["revenue"] for one in written] == [
        one["revenue"] for one in shown
    ]


def written(tmp_path: Path, *arguments: str) -> dict[str, bytes]:
    """Everything a run says about its jobs, but for how long it took."""
    tmp_path.mkdir()
    assert simulated(tmp_path, *arguments, policies="dcloud, bl") == 0
    found: dict[str, bytes] = {}
    top = only_folder(tmp_path)
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.name in ("events.jsonl", "jobs.csv", "links.csv"):
            found[name] = path.read_bytes()
        if path.name == "summary.json":
            text = re.sub(
                r'("wall_s"): [0-9.e-]+', r"\1: 0", path.read_text()
            )
            found[name] = text.encode()
    return found


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = written(tmp_path / "one"), written(tmp_path / "two")
    assert len(one) == 2 * 4 + 1
    assert one == two
    other = written(tmp_path / "three", "--seed", "4")
    assert other.keys() == one.keys()
    assert all(
        other[name] != one[name]
        for name in one
        if name.endswith(("events.jsonl", ".json"))
    )


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_compiled_or_not_the_events_are_the_same(tmp_path: Path) -> None:
    events = []
    for name, there in (("with", True), ("without", False)):
        (tmp_path / name).mkdir()
        with loops(machine_code=there):
            assert simulated(tmp_path / name, policies="dcloud") == 0
        events.append(
            (only_folder(tmp_path / name) / "events.jsonl").read_bytes()
        )
    assert events[0] == events[1]


@pytest.mark.slow
def test_the_table_has_a_line_for_each_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(tmp_path, policies="vc, bl") == 0
    out = capsys.readouterr().out
    assert "small-day, sim, seed 3" in out
    assert "vc: audit: passed" in out
    assert "bl: report:" in out


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_an_expectation_that_fails_makes_the_exit_code_1(
    tmp_path: Path,
) -> None:
    # Drawn jobs run exactly as estimated or end early: nothing is above 1.3, all is below 0.5.
    good = "expect: {estimate_ratio: {max: 1.3}}"
    bad = "expect: {estimate_ratio: {max: 0.5}}"
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    jobs = """\
topology: {kind: flat, nodes: 2}
workload: {kind: jobs, jobs: [{id: a, vms: 1, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""
    for name, expect, code in (("good", good, 0), ("bad", bad, 1)):
        path = tmp_path / name / "one.yaml"
        path.write_text(f"{jobs}{expect}\n")
        assert (
            main.run(
                [
                    "simulate",
                    str(path),
                    "--out",
                    str(tmp_path / name / "runs"),
                ]
            )
            == code
        )


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_many_jobs_outside_are_counted_not_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "many.yaml"
    jobs = ", ".join(
        f"{{id: j{n}, vms: 1, bandwidth: 1 Mbit/s, duration: 5 s}}"
        for n in range(25)
    )
    path.write_text(
        "topology: {kind: flat, nodes: 30}\nexpect: {estimate_ratio: {max: 0.5}}\n"
        f"workload: {{kind: jobs, jobs: [{jobs}]}}\n"
    )
    assert (
        main.run(["simulate", str(path), "--out", str(tmp_path / "runs")])
        == 1
    )
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count(
        "outside what was expected: j"
    ) == 10
    assert "15 more" in shown.out + shown.err


def test_a_bad_file_is_refused_and_nothing_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(tmp_path, policies="{name: dcloud, gamma: 2}") == 2
    assert "gamma: must lie between 0 and 1" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_disk_that_is_full_is_a_run_that_failed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Something has been made by then: it is no bad file any more."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("testbed.play.playing.play", full)
    monkeypatch.setattr("testbed.play.playing.conclude_run", full)
    assert simulated(tmp_path, policies="bl") == 4
    shown = capsys.readouterr().err
    assert (
        "error: the run stopped: [Errno 28] No space left on device"
        in shown
    )
    assert f"hint: see {only_folder(tmp_path)}" in shown


@pytest.mark.usefixtures("undrawn")
def test_a_policy_that_rejects_every_job_says_so_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulated(tmp_path, policies="easy, vc") == 0
    lines = capsys.readouterr().out.splitlines()
    rejected = [line for line in lines if "rejected: " in line]
    assert len(rejected) == 1
    assert re.fullmatch(
        r"easy: rejected: \d+ jobs, all there are; job-00000: it asks for"
        r" bandwidth, which this policy cannot reserve",
        rejected[0],
    )


@pytest.mark.usefixtures("undrawn")
def test_jobs_that_a_policy_forgets_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "forgets.py").write_text(
        "class Forgets:\n"
        "    name = 'forgets'\n"
        "    def decide(self, view, event):\n"
        "        return []\n",
        "utf-8",
    )
    assert (
        simulated(tmp_path, policies="{class: './forgets.py:Forgets'}") == 0
    )
    told = capsys.readouterr().out
    assert re.search(
        r"unfinished: \d+ jobs of \d+; job-00000: the policy never started it",
        told,
    )
