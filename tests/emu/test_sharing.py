"""Jobs without guarantees: real TCP competes for what is left of a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.request import JobRequest
from testbed.schedulers.actions import Start
from tests.emu.test_actions import MBIT, measured, whole
from tests.support.scripted_run import (
    ScriptedPolicy,
    begun,
    on,
    play,
    small_emulation,
)
from topologies.tree import tree

# Long beside TCP's timeouts (0.2 s, some at the start): a flow that waits one out has nothing to
# send, and what it does not take the other does.
ALONE_S = 6.0


@pytest.mark.long
@pytest.mark.parametrize("weighted", [False, True])
def test_jobs_without_guarantees_share_a_link(
    prefix: str, tmp_path: Path, weighted: bool
) -> None:
    """One flow of each crosses: alike under TCP; two VMs to one where VMs count."""
    scripted = ScriptedPolicy(
        {
            "big": lambda _: [Start("big", on(2, (0, 2), (1, 2)), 0)],
            "small": lambda _: [Start("small", on(2, (0, 1), (1, 1)), 0)],
        },
    )
    jobs = [
        JobRequest("big", 0.0, 4, 1000 * MBIT, ALONE_S),
        JobRequest("small", 0.0, 2, 1000 * MBIT, ALONE_S),
    ]
    with small_emulation(
        tree([2], [1000 * MBIT], 3), prefix, tmp_path
    ) as own:
        histories = play(own, jobs, scripted, weighted=weighted)
    for name in ("big", "small"):
        whole(histories[name])
    # "big" comes first, and has it for itself until the other comes.
    alone_s = begun(histories["small"]) - begun(histories["big"])
    big_s, small_s = (
        measured(histories["big"]),
        alone_s + measured(histories["small"]),
    )
    left_s = ALONE_S - alone_s
    # However they share it, the link carries both volumes and no more at a time.
    assert max(big_s, small_s) > 0.95 * 2 * ALONE_S
    if weighted:
        # By weight, "big" has two thirds for what it has left; "small" half as much meanwhile.
        assert big_s - alone_s > 0.9 * left_s * 3 / 2
        assert small_s - big_s > 0.8 * (ALONE_S - left_s / 2)
    else:
        assert min(big_s, small_s) - alone_s > 1.1 * left_s
