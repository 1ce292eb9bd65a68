"""Pools of agents for the tests of this folder; all of them run without root."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import pytest

from jobs.live.agent_pool import AgentPool
from jobs.live.agent_protocol import SpawnRequest
from jobs.live.transfer_plan import TransferPlan
from tests.support.agent_watch import Watch


@pytest.fixture
def account() -> tuple[int, int]:
    """Whom agents run as: this user, or nobody where this user is root."""
    return (os.getuid(), os.getgid()) if os.geteuid() else (65534, 65534)


@pytest.fixture
def pool() -> Iterator[AgentPool]:
    with AgentPool() as running:
        yield running


@pytest.fixture
def watch(pool: AgentPool) -> Watch:
    return Watch(pool)


@pytest.fixture
def spawn_all(
    pool: AgentPool, account: tuple[int, int]
) -> Callable[[Sequence[TransferPlan]], list[str]]:
    """Spawn one agent a plan, named after its index; returns the names."""

    def spawn(plans: Sequence[TransferPlan]) -> list[str]:
        for plan in plans:
            pool.spawn(
                SpawnRequest(
                    f"vm{plan.index}", plan, account[0], account[1]
                )
            )
        return [f"vm{plan.index}" for plan in plans]

    return spawn
