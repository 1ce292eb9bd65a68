"""Every kind of event is compared, described and folded, or left out for a reason."""

from __future__ import annotations

import pytest

from testbed import events
from testbed.record import comparison, job_history, job_lives
from testbed.record.comparison import decisions, first_difference
from testbed.record.job_history import explained
from tests.unit.record import sample

OF_THE_RUN = (
    events.RunStarted,
    events.LinkFailed,
    events.LinkRestored,
    events.ServerFailed,
    events.ServerRestored,
    events.SwitchRestarted,
    events.ControllerKilled,
    events.LinkSample,
    events.FidelityNoted,
    events.RunEnded,
)
NOT_COMPARED = {
    **dict.fromkeys(OF_THE_RUN, "of no job"),
    events.JobSubmitted: "asked of the policy, not decided by it",
    events.JobWaits: "a reason, which changes while nothing is decided",
    events.JobProgress: "measured",
}
NOT_DESCRIBED = {
    **dict.fromkeys(OF_THE_RUN, "of no job"),
    events.JobSubmitted: "described with what the job asks for",
    events.JobProgress: "would be a sentence a sample",
}
WITHOUT_EFFECT = {
    **dict.fromkeys(OF_THE_RUN, "of no job"),
    events.JobSubmitted: "begins a life",
    events.JobShortened: "changes a planned end, which no life has",
}


@pytest.mark.parametrize(
    ("taken", "left_out"),
    [
        ({*comparison._KEPT, events.JobEnded}, NOT_COMPARED),
        (set(job_history._SENTENCES), NOT_DESCRIBED),
        (set(job_lives._EFFECTS), WITHOUT_EFFECT),
    ],
)
def test_no_kind_of_event_is_forgotten(
    taken: set[type[events.Event]], left_out: dict[type, str]
) -> None:
    assert not taken & left_out.keys()
    assert taken | left_out.keys() == set(events.EVENTS.values())


def test_a_shortened_reservation_is_a_decision_with_a_sentence() -> None:
    stream = sample.leases()
    others = [
        event
        for event in stream
        if not isinstance(event, events.JobShortened)
    ]
    differs = first_difference(decisions(stream), decisions(others))
    assert differs is not None
    assert differs.first is not None
    assert (differs.first.job_id, differs.first.name) == (
        "best",
        "shortened",
    )
    says = [step.says for step in explained(stream, "best").steps]
    assert (
        "is to give its place back at 20 s: advance reservation wanted"
        in says
    )
