"""``testbed claim``: one file, written, judged again, run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reproductions import claim_command
from reproductions.catalogue import FIGURES
from reproductions.claim_files import digest_of, experiments_of
from reproductions.figure_runs import LiveReproduced, Request
from reproductions.live_figure import LiveFigure
from reproductions.stored_results import restored
from testbed.cli import main


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The claim file of a small figure, from the values beside the pages."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "made.claim.json"
    out = ("--out", str(path), "--results", str(tmp_path / "none"))
    assert main.run(["claim", "mbfcbs-fig5", *out]) == 0
    return path


def changed(path: Path, **values: Any) -> None:
    """Changes the file as somebody would who knows of the digest."""
    content = json.loads(path.read_text("utf-8")) | values
    content["digest"] = digest_of(content)
    path.write_text(json.dumps(content), "utf-8")


def test_a_file_has_all_that_judges_it(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(written.read_text("utf-8"))
    assert list(content["experiments"]) == ["mbfcbs/mbfcbs-small.yaml"]
    assert "MBFCBS uses the cluster better" in content["ledger"]["text"]
    assert content["environment"]["packages"]["numpy"]
    assert main.run(["claim", "check", str(written)]) == 0
    assert "verdicts, each as in the file" in capsys.readouterr().out


def test_a_strategic_tenants_file_has_its_experiment() -> None:
    figure = FIGURES["dcloud-charging"]
    assert list(experiments_of(figure)) == ["dcloud/dcloud-pricing.yaml"]


def test_another_verdict_is_found_out(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(written.read_text("utf-8"))
    before = content["verdicts"][0][2]
    better = [[text, status, "reproduced"] for text, status, _ in content["verdicts"]]  # fmt: skip
    changed(written, verdicts=better)
    capsys.readouterr()
    assert main.run(["claim", "check", str(written), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["differ"][0].endswith(f"{before}, and not reproduced")


def test_other_rules_than_those_of_now_are_told(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(written.read_text("utf-8"))
    ledger = content["ledger"]
    ledger["text"] = ledger["text"].replace("above: 0", "above: -50")
    changed(written, ledger=ledger)
    assert main.run(["claim", "check", str(written)]) == 1
    shown = capsys.readouterr().out
    assert "the ledger has other rules for this figure now" in shown


def test_a_changed_file_is_refused(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(written.read_text("utf-8"))
    content["verdicts"][0][2] = "reproduced"
    written.write_text(json.dumps(content), "utf-8")
    assert main.run(["claim", "check", str(written)]) == 2
    assert "it was changed" in capsys.readouterr().err
    written.write_text("{}", "utf-8")
    assert main.run(["claim", "check", str(written)]) == 2
    assert "no claim file" in capsys.readouterr().err


def test_values_beside_the_pages_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["claim", "mbfcbs-fig5"]) == 0
    path = tmp_path / "mbfcbs-fig5.claim.json"
    assert main.run(["claim", "check", str(path)]) == 0


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("figure", ["mbfcbs-fig5"], "figure is not str"),
        ("experiments", ["a.yaml"], "experiments is not dict"),
        ("ledger", None, "ledger is None"),
        ("results", {"size": "full"}, "lacks seeds"),
        (
            "results",
            {"size": "full", "seeds": 10**9},
            "seeds is 1000000000",
        ),
        ("results", {"size": "", "seeds": 1, "stages": 5}, "stages is not"),
        (
            "results",
            {"size": "", "seeds": 1, "values of use": 5},
            "results",
        ),
        ("verdicts", 7, "verdicts is not list"),
        ("verdicts", [], "not about the claims of its ledger"),
    ],
)
def test_a_part_of_another_kind_is_refused(
    written: Path,
    capsys: pytest.CaptureFixture[str],
    part: str,
    value: Any,
    message: str,
) -> None:
    changed(written, **{part: value})
    assert main.run(["claim", "check", str(written)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("claims:", "claims: [", "rules cannot be read"),
        ("claims:", "sentences:", "where, seeds, first_seed or claims"),
        ("measure: use", "measure: nonsense", "'nonsense'"),
        ("of: MBFCBS", "of: NOBODY", "no point of it"),
    ],
)
def test_rules_that_judge_nothing_are_refused(
    written: Path,
    capsys: pytest.CaptureFixture[str],
    before: str,
    after: str,
    message: str,
) -> None:
    ledger = json.loads(written.read_text("utf-8"))["ledger"]
    assert before in ledger["text"]
    changed(
        written,
        ledger={**ledger, "text": ledger["text"].replace(before, after)},
    )
    assert main.run(["claim", "check", str(written)]) == 2
    assert message in capsys.readouterr().err


def test_a_claim_file_names_no_other_files(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(written, experiments={"/dev/zero": "endless"})
    assert main.run(["claim", "check", str(written)]) == 0
    assert "/dev/zero is another file here" in capsys.readouterr().out
    assert main.run(["claim", "check", "/dev/zero"]) == 2


def test_runs_under_another_state_of_the_rules_are_told(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = json.loads(written.read_text("utf-8"))["results"]
    results["ledger"] = {"digest": "0123456789abcdef", "commit": None}
    changed(written, results=results)
    assert main.run(["claim", "check", str(written)]) == 0
    assert (
        "its runs name another state of its rules, 0123456789abcdef"
        in capsys.readouterr().out
    )


def test_what_is_no_figure_and_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["claim", "mbfcbs-fig44"]) == 2
    assert "did you mean mbfcbs-fig4" in capsys.readouterr().err
    assert main.run(["claim", "check"]) == 2
    assert main.run(["claim", "check", str(tmp_path / "none")]) == 2
    assert main.run(["claim", "mbfcbs-fig5", "--run"]) == 2


def test_a_live_figure_is_named_as_in_the_list_or_as_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    none = ("--results", str(tmp_path / "none"))
    for name in ("mbfcbs-leases", "mbfcbs-leases-live"):
        assert main.run(["claim", name, *none]) == 0
        path = tmp_path / "mbfcbs-leases-live.claim.json"
        content = json.loads(path.read_text("utf-8"))
        assert content["figure"] == "mbfcbs-leases-live"
        path.unlink()


def test_a_live_figure_is_measured_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "live.claim.json"
    none = ("--results", str(tmp_path / "none"))
    assert main.run(["claim", "mbfcbs-leases-live", "--out", str(path), *none]) == 0  # fmt: skip
    record = json.loads(path.read_text("utf-8"))["results"]
    asked: list[Request] = []

    def measured(
        figure: LiveFigure, request: Request, *_: object
    ) -> LiveReproduced:
        asked.append(request)
        return LiveReproduced(restored(figure, record), figure, {})

    monkeypatch.setattr(claim_command, "reproduce_live", measured)
    monkeypatch.setattr(claim_command, "write_live", lambda *_: None)
    assert main.run(["claim", "check", str(path), "--run", *none]) == 0
    assert "verdicts, each as in the file" in capsys.readouterr().out
    assert [request.seeds for request in asked] == [record["seeds"]]
    for point in record["values of use"]:
        least = 10.0 if point[0] == "MBFCBS" else 90.0
        # No difference is the same in every seed.
        point[2] = [
            least * (1.0 + seed / 100.0) for seed in range(record["seeds"])
        ]
    assert main.run(["claim", "check", str(path), "--run", *none]) == 1
    assert (
        "run again, MBFCBS uses the cluster better"
        in capsys.readouterr().out
    )


@pytest.mark.slow
def test_a_stranger_runs_it_again(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--run", "--results", str(tmp_path / "again")]
    status = main.run(["claim", "check", str(written), *again])
    shown = capsys.readouterr().out
    assert status == int("differs: " in shown)
    assert (tmp_path / "again" / "computed").exists()
