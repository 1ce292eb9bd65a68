"""Embedders from outside that draw random numbers or never return, under any policy."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from jobs.request import JobRequest
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import Embedder
from testbed.embedding.installed_embedder import CheckedEmbedder, EmbedderFailed
from testbed.engine.engine import Engine
from testbed.engine.policy_guard import guarded, watched
from testbed.errors import RunFailed
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


def spread(folder: Path, body: str, limit_s: float = 10.0) -> Embedder:
    text = EMBEDDER.format(body="\n".join(f"        {line}" for line in body.splitlines()))
    made = CheckedEmbedder("spread", module(folder / "spread.py", text).Spread(), "spread")
    return watched(made, limit_s)


def of(kind: str, folder: Path, embedder: Embedder, body: str = "pass") -> Policy:
    if kind == "ours":
        return build_policy("vc", embedder, {})
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    made = module(folder / "mine.py", POLICY.format(body=lines)).Mine(embedder)
    return guarded(made, "mine", 0.5)


def failure(policy: Policy) -> RunFailed:
    machine = tree([2, 2], [GBIT, GBIT], 2)
    jobs = [JobRequest(name, at_s, 2, 100_000_000, 10.0) for name, at_s in (("a", 0.0), ("b", 1.5))]
    engine = Engine(machine, jobs, policy, SimulatedBackend(machine), lambda _: None)
    with pytest.raises(RunFailed) as failed:
        engine.run()
    engine.reservations.check()
    assert sys.getprofile() is None
    assert sys.gettrace() is None
    return failed.value


IMPURE = {
    "random.random()": "draws random numbers (random.random, spread.py:10)",
    "np.random.rand()": "draws random numbers (numpy.random)",
    "time.time()": "reads the clock (time.time, spread.py:10)",
    "open('/etc/hostname')": "does input or output (open, spread.py:10)",
    "try:\n    time.time()\nexcept:\n    raise ValueError": (
        "reads the clock (time.time, spread.py:11)"
    ),
}


@pytest.mark.parametrize("kind", ["ours", "outside"])
@pytest.mark.parametrize(("body", "told"), IMPURE.items(), ids=list(IMPURE.values()))
def test_an_impure_embedder_is_told(tmp_path: Path, kind: str, body: str, told: str) -> None:
    error = failure(of(kind, tmp_path, spread(tmp_path, body)))
    name = "vc" if kind == "ours" else "mine"
    occasion = f"policy {name}, at 1.5 s, on the arrival of job b: "
    asked = "embedder spread, asked to place 2 VMs at 100 Mbit/s, "
    assert error.message == occasion + asked + told
    assert error.hint is not None
    assert error.hint.startswith("an embedder answers from its arguments alone")
    assert error.exit_code == 4


SLOW = (
    "while True: pass",
    "[x for x in count()]",
    "while True:\n    try:\n        for _ in count(): pass\n    except: pass",
)


@pytest.mark.parametrize("thread", ["main", "other"])
@pytest.mark.parametrize("kind", ["ours", "outside"])
@pytest.mark.parametrize("body", SLOW)
def test_an_embedder_that_never_returns_is_interrupted(
    tmp_path: Path, kind: str, thread: str, body: str
) -> None:
    said: list[RunFailed] = []

    def playing() -> None:
        said.append(failure(of(kind, tmp_path, spread(tmp_path, body, 0.1))))

    if thread == "main":
        playing()
    else:
        other = threading.Thread(target=playing)
        other.start()
        other.join(60)
    (error,) = said
    assert isinstance(error, EmbedderFailed)
    assert "embedder spread, asked to place 2 VMs at 100 Mbit/s, has not answered" in error.message
    assert "within 0.1 s (spread.py:1" in error.message


@pytest.mark.parametrize("thread", ["main", "other"])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("while True: placed()", "has not answered within 0.5 s (mine.py:1"),
        ("import time\nif event.job_id == 'b': time.time()", "reads the clock (time.time, mine.py"),
    ],
)
def test_a_policy_that_asks_an_embedder_stays_guarded(
    tmp_path: Path, body: str, told: str, thread: str
) -> None:
    said: list[RunFailed] = []

    def playing() -> None:
        embedder = spread(tmp_path, "return Placement(6, ((1, 2),))")
        said.append(failure(of("outside", tmp_path, embedder, body)))

    other = threading.Thread(target=playing)
    if thread == "main":
        playing()
    else:
        other.start()
        other.join(60)
    (error,) = said
    assert not isinstance(error, EmbedderFailed)
    assert error.message.startswith("policy mine, at ")
    assert told in error.message
