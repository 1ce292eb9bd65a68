"""A good run passes; every check finds its own kind of lie, in the right line."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import events
from testbed.audit import CHECKS, Audit, audit, audit_all
from testbed.audit.capacity_check import Change, _all_fit
from testbed.audit.history import AuditedHold
from testbed.errors import BadInput
from testbed.record.conclusion import conclude_all
from testbed.record.folder import RunFolder
from tests.unit.record import sample
from tests.unit.record.written import (
    NOW,
    Mutation,
    Record,
    mutate,
    one,
    write_run,
)

SORT, INDEX = "sort-450", "index-450"


def failed(checked: Audit) -> dict[str, list[str]]:
    return {
        r.name: [str(f) for f in r.findings]
        for r in checked.results
        if r.status == "failed"
    }


# ----------------------------------------------------------------------------- good runs pass


@pytest.mark.parametrize(
    "stream",
    [
        sample.main_example(),
        sample.main_example(backend="sim", samples=False),
        sample.simulated(300),
        sample.preempting(),
        sample.two_tiers(),
        sample.sliding(),
        sample.flat(),
    ],
    ids=[
        "live",
        "simulated",
        "many",
        "preempting",
        "tiers",
        "sliding",
        "flat",
    ],
)
def test_a_good_run_passes(
    tmp_path: Path, stream: list[events.Event]
) -> None:
    folder, _ = write_run(tmp_path, stream)
    checked = audit(folder.path)
    assert failed(checked) == {}
    assert checked.passed
    assert checked.n_events == len(stream)
    assert [r.name for r in checked.results] == [c.name for c in CHECKS]


def test_checks_that_do_not_apply_say_why(tmp_path: Path) -> None:
    folder, _ = write_run(
        tmp_path, sample.main_example(backend="sim", samples=False)
    )
    why = {
        r.name: r.why
        for r in audit(folder.path).results
        if r.status == "not applicable"
    }
    assert why == {
        "samples": "no link was sampled",
        "strict": "only a live network enforces",
        "work-conserving": "only a live network enforces",
        "flows": "no controller but the testbed's",
        "within-deadline": "scripted does not claim it",
        "failures": "nothing failed",
        "memory": "memory limits nothing here",
        "lease-starts": "no advance or immediate lease was asked for",
        "best-effort-preempted-once": "scripted does not claim it",
        "options-within-deadline": "scripted does not claim it",
        "granted-as-asked": "scripted does not claim it",
        "in-order-of-arrival": "scripted does not claim it",
        "head-not-delayed": "scripted does not claim it",
        "no-preemption": "scripted does not claim it",
        "moved-at-reservation-end": "scripted does not claim it",
        "no-starvation": "scripted does not claim it",
    }


# -------------------------------------------------------------------------- one lie at a time


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, _ = write_run(
        tmp_path_factory.mktemp("honest"), sample.main_example()
    )
    return folder.path


def time_backwards(r: list[Record]) -> None:
    one(r, "job_progress", SORT, 2)["t"] -= 30.0


def second_start(r: list[Record]) -> None:
    r.insert(5, {**r[0], "t": r[5]["t"]})


def runs_after_its_end(r: list[Record]) -> None:
    r.insert(-3, {**r[-1], "t": r[-3]["t"]})


def never_ends(r: list[Record]) -> None:
    del r[-1]


def strange_status(r: list[Record]) -> None:
    r[-1]["status"] = "triumphant"


def failed_without_reason(r: list[Record]) -> None:
    r[-1]["status"] = "failed"


def completed_with_a_reason(r: list[Record]) -> None:
    r[-1]["reason"] = "the disk is full"


def stopped_half_way(r: list[Record]) -> None:
    one(r, "job_ended", SORT).update(
        outcome="unfinished", reason="stopped", measured_s=None
    )


def strange_level(r: list[Record]) -> None:
    one(r, "fidelity_noted")["level"] = "superb"


def invalid_without_reason(r: list[Record]) -> None:
    one(r, "fidelity_noted").update(level="invalid", reason="")


def noted_in_a_simulation(r: list[Record]) -> None:
    r[0]["backend"] = "sim"


def strange_backend(r: list[Record]) -> None:
    r[0]["backend"] = "dreamt"


def of_another_name(r: list[Record]) -> None:
    r[0]["run"] = "another"


def another_policy(r: list[Record]) -> None:
    r[0]["policy"] = "cmbf"


def another_seed(r: list[Record]) -> None:
    r[0]["seed"] = 8


def another_value(r: list[Record]) -> None:
    one(r, "job_submitted", SORT)["job"]["value"] = 9.0


def unasked_job(r: list[Record]) -> None:
    one(r, "job_submitted", SORT)["job"]["id"] = "stranger"


def before_it_was_to_come(r: list[Record]) -> None:
    one(r, "job_submitted", SORT)["job"]["submit_s"] -= 1.0


def link_to_nowhere(r: list[Record]) -> None:
    r[0]["topology"]["links"]["upper"][3] = 99


def tree_off_the_links(r: list[Record]) -> None:
    r[0]["topology"]["trees"][0]["uplink"][0] = 5


def tree_without_links(r: list[Record]) -> None:
    r[0]["topology"]["trees"][0]["uplink"][0] = -1


def negative_capacity(r: list[Record]) -> None:
    r[0]["topology"]["links"]["capacity_bps"][3] = -1


def uneven_arrays(r: list[Record]) -> None:
    r[0]["topology"]["links"]["capacity_bps"].pop()


def short_tree(r: list[Record]) -> None:
    r[0]["topology"]["trees"][0]["parent"].pop()


def two_outcomes(r: list[Record]) -> None:
    ended = one(r, "job_ended", SORT)
    r.insert(r.index(ended) + 1, dict(ended))


def no_outcome(r: list[Record]) -> None:
    r.remove(one(r, "job_ended", SORT))


def never_reserved(r: list[Record]) -> None:
    r.remove(one(r, "job_reserved", SORT))


def never_submitted(r: list[Record]) -> None:
    r.remove(one(r, "job_submitted", SORT))


def progress_after_end(r: list[Record]) -> None:
    progress = one(r, "job_progress", SORT)
    r.remove(progress)
    ended = one(r, "job_ended", SORT)
    r.insert(r.index(ended) + 1, {**progress, "t": ended["t"]})


def strange_outcome(r: list[Record]) -> None:
    one(r, "job_ended", SORT)["outcome"] = "evaporated"


def finished_unmeasured(r: list[Record]) -> None:
    one(r, "job_ended", SORT)["measured_s"] = None


def rejected_after_start(r: list[Record]) -> None:
    one(r, "job_ended", SORT).update(
        outcome="rejected", reason="no room", measured_s=None
    )


def killed_without_reason(r: list[Record]) -> None:
    one(r, "job_ended", SORT).update(outcome="killed", measured_s=None)


def finished_unstarted(r: list[Record]) -> None:
    r.remove(one(r, "job_started", SORT))


def reserved_before_arrival(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["start_s"] -= 1.0


def submitted_late(r: list[Record]) -> None:
    one(r, "job_submitted", SORT)["job"]["submit_s"] += 2.0


def starts_before_reservation(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["start_s"] += 0.5


def overstays(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["end_s"] = (
        one(r, "job_ended", SORT)["t"] - 4.0
    )


def server_twice(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["vms_on"][1] = [0, 1]


def too_few_vms(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["vms_on"].pop()


def a_switch_as_server(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["vms_on"][0] = [20, 1]


def no_such_root(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["root"] = 3


def no_vms_on(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["vms_on"] += [[2, 0]]


def one_link_short(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["links"].pop()


def one_link_more(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["links"].append([7, 1000])


def less_reserved(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["links"][0][1] -= 1


def link_twice(r: list[Record]) -> None:
    links = one(r, "job_reserved", SORT)["links"]
    links.append(list(links[0]))


def link_unknown(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["links"].append([999, 5])


def started_faster(r: list[Record]) -> None:
    one(r, "job_started", SORT)["rate_bps"] += 1


def slots_overrun(r: list[Record]) -> None:
    r[0]["topology"]["slots"][14] = 1


def links_overrun(r: list[Record]) -> None:
    r[0]["topology"]["links"]["capacity_bps"][0] = 600_000_000


def wrong_estimate(r: list[Record]) -> None:
    one(r, "job_reserved", SORT)["estimate_s"] *= 1.001


def longer_than_there(r: list[Record]) -> None:
    one(r, "job_ended", SORT)["measured_s"] *= 1.5


def sample_too_fast(r: list[Record]) -> None:
    one(r, "link_sample", nth=4)["links"][0][1] = 1.06e9


def sample_far_too_fast(r: list[Record]) -> None:
    one(r, "link_sample", nth=4)["links"][0][1] = 1.5e9


def sample_over_reserved(r: list[Record]) -> None:
    one(r, "link_sample", nth=4)["links"][0][2] = 1.5e9


def sample_of_no_link(r: list[Record]) -> None:
    one(r, "link_sample", nth=4)["links"][0][0] = 500


def sample_over_no_time(r: list[Record]) -> None:
    one(r, "link_sample", nth=4)["interval_s"] = 0.0


LIES: list[tuple[Mutation, str, str]] = [
    (time_backwards, "stream", "time runs backwards"),
    (second_start, "stream", "starts a second time"),
    (runs_after_its_end, "stream", "continues after its end"),
    (never_ends, "stream", "never ended"),
    (strange_status, "ending", "'triumphant'"),
    (failed_without_reason, "ending", "failed without a reason"),
    (completed_with_a_reason, "ending", "and yet: the disk is full"),
    (stopped_half_way, "ending", "sort-450 was stopped half-way"),
    (strange_level, "notes", "'superb'"),
    (invalid_without_reason, "notes", "invalid without a reason"),
    (noted_in_a_simulation, "notes", "in a run that is not live"),
    (strange_backend, "notes", "'dreamt'"),
    (of_another_name, "experiment", "that of the run 'another'"),
    (another_policy, "experiment", "that of the run 'cmbf'"),
    (another_seed, "experiment", "that of the run 8"),
    (another_value, "experiment", "sort-450: value is 9.0"),
    (unasked_job, "experiment", "stranger is none of the jobs"),
    (
        never_submitted,
        "experiment",
        "sort-450 of spec.resolved.json never came",
    ),
    (before_it_was_to_come, "experiment", "sort-450 comes at"),
    (link_to_nowhere, "topology", "node that does not exist"),
    (tree_off_the_links, "topology", "does not lead from 0"),
    (tree_without_links, "topology", "no link leads from 0"),
    (negative_capacity, "topology", "capacity below 0"),
    (uneven_arrays, "topology", "differ in length"),
    (short_tree, "topology", "not one entry a node"),
    (two_outcomes, "lives", "job_ended of sort-450, which is ended"),
    (no_outcome, "lives", "sort-450 has no outcome"),
    (never_reserved, "lives", "job_started of sort-450, which is waiting"),
    (
        never_submitted,
        "lives",
        "job_reserved of sort-450, which is unknown",
    ),
    (
        progress_after_end,
        "lives",
        "job_progress of sort-450, which is ended",
    ),
    (strange_outcome, "outcomes", "'evaporated'"),
    (finished_unmeasured, "outcomes", "measured time of None"),
    (rejected_after_start, "outcomes", "rejected after it had started"),
    (killed_without_reason, "outcomes", "killed without a reason"),
    (finished_unstarted, "outcomes", "finished without having started"),
    (no_outcome, "accounts", "10 jobs were submitted, but 9 finished"),
    (two_outcomes, "accounts", "10 jobs were submitted, but 11 finished"),
    (reserved_before_arrival, "arrivals", "arrives at"),
    (submitted_late, "arrivals", "is there before its time"),
    (starts_before_reservation, "arrivals", "starts at"),
    (overstays, "overstays", "is booked until"),
    (server_twice, "placements", "named twice"),
    (too_few_vms, "placements", "2 VMs are placed, 3 were asked for"),
    (a_switch_as_server, "placements", "is not a server"),
    (no_such_root, "placements", "root of no tree"),
    (no_vms_on, "placements", "0 VMs on server 2"),
    (one_link_short, "hoses", "its hose needs 450000000"),
    (one_link_more, "hoses", "its hose needs 0"),
    (
        less_reserved,
        "hoses",
        "449999999 bit/s reserved on server 0 -> rack 0",
    ),
    (link_twice, "hoses", "is named twice"),
    (link_unknown, "hoses", "directed link 999"),
    (started_faster, "hoses", "starts at 450000001 bit/s"),
    (slots_overrun, "slots", "2 VMs run on server 14, which has 1 slots"),
    (
        links_overrun,
        "links",
        "750000000 bit/s are in use on server 0 -> rack 0",
    ),
    (no_outcome, "returned", "still taken by sort-450"),
    (wrong_estimate, "estimates", "p·b/b' is 6.66667 s"),
    (longer_than_there, "measured", "was there for"),
    (sample_too_fast, "samples", "bit/s sent on"),
    (sample_over_reserved, "samples", "bit/s reserved on"),
    (sample_of_no_link, "samples", "directed link 500 does not exist"),
    (sample_over_no_time, "samples", "a sample over 0.0 s"),
]


@pytest.mark.parametrize(
    ("lie", "check", "words"),
    LIES,
    ids=[f"{check}-{lie.__name__}" for lie, check, _ in LIES],
)
def test_every_lie_is_found(
    tmp_path: Path, honest: Path, lie: Mutation, check: str, words: str
) -> None:
    path = shutil.copytree(honest, tmp_path / "run")
    mutate(path, lie)
    checked = audit(path)
    assert not checked.passed
    found = failed(checked)
    assert check in found, found
    assert any(words in text for text in found[check]), found[check]


def test_a_finding_names_its_line(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    mutate(folder.path, wrong_estimate)
    lines = (
        (folder.path / "events.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    at = next(
        i
        for i, text in enumerate(lines, 1)
        if "job_reserved" in text and SORT in text
    )
    (message,) = failed(audit(folder.path))["estimates"]
    assert message.startswith(f"events.jsonl:{at}: {SORT}: estimate ")


@pytest.mark.parametrize(
    ("rate", "passed"),
    [
        (1.0, False),
        (0.01, True),
        (0, False),
        (None, False),
        pytest.param(10**400, False, id="too large for a float"),
    ],
)
def test_after_a_pause_a_slow_vm_may_send_a_packet_more(
    tmp_path: Path, rate: float | None, passed: bool
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    file = folder.path / "spec.resolved.json"
    resolved = json.loads(file.read_text(encoding="utf-8"))
    resolved["scale"] = {"rate": rate, "time": 1.0}
    file.write_text(json.dumps(resolved), encoding="utf-8")
    mutate(folder.path, sample_too_fast)
    assert ("samples" not in failed(audit(folder.path))) is passed
    mutate(folder.path, sample_far_too_fast)
    assert "samples" in failed(audit(folder.path))


@pytest.mark.parametrize(
    ("reserved_bps", "passed"),
    [(71_000_001 / 0.071, True), (1.001e9, False)],
)
def test_a_full_reservation_in_whole_bits_of_the_wire_is_no_more_than_full(
    tmp_path: Path, reserved_bps: float, passed: bool
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())

    def fully_reserved(r: list[Record]) -> None:
        one(r, "link_sample", nth=4)["links"][0][2] = reserved_bps

    mutate(folder.path, fully_reserved)
    assert ("samples" not in failed(audit(folder.path))) is passed


# -------------------------------------------------------------------------------- enforcement


def enforced(path: Path, mode: str | None) -> None:
    """Write down another enforcement; None: as folders of earlier versions, without one."""
    file = path / "spec.resolved.json"
    record = json.loads(file.read_text("utf-8"))
    record.pop("enforcement", None)
    file.write_text(
        json.dumps(record | ({"enforcement": mode} if mode else {})),
        "utf-8",
    )


def over_reserved(nth: range, share: float) -> Mutation:
    """So many samples in a row show so much of the first link's reservation."""

    def change(r: list[Record]) -> None:
        for sample_ in (one(r, "link_sample", nth=i) for i in nth):
            sample_["links"][0][1] = share * sample_["links"][0][2]

    return change


