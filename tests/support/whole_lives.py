"""The lives of all jobs of a stream of events."""

from __future__ import annotations

from collections.abc import Iterable

from testbed import events
from testbed.record.job_lives import JobLives


def lives_of(stream: Iterable[events.Event]) -> JobLives:
    """All lives of a whole stream, with their stretches and holds."""
    lives = JobLives(recording=True)
    for event in stream:
        lives.follow(event)
    return lives
