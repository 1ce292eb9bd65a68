from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed import events
from testbed.cli.main import run
from testbed.record.comparison import (
    PolicyComparison,
    _names,
    compare_runs,
    decisions,
    first_difference,
)
from testbed.record.metrics import Summary
from testbed.record.reading import load_run
from testbed.report.comparison_sentences import (
    decision_sentences,
    details,
    in_words,
)

pytestmark = pytest.mark.usefixtures("undrawn")


def started(
    job_id: str, at_s: float, server: int = 0
) -> list[events.Event]:
    return [
        events.JobReserved(
            at_s, job_id, at_s, None, 5, 1.0, 4, [[server, 2]], [[0, 5]]
        ),
        events.JobStarted(at_s, job_id, 5),
    ]


HISTORY: list[events.Event] = [
    *started("a", 1.0),
    events.JobProgress(1.5, "a", 10, 0.5),
    *started("b", 2.0, 1),
    events.JobEnded(3.0, "a", "finished", "", 2.0, {"rate": 1}),
    events.JobEnded(4.0, "c", "rejected", "no room", None, {}),
    events.JobRescaled(5.0, "b", 7, []),
    events.JobEnded(
        6.0, "b", "killed", "its reservation ended before it did", None, {}
    ),
]


def test_times_ends_and_progress_are_no_decisions() -> None:
    later = [replace(event, t=event.t + 0.3) for event in HISTORY]
    named = [(d.job_id, d.name) for d in decisions(HISTORY)]
    assert named == [
        ("a", "reserved"), ("a", "started"), ("b", "reserved"), ("b", "started"),
        ("c", "rejected"), ("b", "rescaled"), ("b", "killed"),
    ]  # fmt: skip
    assert first_difference(decisions(HISTORY), decisions(later)) is None


def test_another_place_is_the_first_difference() -> None:
    other = [*started("a", 1.0), *started("b", 2.0, 3), *HISTORY[5:]]
    found = first_difference(decisions(HISTORY), decisions(other))
    assert found is not None
    assert found.place == 3
    assert found.first is not None
    assert found.second is not None
    assert "2 VMs on server 1" in in_words(found.first)
    assert "2 VMs on server 3" in in_words(found.second)


def test_a_run_that_stops_earlier_differs_where_it_stops() -> None:
    found = first_difference(decisions(HISTORY), decisions(HISTORY[:-1]))
    assert found is not None
    assert (found.place, found.second) == (7, None)


def test_a_kill_by_the_backend_is_no_decision() -> None:
    broken = events.JobEnded(
        6.0, "b", "killed", "VM 1: its port is gone", None, {"vms": []}
    )
    assert decisions([broken]) == []


def test_a_decision_is_told_in_words() -> None:
    (reserved, begun, *_), last = decisions(HISTORY), decisions(HISTORY)[-2]
    assert in_words(reserved) == (
        "a reserved (at 5 bit/s, topmost switch 4, 2 VMs on server 0,"
        " in the foreground)"
    )
    assert in_words(reserved, ("root", "tier")) == (
        "a reserved (at 5 bit/s, 2 VMs on server 0)"
    )
    assert "None" not in in_words(begun)
    assert in_words(last) == "b rescaled (at 7 bit/s)"


LATER = """\
name: later
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 1}
policies: [fcfs]
workload:
  kind: jobs
  jobs:
    - {id: first, at: 0 s, vms: 2, bandwidth: 9 Mbit/s, duration: 30 s}
    - {id: second, at: AT s, vms: 2, bandwidth: 9 Mbit/s, duration: 20 s}
"""


def compared(tmp_path: Path, *at_s: int) -> PolicyComparison:
    folders = []
    for place, start_s in enumerate(at_s):
        path = tmp_path / f"{place}.yaml"
        path.write_text(LATER.replace("AT", str(start_s)))
        assert (
            run(["simulate", str(path), "--out", f"{tmp_path}/{place}"])
            == 0
        )
        folders += [
            each.parent for each in tmp_path.glob(f"{place}/**/jobs.csv")
        ]
    return compare_runs(*map(load_run, folders))


@pytest.mark.slow
def test_differences_of_time_are_differences(tmp_path: Path) -> None:
    found = compared(tmp_path, 40, 70)
    assert found.same_decisions
    (first_name, second_name) = found.names
    (times,) = decision_sentences(found)
    assert times.endswith("second is reserved at 40.00 s and at 70.00 s")
    running, ends, rates = details(found)
    assert running == "2 jobs that finished in both ran equally long"
    assert ends == (
        "half of them ended within 15.00 s of each other; second ended"
        f" 30.00 s later with {second_name}"
    )
    assert rates == "success rate: the same"
    assert first_name != second_name
    (second,) = [pair for pair in found.jobs if pair.job_id == "second"]
    assert (second.start_s, second.later_s) == ((40.0, 70.0), 30.0)
    assert second.completion_difference == 0


@pytest.mark.slow
def test_runs_of_one_policy_are_told_apart(tmp_path: Path) -> None:
    first, second = compared(tmp_path, 40, 40).names
    assert first != second
    assert first.startswith("fcfs (simulated, ")


def test_runs_that_began_in_the_same_second_are_told_apart() -> None:
    runs = []
    for folder in ("a", "b"):
        path = Path(folder, "20261127T022818Z-later-s1")
        started = SimpleNamespace(policy="fcfs", backend="sim", seed=1)
        runs.append(SimpleNamespace(started=started, path=path))
    first, second = _names(*runs)  # type: ignore[arg-type]
    assert first == "fcfs (simulated, a/20261127T022818Z-later-s1)"
    assert second == "fcfs (simulated, b/20261127T022818Z-later-s1)"


@pytest.mark.slow
def test_the_table_has_the_names_of_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(tmp_path, 40, 70)
    folders = sorted(map(str, (tmp_path / "0").iterdir()))
    capsys.readouterr()
    assert run(["compare", folders[0], folders[0]]) == 0
    printed = capsys.readouterr().out
    # The second table is of jobs.
    metrics_table = printed.partition("└")[0]
    for line in metrics_table.splitlines():
        if "│" in line:
            name = line.split("│")[1].strip()
            assert name in Summary.__dataclass_fields__
    assert "bounded_slowdown_mean" in printed
