"""The simulated run: every policy of an experiment over the same jobs, each into its folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from testbed.results.conclude import conclude_all
from testbed.results.folder import RunFolder
from testbed.runs.play import Sink, play, simulated, tee
from testbed.runs.record import Recorded, begin_folder, conclude_run
from testbed.spec.experiment import Experiment, PolicySpec

Progress = Callable[[str, int], AbstractContextManager[Sink]]
"""Shows how far a policy is: its label, and how many jobs there are, to an event sink."""


def run_simulated(
    experiment: Experiment, top: RunFolder, progress: Progress, command: list[str]
) -> list[Recorded]:
    """Every policy, one after another; with several, each has a folder of its own below ``top``."""
    several = len(experiment.policies) > 1
    recorded = [
        _one_policy(
            experiment, policy, top.policy(policy.label) if several else top, progress, command
        )
        for policy in experiment.policies
    ]
    if several:
        conclude_all(top, [one.results for one in recorded])
    return recorded


def _one_policy(
    experiment: Experiment,
    policy: PolicySpec,
    folder: RunFolder,
    progress: Progress,
    command: list[str],
) -> Recorded:
    began = time.monotonic()
    begin_folder(folder, experiment, policy, "sim", command, {})
    took_s = None
    try:
        with folder.open_events() as log, progress(policy.label, len(experiment.jobs)) as bar:
            play(experiment, policy, simulated(experiment, policy), tee(log, bar))
            took_s = time.monotonic() - began
    finally:
        # What was simulated until then is written down, whatever stopped it.
        result = conclude_run(folder, experiment, policy, took_s or time.monotonic() - began)
    return result
