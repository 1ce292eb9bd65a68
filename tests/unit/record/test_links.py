from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from testbed import events
from testbed.record import link_rates
from testbed.record.link_rates import (
    link_rows,
    simulated_rows,
    write_links_csv,
)
from testbed.record.metrics import tally
from tests.support.whole_lives import lives_of
from tests.unit.record import sample


def test_a_live_run_has_its_samples() -> None:
    stream = sample.main_example()
    rows = list(link_rows(tally(stream, recording=True)))
    samples = [
        event for event in stream if isinstance(event, events.LinkSample)
    ]
    assert len(rows) == sum(len(event.links) for event in samples)
    first = samples[0].links[0]
    assert rows[0].link == "server 0 -> rack 0"
    assert (
        rows[0].directed_link,
        rows[0].sent_bps,
        rows[0].reserved_bps,
    ) == (
        0,
        *first[1:],
    )
    assert rows[1].link == "rack 0 -> server 0"
    assert rows[0].capacity_bps == 1_000_000_000


def test_reservations_follow_rescaling_preemption_and_migration() -> None:
    mbit = 1_000_000
    assert [
        (link, hold.start_s, hold.end_s, bps // mbit)
        for hold in lives_of(sample.preempting()).held()
        for link, bps in hold.links
        if link in (0, 4)
    ] == [
        (0, 0.0, 5.0, 400),
        (0, 5.0, 10.0, 200),
        (0, 10.0, 40.0, 400),
        (0, 40.0, 45.0, 200),
        (4, 45.0, 77.5, 200),
    ]


def test_an_interrupted_run_holds_to_its_last_event() -> None:
    stream = [
        *sample.preempting()[:4],
        events.RunEnded(9.0, "interrupted", ""),
    ]
    assert {(r.start_s, r.end_s) for r in lives_of(stream).held()} == {
        (0.0, 9.0)
    }


def test_means_over_intervals_keep_the_volume() -> None:
    stream = sample.preempting()
    topology = sample.tree((4,))
    held = list(lives_of(stream).held())
    rows = list(simulated_rows(topology, held, 77.5))
    step_s = 77.5 / link_rates.MAX_INTERVALS
    assert sum(row.reserved_bps for row in rows) * step_s == pytest.approx(
        sum(
            bps * (hold.end_s - hold.start_s)
            for hold in held
            for _, bps in hold.links
        )
    )
    assert all(row.sent_bps is None for row in rows)
    assert rows[-1].time_s == pytest.approx(77.5)


def test_many_links_get_fewer_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_rates, "MAX_SIMULATED_ROWS", 40)
    rows = list(link_rows(tally(sample.preempting(), recording=True)))
    assert len(rows) == 40
    assert len({row.time_s for row in rows}) == 5


def test_nothing_reserved_gives_no_rows() -> None:
    assert list(link_rows(tally(sample.flat(), recording=True))) == []
    assert list(link_rows(tally([], recording=True))) == []


def test_the_file(tmp_path: Path) -> None:
    out = io.StringIO()
    write_links_csv(link_rows(tally(sample.sliding(), recording=True)), out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert list(rows[0]) == [
        "time_s",
        "link",
        "directed_link",
        "sent_bps",
        "reserved_bps",
        "capacity_bps",
    ]
    assert rows[0]["sent_bps"] == ""
    assert rows[0]["reserved_bps"] == "1000000000"
