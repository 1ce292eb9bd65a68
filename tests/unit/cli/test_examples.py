"""``testbed examples`` copies the example files into a new folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli import main

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_they_are_copied_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["examples"]) == 0
    printed = capsys.readouterr()
    copied = {
        path.relative_to("examples") for path in Path("examples").rglob("*")
    }
    wanted = {
        path.relative_to(EXAMPLES)
        for path in EXAMPLES.rglob("*")
        if not {"__pycache__", "runs"} & set(path.parts)
    }
    assert copied == wanted
    assert not any(
        path.is_symlink() for path in Path("examples").rglob("*")
    )
    assert "examples/quickstart.yaml" in printed.out.splitlines()
    assert (
        main.run(
            [
                "validate",
                "examples/quickstart.yaml",
                "examples/cmbf-fig1.yaml",
            ]
        )
        == 0
    )


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    assert main.run(["examples", "mine"]) == 2
    assert list(Path("mine").iterdir()) == []
    assert "mine: is there already" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_told_with_what_to_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("file").touch()
    assert main.run(["examples", "file/mine"]) == 2
    said = capsys.readouterr().err
    assert "file/mine cannot be made: Not a directory" in said
    assert "hint: name another: testbed examples FOLDER" in said


def test_a_program_is_given_the_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["examples", "there", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == "there"
    assert "there/elastic.yaml" in found["files"]
