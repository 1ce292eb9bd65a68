"""Experiments with failures on the command line: simulate, plan, explain, compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import run as command

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn")]

FILE = """\
name: failing
seed: 3
topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 1}
policies: [{name: vc, on_failure: wait}, fcfs]
workload:
  kind: jobs
  jobs:
    - {id: wide, vms: 10, bandwidth: 50 Mbit/s, duration: 20 s}
    - {id: pair, at: 1 s, vms: 2, bandwidth: 500 Mbit/s, duration: 10 s}
    - {id: lone, at: 2 s, vms: 1, bandwidth: 250 Mbit/s, duration: 30 s}
failures:
  - {at: 4 s, link: core 0 - aggregation 0, lasts: 7 s}
  - {at: 5 s, link: server 10 - edge 5, lasts: 3 s}
  - {at: 6 s, switch: edge 0}
  - {at: 7 s, controller: killed}
  - {at: 9 s, server: server 12, lasts: 3 s}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "failing.yaml"
    path.write_text(FILE)
    return path


def simulated(
    path: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> list[Path]:
    assert (
        command(
            [
                "simulate",
                str(path),
                "--out",
                str(path.parent),
                "--json",
                *more,
            ]
        )
        == 0
    )
    return [
        Path(each["folder"]) for each in json.loads(capsys.readouterr().out)
    ]


def test_a_job_that_the_files_failure_kills_is_no_fault(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["simulate", str(path), "--out", str(path.parent)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("audit: passed") == 2
    path.write_text(f"{FILE}expect: {{estimate_ratio: {{max: 1.1}}}}\n")
    assert command(["simulate", str(path), "--out", str(path.parent)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "lone: no measured time: killed: stopped by a failure: server 12 is lost"
        in shown
    )


def test_explain_names_the_failures_that_concern_a_job(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = simulated(path, capsys)
    moves = "4 s takes the paths of another root, its VMs where they are: lost link aggregation 0"
    cut = "lost link server 10 -> edge 5; no other root has a path without a lost link"
    whole = "gets on: all its VMs reach each other again"
    closing = "It did not wait. It was cut for 3.00 s."
    for job, waiting, requeueing in (
        (
            "wide",
            f"{moves} -> core 0 20 s finished It did not wait.",
            moves,
        ),
        (
            "pair",
            f"5 s is cut, and stands still: {cut} 8 s {whole} 14 s finished {closing}",
            f"5 s is stopped, and waits to start anew: {cut} 5 s is placed on servers 14, 15",
        ),
        (
            "lone",
            "9 s killed: stopped by a failure: server 12 is lost",
            "9 s is stopped, and waits to start anew: server 12 is lost 9 s is placed on",
        ),
    ):
        for folder, sentence in zip(
            folders, (waiting, requeueing), strict=True
        ):
            assert command(["explain", str(folder), job]) == 0
            assert sentence in " ".join(capsys.readouterr().out.split())


def test_compare_finds_where_the_ways_part(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting, _ = simulated(path, capsys)
    (again,) = simulated(
        path, capsys, "--set", "policies=[{name: vc, on_failure: wait}]"
    )
    assert command(["compare", str(waiting), str(again), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["same_decisions"] is True
    (other,) = simulated(
        path, capsys, "--set", "policies=[{name: vc, on_failure: requeue}]"
    )
    assert command(["compare", str(waiting), str(other)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "is the first that differs: vc-on_failure=wait (simulated): 5.00 s: pair cut"
        in shown
    )
    assert (
        "vc-on_failure=requeue (simulated): 5.00 s: pair requeued" in shown
    )


def test_a_plan_has_the_tenants_where_they_are_placed(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["plan", str(path)]) == 0
    shown = capsys.readouterr().out
    for job in ("wide", "pair", "lone"):
        assert job in shown
