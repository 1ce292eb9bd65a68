"""``at_once``: a shuffle's flows all at the same time, in files and in agents' plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import parse_experiment

FILE = """\
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [fcfs]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 3, bandwidth: 100 Mbit/s, duration: 6 s, pattern: all-to-all}
"""


def demand_of(keys: str) -> object:
    text = FILE.replace("pattern: all-to-all", keys)
    (job,) = parse_experiment(text, Path("a.yaml")).jobs
    assert job.demand.at_once is job.to_json().get("at_once", False)
    return job.demand.at_once


def test_a_shuffle_is_in_turn_unless_its_file_says_otherwise() -> None:
    assert demand_of("pattern: all-to-all") is False
    assert demand_of("pattern: all-to-all, at_once: false") is False
    assert demand_of("pattern: all-to-all, at_once: true") is True


@pytest.mark.parametrize(
    "keys",
    [
        "at_once: true",
        "pattern: ring, at_once: true",
        "kind: iperf3, pattern: all-to-all, at_once: true",
        "command: [sh], at_once: true",
    ],
)
def test_only_a_shuffle_of_transfers_can_be(keys: str) -> None:
    with pytest.raises(
        SpecErrors, match=r"a\.yaml:6:.*at_once: belongs to"
    ):
        demand_of(keys)
