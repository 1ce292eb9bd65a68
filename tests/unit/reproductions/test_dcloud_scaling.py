"""DCloud's Figure 10: points share a run, p is that run's, and its programs do what they say."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from reproductions import figure_runs
from reproductions.catalogue import LIVE_FIGURES
from reproductions.configuration import FOLDER
from reproductions.dcloud.dcloud_profiles import (
    ERRORS,
    FIFTH_CPU,
    FIFTH_NETWORK,
    WHOLE_CPU,
    WHOLE_NETWORK,
)
from reproductions.dcloud.dcloud_scaling import (
    CPU,
    FIGURES_10,
    MEASURES,
    NETWORK,
    PROFILED,
    RATIO,
    SAMPLED,
    XS,
    scaling_measures,
)
from reproductions.figure_runs import (
    Request,
    reproduce_live,
    write_live,
)
from reproductions.stored_results import stored
from testbed.play import playing
from testbed.record.reading import RecordedRun, load_run
from tests.support.live_backend import Scripted

PAGES = Path(__file__).parents[3] / "docs" / "papers"
PROGRAM = FOLDER / "dcloud" / "apps" / "map_reduce.py"


def test_the_example_is_the_figure_with_less_data() -> None:
    examples = Path(__file__).parents[3] / "examples"
    program = "apps/map_reduce.py"
    ours = (FOLDER / "dcloud" / program).read_bytes()
    assert (examples / program).read_bytes() == ours
    scheduled = []
    for file in (examples, FOLDER / "dcloud"):
        document = yaml.safe_load((file / "dcloud-fig10.yaml").read_text())
        for job in document["workload"]["jobs"]:
            # What a machine in use has room for: seconds and megabytes.
            del job["duration"], job["command"][-1]
        del document["scale"]
        scheduled.append(document)
    assert scheduled[0] == scheduled[1]


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES_10, ids=lambda one: one.name)
def test_all_points_of_a_figure_are_one_experiment(figure: object) -> None:
    from reproductions.live_figure import LiveFigure, digest

    assert isinstance(figure, LiveFigure)
    digests: dict[bool, set[str]] = {False: set(), True: set()}
    for quick, of_size in digests.items():
        for series, x in figure.points:
            variant = figure.variant(series, x, quick)
            of_size.add(digest(variant.repetition(1)))
    assert len(digests[False]) == len(digests[True]) == 1
    assert digests[False] != digests[True]


@pytest.fixture
def played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Scripted, figure_runs.LiveReproduced, Request]:
    monkeypatch.setattr(figure_runs, "live_pictures", lambda *_: {})
    monkeypatch.setattr(playing, "write_report", lambda *_: None)
    monkeypatch.setattr(
        playing, "provenance", lambda **_: {"code": {"commit": "abc"}}
    )
    backend = Scripted()
    request = Request(tmp_path, 2, quick=False, command=["testbed"])
    figure = LIVE_FIGURES[FIGURES_10[0].name]
    found = reproduce_live(figure, request, backend, lambda _: None)
    return backend, found, request


@pytest.mark.slow
def test_points_share_a_run_for_each_seed(
    played: tuple[Scripted, figure_runs.LiveReproduced, Request],
) -> None:
    backend, found, request = played
    assert len(backend.played) == 2
    grid = found.done.grid
    for series in (NETWORK, CPU):
        for x in XS:
            assert grid.values(RATIO, series, x) == pytest.approx([1, 1])
        assert grid.values(PROFILED, series, 750.0) == pytest.approx([4, 4])
        # The file guesses 1 s for a fifth of the input of 4 s.
        assert grid.values(SAMPLED, series, 750.0) == pytest.approx(
            [25, 25]
        )
    _, record = write_live(found, request)
    assert [run["seed"] for run in record["runs"]] == [10, 11]
    # A simulated command takes its estimate. Two seeds, where the ledger asks
    # for more, decide nothing.
    verdicts = {
        judged.claim.text: judged.verdict for judged in found.done.judged
    }
    close = "The CPU-limited program is close to its estimate"
    assert verdicts[close] == "inconclusive"


@pytest.mark.slow
def test_a_program_that_failed_leaves_no_measure(
    played: tuple[Scripted, figure_runs.LiveReproduced, Request],
) -> None:
    _, found, _ = played
    run = load_run(found.outcomes[NETWORK, 750.0][0].live.path)
    rows = (*run.rows[:-1], replace(run.rows[-1], outcome="killed"))
    broken: RecordedRun = replace(run, rows=rows)
    measures = scaling_measures(broken, NETWORK, 300.0)
    assert measures.keys() == {measure.name for measure in MEASURES}
    assert all(math.isnan(value) for value in measures.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "said"),
    [("sort", "records from"), ("count", "words,")],
)
def test_the_programs_exchange_what_they_say(job: str, said: str) -> None:
    # Another worker may play the other program: this process's addresses.
    network = f"127.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
    addresses = [f"{network}.{host}" for host in (1, 2, 3)]
    ranks = []
    for rank in range(len(addresses)):
        environment = {
            **os.environ,
            "HOSENET_RANK": str(rank),
            "HOSENET_PEERS": ",".join(addresses),
        }
        command = [sys.executable, str(PROGRAM), job, "0.3", "5377"]
        ranks.append(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    total = 0
    for rank in ranks:
        printed, _ = rank.communicate(timeout=60)
        assert rank.returncode == 0
        assert said in printed
        total += int(printed.split(": ")[1].split()[0])
    # Nothing is lost on the way: 1,000-byte records, 7-byte words.
    each = {"sort": 300, "count": 42_857}[job]
    assert total == 3 * each


@pytest.mark.parametrize(
    ("program", "whole", "fifth"),
    [
        (NETWORK, WHOLE_NETWORK, FIFTH_NETWORK),
        (CPU, WHOLE_CPU, FIFTH_CPU),
    ],
)
def test_errors_of_profiles_are_those_of_the_stored_figure_10(
    program: str, whole: int, fifth: int
) -> None:
    """They were once those of an earlier result."""
    grid = stored(PAGES)["dcloud-fig10-live"].done.grid
    full = XS[0]
    ratios = grid.values(RATIO, program, full)
    assert ERRORS[whole] == pytest.approx(
        (min(ratios) - 1.0, max(ratios) - 1.0), abs=1e-3
    )
    # p was too great by so much: the job then takes less than stated.
    shares = [
        value / 100.0 for value in grid.values(SAMPLED, program, full)
    ]
    expected = (
        1.0 / (1.0 + max(shares)) - 1.0,
        1.0 / (1.0 + min(shares)) - 1.0,
    )
    assert ERRORS[fifth] == pytest.approx(expected, abs=1e-3)
