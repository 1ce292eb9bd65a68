"""A live network inside the test, and a scripted test policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jobs.request import Enforcement, JobRequest
from testbed import events
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.live_backend import LiveBackend
from testbed.embedding.placement import Placement
from testbed.engine.engine import Engine
from testbed.play.backend_trace import TracingBackend
from testbed.schedulers.actions import (
    Action,
    Arrived,
    Ended,
    Outlasted,
    PolicyEvent,
    Start,
    Wake,
    Woken,
)
from testbed.schedulers.policy import View
from testbed.spec.experiment import Scale
from tests.support.own_addresses import free_port
from topologies.datacentre import DataCentre

# A server's Gbit/s is 20 Mbit/s on the wire.
SMALL = Scale(rate=0.02)
Does = Callable[[View], Sequence[Action]]


class ScriptedPolicy:
    """Does ``arrivals[job]`` when a job arrives, ``ends[job]`` when it has ended,
    ``outlasts[job]`` when its reservation has, and ``later[delay_s]`` so long after job ``since``
    has been started (default: the first to arrive).

    All of it late on a machine that has much to do. What has to come after something else is done
    at that one's start or end, not at a time that is hoped to be late enough.
    """

    name = "scripted"

    def __init__(
        self,
        arrivals: Mapping[str, Does],
        later: Mapping[float, Does] | None = None,
        ends: Mapping[str, Does] | None = None,
        since: str | None = None,
        outlasts: Mapping[str, Does] | None = None,
    ) -> None:
        self._arrivals = arrivals
        self._later = dict(later or {})
        self._ends = dict(ends or {})
        self._outlasts = dict(outlasts or {})
        self._since = since
        self._due: dict[float, Does] | None = None

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if isinstance(event, Arrived):
            actions = list(self._arrivals[event.job_id](view))
            first = self._due is None and event.job_id == (
                self._since or event.job_id
            )
            if self._later and first:
                self._due = {}
                # At once, when what stands before it is done.
                actions.append(Wake(0.0))
            return actions
        if isinstance(event, Woken):
            if not self._due:
                self._due = {
                    view.now_s + delay_s: do
                    for delay_s, do in self._later.items()
                }
                return [Wake(at_s) for at_s in self._due]
            return list(self._due[event.at_s](view))
        if isinstance(event, Ended) and event.job_id in self._ends:
            return list(self._ends[event.job_id](view))
        if isinstance(event, Outlasted):
            return list(self._outlasts[event.job_id](view))
        return []


POLL_S = 0.1


class SteppedPolicy:
    """Starts jobs as they arrive, in ``starts``' order; once ``is_begun`` after the last of them,
    takes each of ``steps`` so long after all of the one before was done: on a slow machine later,
    and never two at once.
    """

    name = "stepped"

    def __init__(
        self,
        starts: Mapping[str, Start],
        is_begun: Callable[[], bool],
        steps: Sequence[tuple[float, Does]],
    ) -> None:
        self._starts = starts
        self._last = list(starts)[-1]
        self._is_begun = is_begun
        self._steps = list(steps)
        self._begun = self._waited = False

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if isinstance(event, Arrived):
            started: list[Action] = [self._starts[event.job_id]]
            if event.job_id == self._last:
                # At once, when what stands before it is done.
                started.append(Wake(0.0))
            return started
        if not isinstance(event, Woken):
            return []
        self._begun = self._begun or self._is_begun()
        if not self._begun:
            return [Wake(view.now_s + POLL_S)]
        delay_s, do = self._steps[0]
        if not self._waited:
            self._waited = True
            return [Wake(view.now_s + delay_s)]
        self._waited = False
        del self._steps[0]
        actions = list(do(view))
        if self._steps:
            actions.append(Wake(0.0))
        return actions


@contextmanager
def small_emulation(
    datacentre: DataCentre,
    prefix: str,
    folder: Path,
    scale: Scale = SMALL,
    namespaces_per_server: Sequence[int] | None = None,
) -> Iterator[Emulation]:
    options = LiveOptions(prefix, free_port(), free_port())
    with emulate(
        datacentre,
        scale,
        options,
        folder,
        "test",
        namespaces_per_server=namespaces_per_server,
    ) as emulation:
        yield emulation


def play(
    emulation: Emulation,
    jobs: Sequence[JobRequest],
    scripted: ScriptedPolicy | SteppedPolicy,
    scale: Scale = SMALL,
    *,
    weighted: bool = False,
    enforcement: Enforcement = "strict",
) -> dict[str, list[events.Event]]:
    """Every job's events, in order. The backend is traced, as a run's is."""
    recorded: list[events.Event] = []
    trace: list[dict[str, Any]] = []
    backend = LiveBackend(
        emulation,
        scale,
        1,
        recorded.append,
        weighted=weighted,
        enforcement=enforcement,
    )
    backend.begin()
    engine = Engine(
        emulation.datacentre,
        jobs,
        scripted,
        TracingBackend(backend, trace.append),
        recorded.append,
        lambda engine: engine.reservations.check(),
    )
    try:
        engine.run()
    except BaseException:
        # One test's failure is not to be another's: the emulation is shared.
        for job_id in list(backend._jobs):
            with suppress(Exception):
                backend.kill(job_id)
        raise
    times = [event.t for event in recorded]
    assert times == sorted(times)
    return {
        job.id: [
            event
            for event in recorded
            if getattr(event, "job_id", None) == job.id
        ]
        for job in jobs
    }


def at(history: Sequence[events.Event], kind: type[events.Event]) -> float:
    """When a job's only event of this kind was."""
    (event,) = [event for event in history if isinstance(event, kind)]
    return event.t


def begun(history: Sequence[events.Event]) -> float:
    """The start of a job's agents, or its first byte: events of it come late on a busy machine."""
    start_s = ended(history).detail["start_s_raw"]
    assert isinstance(start_s, float)
    return at(history, events.JobReserved) + start_s


def ended(history: Sequence[events.Event]) -> events.JobEnded:
    last = history[-1]
    assert isinstance(last, events.JobEnded)
    return last


def on(root: int, *vms_on: tuple[int, int]) -> Placement:
    return Placement(root, vms_on)
