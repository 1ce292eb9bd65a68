"""Short names of runs, wherever a command takes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli.main import run as command
from testbed.errors import BadInput
from testbed.interface.finished_run import open_run
from testbed.record.folder import EVENTS
from testbed.record.run_names import run_folder

pytestmark = pytest.mark.usefixtures("undrawn")

RUNS = (
    "20260101T000000Z-day-s1",
    "20260102T000000Z-day-s2",
    "20260103T000000Z-day-large-s1",
    "20260103T000000Z-night-sweep",
)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in RUNS:
        for policy in ("dcloud", "dcloud-ts", "vc"):
            folder = Path("runs") / name / policy
            folder.mkdir(parents=True)
            (folder / EVENTS).touch()
    return Path("runs")


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("latest", RUNS[2]),
        ("latest/vc", f"{RUNS[2]}/vc"),
        ("day", RUNS[1]),
        ("day-s1", RUNS[0]),
        ("day-s1/dcloud", f"{RUNS[0]}/dcloud"),
        ("da", RUNS[2]),
        ("20260102", RUNS[1]),
        ("runs/day/v", f"{RUNS[1]}/vc"),
        (f"runs/{RUNS[0]}/dcloud-", f"{RUNS[0]}/dcloud-ts"),
    ],
)
def test_a_run_has_short_names(
    runs: Path, written: str, found: str
) -> None:
    assert run_folder(Path(written)) == runs / found


def test_a_folder_that_exists_is_meant_itself(runs: Path) -> None:
    Path("day").mkdir()
    assert run_folder(Path("day")) == Path("day")
    assert run_folder(Path("elsewhere")) == Path("elsewhere")
    assert run_folder(runs.absolute() / "day") == runs.absolute() / "day"


@pytest.mark.parametrize("verb", ["audit", "report", "share"])
def test_where_no_run_is_there_is_no_latest(
    verb: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command([verb, "latest"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(
        "error: there is no run in runs\nhint: `testbed"
    )
    assert command([verb, "nowhere"]) == 2
    assert "error: nowhere is not a folder\n" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["dclo", "easy", "vc/more"])
def test_a_policy_that_is_none_or_several_is_refused(
    runs: Path, policy: str
) -> None:
    with pytest.raises(BadInput, match="has no policy") as caught:
        run_folder(Path("latest") / policy)
    assert caught.value.hint == "it has: dcloud, dcloud-ts, vc"
    assert runs.is_dir()


def test_a_folder_beside_the_policies_is_none_of_them(runs: Path) -> None:
    run = runs / RUNS[0]
    (run / "logs").mkdir()
    (run / "lcfs").mkdir()
    (run / "lcfs" / EVENTS).touch()
    assert run_folder(Path("day-s1/l")) == run / "lcfs"
    with pytest.raises(BadInput) as caught:
        run_folder(Path("day-s1/log"))
    assert caught.value.hint == "it has: dcloud, dcloud-ts, lcfs, vc"


def test_a_policy_of_a_later_run_is_not_called_an_earlier_ones(
    runs: Path,
) -> None:
    run = runs / "20250101T000000Z-day-s1"
    run.mkdir()
    with pytest.raises(BadInput) as caught:
        run_folder(run / "vc")
    later = runs / RUNS[0] / "vc"
    assert caught.value.hint == f"it has: none; {later} is another run's"


TWO = """\
name: pair
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, fcfs]
workload:
  kind: jobs
  jobs: [{id: a, at: 0 s, vms: 3, bandwidth: 100 Mbit/s, duration: 5 s}]
"""


@pytest.mark.slow
def test_every_command_on_runs_takes_a_short_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pair.yaml").write_text(TWO)
    for _ in range(2):
        assert command(["simulate", "pair.yaml"]) == 0
    for arguments in (
        ["audit", "latest"],
        ["explain", "pair/vc", "a"],
        ["report", "pair-s1/fcfs"],
        ["compare", "pair/v", "latest/f"],
    ):
        assert command(arguments) == 0
    latest = max(Path("runs").iterdir())
    assert f"pair/v is {latest}/vc" in capsys.readouterr().err
    assert open_run("latest").folder == latest.absolute()


@pytest.mark.slow
def test_the_only_policy_of_a_run_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pair.yaml").write_text(TWO.replace("[vc, fcfs]", "[vc]"))
    assert command(["simulate", "pair.yaml"]) == 0
    (run,) = Path("runs").iterdir()
    assert run_folder(Path("pair/vc")) == run
    with pytest.raises(BadInput, match="has no policy 'fcfs'"):
        run_folder(Path("pair/fcfs"))
    # An earlier run of that name may have had others.
    earlier = run.with_name(f"20000101T000000Z-pair-s{run.name[-1]}")
    (earlier / "fcfs").mkdir(parents=True)
    (earlier / "fcfs" / "events.jsonl").touch()
    with pytest.raises(BadInput) as caught:
        run_folder(Path("pair/fcfs"))
    assert (
        caught.value.hint == f"it has: vc; {earlier}/fcfs is another run's"
    )
