from __future__ import annotations

import csv
import io
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import events
from testbed.foreign_text import csv_text
from testbed.record.metrics import (
    JOB_COLUMNS,
    JobRow,
    Spread,
    Summary,
    quantile,
    spread,
    tally,
    write_jobs_csv,
)
from tests.unit.record import sample

DESIGN_COLUMNS = [
    "job_id",
    "policy",
    "kind",
    "submit_s",
    "start_s",
    "end_s",
    "outcome",
    "reason",
    "n_vms",
    "requested_bps",
    "granted_bps",
    "estimate_s",
    "measured_s",
    "deadline_s",
    "met_deadline",
    "preemptions",
    "migrations",
    "value",
    "price",
]
DESIGN_SUMMARY = [
    "name",
    "policy",
    "backend",
    "seed",
    "jobs",
    "finished",
    "rejected",
    "killed",
    "unfinished",
    "met_deadline",
    "success_rate",
    "vm_utilisation",
    "link_utilisation",
    "revenue",
    "wait_mean_s",
    "response_mean_s",
    "bounded_slowdown_mean",
    "preemptions",
    "migrations",
    "estimate_ratio",
    "fidelity",
    "wall_s",
]


def rows_of(stream: list[events.Event]) -> dict[str, JobRow]:
    return {row.job_id: row for row in tally(stream).rows()}


def summary_of(stream: list[events.Event]) -> Summary:
    return replace(tally(stream).summary(), wall_s=1.0)


def test_columns_and_keys_are_those_agreed() -> None:
    assert list(JOB_COLUMNS[: len(DESIGN_COLUMNS)]) == DESIGN_COLUMNS
    record = summary_of(sample.main_example()).to_json()
    assert set(DESIGN_SUMMARY) <= set(record)
    assert set(record["estimate_ratio"]) == {"min", "median", "p95", "max"}
    assert set(record["fidelity"]) == {"verdict", "reasons"}


# ----------------------------------------------------------------- a small run, by hand


def by_hand() -> list[events.Event]:
    """10 slots, a link of 100 bit/s; a runs from 2 to 12, b is rejected, c killed, d left over."""
    topology = {
        "names": ["server 0", "server 1"],
        "slots": [10],
        "links": {"lower": [0], "upper": [1], "capacity_bps": [100]},
        "trees": [],
    }

    def ask(job_id: str, t: float, **given: object) -> events.JobSubmitted:
        return events.JobSubmitted(
            t, sample.request(job_id, t, bandwidth_bps=10, **given)
        )

    def book(
        t: float, job_id: str, estimate_s: float
    ) -> events.JobReserved:
        return events.JobReserved(
            t, job_id, t, None, 10, estimate_s, 1, [[0, 4]], [[0, 20]]
        )

    return [
        events.RunStarted(0.0, "hand", "vc", "sim", 5, topology),
        ask("a", 1.0, deadline_s=11.0, value=3.0),
        ask("b", 1.0, deadline_s=9.0),
        events.JobEnded(1.0, "b", "rejected", "no room", None, {}),
        book(2.0, "a", 12.5),
        events.JobStarted(2.0, "a", 10),
        ask("c", 4.0, deadline_s=1.0),
        book(4.0, "c", 8.0),
        events.JobStarted(4.0, "c", 10),
        events.JobEnded(6.0, "c", "killed", "late", None, {}),
        events.JobEnded(12.0, "a", "finished", "", 10.0, {"price": 2.5}),
        ask("d", 15.0),
        events.RunEnded(20.0, "completed", ""),
    ]


def test_rows_by_hand() -> None:
    rows = rows_of(by_hand())
    a, b, c, d = (rows[key] for key in "abcd")
    assert (a.outcome, a.start_s, a.end_s, a.measured_s, a.ratio) == (
        "finished",
        2,
        12,
        10,
        0.8,
    )
    assert (a.met_deadline, a.price, a.value, a.granted_bps) == (
        True,
        2.5,
        3.0,
        10,
    )
    assert (a.wait_s, a.response_s, a.bounded_slowdown) == (1.0, 11.0, 1.1)
    assert (b.outcome, b.reason, b.start_s, b.met_deadline) == (
        "rejected",
        "no room",
        None,
        False,
    )
    assert (c.outcome, c.ratio, c.met_deadline, c.response_s) == (
        "killed",
        None,
        False,
        None,
    )
    assert (d.outcome, d.met_deadline, d.end_s) == (
        "unfinished",
        None,
        None,
    )


