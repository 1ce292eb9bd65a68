"""Lies about failures, one at a time, each shown by the events or by the experiment's list."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import events
from testbed.audit import audit
from tests.unit.record import failing, sample
from tests.unit.record.written import (
    Mutation,
    Record,
    mutate,
    one,
    write_run,
)


def without(event: str, nth: int = 0) -> Mutation:
    """The nth record of a kind taken out."""

    def lie(records: list[Record]) -> None:
        records.remove(one(records, event, nth=nth))

    return lie


def changed(event: str, nth: int = 0, **values: object) -> Mutation:
    def lie(records: list[Record]) -> None:
        one(records, event, nth=nth).update(values)

    return lie


def put_on_a_lost_server(records: list[Record]) -> None:
    one(records, "job_reserved", "first", 1)["vms_on"] = [[0, 2]]


def moved_over_a_lost_link(records: list[Record]) -> None:
    before = one(records, "job_reserved", "wide")
    one(records, "job_rerooted").update(
        root=before["root"], links=before["links"]
    )


def put_over_a_lost_link(records: list[Record]) -> None:
    """``pair`` comes only after its link was lost."""
    times = {"job_submitted": 5.5, "job_reserved": 5.5, "job_started": 5.5}
    moved = [one(records, name, "pair") for name in times]
    for record in moved:
        records.remove(record)
        record["t"] = 5.5
    moved[1]["start_s"] = 5.5
    at = records.index(one(records, "job_cut"))
    records[at : at + 1] = moved


def cut_for_nothing(records: list[Record]) -> None:
    at = records.index(one(records, "switch_restarted"))
    records.insert(
        at, {"t": 6.0, "event": "job_cut", "job_id": "wide", "reason": "so"}
    )


def moved_for_nothing(records: list[Record]) -> None:
    at = records.index(one(records, "job_rerooted"))
    records.insert(at + 1, dict(records[at]))


def reconnected_uncut(records: list[Record]) -> None:
    at = records.index(one(records, "job_reconnected"))
    records.insert(at + 1, dict(records[at]))


def killed_for_nothing(records: list[Record]) -> None:
    reason = f"{events.FAILED}: so it says"
    one(records, "job_ended", "pair").update(
        outcome="killed", reason=reason, measured_s=None
    )


def fails_twice(records: list[Record]) -> None:
    at = records.index(one(records, "link_failed"))
    records.insert(at, dict(records[at]))


LIES: list[tuple[Callable[[], list[events.Event]], Mutation, str]] = [
    (
        failing.moving,
        without("job_rerooted"),
        "wide needs aggregation 0 -> core 0, which is lost;",
    ),
    (
        failing.moving,
        without("job_cut"),
        "pair is reconnected, and was not cut",
    ),
    (
        failing.moving,
        without("job_reconnected"),
        "pair is cut, and all its VMs reach each other;",
    ),
    (
        failing.moving,
        without("link_failed"),
        "wide is moved, and all its VMs",
    ),
    (
        failing.moving,
        without("link_restored"),
        "pair is reconnected, and needs server 10",
    ),
    (
        failing.moving,
        without("server_failed"),
        "lone is stopped by a failure, and nothing of it",
    ),
    (
        failing.anew,
        without("server_failed"),
        "first is stopped by a failure, and nothing of it",
    ),
    (
        failing.anew,
        put_on_a_lost_server,
        "first is put on server 0, which is lost",
    ),
    (
        failing.moving,
        moved_over_a_lost_link,
        "wide is moved below 32, to a link that is lost",
    ),
    (
        failing.moving,
        put_over_a_lost_link,
        "pair is put on server 10 -> edge 5, which is lost",
    ),
    (
        failing.moving,
        cut_for_nothing,
        "wide is cut, and all its VMs reach each other",
    ),
    (
        failing.moving,
        moved_for_nothing,
        "wide is moved, and all its VMs reach each other",
    ),
    (
        failing.moving,
        reconnected_uncut,
        "pair is reconnected, and was not cut",
    ),
    (
        failing.moving,
        killed_for_nothing,
        "pair is stopped by a failure, and nothing of it",
    ),
    (failing.moving, fails_twice, "link 32 fails, and was lost"),
    (
        failing.moving,
        without("link_failed", 1),
        "link 10 returns, and was not lost",
    ),
    (
        failing.moving,
        changed("link_restored", link=99),
        "there is no link 99",
    ),
    (
        failing.moving,
        changed("server_failed", server=16),
        "there is no server 16",
    ),
    (
        failing.moving,
        changed("switch_restarted", switch=15),
        "node 15 is no switch",
    ),
    (
        failing.moving,
        changed("job_rerooted", root=3),
        "its root 3 is the root of no tree",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("stream", "lie", "words"), LIES)
def test_the_events_alone_show_every_lie(
    tmp_path: Path,
    stream: Callable[[], list[events.Event]],
    lie: Mutation,
    words: str,
) -> None:
    folder, _ = write_run(tmp_path, stream())
    assert audit(folder.path).passed
    mutate(folder.path, lie)
    found = {
        result.name: result.findings
        for result in audit(folder.path).results
    }
    assert any(words in str(finding) for finding in found["failures"]), (
        found["failures"]
    )


def after_the_start(**record: object) -> Mutation:
    """A record on ``early``, which runs."""

    def lie(records: list[Record]) -> None:
        at = records.index(one(records, "job_submitted", "late"))
        records.insert(at, {"t": 0.5, "job_id": "early", **record})

    return lie


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (
            after_the_start(event="job_cut", reason="so"),
            "early is cut, and all its VMs reach each other",
        ),
        (
            after_the_start(event="job_reconnected"),
            "early is reconnected, and was not cut",
        ),
        (
            after_the_start(event="job_requeued", reason="so"),
            "early is stopped by a failure, and nothing of it is lost",
        ),
        (
            after_the_start(
                event="job_rerooted", reason="so", root=99, links=[]
            ),
            "early is moved, and all its VMs reach each other",
        ),
        (
            changed("job_ended", 1, reason=f"{events.FAILED}: so"),
            "late is stopped by a failure, and nothing of it is lost",
        ),
    ],
)
def test_a_run_in_which_nothing_fails_hits_no_job(
    tmp_path: Path, lie: Mutation, words: str
) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())
    checked = {one.name: one for one in audit(folder.path).results}
    assert checked["failures"].why == "nothing failed"
    mutate(folder.path, lie)
    checked = {one.name: one for one in audit(folder.path).results}
    assert any(
        words in str(finding) for finding in checked["failures"].findings
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (
            without("controller_killed"),
            "'kind': 'controller_killed', 'part': 0} here",
        ),
        (
            without("switch_restarted"),
            "'kind': 'switch_restarted', 'part': 16} here",
        ),
        (changed("switch_restarted", switch=17), "'part': 16} here"),
        (
            changed("controller_killed", t=7.5),
            "comes at 7.5 s, in spec.resolved.json at 7 s",
        ),
        (
            without("server_restored"),
            "'server_restored', 'part': 12} of spec.resolved.json never",
        ),
        (
            lambda r: r.insert(
                -1, {"t": 20.0, "event": "controller_killed"}
            ),
            "has no more failures",
        ),
    ],
)
def test_the_failures_are_the_experiments(
    tmp_path: Path, lie: Mutation, words: str
) -> None:
    folder, _ = write_run(tmp_path, failing.moving())
    assert audit(folder.path).passed
    mutate(folder.path, lie)
    found = {
        result.name: result.findings
        for result in audit(folder.path).results
    }
    assert any(words in str(finding) for finding in found["failures"]), (
        found["failures"]
    )


def test_a_cut_job_may_wait_on_when_its_link_fails_as_it_returns(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, failing.moving())

    def returns_and_fails(records: list[Record]) -> None:
        failed = dict(one(records, "link_failed", nth=1), t=5.5)
        at = records.index(one(records, "switch_restarted"))
        records[at:at] = [dict(failed, event="link_restored"), failed]

    mutate(folder.path, returns_and_fails)
    findings = {
        result.name: result.findings
        for result in audit(folder.path).results
    }
    assert not [
        finding
        for finding in findings["failures"]
        if "pair" in str(finding)
    ]


def live(records: list[Record]) -> None:
    records[0]["backend"] = "live"


@pytest.mark.parametrize(("shift_s", "good"), [(0.9, True), (-0.1, False)])
def test_a_live_failure_may_take_its_time_and_comes_not_before_it(
    tmp_path: Path, shift_s: float, good: bool
) -> None:
    folder, _ = write_run(tmp_path, failing.moving())

    def lie(records: list[Record]) -> None:
        live(records)
        one(records, "controller_killed")["t"] += shift_s

    mutate(folder.path, lie)
    found = {
        result.name: result.findings
        for result in audit(folder.path).results
    }
    assert (found["failures"] == ()) == good


def test_a_failure_is_due_only_while_there_are_jobs(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, failing.moving())
    file = folder.path / "spec.resolved.json"
    spec = json.loads(file.read_text())
    spec["failures"].append(
        {"at_s": 20.0, "kind": "controller_killed", "part": 0}
    )
    file.write_text(json.dumps(spec))
    assert audit(folder.path).passed


def late_by(delay_s: float, backend: str) -> Mutation:
    """``wide`` is moved so much later; whatever came in between is as late as that."""

    def change(records: list[Record]) -> None:
        one(records, "run_started")["backend"] = backend
        moved = one(records, "job_rerooted")
        for record in records[records.index(moved) :]:
            record["t"] += delay_s

    return change


@pytest.mark.parametrize(
    ("backend", "time", "delay_s", "good"),
    [
        ("live", 6.0, 6.7, True),
        ("live", 6.0, 8.0, False),
        ("live", 1.0, 1.2, True),
        ("live", 1.0, 3.0, False),
        pytest.param("live", 10**400, 1.2, True, id="as if it were 1"),
        pytest.param("live", 10**400, 3.0, False, id="too large"),
        ("sim", 6.0, 0.1, False),
    ],
)
def test_live_a_move_may_take_a_second_of_the_machines_time(
    tmp_path: Path, backend: str, time: float, delay_s: float, good: bool
) -> None:
    folder, _ = write_run(tmp_path, failing.moving())
    resolved = json.loads(
        (folder.path / "spec.resolved.json").read_text("utf-8")
    )
    resolved["scale"] = {"rate": 1.0, "time": time}
    (folder.path / "spec.resolved.json").write_text(
        json.dumps(resolved), encoding="utf-8"
    )
    mutate(folder.path, late_by(delay_s, backend))
    found = {
        result.name: result.findings
        for result in audit(folder.path).results
    }
    said = [
        str(finding)
        for finding in found["failures"]
        if "nothing is done" in str(finding)
    ]
    assert bool(said) != good, found["failures"]


# ------------------------------------------------------------ jobs that follow one that never left


@pytest.mark.parametrize(
    ("outcome", "followed", "missing"),
    [
        ("unfinished", {"b": "a", "c": "b"}, []),
        ("rejected", {"b": "a", "c": "b"}, ["b", "c"]),
        ("unfinished", {"b": "a", "c": None}, ["c"]),
        ("unfinished", {"b": "c", "c": "b"}, ["b", "c"]),
    ],
)
def test_who_follows_a_job_that_never_left_does_not_come(
    tmp_path: Path,
    outcome: str,
    followed: dict[str, str | None],
    missing: list[str],
) -> None:
    """``a`` waits for servers that are lost for good."""
    stream = [
        events.RunStarted(
            0.0, "waiting", "fcfs", "sim", 1, sample.tree((2,))
        ),
        events.JobSubmitted(0.0, sample.request("a", 0.0)),
        events.JobEnded(1.0, "a", outcome, "so", None, {}),
        events.RunEnded(1.0, "completed", ""),
    ]
    folder, _ = write_run(tmp_path, stream)
    file = folder.path / "spec.resolved.json"
    spec = json.loads(file.read_text())
    for job_id, after in followed.items():
        spec["jobs"].append(sample.request(job_id, 0.0, after=after))
    file.write_text(json.dumps(spec))
    (found,) = (
        result.findings
        for result in audit(folder.path).results
        if result.name == "experiment"
    )
    assert [finding.message for finding in found] == [
        f"{job_id} of spec.resolved.json never came" for job_id in missing
    ]
