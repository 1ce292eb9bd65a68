"""``testbed reproduce``: files, tables, exit codes."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from reproductions import catalogue, figure_runs
from reproductions import reproduce as verb
from reproductions.claim_checks import Band, Check, Claim
from reproductions.grid_quantities import Level
from testbed.cli import main
from testbed.errors import MachineCannot
from tests.support.made_claims import more
from tests.support.made_figures import YIELD, Sum, figure

RIGHT = Claim("b is above a", "b > a", more(YIELD, "b", ("a",), [1.0, 2.0]))
WRONG = Claim("a is above b", "a > b", more(YIELD, "a", ("b",), [1.0]))


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    Sum.computed.clear()
    made = {
        "made-fig1": figure(RIGHT, WRONG),
        "made-fig2": figure(RIGHT, name="made-fig2"),
    }
    for module in (catalogue, verb):
        monkeypatch.setattr(module, "FIGURES", made)
        monkeypatch.setattr(module, "LIVE_FIGURES", {})
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take half a second each, and say nothing about what these tests are about."""
    monkeypatch.setattr(figure_runs, "pictures", lambda _: {})


def command(tmp_path: Path, *arguments: str) -> int:
    return main.run(
        [
            "reproduce",
            *arguments,
            "--processes",
            "1",
            "--out",
            str(tmp_path / "out"),
        ]
    )


@pytest.mark.slow
def test_a_figure_from_configurations_to_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "made-fig1", "--seeds", "2") == 0
    shown = capsys.readouterr().out
    assert "b is above a" in shown
    assert "not reproduced" in shown
    assert (
        "2 claims: 1 reproduced, 1 not reproduced, 0 inconclusive" in shown
    )
    folder = tmp_path / "out" / "made-fig1"
    assert {file.name for file in folder.iterdir()} == {
        "figure.png",
        "figure.svg",
        "provenance.json",
        "results.json",
        "table.md",
    }
    assert all(
        stat.S_IMODE(file.stat().st_mode) == 0o644
        for file in folder.iterdir()
    )
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    svg = (folder / "figure.svg").read_text()
    assert "Nobody, Fig. 1" in svg
    assert "published" in svg
    table = (folder / "table.md").read_text()
    assert "| 1 | 101.5 ± 6.4 (published 100) | 151.5 ± 6.4 |" in table
    assert (
        "| a is above b | a > b | yield, a − b at 1: -50.0 ± 0.0 points | **not reproduced** |"
        in table
    )
    results = json.loads((folder / "results.json").read_text())
    assert [claim["verdict"] for claim in results["claims"]] == [
        "reproduced",
        "not reproduced",
    ]
    assert results["measures"][0]["points"][0]["by_seed"] == [101.0, 102.0]
    assert results["cpu_s"] == 4.0


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_same_command_again_computes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path, "made-fig1", "--seeds", "2")
    first = (tmp_path / "out" / "made-fig1" / "table.md").read_bytes()
    Sum.computed.clear()
    command(tmp_path, "made-fig1", "--seeds", "3")
    assert len(Sum.computed) == 4
    assert "8 of 12 runs are there already" in capsys.readouterr().err
    command(tmp_path, "made-fig1", "--seeds", "2")
    assert len(Sum.computed) == 4
    assert (
        tmp_path / "out" / "made-fig1" / "table.md"
    ).read_bytes() == first


@pytest.mark.usefixtures("undrawn")
def test_the_quick_size_stands_in_a_folder_of_its_own(
    tmp_path: Path,
) -> None:
    assert command(tmp_path, "made-fig1", "--quick", "--seeds", "1") == 0
    results = json.loads(
        (tmp_path / "out" / "made-fig1-quick" / "results.json").read_text()
    )
    assert results["size"] == "quick"
    assert results["simulated"] == "small"


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_json_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "--all", "--seeds", "1", "--json") == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["name"] for record in records] == [
        "made-fig1",
        "made-fig2",
    ]
    assert Path(records[0]["folder"]).name == "made-fig1"


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_strict_is_for_those_who_want_to_fail(tmp_path: Path) -> None:
    assert command(tmp_path, "made-fig1", "--seeds", "2", "--strict") == 1
    assert command(tmp_path, "made-fig2", "--seeds", "2", "--strict") == 0


