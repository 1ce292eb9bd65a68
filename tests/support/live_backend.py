"""A live backend for tests: the simulator under another name, as slow as a test sets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from jobs.request import JobRequest
from reproductions.figure_runs import Advance
from reproductions.live_backends import Machine
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.placement import Placement
from testbed.play.backend_trace import TRACE, TracingBackend, writer
from testbed.play.playing import begin_folder, conclude_run, play
from testbed.record.folder import DiskReserve, RunFolder, Sink
from testbed.schedulers.actions import Tier
from testbed.spec.experiment import Experiment


class Slow(SimulatedBackend):
    """Every job takes ``slow`` times as long as it would."""

    name = "live"
    slow = 1.0

    def start(
        self,
        job: JobRequest,
        placement: Placement,
        rate_bps: int,
        tier: Tier,
    ) -> None:
        slowed = replace(job, true_duration_s=job.duration_s * self.slow)
        super().start(slowed, placement, rate_bps, tier)


class Scripted(Machine):
    """See :class:`reproductions.figure_runs.Backends`. ``played`` are its live runs, in order.

    ``levels`` are their fidelity verdicts, one after another, the last for all that follow;
    ``stops_at`` is the live run (from 0) that is interrupted when its first job ends.
    """

    def __init__(
        self, levels: tuple[str, ...] = ("ok",), stops_at: int | None = None
    ) -> None:
        super().__init__(["testbed"], "testbed")
        self.played: list[str] = []
        self.slow = 1.0
        self._levels = levels
        self._stops_at = stops_at

    def ready(self, experiment: Experiment) -> None:
        """It needs no root."""

    def live(
        self, experiment: Experiment, folder: RunFolder, advance: Advance
    ) -> None:
        number = len(self.played)
        policy = experiment.policies[0]
        self.played.append(policy.label)
        level = self._levels[min(number, len(self._levels) - 1)]
        begin_folder(
            folder,
            experiment,
            policy,
            backend="live",
            command=["testbed"],
            facts={},
        )
        try:
            with _log(folder) as (log, reserve):
                backend = Slow(
                    experiment.datacentre,
                    seed=experiment.seed,
                    interference=experiment.interference,
                )
                backend.slow = self.slow
                path = folder.path / TRACE
                with path.open("x", encoding="utf-8") as trace:
                    met = TracingBackend(backend, writer(trace, reserve))
                    stops = number == self._stops_at
                    play(
                        experiment,
                        policy,
                        met,
                        _told(log, advance, level, stops=stops),
                    )
        finally:
            conclude_run(folder, experiment, policy, 1.0)


@contextmanager
def _log(folder: RunFolder) -> Iterator[tuple[Sink, DiskReserve]]:
    with (
        DiskReserve(folder.path, 4096) as reserve,
        folder.open_events() as log,
    ):
        yield log, reserve


def _told(log: Sink, advance: Advance, level: str, *, stops: bool) -> Sink:
    def told(event: events.Event) -> None:
        if isinstance(event, events.RunEnded):
            log(
                events.FidelityNoted(
                    event.t, level, "made up", f"made up to be {level}", {}
                )
            )
        log(event)
        advance(event.t)
        if stops and isinstance(event, events.JobEnded):
            raise KeyboardInterrupt

    return told


EXAMPLE = """
name: made
seed: 5
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.1, time: 2}
policies: [vc, bl]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 4, bandwidth: 500 Mbit/s, duration: 6 s, deadline: 60 s}
    - {id: b, at: 1 s, vms: 4, bandwidth: 600 Mbit/s, duration: 4 s, deadline: 60 s}
    - {id: c, at: 20 s, vms: 2, bandwidth: 100 Mbit/s, duration: 4 s, deadline: 60 s}
"""


def example(folder: Path) -> Path:
    """An experiment of three jobs, of which VC refuses one for want of room."""
    path = folder / "made.yaml"
    path.write_text(EXAMPLE)
    return path
