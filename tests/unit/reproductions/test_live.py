"""Live reproductions, with a scripted backend in place of the live network."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reproductions import (
    catalogue,
    configuration,
    figure_runs,
    first_page,
    live_figure,
    paper_pages,
    stored_results,
)
from reproductions import reproduce as command
from reproductions.claim_checks import Claim
from reproductions.claim_ledger import path_of
from reproductions.configuration import Variant
from reproductions.figure_runs import (
    LiveReproduced,
    Request,
    reproduce_live,
    write_live,
)
from reproductions.grid_quantities import Grid
from reproductions.live_figure import (
    FIDELITY,
    SLOTS,
    SUCCESS,
    WALL,
    Curves,
    LiveFigure,
    digest,
    mean_until,
    simulated,
    slots_in_use,
)
from reproductions.published_figure import Panel, Reproduced
from testbed import events
from testbed.cli import main, options
from testbed.play import playing
from testbed.record.reading import load_run
from testbed.sweeps.result_store import SweepProgress
from tests.support.live_backend import Scripted, example
from tests.support.made_claims import (
    audited,
    backends_agree,
    estimates_kept,
    more,
    replays_alike,
    sound,
)

VC, BL = "VC", "BL"
XS = (1.0,)


def figure(series: tuple[str, ...] = (VC, BL)) -> LiveFigure:
    def played(series: str, x: float, quick: bool) -> Variant:
        settings = (("workload.jobs[2].vms", "3"),) if quick else ()
        return Variant("made.yaml", series.lower(), settings)

    return LiveFigure(
        name="made-live",
        title="Three jobs",
        source="Nobody, Fig. 2",
        x_label="x",
        xs=XS,
        series=series,
        variant=played,
        curves=(Curves("use", "time [s]", slots_in_use, XS[0]),),
        panels=(
            Panel(SUCCESS, {(VC, 1.0): 50.0}),
            Panel(simulated(SUCCESS)),
        ),
        claims=(
            Claim(
                "BL meets more deadlines",
                "BL > VC",
                more(SUCCESS, BL, (VC,), XS),
            ),
            sound(series, XS),
            audited(series, XS),
            estimates_kept((VC,), XS, 0.12),
            backends_agree(series, XS),
            replays_alike(series, XS),
        ),
        also=(SLOTS, FIDELITY, WALL),
        size="three jobs",
        seeds=1,
    )


@pytest.fixture(autouse=True)
def _examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(tmp_path)
    monkeypatch.setattr(configuration, "FOLDER", tmp_path)
    # Reports and the list of installed packages take longer than all that is tested here.
    monkeypatch.setattr(playing, "write_report", lambda *_: None)
    monkeypatch.setattr(
        playing, "provenance", lambda **_: {"code": {"commit": "abc"}}
    )
    monkeypatch.setenv("COLUMNS", "200")


DRAWN = figure_runs._drawn_place


@pytest.fixture(autouse=True)
def _in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in the order of the figure's points."""
    monkeypatch.setattr(
        figure_runs, "_drawn_place", lambda point: point.repetition
    )


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take half a second each, and say nothing about what these tests are about."""
    monkeypatch.setattr(figure_runs, "live_pictures", lambda *_: {})


def request(tmp_path: Path, seeds: int = 1) -> Request:
    return Request(
        tmp_path / "out", seeds, quick=False, command=["testbed"]
    )


def run(
    tmp_path: Path,
    backend: Scripted,
    *,
    again: bool = False,
    one: LiveFigure | None = None,
) -> LiveReproduced:
    told: list[SweepProgress] = []
    found = reproduce_live(
        one or figure(),
        request(tmp_path),
        backend,
        told.append,
        again=again,
    )
    stages = [now.stage for now in told]
    runs = [now for now in told if not now.stage]
    assert stages[0] == "simulating first"
    assert stages[-1] == "replaying and auditing"
    assert runs[-1].done == runs[-1].of
    assert [now.cost for now in runs] == sorted(now.cost for now in runs)
    return found


def verdicts(found: LiveReproduced) -> list[str]:
    """By one repetition: a scripted backend leaves nothing to chance."""
    grid = Grid(found.done.grid.runs, exact=True)
    claims = found.done.figure.claims
    return [claim.judge(grid).verdict for claim in claims]


@pytest.mark.slow
def test_what_was_run_is_judged_and_written(tmp_path: Path) -> None:
    backend = Scripted()
    found = run(tmp_path, backend)
    assert backend.played == ["vc", "bl"]
    assert verdicts(found) == ["reproduced"] * 6
    assert found.done.grid.values(SUCCESS, VC, 1.0) == pytest.approx(
        [200 / 3]
    )
    assert found.done.grid.values(SUCCESS, BL, 1.0) == pytest.approx(
        [100.0]
    )
    folder, written = write_live(found, request(tmp_path))
    assert (folder.path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "three jobs" in (folder.path / "table.md").read_text()
    assert [r["verdict"] for r in written["runs"]] == ["ok", "ok"]
    assert written["runs"][0]["replay"] == "every decision the same"
    assert Path(written["runs"][0]["folder"], "jobs.csv").is_file()
    assert written["runs"][0]["commit"] == "abc"


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_no_series_is_always_the_first_of_a_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_runs, "_drawn_place", DRAWN)
    backend = Scripted()
    # The draws hang on the digest of the sources: all of a few may be alike.
    reproduce_live(
        figure(), request(tmp_path, seeds=24), backend, lambda _: None
    )
    pairs = set(zip(backend.played[::2], backend.played[1::2], strict=True))
    assert pairs == {("vc", "bl"), ("bl", "vc")}


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_repetitions_are_doubled_until_every_claim_is_decided(
    tmp_path: Path,
) -> None:
    def seeds_of(made: LiveFigure, seeds: int, most: int) -> list[int]:
        backend = Scripted()
        wanted = replace(request(tmp_path, seeds), most=most)
        found = reproduce_live(made, wanted, backend, lambda _: None)
        assert found.done.stages == wanted.stages
        return [found.done.seeds, len(backend.played)]

    # Two repetitions decide, though by as much for either, that BL meets
    # more: identical values need six for a claim of the paper.
    own = replace(figure().claims[0], status="own check")
    assert seeds_of(replace(figure(), claims=(own,)), 2, 8) == [2, 4]
    # Runs of the first look are kept for the second.
    assert seeds_of(figure(), 2, 4) == [4, 4]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_repetitions_after_the_first_are_played_alone(
    tmp_path: Path,
) -> None:
    backend = Scripted()
    later = replace(figure(), first_seed=3)
    found = reproduce_live(
        later, request(tmp_path, seeds=2), backend, lambda _: None
    )
    _, written = write_live(found, request(tmp_path))
    assert [r["seed"] for r in written["runs"]] == [7, 8, 7, 8]
    assert (written["first_seed"], written["seeds"]) == (3, 2)
    whole = Scripted()
    reproduce_live(
        figure(), request(tmp_path, seeds=4), whole, lambda _: None
    )
    assert len(whole.played) == 4


@pytest.mark.slow
def test_a_live_run_that_is_there_is_not_run_again(tmp_path: Path) -> None:
    run(tmp_path, Scripted())
    second = Scripted()
    found = run(tmp_path, second)
    assert second.played == []
    assert verdicts(found) == ["reproduced"] * 6


@pytest.mark.slow
def test_another_text_is_another_run(tmp_path: Path) -> None:
    run(tmp_path, Scripted())
    path = tmp_path / "made.yaml"
    path.write_text(
        path.read_text().replace("duration: 6 s", "duration: 7 s")
    )
    second = Scripted()
    run(tmp_path, second)
    assert second.played == ["vc", "bl"]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_another_program_plays_again_and_leaves_the_runs_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, Scripted())
    with monkeypatch.context() as changed:
        changed.setattr(
            live_figure, "modules_digest", lambda **_: "another"
        )
        second = Scripted()
        again = run(tmp_path, second)
        assert second.played == ["vc", "bl"]
        _, written = write_live(again, request(tmp_path))
        assert [r["attempts"] for r in written["runs"]] == [1, 1]
    third = Scripted()
    run(tmp_path, third)
    assert third.played == []


def test_a_live_result_is_old_with_one_run_of_a_commit_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        stored_results,
        "unsound_commit",
        lambda code: "" if code.get("commit") == "there" else "it is gone",
    )
    drawn = figure()
    runs = [{"commit": "there"}, {"commit": "lost"}, {"commit": "there"}]
    result = stored_results.StoredResult(
        done=Reproduced(drawn, seeds=1, quick=False, grid=Grid({})),
        record={
            "code": {"commit": "there"},
            "played": drawn.played_digest(),
            "runs": runs,
        },
        old="",
        in_advance=True,
    )
    assert result.runs_at == {"there": 2, "lost": 1}
    assert stored_results.standing(result) == "a live run: it is gone"
    runs[1]["commit"] = "there"
    assert stored_results.standing(result) == ""


def test_rules_are_first_where_every_live_run_s_commit_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = catalogue.LIVE_FIGURES["mbfcbs-leases"]
    now = path_of(drawn.section).read_text("utf-8")
    states = {"ruled": now, "played": now, "before": None}
    states["weaker"] = now.replace("seeds: 3", "seeds: 2")
    assert states["weaker"] != now
    monkeypatch.setattr(
        stored_results, "content_at", lambda commit, _: states[commit]
    )

    def first(*commits: str | None) -> bool:
        result = stored_results.StoredResult(
            done=Reproduced(drawn, seeds=3, quick=False, grid=Grid({})),
            record={
                "ledger": {"commit": "ruled"},
                "runs": [{"commit": commit} for commit in commits],
            },
            old="",
            in_advance=False,
        )
        return stored_results.rules_first(result)

    assert first("played", "ruled", None)
    assert not first("played", "before")
    assert not first("weaker", "played")


def test_a_remark_in_the_file_is_not(tmp_path: Path) -> None:
    first = digest(Variant("made.yaml", "vc").repetition(1))
    path = tmp_path / "made.yaml"
    path.write_text("# a remark\n" + path.read_text())
    assert digest(Variant("made.yaml", "vc").repetition(1)) == first
    assert digest(Variant("made.yaml", "vc").repetition(2)) != first
    assert digest(Variant("made.yaml", "bl").repetition(1)) != first


@pytest.mark.slow
def test_an_interrupted_run_is_run_again_and_the_whole_ones_are_kept(
    tmp_path: Path,
) -> None:
    first = Scripted(stops_at=1)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, first)
    assert first.played == ["vc", "bl"]
    second = Scripted()
    found = run(tmp_path, second)
    assert second.played == ["bl"]
    assert verdicts(found) == ["reproduced"] * 6


@pytest.mark.slow
def test_an_invalid_run_decides_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, Scripted(levels=("ok", "invalid")))
    grid = found.done.grid
    assert math.isnan(grid.runs[BL, 1.0][0][SUCCESS.name])
    assert grid.values(SUCCESS, BL, 1.0) == (None,)
    assert grid.has_invalid
    # What it was simulated with has a value, and its fidelity has one.
    assert grid.values(simulated(SUCCESS), BL, 1.0) == pytest.approx([100])
    assert grid.values(FIDELITY, BL, 1.0) == (2.0,)
    assert (
        verdicts(found)
        == ["inconclusive", "not reproduced"]
        + ["reproduced"] * 2
        + ["inconclusive"] * 2
    )


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("level", ["suspect", "invalid"])
def test_a_run_that_is_not_ok_is_run_again_if_so_asked_and_the_tries_are_reported(
    tmp_path: Path, level: str
) -> None:
    run(tmp_path, Scripted(levels=("ok", level)))
    second = Scripted()
    found = run(tmp_path, second, again=True)
    assert second.played == ["bl"]
    assert verdicts(found) == ["reproduced"] * 6
    _, written = write_live(found, request(tmp_path))
    assert [r["attempts"] for r in written["runs"]] == [1, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_tries_go_by_the_number_of_the_last_one(tmp_path: Path) -> None:
    suspect = Scripted(levels=("suspect",))
    one = figure((VC,))
    for _ in range(3):
        run(tmp_path, suspect, again=True, one=one)
    (first,) = (tmp_path / "out" / "live").glob("*/live.1")
    shutil.rmtree(first)
    (first.parent / "live.9-copy").mkdir()
    found = run(tmp_path, suspect, again=True, one=one)
    assert [r["attempts"] for r in figure_runs.runs_of(found)] == [4]
    assert (first.parent / "live.3" / "jobs.csv").is_file()


@pytest.mark.slow
def test_a_run_that_outlasts_its_estimate_takes_no_progress_back(
    tmp_path: Path,
) -> None:
    backend = Scripted()
    backend.slow = 8.0
    run(tmp_path, backend)


@pytest.mark.slow
def test_root_follows_no_link_in_the_place_of_a_runs_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = figure((VC,))
    run(tmp_path, Scripted(levels=("suspect",)), one=one)
    above = tmp_path / "out" / "live"
    above.chmod(0o777)
    (runs,) = above.iterdir()
    victim = tmp_path / "victim"
    runs.rename(victim)
    runs.symlink_to(victim)
    before = sorted(victim.rglob("*"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (point,) = figure_runs._points(one, request(tmp_path))
    with pytest.raises(OSError, match="is a link"):
        figure_runs._run_live(point, Scripted(), lambda _: None)
    with pytest.raises(OSError, match="is a link"):
        figure_runs._empty_folder(point, figure_runs.SIMULATED)
    assert sorted(victim.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_out_may_be_a_link_for_root_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (catalogue, command):
        monkeypatch.setattr(module, "LIVE_FIGURES", {"made-live": figure()})
    monkeypatch.setattr(command, "Machine", lambda *_: Scripted())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tmp_path.chmod(0o777)
    (tmp_path / "elsewhere").mkdir()
    out = tmp_path / "out"
    out.symlink_to(tmp_path / "elsewhere")
    arguments = ["reproduce", "made-live", "--live", "--out", str(out)]
    assert main.run(arguments) == 0
    assert (tmp_path / "elsewhere" / "made-live" / "table.md").is_file()
    out.unlink()
    out.symlink_to(out)
    assert main.run(arguments) == 2


@pytest.mark.usefixtures("undrawn")
def test_a_backend_that_is_slow_is_found_out_by_all_but_the_replay(
    tmp_path: Path,
) -> None:
    backend = Scripted()
    backend.slow = 1.25
    found = run(tmp_path, backend)
    assert verdicts(found) == ["reproduced"] * 3 + [
        "not reproduced"
    ] * 2 + ["reproduced"]


@pytest.mark.slow
def test_a_live_run_that_its_audit_refutes_is_reported(
    tmp_path: Path,
) -> None:
    found = run(tmp_path, Scripted())
    path = found.outcomes[(VC, 1.0)][0].live.path / "events.jsonl"
    lines = path.read_text().splitlines()
    number = next(
        k for k, line in enumerate(lines) if '"job_reserved"' in line
    )
    reserved = json.loads(lines[number])
    lines[number] = json.dumps(
        reserved | {"estimate_s": reserved["estimate_s"] + 1.0}
    )
    path.write_text("\n".join(lines) + "\n")
    found = run(tmp_path, Scripted())
    assert verdicts(found)[2] == "not reproduced"
    _, written = write_live(found, request(tmp_path))
    refuted = ["estimates", "jobs.csv", "summary", "expectations"]
    assert [r["audit"] for r in written["runs"]] == [refuted, "passed"]


def test_where_there_is_no_root_nothing_is_begun(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(options.os, "geteuid", lambda: 1000)
    for module in (catalogue, command):
        monkeypatch.setattr(module, "LIVE_FIGURES", {"made-live": figure()})
    out = str(tmp_path / "out")
    assert main.run(["reproduce", "made-live", "--live", "--out", out]) == 3
    shown = capsys.readouterr().err
    assert "needs root" in shown
    assert "sudo testbed reproduce made-live --live" in shown
    assert not list((tmp_path / "out").rglob("live/*/live"))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_command_prints_runs_and_claims(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in (catalogue, command):
        monkeypatch.setattr(module, "LIVE_FIGURES", {"made-live": figure()})
    monkeypatch.setattr(
        command, "Machine", lambda *_: Scripted(levels=("ok", "suspect"))
    )
    arguments = [
        "reproduce",
        "made-live",
        "--live",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main.run(arguments) == 0
    shown = capsys.readouterr()
    assert "made up to be suspect" in shown.out
    assert "BL meets more deadlines" in shown.out
    # One seed decides nothing, so that nothing is not reproduced.
    assert main.run([*arguments, "--json", "--strict"]) == 0
    printed: Any = json.loads(capsys.readouterr().out)[0]
    assert [r["verdict"] for r in printed["runs"]] == ["ok", "suspect"]


def test_a_live_figure_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["reproduce", "dcloud-fig11"]) == 2
    assert (
        "sudo testbed reproduce dcloud-fig11 --live"
        in capsys.readouterr().err
    )
    assert main.run(["reproduce", "dcloud-fig5", "--live"]) == 2
    assert "only simulated" in capsys.readouterr().err
    assert main.run(["reproduce", "dcloud-fig5", "--again"]) == 2
    assert "--again is for --live" in capsys.readouterr().err
    assert main.run(["reproduce", "--list", "--json"]) == 0
    backends = {
        row["name"]: row["backend"]
        for row in json.loads(capsys.readouterr().out)
    }
    assert backends["dcloud-fig11"] == "live"
    assert backends["dcloud-fig5"] == "simulated"


def test_no_two_figures_share_a_folder() -> None:
    """AdaBa's Figure 4 is simulated and measured live: the results of the second
    replaced those of the first.
    """
    folders = [
        catalogue.folder_of(each)
        for each in stored_results.sections().values()
    ]
    assert len(set(folders)) == len(folders)
    assert (
        catalogue.folder_of(catalogue.LIVE_FIGURES["adaba-fig4"])
        == "adaba-fig4-live"
    )
    assert (
        catalogue.folder_of(catalogue.LIVE_FIGURES["dcloud-fig11"])
        == "dcloud-fig11"
    )


def test_live_results_in_a_simulated_figures_folder_are_passed_over(
    tmp_path: Path,
) -> None:
    """As of a version that had both in one folder."""
    folder = tmp_path / "out" / "adaba-fig4"
    folder.mkdir(parents=True)
    record = {"name": "adaba-fig4", "runs": [], "first_seed": 1}
    (folder / "results.json").write_text(json.dumps(record))
    assert stored_results.take_in(tmp_path / "out", tmp_path) == []


@pytest.mark.slow
def test_the_page_takes_live_results_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(tmp_path, Scripted(levels=("ok", "invalid")))
    write_live(found, request(tmp_path))
    monkeypatch.setattr(stored_results, "FIGURES", {})
    monkeypatch.setattr(
        stored_results, "LIVE_FIGURES", {"made-live": figure()}
    )
    monkeypatch.setattr(paper_pages, "paper_of", lambda _: "dcloud")
    monkeypatch.setattr(first_page, "paper_of", lambda _: "dcloud")
    assert stored_results.take_in(tmp_path / "out", tmp_path) == [
        "made-live-live"
    ]
    parts = paper_pages.generated_parts(tmp_path)
    assert (
        "BL at 1, seed 5: invalid, made up to be invalid."
        in parts["dcloud"]
    )
    assert "2 live runs: fidelity 1 ok, 1 invalid." in parts["dcloud"]
    assert (
        "`sudo testbed reproduce made-live --seeds 1 --live`"
        in parts["dcloud"]
    )
    assert "Measured on the live network:" in parts["README"]


@pytest.mark.usefixtures("undrawn")
def test_use_of_slots_is_that_of_running_jobs(tmp_path: Path) -> None:
    found = run(tmp_path, Scripted())
    curve = slots_in_use(load_run(found.outcomes[VC, 1.0][0].live.path))
    # Job a holds 4 of 8 slots for 6 s, job c 2 of them for 4 s from 20 s on.
    assert dict(curve) == pytest.approx(
        {0.0: 0.5, 6.0: 0.0, 20.0: 0.25, 24.0: 0.0}
    )
    assert mean_until(curve, 24.0) == pytest.approx(
        (6 * 0.5 + 4 * 0.25) / 24
    )
    assert mean_until(curve, 3.0) == pytest.approx(0.5)


def test_a_requeued_job_uses_no_slots_while_it_waits() -> None:
    stream = [
        events.JobStarted(1.0, "a", 0),
        events.JobRequeued(4.0, "a", "server 0 is lost"),
        events.JobStarted(9.0, "a", 0),
        events.JobEnded(
            t=12.0,
            job_id="a",
            outcome="finished",
            reason="",
            measured_s=3.0,
            detail={},
        ),
    ]
    recorded: Any = SimpleNamespace(
        started=SimpleNamespace(topology={"slots": [4]}),
        rows=(SimpleNamespace(job_id="a", n_vms=2),),
        file=SimpleNamespace(events=stream),
    )
    assert slots_in_use(recorded) == [
        (0.0, 0.0),
        (1.0, 0.5),
        (4.0, 0.0),
        (9.0, 0.5),
        (12.0, 0.0),
    ]
