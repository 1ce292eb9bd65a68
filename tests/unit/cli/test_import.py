"""``testbed import``: what it writes is an experiment, which runs in the simulator."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.importing.recognition import KINDS
from tests.unit.importing.samples import GRAPHML, SAMPLES

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for kind, text in SAMPLES.items():
        (tmp_path / f"{kind}.txt").write_text(text)
    return tmp_path


def test_there_is_a_sample_of_each_kind() -> None:
    assert set(SAMPLES) == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAMPLES)
def test_what_is_written_is_valid_and_simulates(
    kind: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", f"{kind}.txt", "-o", "made.yaml"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "taken: " in said.err
    assert said.err.endswith("next: testbed validate made.yaml\n")
    text = (here / "made.yaml").read_text()
    assert text.startswith(f"# Imported from {kind}.txt ({kind}).\n")
    assert "# choose: " in text
    assert run(["validate", "made.yaml"]) == 0
    capsys.readouterr()
    assert run(["simulate", "made.yaml", "--json"]) == 0
    (summary,) = json.loads(capsys.readouterr().out)
    jobs = summary["finished"]
    assert jobs == text.count("{id: ")


def test_without_out_the_experiment_goes_to_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["import", "graphml.txt"]) == 0
    assert capsys.readouterr().out.startswith("# Imported from graphml.txt")


def test_json_says_what_was_taken(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["batsim-platform.txt", "batsim-workload.txt", "--json"]
    assert run(["import", *arguments, "-o", "made.yaml"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["experiment"] == (here / "made.yaml").read_text()
    assert (record["servers"], record["jobs"]) == (9, 3)
    assert {"taken", "not_taken", "choose"} < record.keys()


def test_what_can_be_read_once_alone_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(here / "pipe")
    for name in ("pipe", "/dev/zero"):
        assert run(["import", name]) == 2
        said = capsys.readouterr().err
        assert f"{name}: is a pipe or a device" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["graphml.txt", "-o", "graphml.txt"], "is there already"),
        (
            ["graphml.txt", "--kind", "dot"],
            "--kind dot: one of containerlab",
        ),
        (["graphml.txt", "--kind", "alibaba"], "cut off"),
        (["graphml.txt", "--kind", "batsim-workload"], "no JSON"),
        (["graphml.txt", "--whole"], "is no tree or multi-rooted tree"),
        (["missing.txt"], "missing.txt: No such file or directory"),
        (["."], "Is a directory"),
    ],
)
def test_what_cannot_be_imported_is_a_sentence(
    arguments: list[str],
    said: str,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["import", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert (here / "graphml.txt").read_text() == GRAPHML
