"""``testbed claim``: one file, written, judged again, run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reproductions import claim_command, claim_origin
from reproductions.catalogue import FIGURES
from reproductions.claim_files import digest_of, experiments_of
from reproductions.claim_ledger import digest_of as digest_of_rules
from reproductions.figure_runs import LiveReproduced, Request
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import digest_of_played
from reproductions.stored_results import restored, sections
from testbed.cli import main
from tests.support.history import require_history


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The claim of a small figure, from the values beside the pages."""
    folder = tmp_path_factory.mktemp("made")
    path = folder / "made.claim.json"
    out = ("--out", str(path), "--results", str(folder / "none"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main.run(["claim", "mbfcbs-fig5", *out]) == 0
    return path.read_text("utf-8")


@pytest.fixture
def written(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The claim's file, in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "made.claim.json"
    path.write_text(made, "utf-8")
    return path


def changed(path: Path, **values: Any) -> None:
    """Changes the file as somebody would who knows of the digests."""
    content = json.loads(path.read_text("utf-8")) | values
    if isinstance(content["ledger"], dict):
        rules = content["ledger"]["text"].encode()
        content["ledger"]["digest"] = digest_of_rules(rules)
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


def remarks(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str]]:
    """The exit code of a check, and its remarks."""
    capsys.readouterr()
    status = main.run(["claim", "check", str(path), "--json"])
    return status, json.loads(capsys.readouterr().out)["remarks"]


def content_of(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def test_every_point_has_its_settings_and_its_policy(written: Path) -> None:
    content = content_of(written)
    played = {(s, x): run for s, x, run in content["points"]}
    least = played["MBFCBS", 10.0]
    assert least["policy"] == "mbfcbs"
    assert least["settings"]["workload.jobs"] == "10"
    assert least["file"] in content["experiments"]
    assert digest_of_played(content["points"]) == content["played"]


def test_what_every_figure_plays_is_read_back_as_it_was() -> None:
    for figure in sections().values():
        played = figure.played(quick=False)
        read_back = json.loads(json.dumps(played, indent=1))
        assert digest_of_played(read_back) == figure.played_digest()


@pytest.mark.parametrize("name", ["dcloud-charging", "jsa-optimality"])
def test_a_figure_without_experiments_says_what_it_plays(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "made.claim.json"
    none = ("--results", str(tmp_path / "none"))
    assert main.run(["claim", name, "--out", str(path), *none]) == 0
    content = content_of(path)
    if name == "jsa-optimality":
        assert content["experiments"] == {}
    assert all(run["policy"] for _, _, run in content["points"])


def test_a_file_without_points_is_checked_still(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = content_of(written)
    del content["points"]
    content["digest"] = digest_of(content)
    written.write_text(json.dumps(content), "utf-8")
    status, _ = remarks(written, capsys)
    assert status == 0


def test_what_is_as_it_was_written_has_no_remark(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_history(claim_origin.TREE)
    content = content_of(written)
    content["ledger"]["commit"] = content["results"]["ledger"]["commit"]
    changed(written, ledger=content["ledger"])
    assert remarks(written, capsys) == (0, [])


def test_rules_and_points_of_another_digest_are_refused(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content_of(written)
    points = [*before["points"][1:], before["points"][0]]
    ledger = {**before["ledger"], "digest": "f" * 16}
    for part, value, message in (
        (
            "ledger",
            ledger,
            "its rules are not those of the ledger's digest",
        ),
        ("points", points, "its points are not those that it says"),
    ):
        content = {**before, part: value}
        content["digest"] = digest_of(content)
        written.write_text(json.dumps(content), "utf-8")
        assert main.run(["claim", "check", str(written)]) == 2
        assert message in capsys.readouterr().err


def test_commits_that_are_not_in_the_repository_get_a_remark(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_history(claim_origin.TREE)
    content = content_of(written)
    ledger = {**content["ledger"], "commit": "0" * 40}
    of_runs = {**content["results"]["ledger"], "commit": "--output=made"}
    code = {"commit": "0" * 40, "dirty": False}
    results = {**content["results"], "ledger": of_runs, "code": code}
    changed(written, ledger=ledger, results=results)
    status, noted = remarks(written, capsys)
    assert status == 0
    assert (
        f"its rules name {'0' * 40}, which has no such ledger here" in noted
    )
    assert "its runs name no commit of the ledger" in noted
    assert (
        "the code of its runs: its commit is not in the repository" in noted
    )
    # No word of the file is an option of git's.
    assert not Path("made").exists()
    assert not (claim_origin.TREE / "made").exists()


def test_rules_that_their_commit_does_not_have_get_a_remark(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_history(claim_origin.TREE)
    content = content_of(written)
    commit = content["results"]["ledger"]["commit"]
    text = content["ledger"]["text"].replace("above: 0", "above: -50")
    changed(written, ledger={"text": text, "commit": commit})
    _, noted = remarks(written, capsys)
    for whose in ("rules", "runs"):
        expected = (
            f"its {whose} name {commit}, where the ledger has other rules"
        )
        assert expected in noted


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "it names no commit"),
        ([], "it names no commit"),
        ({"commit": None, "dirty": None}, "it names no commit"),
        ({"commit": "--all", "dirty": False}, "it names no commit"),
        ({"commit": "deadbeef", "dirty": True}, "uncommitted changes"),
    ],
)
@pytest.mark.parametrize("with_history", [True, False])
def test_code_that_cannot_be_checked_out_gets_a_remark(
    written: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    code: object,
    reason: str,
    with_history: bool,
) -> None:
    checkout = {"commit": "0" * 40 if with_history else None}
    monkeypatch.setattr(claim_origin, "code", lambda _: checkout)
    changed(
        written, results={**content_of(written)["results"], "code": code}
    )
    _, noted = remarks(written, capsys)
    (of_code,) = [text for text in noted if "the code of its runs" in text]
    assert reason in of_code


def test_a_live_run_of_other_code_gets_a_remark(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_history(claim_origin.TREE)
    results = content_of(written)["results"]
    live_runs = [
        results["code"],
        {"commit": "0" * 40, "dirty": False},
        {"commit": "0" * 40, "dirty": False},
        "no run",
    ]
    changed(written, results={**results, "runs": live_runs})
    _, noted = remarks(written, capsys)
    of_runs = [text for text in noted if "the code of a live run" in text]
    assert of_runs == [
        "the code of a live run: it names no commit",
        "the code of a live run: its commit is not in the repository",
    ]


def test_without_a_history_that_alone_is_remarked_on(
    written: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_origin, "code", lambda _: {"commit": None})
    content = content_of(written)
    ledger = {**content["ledger"], "commit": "0" * 40}
    of_runs = {"digest": ledger["digest"], "commit": "0" * 40}
    results = {**content["results"], "ledger": of_runs}
    changed(written, ledger=ledger, results=results)
    assert remarks(written, capsys) == (
        0,
        ["its commits cannot be checked here: no checkout with a history"],
    )


def test_an_environment_without_its_parts_gets_a_remark(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(written, environment={})
    _, noted = remarks(written, capsys)
    for part in ("machine", "python", "packages"):
        assert f"its environment lacks {part}" in noted


def test_values_that_are_not_those_stored_of_the_commit_get_a_remark(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = content_of(written)["results"]
    commit = results["code"]["commit"]
    results["values of use"][0][2][0] += 1.0
    del results["values of use_early"][0]
    results["size"] = "quick"
    results["first_seed"] += 1
    changed(written, results=results)
    _, noted = remarks(written, capsys)
    parts = ("size", "first_seed", "values of use", "values of use_early")
    for part in parts:
        assert f"{part}: not as stored here of {commit}" in noted
    # Another commit's values may be others.
    results["code"] = {**results["code"], "commit": "0" * 40}
    changed(written, results=results)
    _, noted = remarks(written, capsys)
    assert not [text for text in noted if "stored here" in text]


def test_more_seeds_than_values_decide_nothing(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = content_of(written)["results"]
    results["seeds"] += 90
    changed(written, results=results)
    capsys.readouterr()
    assert main.run(["claim", "check", str(written), "--json"]) in (0, 1)
    record = json.loads(capsys.readouterr().out)
    assert {verdict for _, _, verdict in record["verdicts"]} == {
        "inconclusive"
    }
    assert (
        "use has not one value for each of its seeds" in record["remarks"]
    )


def test_runs_of_another_interpretation_get_a_remark(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {**content_of(written)["results"], "played": "0" * 16}
    changed(written, results=results)
    _, noted = remarks(written, capsys)
    assert "its runs played something else than its points say" in noted


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
        ("verdicts", [["a sentence", "free"]], "verdicts is not as long"),
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
        ("of: MBFCBS", "of: [[MBFCBS]]", "no point of it"),
        ("claims:", f"more: {'[' * 100_000}\nclaims:", "nested too deeply"),
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
    written: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_origin, "code", lambda _: {"commit": None})
    results = json.loads(written.read_text("utf-8"))["results"]
    results["ledger"] = {"digest": "0123456789abcdef", "commit": None}
    changed(written, results=results)
    assert main.run(["claim", "check", str(written)]) == 0
    assert (
        "its runs name another state of its rules, 0123456789abcdef"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "text", ["{", "{}", "[]", "5", '{"measures": 5}', '{"measures": []}']
)
def test_damaged_results_are_told_by_their_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mbfcbs-fig5" / "results.json"
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    assert (
        main.run(["claim", "mbfcbs-fig5", "--results", str(tmp_path)]) == 2
    )
    assert "results.json" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told_by_its_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = ("--results", str(tmp_path / "none"))
    out = ("--out", str(tmp_path / "nowhere" / "made.json"))
    assert main.run(["claim", "mbfcbs-fig5", *out, *none]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_run_begins_where_its_results_can_be_written(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ("--run", "--results", str(written))
    assert main.run(["claim", "check", str(written), *again]) == 2
    error = capsys.readouterr().err
    assert "is not a folder" in error
    assert "--results" in error


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