def test_what_iperf3_reports_stands_beside_the_reservation_and_the_counters() -> (
    None
):
    def measured(**detail: object) -> list[events.Event]:
        stream = by_hand()
        stream[10] = events.JobEnded(
            12.0, "a", "finished", "", 10.0, detail
        )
        return stream

    lists = {
        "received_bps": [10.0, 8.0, 9.5, 9.8],
        "counted_bps": [10.0, 9.0, 9.9, 10.1],
    }
    a = rows_of(measured(iperf3=lists))["a"]
    assert (a.iperf3_bps, a.iperf3_worst_bps, a.iperf3_counted_bps) == (
        9.65,
        8.0,
        9.95,
    )
    assert a.iperf3_ratio == 0.8
    assert summary_of(measured(iperf3=lists)).iperf3_ratio == Spread(
        0.8, 0.8, 0.8, 0.8
    )
    for without in (
        measured(),
        measured(iperf3={"received_bps": [], "counted_bps": []}),
    ):
        rows = rows_of(without).values()
        assert {
            getattr(r, c)
            for r in rows
            for c in JOB_COLUMNS
            if "iperf3" in c
        } == {None}
        assert summary_of(without).iperf3_ratio is None
    assert JOB_COLUMNS[-4:] == (
        "iperf3_bps",
        "iperf3_worst_bps",
        "iperf3_ratio",
        "iperf3_counted_bps",
    )


def test_waiting_in_all_counts_what_a_preempted_job_waits_later() -> None:
    stream = by_hand()
    # a: arrived 1, started 2, ended 12 after 8 s on nodes; 3 s of 11 it waited.
    stream[10] = events.JobEnded(12.0, "a", "finished", "", 8.0, {})
    a = rows_of(stream)["a"]
    assert (a.wait_s, a.queued_s, a.response_s) == (1.0, 3.0, 11.0)
    assert (a.slowdown, a.bounded_slowdown) == (11 / 8, 1.1)
    assert summary_of(stream).queued_mean_s == 3.0


def test_classes_by_hand() -> None:
    stream = by_hand()
    for k, event in enumerate(stream):
        if isinstance(event, events.JobSubmitted):
            label = {"a": "wide", "c": "wide", "b": "narrow"}.get(
                event.job["id"]
            )
            tags = [["colour", "red"], ["class", label]] if label else []
            stream[k] = events.JobSubmitted(
                event.t, {**event.job, "tags": tags}
            )
    rows, summary = rows_of(stream), summary_of(stream)
    assert [rows[key].job_class for key in "abcd"] == [
        "wide",
        "narrow",
        "wide",
        None,
    ]
    assert list(summary.classes) == ["narrow", "wide"]
    wide, narrow = summary.classes["wide"], summary.classes["narrow"]
    assert [
        wide[key] for key in ("jobs", "finished", "killed", "rejected")
    ] == [2, 1, 1, 0]
    assert (wide["acceptance_rate"], wide["success_rate"]) == (1.0, 0.5)
    means = ("response_mean_s", "bounded_slowdown_mean", "slowdown_mean")
    assert [wide[key] for key in means] == [11, 1.1, 1.1]
    assert [
        narrow[key] for key in ("jobs", "rejected", "acceptance_rate")
    ] == [
        1,
        1,
        0.0,
    ]
    assert (narrow["wait_mean_s"], narrow["slowdown_mean"]) == (None, None)
    assert summary.acceptance_rate == 0.75


def test_a_queue_is_a_class_where_no_tag_says_another() -> None:
    stream = by_hand()
    for k, event in enumerate(stream):
        if isinstance(event, events.JobSubmitted):
            tags = (
                [["class", "own"]] if event.job["id"] == "b" else "damaged"
            )
            stream[k] = events.JobSubmitted(
                event.t, {**event.job, "queue": "q1", "tags": tags}
            )
    assert [row.job_class for row in rows_of(stream).values()] == [
        "q1",
        "own",
        "q1",
        "q1",
    ]


def test_summary_by_hand() -> None:
    s = summary_of(by_hand())
    assert (s.name, s.policy, s.backend, s.seed, s.status) == (
        "hand",
        "vc",
        "sim",
        5,
        "completed",
    )
    assert (s.jobs, s.finished, s.rejected, s.killed, s.unfinished) == (
        4,
        1,
        1,
        1,
        1,
    )
    assert (s.met_deadline, s.success_rate, s.revenue) == (1, 0.25, 2.5)
    assert s.vm_utilisation == pytest.approx((4 * 10 + 4 * 2) / (10 * 20))
    assert s.link_utilisation == pytest.approx(
        (20 * 10 + 20 * 2) / (200 * 20)
    )
    assert s.wait_mean_s == pytest.approx((1.0 + 0.0) / 2)
    assert (s.response_mean_s, s.bounded_slowdown_mean) == (11.0, 1.1)
    assert s.estimate_ratio is not None
    assert s.estimate_ratio.median == 0.8
    assert s.link_utilisation_measured is None
    assert s.wall_s == 1.0


def test_a_deadline_met_but_for_rounding_is_met() -> None:
    stream = by_hand()
    stream[10] = events.JobEnded(
        12.0 + 1e-12, "a", "finished", "", 10.0, {}
    )
    assert rows_of(stream)["a"].met_deadline is True
    stream[10] = events.JobEnded(12.001, "a", "finished", "", 10.0, {})
    assert rows_of(stream)["a"].met_deadline is False


