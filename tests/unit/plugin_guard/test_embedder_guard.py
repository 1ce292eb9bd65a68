"""Embedders from outside that never return, under any policy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from jobs.request import JobRequest
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.installed_embedder import (
    CheckedEmbedder,
    EmbedderFailed,
)
from testbed.embedding.placement import Embedder
from testbed.engine.engine import Engine
from testbed.errors import RunFailed
from testbed.events import Event, JobSubmitted
from testbed.plugin_guard.policy_guard import guarded, limited
from testbed.schedulers.policy import Policy
from testbed.schedulers.registry import build_policy
from topologies.tree import tree

GBIT = 1_000_000_000
EMBEDDER = """from testbed.embedding.placement import Placement
import random, time
from itertools import count
import numpy as np
class Spread:
    name = "spread"
    def embed(self, datacentre, residual, n_vms, rate_bps, *, largest_bps=0):
        if residual.free_slots[0]:
            return Placement(6, ((0, 2),))
{body}
"""
"""An embedder that places the first job and misbehaves on the second, from line 10 on."""

POLICY = """from testbed.schedulers.actions import *
from itertools import count
class Mine:
    name = "mine"
    def __init__(self, embedder):
        self.embedder = embedder
    def decide(self, view, event):
        if not isinstance(event, Arrived):
            return []
        free = view.residual(view.now_s, None)
        placed = lambda: self.embedder.embed(view.datacentre, free, 2, 100_000_000)
        found = placed()
{body}
        return [Start(event.job_id, found, 100_000_000)]
"""


def module(path: Path, source: str) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def spread(folder: Path, body: str) -> CheckedEmbedder:
    text = EMBEDDER.format(
        body="\n".join(f"        {line}" for line in body.splitlines())
    )
    return CheckedEmbedder(
        "spread", module(folder / "spread.py", text).Spread()
    )


def of(
    kind: str,
    folder: Path,
    embedder: Embedder,
    body: str = "pass",
    limit_s: float = 60.0,
) -> Policy:
    if kind == "ours":
        return build_policy("vc", embedder, {})
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    made = module(folder / "mine.py", POLICY.format(body=lines)).Mine(
        embedder
    )
    return guarded(made, "mine", limit_s)


def failure(
    policy: Policy, before_second: Callable[[], object] = lambda: None
) -> RunFailed:
    """The error that a run ends with; ``before_second``: called before the
    second job is placed.
    """
    machine = tree([2, 2], [GBIT, GBIT], 2)
    jobs = [
        JobRequest(name, at_s, 2, 100_000_000, 10.0)
        for name, at_s in (("a", 0.0), ("b", 1.5))
    ]
    submitted: list[Event] = []

    def hear(event: Event) -> None:
        if isinstance(event, JobSubmitted):
            submitted.append(event)
            if len(submitted) == len(jobs):
                before_second()

    backend = SimulatedBackend(machine)
    engine = Engine(machine, jobs, policy, backend, hear)
    with pytest.raises(RunFailed) as failed:
        engine.run()
    engine.reservations.check()
    return failed.value


SLOW = (
    "while True: pass",
    "[x for x in count()]",
    "while True:\n    try:\n        for _ in count(): pass\n    except Exception: pass",
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "outside"])
@pytest.mark.parametrize("body", SLOW)
def test_an_embedder_that_never_returns_is_interrupted(
    tmp_path: Path, kind: str, body: str
) -> None:
    embedder = spread(tmp_path, body)
    # Not the first one's limit too, which may wait for a processor so long.
    error = failure(
        of(kind, tmp_path, embedder), lambda: limited(embedder, 0.1)
    )
    assert isinstance(error, EmbedderFailed)
    assert (
        "embedder spread, asked to place 2 VMs at 100 Mbit/s, has not answered"
        in error.message
    )
    assert "within 0.1 s (spread.py:1" in error.message


@pytest.mark.slow
def test_a_policy_that_asks_an_embedder_stays_limited(
    tmp_path: Path,
) -> None:
    embedder = limited(
        spread(tmp_path, "return Placement(6, ((1, 2),))"), 10.0
    )
    policy = of("outside", tmp_path, embedder, "while True: placed()", 0.5)
    error = failure(policy)
    assert not isinstance(error, EmbedderFailed)
    assert error.message.startswith("policy mine, at ")
    assert "has not answered within 0.5 s (mine.py:1" in error.message
