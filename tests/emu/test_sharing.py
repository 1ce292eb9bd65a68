"""Jobs without guarantees: real TCP competes for what is left of a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.request import JobRequest
from testbed.schedulers.actions import Start
from tests.emu.puppets import Puppet, on, play, small_world
from tests.emu.test_actions import LATE_S, MBIT, measured, whole
from topologies.tree import tree


@pytest.mark.parametrize("weighted", [False, True])
def test_jobs_without_guarantees_share_a_link(prefix: str, tmp_path: Path, weighted: bool) -> None:
    """One flow of each crosses: alike under TCP; two VMs to one where VMs count."""
    puppet = Puppet(
        {
            "two": lambda _: [Start("two", on(2, (0, 2), (1, 2)), 0)],
            "one": lambda _: [Start("one", on(2, (0, 1), (1, 1)), 0)],
        },
    )
    jobs = [
        JobRequest("two", 0.0, 4, 1000 * MBIT, 1.5),
        JobRequest("one", 0.0, 2, 1000 * MBIT, 1.5),
    ]
    with small_world(tree([2], [1000 * MBIT], 3), prefix, tmp_path) as own:
        told = play(own, jobs, puppet, weighted=weighted)
    for name in ("two", "one"):
        whole(told[name])
    # The link carries both volumes in 3 s. By weight, "two" has two thirds of it: 2.25 s.
    assert 2.9 < max(measured(told["two"]), measured(told["one"])) < 3.0 + LATE_S
    if weighted:
        assert 2.1 < measured(told["two"]) < 2.7
        assert measured(told["one"]) > 2.8
