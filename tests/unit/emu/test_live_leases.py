"""Leases in a live run that their reservations' ends stop."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.workload.lwf import LeaseRecord, requests_of
from testbed.backends.emu.live_backend import LiveBackend
from testbed.embedding.base import embedder
from testbed.engine.engine import Engine
from testbed.events import OUTLASTED, Event, JobEnded
from testbed.plan.direct_evidence import job_findings
from testbed.schedulers.registry import build_policy
from testbed.spec.experiment import Scale
from tests.support.fake_emulation import (
    SCALE_RATE,
    FakeEmulation,
    own_clock,
)
from topologies.flat import flat


@pytest.fixture(autouse=True)
def _own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is over within milliseconds, in which a busy machine has not begun it."""
    own_clock(monkeypatch)


def stopped(lease: LeaseRecord) -> LiveBackend:
    """The backend after a run of one lease whose agent does not report."""
    centre = flat(2, 2)
    fake: Any = FakeEmulation(centre)
    backend = LiveBackend(fake, Scale(rate=SCALE_RATE), 1, lambda _: None)
    backend.begin()
    recorded: list[Event] = []
    jobs = requests_of([lease], memory=False, margin_s=0.01)
    policy = build_policy("mbfcbs", embedder("oktopus"), {})
    Engine(centre, jobs, policy, backend, recorded.append).run()
    (ended,) = [event for event in recorded if isinstance(event, JobEnded)]
    assert (ended.outcome, ended.reason) == ("killed", OUTLASTED)
    return backend


@pytest.mark.parametrize(
    "lease",
    [
        LeaseRecord("l", "IM", 0.0, 0.0, 0.05, 1),
        LeaseRecord("l", "AR", 0.0, 0.05, 0.05, 1, real_s=0.02),
        # Over before it is looked at.
        LeaseRecord("l", "BE", 0.0, None, 0.002, 1),
    ],
    ids=lambda lease: lease.kind,
)
def test_the_verdict_names_one_that_was_to_end_in_time(
    lease: LeaseRecord,
) -> None:
    ended = stopped(lease).watch.evidence.ended
    (found,) = (
        finding
        for finding in job_findings(ended)
        if finding.check == "late start"
    )
    assert found.level == "invalid"
    assert found.reason.startswith(
        "job l was to end in its reservation, whose end stopped it: "
    )


def test_one_that_needs_longer_than_stated_is_the_experiments_own() -> None:
    lease = LeaseRecord("l", "IM", 0.0, 0.0, 0.05, 1, real_s=0.2)
    (evidence,) = stopped(lease).watch.evidence.ended
    assert not evidence.cut_off