@pytest.mark.parametrize(
    ("mode", "failing", "words"),
    [
        (
            None,
            "strict",
            "reserved on server 0 -> rack 0, over two samples",
        ),
        (
            "strict",
            "strict",
            "reserved on server 0 -> rack 0, over two samples",
        ),
        ("work-conserving", None, "enforcement is work-conserving"),
        ("none", None, "enforcement is none: no reservation was enforced"),
    ],
)
def test_only_where_bandwidth_is_lent_may_more_be_sent_than_is_reserved(
    tmp_path: Path, mode: str | None, failing: str | None, words: str
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    enforced(folder.path, mode)
    mutate(folder.path, over_reserved(range(4, 7), 1.2))
    checked = audit(folder.path)
    strict = next(r for r in checked.results if r.name == "strict")
    assert words in strict.why + " ".join(map(str, strict.findings))
    assert (strict.status == "failed") is (failing == "strict")
    lent = next(r for r in checked.results if r.name == "work-conserving")
    assert (lent.status == "passed") is (mode == "work-conserving")


@pytest.mark.parametrize(
    ("nth", "share"), [(range(4, 5), 1.08), (range(4, 8), 1.04)]
)
def test_a_bucket_and_five_per_cent_are_not_held_against_a_strict_run(
    tmp_path: Path, nth: range, share: float
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    mutate(folder.path, over_reserved(nth, share))
    assert "strict" not in failed(audit(folder.path))


@pytest.mark.parametrize(
    ("mode", "status"),
    [
        ("strict", "not applicable"),
        ("work-conserving", "failed"),
        ("none", "not applicable"),
    ],
)
def test_a_reservation_is_kept_where_bandwidth_is_lent(
    tmp_path: Path, mode: str, status: str
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(worst_ratio=1.2))
    enforced(folder.path, mode)
    (lent,) = [
        r for r in audit(folder.path).results if r.name == "work-conserving"
    ]
    assert lent.status == status
    if status == "failed":
        assert [
            str(found).split(": ", 1)[1] for found in lent.findings
        ] == [
            "sort-150: measured/estimate 1.2000, its reservation was lent"
        ]


def test_lies_about_one_job_leave_other_checks_alone(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    mutate(folder.path, wrong_estimate)
    # Changed after the tables were written: they differ from it too.
    message = {"estimates", "jobs.csv", "summary", "expectations"}
    assert set(failed(audit(folder.path))) == message


# -------------------------------------------------------------------------- two tiers of nodes


def start_in_the_foreground(r: list[Record]) -> None:
    for name in ("job_reserved", "job_started"):
        one(r, name, "behind")["tier"] = "foreground"
    r.remove(one(r, "job_tier_switched", "behind"))


def is_moved_up_too_soon(r: list[Record]) -> None:
    one(r, "job_tier_switched", "behind")["t"] = 20.0
    r.sort(key=lambda record: record["t"])


def third_behind(r: list[Record]) -> None:
    for name in ("job_reserved", "job_started"):
        one(r, name, "front")["tier"] = "background"


def waits_while_it_runs(r: list[Record]) -> None:
    one(r, "job_waits", "behind")["t"] = 20.0
    r.sort(key=lambda record: record["t"])


@pytest.mark.parametrize(
    ("lie", "check", "words"),
    [
        (
            start_in_the_foreground,
            "slots",
            "2 VMs run on server 0, which has 1 slots",
        ),
        (is_moved_up_too_soon, "slots", "2 VMs are booked on server 0"),
        (third_behind, "slots", "2 VMs run in the background of server 0"),
        (
            waits_while_it_runs,
            "lives",
            "job_waits of behind, which is running",
        ),
    ],
)
def test_each_tier_has_its_own_slots(
    tmp_path: Path, lie: Mutation, check: str, words: str
) -> None:
    folder, _ = write_run(tmp_path, sample.two_tiers())
    mutate(folder.path, lie)
    assert any(words in text for text in failed(audit(folder.path))[check])


def bandwidth_behind(r: list[Record]) -> None:
    one(r, "job_submitted", "behind")["job"]["bandwidth_bps"] = 5
    for name in ("job_reserved", "job_started"):
        one(r, name, "behind")["rate_bps"] = 5


def moved_up_twice(r: list[Record]) -> None:
    at = r.index(one(r, "job_tier_switched", "behind"))
    r.insert(at, r[at])


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (
            bandwidth_behind,
            "behind reserves bandwidth, which the background has not",
        ),
        (
            moved_up_twice,
            "behind switches to the foreground, where it is already",
        ),
    ],
)
def test_tiers_are_told_as_they_are(
    tmp_path: Path, lie: Mutation, words: str
) -> None:
    folder, _ = write_run(tmp_path, sample.two_tiers())
    mutate(folder.path, lie)
    assert any(
        words in text for text in failed(audit(folder.path))["lives"]
    )


def test_a_reservation_is_shortened_to_an_earlier_end(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())

    def lengthened(r: list[Record]) -> None:
        at = r.index(one(r, "job_submitted", "late"))
        shortened = {"event": "job_shortened", "until_s": 112.5}
        words = {"t": 0.5, "job_id": "early", "reason": "so"}
        r.insert(at, shortened | words)

    mutate(folder.path, lengthened)
    assert failed(audit(folder.path))["overstays"] == [
        "events.jsonl:5: early is shortened to 112.5 s, is booked until 112 s"
    ]


# ------------------------------------------------------------------- simulated runs are exact


def arrives_late(r: list[Record]) -> None:
    one(r, "job_submitted", "late")["job"]["submit_s"] = 0.5


def starts_late(r: list[Record]) -> None:
    one(r, "job_reserved", "late")["start_s"] = 111.5


def ran_for_less(r: list[Record]) -> None:
    one(r, "job_ended", "early")["measured_s"] = 99.0


def ran_while_it_was_preempted(r: list[Record]) -> None:
    one(r, "job_ended", "low")["measured_s"] = 48.0


def sampled(r: list[Record]) -> None:
    at = r.index(one(r, "job_started", "late"))
    links = [[0, 0.0, 0.0]]
    r.insert(
        at,
        {
            "t": 100.0,
            "event": "link_sample",
            "interval_s": 1.0,
            "links": links,
        },
    )


@pytest.mark.parametrize(
    ("stream", "lie", "check", "words"),
    [
        (
            sample.sliding(),
            arrives_late,
            "arrivals",
            "late is there after its time, 0.5 s",
        ),
        (
            sample.sliding(),
            starts_late,
            "arrivals",
            "late: starts at 112 s, its reservation at 111.5 s",
        ),
        (
            sample.sliding(),
            ran_for_less,
            "measured",
            "early: measured 99 s, was there for 100 s",
        ),
        (
            sample.preempting(),
            ran_while_it_was_preempted,
            "measured",
            "low: measured 48 s, was there for 47.5 s",
        ),
        (
            sample.sliding(),
            sampled,
            "samples",
            "links are sampled in a run that is not live",
        ),
    ],
)
def test_a_simulated_run_is_exact(
    tmp_path: Path,
    stream: list[events.Event],
    lie: Mutation,
    check: str,
    words: str,
) -> None:
    folder, _ = write_run(tmp_path, stream)
    assert audit(folder.path).passed
    mutate(folder.path, lie)
    assert any(words in text for text in failed(audit(folder.path))[check])


@pytest.mark.parametrize(
    ("followed", "faults"),
    [
        ("early", ["events.jsonl:5: late is there before early has left"]),
        ("never", ["events.jsonl:5: late is there before never has left"]),
        (None, []),
    ],
)
def test_a_job_comes_when_the_one_that_it_follows_has_left(
    tmp_path: Path, followed: str | None, faults: list[str]
) -> None:
    """``late`` comes at 1 s, and ``early`` leaves at 100 s."""
    folder, _ = write_run(tmp_path, sample.sliding())

    def follow(r: list[Record]) -> None:
        one(r, "job_submitted", "late")["job"]["after"] = followed

    mutate(folder.path, follow)
    assert failed(audit(folder.path)).get("arrivals", []) == faults


# ------------------------------------------------------------------- capacity, in the calendar


def test_two_future_bookings_that_overlap_are_found(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())

    def overlap(r: list[Record]) -> None:
        one(r, "job_reserved", "late")["start_s"] -= 40.0

    mutate(folder.path, overlap)
    found = failed(audit(folder.path))
    assert any("are booked on server 0" in text for text in found["slots"])
    assert any("(jobs early, late)" in text for text in found["links"])


def test_bookings_may_touch(tmp_path: Path) -> None:
    stream = sample.sliding()
    early, late = (e for e in stream if isinstance(e, events.JobReserved))
    assert early.end_s == late.start_s
    folder, _ = write_run(tmp_path, stream)
    assert audit(folder.path).passed


def test_preempted_capacity_is_free_and_taken_again(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.preempting())

    def stays(r: list[Record]) -> None:
        r.remove(one(r, "job_preempted"))

    mutate(folder.path, stays)
    found = failed(audit(folder.path))
    assert any(
        "VMs run on server 0, which has 2 slots" in text
        for text in found["slots"]
    )


def test_a_rescaled_reservation_is_checked_too(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.preempting())

    def stale(r: list[Record]) -> None:
        one(r, "job_rescaled")["rate_bps"] += 1

    mutate(folder.path, stale)
    assert "hoses" in failed(audit(folder.path))


def test_a_migrated_placement_is_checked_too(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.preempting())

    def doubled(r: list[Record]) -> None:
        one(r, "job_migrated")["vms_on"] = [[2, 2], [3, 2]]

    mutate(folder.path, doubled)
    assert {"placements", "slots"} & set(failed(audit(folder.path)))


# ----------------------------------------------------------------------------------- policies


def test_dcloud_admits_nothing_past_its_deadline(tmp_path: Path) -> None:
    folder, _ = write_run(
        tmp_path, sample.sliding(policy="dcloud-ts-gamma=0.12")
    )
    assert audit(folder.path).passed

    def tight(r: list[Record]) -> None:
        one(r, "job_submitted", "late")["job"]["deadline_s"] = 130.0

    mutate(folder.path, tight)
    found = failed(audit(folder.path))["within-deadline"]
    assert ["its deadline is 131 s" in text for text in found] == [True]


def test_vc_grants_what_is_asked(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(policy="vc"))
    found = failed(audit(folder.path))
    assert set(found) == {"granted-as-asked"}
    assert (
        len(found["granted-as-asked"]) == 8
    )  # all but the two at their own bandwidth


def test_jsa_grants_options_of_the_profile(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(policy="jsa"))
    found = failed(audit(folder.path))
    assert set(found) == {"options-within-deadline"}
    assert len(found["options-within-deadline"]) == 8
    assert all(
        "is none of its options" in message
        for message in found["options-within-deadline"]
    )


def test_fcfs_order(tmp_path: Path) -> None:
    good, bad = sample.queue(["a", "b"]), sample.queue(["b", "a"])
    folder, _ = write_run(tmp_path, good)
    assert audit(folder.path).passed
    folder, _ = write_run(tmp_path, bad)
    assert failed(audit(folder.path)) == {
        "in-order-of-arrival": [
            "events.jsonl:7: a starts after b, which arrived later"
        ]
    }


def test_flows_of_somebody_else_are_to_be_noted(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    file = folder.path / "spec.resolved.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    record["controller"] = {"app": "/home/me/mine.py"}
    file.write_text(json.dumps(record), encoding="utf-8")
    assert list(failed(audit(folder.path))) == ["flows"]

    def noted(r: list[Record]) -> None:
        note = {
            "level": "ok",
            "check": "flows",
            "reason": "all flows are those of /home/me/mine.py",
        }
        r.insert(-1, {**one(r, "fidelity_noted"), "t": r[-1]["t"], **note})

    mutate(folder.path, noted)
    assert failed(audit(folder.path)) == {}


def _declare(path: Path, *claims: str) -> None:
    file = path / "spec.resolved.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(
        json.dumps({**record, "claims": claims}), encoding="utf-8"
    )


def test_a_run_is_held_to_the_claims_in_its_folder(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(policy="mine"))
    assert audit(folder.path).passed
    _declare(folder.path, "granted-as-asked")
    assert set(failed(audit(folder.path))) == {"granted-as-asked"}


def test_what_is_granted_as_asked_is_kept(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.preempting())
    _declare(folder.path, "granted-as-asked")
    assert failed(audit(folder.path)) == {
        "granted-as-asked": [
            "events.jsonl:5: low: 200000000 bit/s granted, 400000000 asked for"
        ]
    }


def test_declared_claims_replace_those_known_by_the_policys_name(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(policy="vc"))
    assert not audit(folder.path).passed
    _declare(folder.path)
    assert audit(folder.path).passed


def test_no_preemption_is_a_claim(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.preempting())
    assert audit(folder.path).passed
    _declare(folder.path, "no-preemption")
    found = failed(audit(folder.path))
    assert set(found) == {"no-preemption"}
    assert any(
        "job_preempted of" in message for message in found["no-preemption"]
    )


# ------------------------------------------------------------------------------------- tables


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_changed_table_is_found(tmp_path: Path) -> None:
    folder, results = write_run(tmp_path, sample.main_example())
    measured = next(
        row.measured_s for row in results.rows if row.job_id == SORT
    )
    edit(folder.path / "jobs.csv", repr(measured), "6.5")
    (message,) = failed(audit(folder.path))["jobs.csv"]
    assert f"{SORT}: measured_s is '6.5'" in message


def test_a_missing_and_a_strange_row_are_found(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    edit(folder.path / "jobs.csv", f"\n{SORT},", "\nstranger,")
    found = failed(audit(folder.path))["jobs.csv"]
    assert any("'stranger' was never submitted" in text for text in found)
    assert f"jobs.csv: {SORT} is missing" in found


def test_a_missing_column_is_found(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    edit(folder.path / "jobs.csv", "n_vms", "vms")
    assert any(
        "no column n_vms" in text
        for text in failed(audit(folder.path))["jobs.csv"]
    )


# --------------------------------------------------------------------------- damaged, cut short


def test_a_run_that_was_killed_is_read_and_fails(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    file = folder.path / "events.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 2 // 3])
    found = failed(audit(folder.path))
    n = len(file.read_bytes().splitlines())
    assert found["stream"] == [
        f"events.jsonl:{n}: cut short: the run was killed here"
    ]
    assert {"lives", "returned", "accounts"} <= set(found)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        '{"t": 1.0, "event": "job_started"}',
        '{"t": 1.0, "event": "surprise"}',
        '{"t": NaN, "event": "job_resumed", "job_id": "x"}',
        '{"t": true, "event": "job_resumed", "job_id": "x"}',
        '{"t": "1", "event": "job_resumed", "job_id": "x"}',
        '{"t": 1.0, "event": "job_resumed", "job_id": 5}',
        '{"t": 1.0, "event": "job_submitted", "job": {}}',
        '{"t": 1.0, "event": "job_rescaled", "job_id": "x", "rate_bps": 1, "links": [[1]]}',
        '{"t": 1.0, "event": "link_sample", "interval_s": 1.0, "links": [[0.5, 1, 1]]}',
    ],
)
def test_a_damaged_line_is_bad_input_with_its_number(
    tmp_path: Path, line: str
) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    file = folder.path / "events.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[41] = line
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(
        BadInput, match=r"events\.jsonl:42: damaged: "
    ) as caught:
        audit(folder.path)
    assert caught.value.exit_code == 2


def test_what_is_no_run_folder_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a run folder"):
        audit_all(tmp_path)
    with pytest.raises(BadInput, match="not a folder"):
        audit_all(tmp_path / "missing")
    (tmp_path / "events.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(BadInput, match="begins with run_started"):
        audit_all(tmp_path)


# --------------------------------------------------------------------------- several policies


def _two_policies(base: Path) -> RunFolder:
    above = RunFolder.create(base, "two", 7, now=NOW)
    results = []
    for label in ("scripted", "dcloud-gamma=0.12"):
        _, result = write_run(above, sample.main_example(), name=label)
        results.append(result)
    conclude_all(above, results)
    return above


def test_several_policies_are_audited_with_the_list_above(
    tmp_path: Path,
) -> None:
    above = _two_policies(tmp_path)
    audits = audit_all(above.path)
    assert [each.passed for each in audits] == [True, True, True]
    assert [r.name for r in audits[2].results] == ["summary-list"]


def _forget_one(listed: list[Record]) -> None:
    listed.pop()


def _invent_one(listed: list[Record]) -> None:
    listed.append({**listed[0], "folder": "elsewhere"})


def _embellish(listed: list[Record]) -> None:
    listed[0]["success_rate"] = 2.0


def _list_one_twice(listed: list[Record]) -> None:
    # Readers take the first of the two.
    listed.insert(0, {**listed[0], "success_rate": 2.0})


@pytest.mark.parametrize(
    "lie", [_forget_one, _invent_one, _embellish, _list_one_twice]
)
def test_a_list_that_says_something_else_is_found(
    tmp_path: Path, lie: Callable[[list[Record]], None]
) -> None:
    above = _two_policies(tmp_path)
    listed = json.loads(
        (above.path / "summary.json").read_text(encoding="utf-8")
    )
    lie(listed)
    above.write_json("summary.json", listed)
    assert [each.passed for each in audit_all(above.path)] == [
        True,
        True,
        False,
    ]


def test_every_check_has_been_shown_to_fail() -> None:
    shown = {check for _, check, _ in LIES}
    # Those of leases are in test_audit_leases.py.
    shown |= {
        "memory",
        "lease-starts",
        "best-effort-preempted-once",
        # Of a run's enforcement, above.
        "strict",
        "work-conserving",
        # In test_audit_tampering.py.
        "jobs.csv",
        "links.csv",
        "summary",
        "expectations",
        "within-deadline",
        "granted-as-asked",
        "in-order-of-arrival",
        "head-not-delayed",  # in test_audit_easy.py
        "flows",
        "failures",  # in test_audit_failures.py
        "options-within-deadline",
        "no-preemption",
        "moved-at-reservation-end",  # in test_audit_moves.py
        "no-starvation",  # in test_audit_starvation.py
    }
    assert shown == {check.name for check in CHECKS}


# ------------------------------------------------------------- the quick check of capacity

SERVERS = 3
HOLDS = st.lists(
    st.tuples(st.integers(-1, SERVERS), st.integers(-2, 9)), max_size=4
)


@given(
    st.lists(HOLDS, min_size=1, max_size=3),
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from((1, -1))), max_size=12
    ),
    st.sampled_from((1, 3, 2**70)),
)
def test_what_the_quick_check_lets_pass_is_never_beyond_a_room(
    holds: list[list[tuple[int, int]]],
    steps: list[tuple[int, int]],
    factor: int,
) -> None:
    changes = []
    for number, sign in steps:
        hold = AuditedHold(vms_on=holds[number % len(holds)])
        event = events.JobStarted(0.0, f"job-{number}", 0)
        changes.append(Change(0.0, event, sign, hold))
    per_job = dict.fromkeys(("job-0", "job-1", "job-2"), factor)
    rooms = [0, 9, 30]
    fit = _all_fit(changes, attrgetter("vms_on"), rooms, per_job)
    taken = Counter[int]()
    within = True
    exact = True
    for change in changes:
        for server, amount in change.hold.vms_on:
            exact &= 0 <= server < SERVERS and amount >= 0 and factor < 9
            taken[server] += change.sign * amount * factor
            known = 0 <= server < SERVERS
            within &= taken[server] <= (rooms[server] if known else 0)
    assert within or not fit
    # It is unsure of damaged holds and of sums beyond 64 bits alone.
    assert fit or not (within and exact)
