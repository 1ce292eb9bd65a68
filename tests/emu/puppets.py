"""A live world inside the test, and a policy that does what the test says, when it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.backend import LiveBackend
from testbed.backends.emu.world import LiveOptions, LiveWorld, live_world
from testbed.embedding.placement import Placement
from testbed.engine.engine import Engine
from testbed.schedulers.actions import Action, Arrived, PolicyEvent, Wake, Woken
from testbed.schedulers.policy import View
from testbed.spec.experiment import Scale
from tests.emu.test_run import free_port
from topologies.datacentre import DataCentre

SMALL = Scale(rate=0.02)  # a server's Gbit/s is 20 Mbit/s on the wire
Does = Callable[[View], Sequence[Action]]


class Puppet:
    """Does ``script[job]`` when a job arrives and ``later[at_s]`` at that time."""

    name = "puppet"

    def __init__(
        self, arrivals: Mapping[str, Does], later: Mapping[float, Does] | None = None
    ) -> None:
        self._arrivals = arrivals
        self._later = dict(later or {})

    def decide(self, view: View, event: PolicyEvent) -> list[Action]:
        if isinstance(event, Arrived):
            wakes = [Wake(at_s) for at_s in self._later] if view.order(event.job_id) == 1 else []
            return [*wakes, *self._arrivals[event.job_id](view)]
        if isinstance(event, Woken):
            return list(self._later[event.at_s](view))
        return []


@contextmanager
def small_world(
    datacentre: DataCentre,
    prefix: str,
    folder: Path,
    scale: Scale = SMALL,
    berths: Sequence[int] | None = None,
) -> Iterator[LiveWorld]:
    options = LiveOptions(prefix, free_port(), free_port())
    with live_world(datacentre, scale, options, folder, "test", berths=berths) as world:
        yield world


def play(
    world: LiveWorld,
    jobs: Sequence[JobRequest],
    puppet: Puppet,
    scale: Scale = SMALL,
    *,
    weighted: bool = False,
) -> dict[str, list[events.Event]]:
    """Every job's events, in order."""
    told: list[events.Event] = []
    backend = LiveBackend(world, scale, 1, told.append, weighted=weighted)
    backend.begin()
    Engine(
        world.datacentre, jobs, puppet, backend, told.append, lambda engine: engine.books.check()
    ).run()
    times = [event.t for event in told]
    assert times == sorted(times)
    return {
        job.id: [event for event in told if getattr(event, "job_id", None) == job.id]
        for job in jobs
    }


def ended(history: Sequence[events.Event]) -> events.JobEnded:
    last = history[-1]
    assert isinstance(last, events.JobEnded)
    return last


def on(root: int, *vms_on: tuple[int, int]) -> Placement:
    return Placement(root, vms_on)
