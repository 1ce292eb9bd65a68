"""Compilation of the simulator's inner loops before anybody waits for it.

``python -m testbed.play.precompile``, as ``provision.sh install`` calls it as
the owner of the checkout: small experiments that go through every loop, with
all kinds of arguments that it gets. What is compiled already is only loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.compiled import LazyLoop
from testbed.play.playing import dry_run
from testbed.spec.experiment_file import parse_experiment

EXPERIMENTS = {
    "DCloud's search": """\
name: precompile
topology: {kind: tree, fanout: [2, 2, 3], links: [2 Gbit/s, 1 Gbit/s, 1 Gbit/s],
  slots_per_server: 2}
policies: [dcloud]
workload:
  kind: jobs
  jobs:
    - {id: a, at: 0 s, vms: 9, bandwidth: 100 Mbit/s, duration: 60 s, deadline: 300 s}
    - {id: b, at: 1 s, vms: 5, bandwidth: 300 Mbit/s, duration: 60 s, deadline: 300 s}
""",
    "reservations over time": """\
name: precompile
topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 2}
policies: [dcloud, vc, jsa, bgmbf]
workload:
  kind: jobs
  jobs:
    - {id: a, at: 0 s, vms: 9, bandwidth: 100 Mbit/s, duration: 60 s, deadline: 300 s}
    - {id: b, at: 1 s, vms: 25, bandwidth: 300 Mbit/s, duration: 60 s, deadline: 300 s}
    - {id: c, at: 2 s, vms: 2, bandwidth: 300 Mbit/s, duration: 6 s, deadline: 300 s}
""",
    "sharing without reservations": """\
name: precompile
topology: {kind: tree, fanout: [2, 2], links: [1 Gbit/s, 1 Gbit/s], slots_per_server: 4}
policies: [bl, {name: bl, coupling: independent}, ps-p]
workload:
  kind: jobs
  jobs:
    - {id: a, at: 0 s, vms: 9, bandwidth: 100 Mbit/s, duration: 60 s, deadline: 300 s}
    - {id: b, at: 1 s, vms: 5, bandwidth: 300 Mbit/s, duration: 60 s, deadline: 300 s}
""",
}


def precompile() -> None:
    """Runs the experiments with machine code from the first step on."""
    # Otherwise a loop runs as Python for its first steps, and small
    # experiments have no more of them.
    LazyLoop.patience = 0
    for number, (title, text) in enumerate(EXPERIMENTS.items(), start=1):
        sys.stderr.write(
            f"compiling inner loops {number}/{len(EXPERIMENTS)}: {title}\n"
        )
        experiment = parse_experiment(text, Path("precompile.yaml"))
        for policy in experiment.policies:
            dry_run(experiment, policy)


if __name__ == "__main__":
    precompile()