def test_preempted_time_does_not_count_as_used() -> None:
    s = summary_of(sample.preempting())
    rows = rows_of(sample.preempting())
    assert (rows["low"].preemptions, rows["low"].migrations) == (2, 1)
    low_s, high_s = 10.0 + 5.0 + 32.5, 30.0
    assert s.vm_utilisation == pytest.approx(
        (3 * low_s + 3 * high_s) / (8 * 77.5)
    )
    assert (s.preemptions, s.migrations) == (2, 1)


def test_samples_give_what_was_sent() -> None:
    stream = by_hand()
    stream.insert(
        -1, events.LinkSample(18.0, 2.0, [[0, 50.0, 60.0], [1, 10.0, 60.0]])
    )
    stream.insert(-1, events.LinkSample(20.0, 2.0, []))
    assert summary_of(stream).link_utilisation_measured == pytest.approx(
        60 * 2 / (200 * 4)
    )


def test_a_flat_machine_has_no_link_figures() -> None:
    s = summary_of(sample.flat())
    assert s.link_utilisation is None
    assert s.vm_utilisation == 1.0


def test_an_empty_run_has_no_means() -> None:
    s = summary_of(by_hand()[:1])
    assert (s.jobs, s.success_rate, s.wait_mean_s, s.estimate_ratio) == (
        0,
        None,
        None,
        None,
    )
    assert s.status == "interrupted"


# ---------------------------------------------------------------------------------- fidelity


def noted(*levels: str) -> list[events.Event]:
    stream = sample.main_example(samples=False)
    kept = [e for e in stream if not isinstance(e, events.FidelityNoted)]
    notes = [
        events.FidelityNoted(50.0, level, "c", f"reason {level}", {})
        for level in levels
    ]
    return [*kept[:-1], *notes, kept[-1]]


@pytest.mark.parametrize(
    ("levels", "verdict", "reasons"),
    [
        (("ok", "ok"), "ok", ()),
        (("ok", "suspect", "ok"), "suspect", ("reason suspect",)),
        (
            ("suspect", "invalid", "suspect"),
            "invalid",
            ("reason suspect", "reason invalid"),
        ),
        (("ok", "unheard-of"), "unheard-of", ("reason unheard-of",)),
    ],
)
def test_fidelity_is_the_worst_note(
    levels: tuple[str, ...], verdict: str, reasons: tuple[str, ...]
) -> None:
    found = tally(noted(*levels)).fidelity()
    assert (found.verdict, found.reasons) == (verdict, reasons)


def test_a_live_run_that_nobody_checked_is_not_ok() -> None:
    found = tally(noted()).fidelity()
    assert found.verdict == "suspect"
    assert found.reasons


def test_a_simulated_run_needs_no_verdict() -> None:
    assert tally(sample.simulated(5)).fidelity().verdict is None


# -------------------------------------------------------------------------------- quantiles


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0, 1)
)
def test_quantiles_are_numpys(values: list[float], q: float) -> None:
    ordered = sorted(values)
    assert quantile(ordered, q) == pytest.approx(
        float(np.quantile(ordered, q)), rel=1e-9, abs=1e-6
    )


def test_spread() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert found is not None
    assert (found.min, found.median, found.max) == (1.0, 2.0, 3.0)
    assert found.p95 == pytest.approx(
        statistics.quantiles([1, 2, 3], n=20, method="inclusive")[18]
    )
    assert spread([]) is None


# -------------------------------------------------------------------------------- jobs.csv


def test_the_table_on_paper() -> None:
    out = io.StringIO()
    write_jobs_csv(tally(by_hand()).rows(), out)
    out.seek(0)
    found = {row["job_id"]: row for row in csv.DictReader(out)}
    assert found["a"]["met_deadline"] == "true"
    assert found["b"]["met_deadline"] == "false"
    assert found["d"]["met_deadline"] == ""
    assert found["a"]["ratio"] == "0.8"
    assert found["b"]["start_s"] == ""
    assert found["b"]["reason"] == "no room"
    assert out.getvalue().count("\r") == 0


@given(
    st.text(st.characters(exclude_characters="\r"), min_size=1, max_size=30)
)
def test_any_name_survives_the_table_as_harmless_text(name: str) -> None:
    stream = by_hand()[:1]
    stream.append(
        events.JobSubmitted(
            1.0, sample.request(name, 1.0, application=name)
        )
    )
    out = io.StringIO(newline="")
    write_jobs_csv(tally(stream).rows(), out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue(), newline=""))
    assert row["job_id"] == csv_text(name)


def test_a_carriage_return_ends_no_line() -> None:
    stream = by_hand()[:1]
    stream.append(
        events.JobSubmitted(
            1.0, sample.request("a", 1.0, application="x\ry\r\nz")
        )
    )
    out = io.StringIO(newline="")
    write_jobs_csv(tally(stream).rows(), out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue(), newline=""))
    assert row["application"] == "x\ny\nz"
