"""Backends of live figures: the live network and the simulator, as the verbs
use them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.figure_runs import Advance
from testbed import events
from testbed.cli.options import require_root
from testbed.record.folder import RunFolder, Sink
from testbed.spec.experiment import Experiment

if TYPE_CHECKING:
    from testbed.backends.emu.emulation import LiveOptions


class Machine:
    """This machine's backends. See :class:`reproductions.figure_runs.Backends`.

    ``command`` goes into each run folder; ``again`` is the command that the
    hint on a missing privilege names; ``options`` are the network's names and
    ports.
    """

    def __init__(
        self,
        command: list[str],
        again: str,
        options: LiveOptions | None = None,
    ) -> None:
        self._command = command
        self._again = again
        self._options = options

    def ready(self, experiment: Experiment) -> None:  # noqa: ARG002 - the network asks for more
        require_root(self._again)

    def live(
        self, experiment: Experiment, folder: RunFolder, advance: Advance
    ) -> None:
        # Imported here: simulated figures load no emulation.
        from testbed.backends.emu.emulation import LiveOptions
        from testbed.play.live_run import LiveRun, run_live

        @contextmanager
        def progress(
            expected_end_s: dict[str, float],  # noqa: ARG001 - time left is the whole figure's
            time_scale: float,  # noqa: ARG001
            label: str,  # noqa: ARG001
        ) -> Generator[Sink, None, None]:
            yield lambda event: advance(event.t)

        # A figure is played as it is defined; its runs' fidelity stands
        # beside it.
        options = replace(self._options or LiveOptions(), force=True)
        run_live(
            experiment=experiment,
            top=folder,
            options=options,
            show=LiveRun(_nothing, progress),
            command=self._command,
        )

    def simulated(self, experiment: Experiment, folder: RunFolder) -> None:
        from testbed.play.playing import run_simulated

        run_simulated(experiment, folder, _unshown, self._command)

    def replayed(
        self, experiment: Experiment, live: Path, folder: RunFolder
    ) -> str:
        from testbed.play.playing import replay_sources, run_replayed

        sources = replay_sources(experiment, live)
        replay = run_replayed(experiment, sources, folder, self._command)[0]
        if replay.same:
            return ""
        return replay.sentence()


def _nothing(text: str) -> None:
    """A figure's runs share one progress bar."""


@contextmanager
def _unshown(label: str, jobs: int) -> Generator[Sink, None, None]:  # noqa: ARG001
    def pass_over(event: events.Event) -> None:
        """Simulations of live figures take seconds."""

    yield pass_over
