"""``testbed plan``: of one job or all, as text or JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.cli import plan as verb

FILE = """
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 1}
policies: [vc, bl]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 2, bandwidth: 100 Mbit/s, duration: 5 s}
    - {id: b, vms: 2, bandwidth: 100 Mbit/s, duration: 5 s}
    - {id: big, vms: 4, bandwidth: 100 Mbit/s, duration: 5 s}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "three.yaml"
    path.write_text(FILE)
    return str(path)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_job_that_is_not_there_is_2_with_those_that_are(
    file: str, capsys: pytest.CaptureFixture[str], as_json: list[str]
) -> None:
    assert main.run(["plan", file, "--job", "nosuch", *as_json]) == 2
    streams = capsys.readouterr()
    message = json.loads(streams.out)["hint"] if as_json else streams.err
    assert "jobs are named as a, b, big" in message
    assert "no job 'nosuch'" in (streams.out if as_json else streams.err)


def test_one_job_alone(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["plan", file, "--job", "b"]) == 0
    text = capsys.readouterr().out
    assert "the network" not in text
    assert text.count("### policy") == 2
    assert "### policy bl: b at" in text
    assert main.run(["plan", file, "--job", "b", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["policy"] for one in shown] == ["vc", "bl"]
    for one in shown:
        assert one["network_text"] is None
        assert [tenant["job_id"] for tenant in one["tenants"]] == ["b"]
        assert one["refused"] == []
        assert one["tenants"][0]["text"] in text


def test_a_rejected_job_alone(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["plan", file, "--job", "big", "--json"]) == 0
    for one in json.loads(capsys.readouterr().out):
        assert one["tenants"] == []
        assert [job_id for job_id, _ in one["refused"]] == ["big"]


def test_the_networks_own_text_can_be_left_out(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["plan", file, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert main.run(["plan", file, "--tenants-only", "--json"]) == 0
    left = json.loads(capsys.readouterr().out)
    assert all("hn-" in one["network_text"] for one in whole)
    assert left == [{**one, "network_text": None} for one in whole]


def test_much_text_is_announced(
    file: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main.run(["plan", file]) == 0
    assert "MB of text" not in capsys.readouterr().err
    monkeypatch.setattr(verb, "ANNOUNCED_MB", 0.001)
    assert main.run(["plan", file]) == 0
    assert (
        "MB of text for 4 tenants; --job NAME shows one"
        in capsys.readouterr().err
    )


def test_the_limits_of_a_vm_are_told_beside_the_text(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["plan", file]) == 0
    said = capsys.readouterr()
    assert re.search(
        r"a VM may have \d+ processes and [\d,]+ MiB", said.err
    )
    assert re.search(
        r"weigh as much as 16 others.*\d+ % are left", said.err
    )
    assert "processes" not in said.out
    assert main.run(["plan", file, "--job", "a"]) == 0
    assert capsys.readouterr().err == ""
