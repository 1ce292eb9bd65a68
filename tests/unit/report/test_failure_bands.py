"""Failures on the pictures' time axes, and in their descriptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed import events
from testbed.record.event_file import EventFile
from testbed.record.failure_times import Outage, outages
from testbed.record.reading import load_run
from testbed.report.failure_bands import band_labels, of_link, restarts
from testbed.report.page import run_page
from tests.support.whole_lives import lives_of
from tests.unit.record import failing, sample
from tests.unit.record.written import write_run


def failures(stream: list[events.Event]) -> list[Outage]:
    return outages(EventFile(Path("events.jsonl"), stream))


def test_bands_begin_and_end_with_the_failures_and_restarts_are_moments() -> (
    None
):
    stream = failing.moving()
    found = failures(stream)
    assert [
        (each.kind, each.part, each.begin_s, each.end_s) for each in found
    ] == [
        ("link lost", "aggregation 0 – core 0", 4.0, 11.0),
        ("link lost", "server 10 – edge 5", 5.0, 8.0),
        ("switch restarted", "edge 0", 6.0, 6.0),
        ("controller killed", "the controller", 7.0, 7.0),
        ("server lost", "server 12", 9.0, 12.0),
    ]
    assert [each.begin_s for each in restarts(found)] == [6.0, 7.0]
    assert of_link(found, "edge 5 -> server 10") == of_link(
        found, "server 10 -> edge 5"
    )
    assert of_link(found, "server 1 -> edge 0", "server 10 -> edge 5") == [
        found[1]
    ]


def test_what_is_not_restored_lasts_to_the_end_and_may_fail_twice() -> None:
    stream = failing.moving()
    again = [
        events.LinkFailed(15.0, 10),
        *(e for e in stream if e.t > 15.0),
    ]
    found = failures([*(e for e in stream if e.t <= 15.0), *again])
    own = of_link(found, "server 10 -> edge 5")
    assert [(each.begin_s, each.end_s) for each in own] == [
        (5.0, 8.0),
        (15.0, 20.0),
    ]


@pytest.mark.parametrize(
    ("again", "end_s"),
    [
        (events.LinkFailed(6.0, 10), 8.0),
        (events.ServerFailed(10.0, 12), 12.0),
    ],
)
def test_a_second_failure_of_a_lost_part_does_not_end_its_outage(
    again: events.LinkFailed | events.ServerFailed, end_s: float
) -> None:
    stream = failing.moving()
    before = [event for event in stream if event.t <= again.t]
    after = [event for event in stream if event.t > again.t]
    failed = failures([*before, again, *after])
    assert failed == failures(stream)
    assert end_s in {outage.end_s for outage in failed}


@pytest.mark.parametrize("link", [-1, 10**6])
def test_a_link_that_the_topology_lacks_is_not_the_controller(
    link: int,
) -> None:
    started = failing.moving()[0]
    stream = [started, events.LinkFailed(1.0, link)]
    assert [outage.part for outage in failures(stream)] == [f"link {link}"]


def test_a_cut_is_a_stretch_of_its_own() -> None:
    found = [
        (s.phase, s.start_s, s.end_s)
        for s in lives_of(failing.moving()).stretches()
        if s.job_id == "pair"
    ]
    assert found == [
        ("running", 1.0, 5.0),
        ("cut", 5.0, 8.0),
        ("running", 8.0, 14.0),
    ]
    anew = [
        (s.phase, s.start_s)
        for s in lives_of(failing.anew()).stretches()
        if s.job_id == "first"
    ]
    assert anew == [("running", 0.0), ("running", 4.0)]


def test_a_legend_names_what_was_lost_and_whether_it_came_back() -> None:
    stream = failing.moving()
    until_lost = [event for event in stream if event.t <= 5.0]
    lost = failures(until_lost)
    assert band_labels(lost[:1]) == {
        "link lost": "link aggregation 0 – core 0 lost, not restored"
    }
    assert band_labels(lost) == {
        "link lost": "link lost (2, 0 of them restored)"
    }
    assert band_labels(failures(stream)) == {
        "link lost": "link lost (2, 2 of them restored)",
        "switch restarted": "switch edge 0 restarted",
        "controller killed": "the controller killed",
        "server lost": "server 12 lost, restored",
    }


def page_of(base: Path, stream: list[events.Event]) -> str:
    folder, _ = write_run(base, stream)
    return run_page(load_run(folder.path))


@pytest.mark.slow
def test_the_page_shows_and_tells_them(tmp_path: Path) -> None:
    page = page_of(tmp_path, failing.moving())
    for label in (
        "cut off",
        "link lost",
        "link lost (2, 2 of them restored)",
        "server 12 lost, restored",
        "switch edge 0 restarted",
        "the controller killed",
    ):
        assert f">{label}</text>" in page
    told = (
        " ".join(re.findall(r'aria-label="([^"]*)"|<summary>', page)) + page
    )
    for sentence in (
        "The link aggregation 0 – core 0 was lost from 4.00 s to 11.00 s.",
        "The switch edge 0 was restarted at 6.00 s. The controller",
        "The controller was killed at 7.00 s.",
        "pair was cut off from 5.00 s to 8.00 s.",
        "Bands and upright lines: The link aggregation 0",
        "A job that a lost link stops is pale.",
    ):
        assert sentence in told


@pytest.mark.slow
@pytest.mark.parametrize(
    "stream", [sample.sliding, lambda: sample.simulated(300)]
)
def test_a_page_without_failures_speaks_of_none(
    tmp_path: Path, stream: object
) -> None:
    assert callable(stream)
    page = page_of(tmp_path, stream())
    for label in (
        "cut off",
        "link lost",
        "server lost",
        "restarted",
        "Bands and upright lines",
    ):
        assert label not in page


@pytest.mark.slow
def test_many_jobs_and_many_links_have_them_too(tmp_path: Path) -> None:
    """Occupancy and heat map, beyond the lanes and panels that a page has room for."""
    stream = sample.simulated(300)
    end = next(
        i
        for i, event in enumerate(stream)
        if isinstance(event, events.RunEnded)
    )
    middle = next(event.t for event in stream[end // 2 :])
    at = next(i for i, event in enumerate(stream) if event.t > middle)
    more = [
        events.SwitchRestarted(middle, 20),
        events.ServerFailed(middle, 1),
    ]
    page = page_of(tmp_path, [*stream[:at], *more, *stream[at:]])
    assert ">server 1 lost, not restored</text>" in page
    assert " restarted</text>" in page
    assert 'id="occupancy-' in page