def test_the_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, "--list") == 0
    shown = capsys.readouterr().out
    assert "made-fig1" in shown
    assert "made-fig2" in shown
    assert command(tmp_path, "--list", "--json") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == [
        "made-fig1",
        "made-fig2",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["made-fig3"], "made-fig3 (did you mean made-fig"),
        ([], "nothing to reproduce"),
        (["made-fig1", "--all"], "not both"),
        (["made-fig1", "--seeds", "0"], "--seeds"),
    ],
)
def test_bad_usage_computes_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    assert command(tmp_path, *arguments) == 2
    shown = capsys.readouterr().err
    assert says in shown
    if arguments == ["made-fig3"]:
        assert "known are made-fig1, made-fig2" in shown
    assert Sum.computed == []
    assert not (tmp_path / "out").exists()


def test_an_interrupted_figure_says_how_to_continue(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Sum.run

    def stops_at_the_third(run: Sum) -> dict[str, float]:
        if len(Sum.computed) == 2:
            raise KeyboardInterrupt
        return whole(run)

    monkeypatch.setattr(Sum, "run", stops_at_the_third)
    assert command(tmp_path, "made-fig1", "--seeds", "2") == 130
    assert (
        "2 of 8 runs are kept; the same command continues"
        in capsys.readouterr().err
    )
    monkeypatch.undo()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_figure_whose_data_are_missing_does_not_stop_the_others(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_data(series: str, x: float, seed: int, quick: bool) -> Sum:
        raise MachineCannot("no log is here", "testbed data fetch")

    lacking = replace(
        figure(RIGHT, name="made-fig0"), configuration=without_data
    )
    whole = {"made-fig0": lacking, **catalogue.FIGURES}
    monkeypatch.setattr(verb, "FIGURES", whole)
    assert command(tmp_path, "--all", "--seeds", "1") == 3
    shown = capsys.readouterr()
    assert "made-fig0: no log is here" in shown.err
    assert "testbed data fetch" in shown.err
    assert (tmp_path / "out" / "made-fig2" / "results.json").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_file_in_the_folders_place_is_2_before_anything_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("")
    assert command(tmp_path, "made-fig1") == 2
    shown = capsys.readouterr().err
    assert (
        f"{tmp_path / 'out'} is not a folder\nhint: name a folder you may write to"
        in shown
    )
    assert not Sum.computed


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_seeds_are_doubled_until_every_claim_is_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def seeds_of(*arguments: str) -> tuple[int, list[int]]:
        capsys.readouterr()
        assert command(tmp_path, *arguments, "--json") == 0
        (record,) = json.loads(capsys.readouterr().out)
        return record["seeds"], record["stages"]

    # Two seeds decide that b is above a by as much for either.
    doubled = ("--seeds", "2", "--most-seeds", "9")
    assert seeds_of("made-fig2", *doubled) == (2, [2, 4, 8])
    # That a + seed lies at its own mean is never decided.
    check = Check(Level(YIELD, "a", 1.0), Band(101.49, 101.51))
    near = Claim("a is 1.5", "1.5", (check,))
    catalogue.FIGURES["made-fig2"] = figure(near, name="made-fig2")
    assert seeds_of("made-fig2", *doubled) == (8, [2, 4, 8])
    assert seeds_of("made-fig2", "--seeds", "3") == (3, [])
    # More seeds of a figure without anything random would say the same.
    exact = replace(catalogue.FIGURES["made-fig2"], exact=True)
    catalogue.FIGURES["made-fig2"] = exact
    assert seeds_of("made-fig2", *doubled) == (1, [])


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_seeds_after_the_first_are_computed_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = ("--seeds", "2", "--after", "3")
    assert command(tmp_path, "made-fig1", *later) == 0
    assert "2 seeds after the first 3" in capsys.readouterr().out
    path = tmp_path / "out" / "made-fig1" / "results.json"
    results = json.loads(path.read_text())
    assert (results["first_seed"], results["seeds"]) == (4, 2)
    assert results["measures"][0]["points"][0]["by_seed"] == [104.0, 105.0]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--after", "3", "--most-seeds", "8"), "leave --most-seeds away"),
        (("--live", "--again", "--most-seeds", "8"), "give one of them"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    reason: str,
) -> None:
    assert command(tmp_path, "made-fig1", *options) == 2
    assert reason in capsys.readouterr().err
