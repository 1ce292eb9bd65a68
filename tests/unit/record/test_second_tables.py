"""Rows, links, summary and verdicts equal those computed a second time, independently."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import events
from testbed.audit.history import History
from testbed.expectations import ApplicationExpectation, Band, Expectation
from testbed.record.link_rates import link_rows
from testbed.record.metrics import JOB_COLUMNS, Recording, cells_of
from testbed.record.verdicts import applicable, evaluate, other_complaints
from tests.support import second_tables
from tests.support.examples import examples
from tests.unit.record import failing, sample
from tests.unit.record.test_with_the_engine import (
    CENTRES,
    JOBS,
    played,
    requests,
)
from tests.unit.record.written import FIG10
from topologies.datacentre import DataCentre

STREAMS = {
    "live": sample.eventful(),
    "many": sample.simulated(120),
    "preempting": sample.preempting(),
    "tiers": sample.two_tiers(),
    "later": sample.sliding(),
    "leases": sample.leases(),
    "flat": sample.flat(),
    "moving": failing.moving(),
    "anew": failing.anew(),
    "cut short": sample.simulated(60)[:150],
}
EXPECTATIONS = st.builds(
    Expectation,
    st.sampled_from([None, Band(0.98, 1.01), Band(None, 1.0)]),
    st.dictionaries(
        st.sampled_from(["sort", "index", "late", "nobody's"]),
        st.builds(
            ApplicationExpectation,
            st.sampled_from([None, Band(0.5, 0.99)]),
            st.sampled_from([None, 0.6, 0.97]),
        ),
        max_size=3,
    ),
    st.sampled_from([None, "ok", "suspect", "invalid"]),
    st.sampled_from([None, 1.05]),
)


def compare(stream: list[events.Event], expect: Expectation) -> None:
    file = Recording(Path(), stream)
    history = History(file.path, file, {"claims": []})
    cells = second_tables.facts(history)
    rows = [
        dict(zip(JOB_COLUMNS, cells_of(row), strict=True))
        for row in file.rows
    ]
    assert_same(rows, list(cells.values()))
    assert_same_links(history)
    summary = file.tally.summary().to_json()
    due = second_tables.summary_due(history, list(cells.values()))
    assert_same({key: summary[key] for key in due}, due)
    fidelity = file.tally.fidelity()
    block = asdict(expect)
    verdicts = evaluate(expect, file.rows, fidelity)
    verdict_of = {
        job_id: second_tables.verdict_due(history, block, job)
        for job_id, job in cells.items()
    }
    assert {row.job_id: row.verdict for row in verdicts.rows} == verdict_of
    others = other_complaints(
        applicable(expect, fidelity), verdicts.rows, file.rows, fidelity
    )
    assert [complaint.subject for complaint in others] == list(
        second_tables.other_subjects(history, block, cells, verdict_of)
    )


def assert_same_links(history: History) -> None:
    rows = list(link_rows(history.file.tally))
    samples = history.of_kind(events.LinkSample)
    if samples:
        due: list[Any] = [
            (event.t, int(link), sent, reserved)
            for event in samples
            for link, sent, reserved in event.links
        ]
    else:
        due = list(second_tables.link_means(history))
    stated = [
        (row.time_s, row.directed_link, row.sent_bps, row.reserved_bps)
        for row in rows
    ]
    assert len(stated) == len(due)
    for one, two in zip(stated, due, strict=True):
        assert_same(list(one[:3]), list(two[:3]))
        assert math.isclose(one[3], two[3], rel_tol=1e-9, abs_tol=0.5)


def assert_same(value: Any, due: Any) -> None:
    """Equal values, sums of floats but for their rounding."""
    if isinstance(due, dict):
        assert value.keys() == due.keys()
        for key in due:
            assert_same(value[key], due[key])
    elif isinstance(due, list | tuple):
        assert len(value) == len(due)
        for one, two in zip(value, due, strict=True):
            assert_same(one, two)
    elif isinstance(due, float):
        assert math.isclose(value, due, rel_tol=1e-9, abs_tol=1e-9)
    else:
        assert value == due


@pytest.mark.parametrize("stream", STREAMS)
def test_the_samples_have_the_second_computations_tables(
    stream: str,
) -> None:
    compare(STREAMS[stream], FIG10)


@pytest.mark.slow
@examples(60)
@given(stream=st.sampled_from(list(STREAMS.values())), expect=EXPECTATIONS)
def test_verdicts_are_the_second_computations_whatever_is_expected(
    stream: list[events.Event], expect: Expectation
) -> None:
    compare(stream, expect)


@pytest.mark.slow
@examples(60)
@given(
    drawn=JOBS,
    centre=st.sampled_from(CENTRES),
    policy=st.sampled_from(["vc", "scripted"]),
)
def test_any_run_has_the_second_computations_tables(
    drawn: list[dict[str, float]], centre: DataCentre, policy: str
) -> None:
    stream = played(centre, requests(drawn, policy), policy, "oktopus")
    compare(stream, Expectation())
