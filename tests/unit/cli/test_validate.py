"""``testbed validate`` and ``testbed schema``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.spec.json_schema import experiment_schema

EXAMPLES = Path(__file__).parents[3] / "examples"
GOOD = EXAMPLES / "bandwidth-scaling.yaml"
BAD = Path(__file__).parents[1] / "spec" / "bad" / "jobs.yaml"


def test_a_good_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(GOOD)]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    assert streams.out == (
        f"{GOOD}: ok: tree of 16 servers, 32 slots, 28 links of 1 Gbit/s;"
        " 10 jobs; policies scripted\n"
    )


def test_good_and_bad_files_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["validate", str(BAD), str(GOOD)]) == 2
    streams = capsys.readouterr()
    assert streams.out.startswith(f"{GOOD}: ok: ")
    expected = (
        BAD.with_suffix(".txt").read_text().replace("jobs.yaml:", f"{BAD}:")
    )
    assert streams.err == expected


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "--json", str(GOOD), str(BAD)]) == 2
    streams = capsys.readouterr()
    good, bad = json.loads(streams.out)
    assert (good["valid"], good["problems"], bad["valid"]) == (
        True,
        [],
        False,
    )
    assert good["experiment"]["jobs"][0]["id"] == "sort-750"
    assert {
        "line": 5,
        "column": 23,
        "path": "workload.jobs[0].vms",
    }.items() <= bad["problems"][0].items()
    assert streams.err == ""


def test_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["validate", str(GOOD), "--set", "policies=[vc, scripted]"])
        == 0
    )
    assert "policies vc, scripted" in capsys.readouterr().out
    assert (
        run(["validate", str(GOOD), "--set", "topology.fanout=[4, 2]"]) == 2
    )
    assert (
        "topology.links: 3 capacities for 2 levels"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == experiment_schema()
