"""Policies from outside that misbehave: one sentence, exit code 4, a whole folder, whole books."""

from __future__ import annotations

import gc
import importlib.util
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from jobs.demand import Compute, Lease
from jobs.request import JobRequest
from testbed.audit import audit
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.embedding.base import embedder
from testbed.embedding.placement import Placement
from testbed.engine.engine import Engine
from testbed.errors import RunFailed
from testbed.events import Event, JobSubmitted
from testbed.play.playing import play, run_simulated, simulated
from testbed.plugin_guard.action_checks import Nonsense, _wake_time
from testbed.plugin_guard.decision_limit import (
    TimeOver,
    _collects_garbage,
    within,
)
from testbed.plugin_guard.policy_guard import (
    LIMIT_S,
    guarded,
    of_the_testbed,
)
from testbed.record.conclusion import conclude
from testbed.record.event_file import EventLog
from testbed.record.folder import EVENTS, RESOLVED, RunFolder
from testbed.schedulers import actions as act
from testbed.schedulers.policy import Charging, Policy, PolicyKind, View
from testbed.schedulers.registry import build_policy, known_policies
from testbed.spec.experiment import Experiment, PolicySpec
from testbed.spec.experiment_file import load_experiment
from tests.support.examples import examples
from tests.unit.engine.test_failed_starts import OF_NODES_ALONE
from topologies.tree import tree

GBIT = 1_000_000_000
FILE = """
name: guarded
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc]
workload:
  kind: jobs
  jobs:
    - {id: first, at: 0 s, vms: 2, bandwidth: 100 Mbit/s, duration: 10 s}
    - {id: second, at: 1 s, vms: 2, bandwidth: 100 Mbit/s, duration: 10 s}
    - {id: third, at: 12.5 s, vms: 2, bandwidth: 100 Mbit/s, duration: 10 s}
"""

PLUG_IN = """from testbed.embedding.placement import Placement
from testbed.schedulers.actions import *
from itertools import count
PLACES = [Placement(6, ((server, 2),)) for server in range(4)]
class Mine:
    name = "mine"
    def decide(self, view, event):
        if not isinstance(event, Arrived):
            return []
        if event.job_id != "third":
            return [Start(event.job_id, PLACES[view.order(event.job_id)], 100_000_000)]
{body}
"""
"""A policy that starts the first two jobs and misbehaves on the third, from line 12 on."""


def written(folder: Path, policy: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(FILE.replace("[vc]", f"[{policy}]"))
    return path


@dataclass
class Plugs:
    """Plays policies from files as the command line would."""

    folder: Path
    experiment: Experiment
    monkeypatch: pytest.MonkeyPatch
    n: int = 0

    def module(self, source: str) -> ModuleType:
        self.n += 1
        path = self.folder / f"{self.n}" / "mine.py"
        path.parent.mkdir()
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("mine", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def policy(self, body: str, head: str = "") -> Policy:
        """A policy whose ``decide`` ends in these lines."""
        lines = "\n".join(f"        {line}" for line in body.splitlines())
        mine: Policy = self.module(PLUG_IN.format(body=lines) + head).Mine()
        return mine

    @contextmanager
    def known(self, policy: Policy) -> Iterator[PolicySpec]:
        """Makes a policy one that files can name."""
        kind = PolicyKind("mine", "a plug-in", lambda *_: policy)
        known: Mapping[str, PolicyKind] = {**known_policies(), "mine": kind}
        self.n += 1
        with self.monkeypatch.context() as patch:
            patch.setattr(
                "testbed.schedulers.registry.known_policies", lambda: known
            )
            yield PolicySpec("mine")

    def run(self, policy: Policy) -> dict[str, Any]:
        """Plays a policy; the last event. Raises what the run raises."""
        with self.known(policy) as spec:
            self.path = self.folder / f"{self.n}"
            self.path.mkdir()
            resolved = {
                **self.experiment.resolved,
                "policy": "mine",
                "claims": [],
            }
            (self.path / RESOLVED).write_text(json.dumps(resolved))
            log = EventLog(self.path / EVENTS)
            try:
                play(
                    self.experiment,
                    spec,
                    simulated(self.experiment, spec),
                    log,
                )
            finally:
                log.close()
                conclude(
                    RunFolder(self.path),
                    self.experiment.expect,
                    name="guarded",
                    wall_s=1.0,
                )
        return self.lines()[-1]

    def lines(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in (self.path / EVENTS).read_text().splitlines()
        ]

    def failure(self, policy: Policy) -> RunFailed:
        """The error of a run that fails after two good jobs, and is audited."""
        with pytest.raises(RunFailed) as failed:
            self.run(policy)
        assert failed.value.exit_code == 4
        self.audited()
        last = self.lines()[-1]
        told = failed.value.message
        assert (last["event"], last["status"], last["reason"]) == (
            "run_ended",
            "failed",
            told,
        )
        ends = [
            line["outcome"]
            for line in self.lines()
            if line["event"] == "job_ended"
        ]
        assert ends == ["finished", "finished", "unfinished"]
        return failed.value

    def audited(self) -> None:
        results = audit(self.path).results
        assert [
            one.findings for one in results if one.status == "failed"
        ] == []


@pytest.fixture
def plugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugs:
    path = tmp_path / "guarded.yaml"
    path.write_text(FILE)
    return Plugs(tmp_path, load_experiment(path), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "return None",
        "return [Kill('nobody', 'no')]",
        "1 / 0",
    ],
)
def test_the_folder_of_a_failed_run_is_whole(
    plugs: Plugs, body: str
) -> None:
    top = RunFolder.create(plugs.folder, "guarded", 1)
    with plugs.known(plugs.policy(body)) as spec:
        experiment = replace(plugs.experiment, policies=(spec,))
        with pytest.raises(RunFailed) as failed:
            run_simulated(
                experiment, top, lambda *_: nullcontext(lambda _: None), []
            )
    plugs.path = top.path
    plugs.audited()
    assert plugs.lines()[-1]["reason"] == failed.value.message
    summary = json.loads((top.path / "summary.json").read_text())
    assert (
        summary["status"],
        summary["finished"],
        summary["unfinished"],
    ) == (
        "failed",
        2,
        1,
    )
    assert "failed" in (top.path / "report.html").read_text()


OCCASION = "policy mine, at 12.5 s, on the arrival of job third: "

HARMLESS = (
    "import numpy as np\nnp.random.default_rng(3).random()",
    "view.ledger.residual(view.now_s, None).free_slots[:] = 0",
    "view.ledger.timeline.free[:] = 0\nview.ledger.timeline.record().time[:] = 0",
    "import logging\nlogging.getLogger('mine').debug('not shown')",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", HARMLESS)
def test_what_is_pure_or_a_copy_is_let_be(plugs: Plugs, body: str) -> None:
    last = plugs.run(
        plugs.policy(f"{body}\nreturn [Start('third', PLACES[0], 1000)]")
    )
    assert last["status"] == "completed"
    plugs.audited()


SLOW = (
    "while True: pass",
    "[x for x in count()]",
    "while True:\n    try:\n        for _ in count(): pass\n    except Exception: pass",
    "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "while True:\n    view.residual(view.now_s, None)",
)


def failing(policy: Policy, limit_s: float) -> tuple[str, Engine]:
    """The message that a guarded policy ends a run with.

    The limit is that of decisions from the third job on: the others' would
    have it too where the machine is busy.
    """
    machine = tree([2, 2], [GBIT, GBIT], 2)
    jobs = [
        JobRequest(name, at_s, 2, 100_000_000, 10.0)
        for name, at_s in (("first", 0.0), ("second", 1.0), ("third", 12.5))
    ]
    backend = SimulatedBackend(machine)
    guard: Any = guarded(policy, "mine", LIMIT_S)
    submitted: list[Event] = []

    def hear(event: Event) -> None:
        if isinstance(event, JobSubmitted):
            submitted.append(event)
        if len(submitted) == len(jobs):
            guard._limit_s = limit_s

    engine = Engine(machine, jobs, guard, backend, hear)
    with pytest.raises(RunFailed) as failed:
        engine.run()
    engine.reservations.check()
    assert not engine.ledger.holdings()
    return failed.value.message, engine


@pytest.mark.slow
@pytest.mark.parametrize("body", SLOW)
def test_a_decision_that_never_returns_is_interrupted(
    plugs: Plugs, body: str
) -> None:
    message, _ = failing(plugs.policy(body), 0.1)
    assert message.startswith(
        OCCASION + "has not answered within 0.1 s (mine.py:1"
    )


def test_in_another_thread_a_late_answer_ends_the_run(plugs: Plugs) -> None:
    body = "from time import sleep\nsleep(0.2)\nreturn []"
    messages: list[str] = []

    def playing() -> None:
        messages.append(failing(plugs.policy(body), 0.1)[0])

    other = threading.Thread(target=playing)
    other.start()
    other.join(60)
    assert messages == [OCCASION + "has not answered within 0.1 s"]


def test_a_limit_inside_another_leaves_the_outer_one_its_time() -> None:
    def inner() -> str:
        within(5.0, lambda: None)
        while True:
            pass

    before_s, _ = signal.getitimer(signal.ITIMER_REAL)
    with pytest.raises(TimeOver, match=r"within 0\.2 s"):
        within(0.2, inner)
    # pytest's own timer continues.
    after_s, _ = signal.getitimer(signal.ITIMER_REAL)
    assert 0.0 <= after_s <= before_s


def test_a_limit_that_ends_during_garbage_collection_is_not_lost() -> None:
    """pytest's own settings make what Python prints and swallows a failure."""
    limit_s = 0.1
    ends_s = time.monotonic() + 3 * limit_s

    def slow_callback(_phase: str, _info: dict[str, int]) -> None:
        while time.monotonic() < ends_s:
            pass

    def collects() -> None:
        gc.collect()
        while True:
            pass

    # Of earlier tests nothing is left whose end would be met in its place.
    gc.collect()
    gc.callbacks.append(slow_callback)
    try:
        with pytest.raises(TimeOver, match=r"within 0\.1 s"):
            within(limit_s, collects)
    finally:
        gc.callbacks.remove(slow_callback)
    assert time.monotonic() >= ends_s


def test_a_limit_that_ends_as_a_set_forgets_an_object_is_not_lost() -> None:
    class Kept:
        pass

    kept = Kept()
    objects = WeakSet([kept])
    seen: list[bool] = []

    def look(frame: FrameType, _event: str, _argument: object) -> None:
        if frame.f_code.co_name == "_remove":
            seen.append(_collects_garbage(frame))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        del kept
    finally:
        sys.setprofile(before)
    assert len(objects) == 0
    assert set(seen) == {True}


def test_a_timer_that_was_there_is_put_back(plugs: Plugs) -> None:
    heard: list[int] = []
    before = signal.signal(
        signal.SIGALRM, lambda number, _: heard.append(number)
    )
    began_s = time.monotonic()
    timer = signal.setitimer(signal.ITIMER_REAL, 10_000.0, 7.0)
    try:
        failing(plugs.policy("return None"), 1_000.0)
        left_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
        used_s = time.monotonic() - began_s
        # Kernel and interpreter read different clocks.
        assert 10_000.0 - used_s - 0.1 < left_s < 10_000.0
        assert interval_s == 7.0
        signal.raise_signal(signal.SIGALRM)
        assert heard == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


START = "Start('third', PLACES[0], {})"
NONSENSE = {
    "return None": "answered None instead of a list of actions",
    "return Reject('third', 'no')": "answered a Reject instead of a list of actions",
    "return Start('third', PLACES[0], 1)": "answered a Start instead of a list of actions",
    "return (x for x in ())": "answered a generator instead of a list of actions",
    "return ['third']": "answered a str as action 1, which is no action",
    "return [Wake(20), Start]": "answered the class Start as action 2: call it",
    f"return [{START.format(1.5)}]": (
        "action 1, a Start, is refused: its rate_bps is 1.5, not a whole number of bit/s"
    ),
    f"return [{START.format(-1)}]": (
        "action 1, a Start, is refused: its rate_bps is -1, not from 0 to 1,000,000,000,000,000"
        " bit/s"
    ),
    f"return [{START.format('10**400')}]": (
        "action 1, a Start, is refused: its rate_bps is a number far too large, not from 0 to"
        " 1,000,000,000,000,000 bit/s"
    ),
    "return [Wake(float('nan'))]": (
        "action 1, a Wake, is refused: its at_s is nan, not a time within 1e+12 s"
    ),
    "return [Wake(3)]": "action 1, a Wake, is refused: its at_s is 3, which is past",
    "return [Reserve('third', PLACES[0], 1, 3.0, 20.0)]": (
        "action 1, a Reserve, is refused: its start_s is 3, which is past"
    ),
    "return [Reserve('third', PLACES[0], 1, 30.0, 20.0)]": (
        "action 1, Reserve(job third at 1 bit/s, from 30 s to 20 s), is refused: it ends before it"
        " starts"
    ),
    f"return [{START.format('1, 99.0')}]": (
        "action 1, Start(job third at 1 bit/s), is refused: the job may run on with nothing"
        " reserved; say kill_at_end=True, or no end"
    ),
    "return [Reject('third', '')]": (
        "action 1, a Reject, is refused: its reason is '', not a reason in words"
    ),
    "return [Reject(3, 'no')]": "action 1, a Reject, is refused: its job_id is 3, not a job's id",
    "return [Start('third', ((0, 2),), 1)]": (
        "action 1, a Start, is refused: its placement is a tuple, not a Placement"
    ),
    "return [Start('third', Placement(6, (0, 2)), 1)]": (
        "action 1, a Start, is refused: its placement is a placement whose vms_on are no (server,"
        " VMs) pairs, or whose processes are no list"
    ),
    "return [Start('third', Placement(6, ((0, 1),)), 1)]": (
        "action 1, Start(job third at 1 bit/s), is refused: foreground: 1 VMs placed, 2 asked"
    ),
    "return [Start('third', Placement(9, ((0, 2),)), 1)]": (
        "action 1, Start(job third at 1 bit/s), is refused: foreground: no tree has root 9"
    ),
    "return [Start('third', Placement(6, ((0, 1), (2, 1))), 10**12)]": (
        "action 1, Start(job third at 1 Tbit/s), is refused: foreground: server 0 -> rack 0:"
        " 1000000000000 bit/s asked (1 VMs | 1 VMs), 1000000000 bit/s free; "
    ),
    f"return [{START.format(1)}, {START.format(1)}]": (
        "action 2, Start(job third at 1 bit/s), is refused: job third is running, not waiting"
    ),
    "return [Kill('first', 'late')]": (
        "action 1, Kill(job first), is refused: job first is not there (not yet, or no longer), not"
        " waiting or reserved or running or preempted"
    ),
    f"return [{START.format(1000)}, Rescale('third', 0)]": (
        "action 2, a Rescale, is refused: its rate_bps is 0: a job does not run without"
        " bandwidth; Preempt or Kill it"
    ),
    f"return [{START.format(0)}, Rescale('third', 5)]": (
        "action 2, Rescale(job third at 5 bit/s), is refused: job third has no reservation to"
        " rescale"
    ),
    "1 / 0": "raised ZeroDivisionError: division by zero (mine.py:12)",
    "view.job('fourth')": "raised KeyError: 'fourth' (mine.py:12)",
    "def f(): return f()\nf()": (
        "raised RecursionError: maximum recursion depth exceeded (mine.py:12)"
    ),
    "import json\njson.loads('?')": (
        "raised JSONDecodeError: Expecting value: line 1 column 1 (char 0) (mine.py:13)"
    ),
    "raise MemoryError": "raised MemoryError (mine.py:12)",
    "raise SystemExit(3)": "raised SystemExit: 3 (mine.py:12)",
    "raise ValueError('one\\ntwo \\ud800')": "raised ValueError: one two ? (mine.py:12)",
    "view.ledger.reserve('x', PLACES[0], 1, 13.0, None)": "changes the ledger (Ledger.reserve)",
    "try: view.ledger.set_lost((0,), ())\nexcept BaseException: pass\nreturn []": (
        "changes the ledger (Ledger.set_lost)"
    ),
    "view.datacentre.slots[0] = 9": (
        "raised ValueError: assignment destination is read-only (mine.py:12)"
    ),
    "object.__setattr__(view.job('third'), 'n_vms', 1)\nreturn []": (
        "has changed job third, which it was shown"
    ),
    "view._engine.jobs.clear()": (
        "raised AttributeError: 'PlugInView' object has no attribute '_engine' (mine.py:12)"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "told"), NONSENSE.items(), ids=list(NONSENSE)
)
def test_a_nonsense_answer_is_told_by_its_action(
    plugs: Plugs, body: str, told: str
) -> None:
    message = plugs.failure(plugs.policy(body)).message
    assert message.startswith(OCCASION + told)
    assert told.endswith("; ") or message == OCCASION + told


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (
            f"return [{START.format(1.5)}]",
            "rates are whole bit/s: write rate //",
        ),
        ("return None", "decide(view, event) returns a list of actions"),
        ("return [Kill('first')]", "None"),
    ],
)
def test_the_hint_is_that_of_the_fault(
    plugs: Plugs, body: str, hint: str
) -> None:
    assert str(plugs.failure(plugs.policy(body)).hint).startswith(hint)


def test_actions_before_the_refused_one_have_happened(plugs: Plugs) -> None:
    plugs.failure(
        plugs.policy(
            f"return [{START.format(1000)}, Reject('third', 'no')]"
        )
    )
    third = [
        x["event"] for x in plugs.lines() if x.get("job_id") == "third"
    ]
    assert third == ["job_reserved", "job_started", "job_ended"]


def test_numbers_of_numpy_become_pythons(plugs: Plugs) -> None:
    body = (
        "import numpy as np\n"
        "place = Placement(np.int64(6), [[np.int64(0), np.int32(2)]])\n"
        "end_s = np.float64(99.0)\n"
        "return (Start('third', place, np.int64(1000), end_s, np.bool_(True)),)"
    )
    plugs.run(plugs.policy(body))
    plugs.audited()
    (third,) = [
        x
        for x in plugs.lines()
        if x["event"] == "job_reserved" and x["end_s"] == 99.0
    ]
    assert third["vms_on"] == [[0, 2]]


def test_an_interrupt_by_the_user_stays_one(plugs: Plugs) -> None:
    with pytest.raises(KeyboardInterrupt):
        plugs.run(plugs.policy("raise KeyboardInterrupt"))


def test_a_policy_that_wakes_itself_for_ever_ends(
    plugs: Plugs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.plugin_guard.policy_guard.IDLE_WAKES", 50)
    source = (
        PLUG_IN.replace("not isinstance(event, Arrived)", "True")
        .replace("return []", "return [Wake(view.now_s)]")
        .format(body="        return [Wake(view.now_s)]")
    )
    message, _ = failing(plugs.module(source).Mine(), LIMIT_S)
    assert message == (
        "policy mine, at 0 s, woken as it asked: was woken 50 times in a row and did nothing"
    )


# -- prices


@pytest.mark.parametrize(
    ("price", "told"),
    [
        ("None", "answered None instead of dollars"),
        ("float('nan')", "answered nan instead of dollars"),
        (
            "10**5000",
            "answered a number far too large instead of dollars",
        ),
        (
            "1 / 0",
            "raised ZeroDivisionError: division by zero (mine.py:15)",
        ),
    ],
)
def test_a_price_is_guarded_too(
    plugs: Plugs, price: str, told: str
) -> None:
    head = f"\n    def price(self, job, ran_s):\n        return {price}\n"
    policy = plugs.policy("return []", head)
    assert isinstance(policy, Charging)
    message, _ = failing(policy, LIMIT_S)
    assert message == f"policy mine, on the price of job first: {told}"


def test_a_guard_charges_where_its_policy_does(plugs: Plugs) -> None:
    assert not isinstance(
        guarded(plugs.policy("return []"), "mine"), Charging
    )
    assert isinstance(
        guarded(build_policy("vc", embedder("oktopus"), {}), "vc"), Charging
    )


# -- no false alarms


def requests(kind: PolicyKind) -> list[JobRequest]:
    """Jobs that every policy can decide about, with a queue in between."""
    rng = np.random.default_rng(7)
    found = []
    for k in range(40):
        name, at_s, n_vms = (
            f"j{k:02}",
            float(k * 3),
            int(rng.integers(1, 5)),
        )
        rate_bps = int(rng.integers(1, 6)) * 50_000_000
        if kind.leases:
            demand = Lease(
                lease_type="best-effort" if k % 2 else "immediate"
            )
            found.append(
                JobRequest(name, at_s, n_vms, 0, 10.0, demand=demand)
            )
        elif kind.name in OF_NODES_ALONE:
            found.append(
                JobRequest(name, at_s, n_vms, 0, 10.0, demand=Compute())
            )
        else:
            found.append(
                JobRequest(
                    name, at_s, n_vms, rate_bps, 10.0, deadline_s=60.0
                )
            )
    return found


def decided(name: str, *, guard: bool) -> list[dict[str, Any]]:
    machine, history = tree([4], [GBIT], 2), []  # type: ignore[var-annotated]
    policy = build_policy(name, embedder("oktopus"), {})
    played = guarded(policy, policy.name) if guard else policy
    kind = known_policies()[name]
    sharing = kind.sharing_of({})
    engine = Engine(
        machine,
        requests(kind),
        played,
        SimulatedBackend(machine, sharing),
        history.append,
    )
    engine.run()
    return [event.to_json() for event in history]


@pytest.mark.slow
@pytest.mark.short(
    *(name for name in known_policies() if name != "dcloud"),
)
@pytest.mark.parametrize("name", sorted(known_policies()))
def test_a_policy_of_ours_decides_the_same_under_the_guard(
    name: str,
) -> None:
    without = decided(name, guard=False)
    assert decided(name, guard=True) == without
    assert sum(event["event"] == "job_started" for event in without) > 5


def test_policies_of_ours_are_not_guarded_and_others_are(
    plugs: Plugs,
) -> None:
    assert of_the_testbed(build_policy("vc", embedder("oktopus"), {}))
    assert not of_the_testbed(plugs.policy("return []"))


# -- at random

IDS = st.sampled_from(["first", "second", "third", "fourth", ""])
NUMBERS = st.one_of(
    st.integers(-2, 40),
    st.floats(),
    st.sampled_from([0, 1000, 100_000_000, 10**9, 10**30, None]),
)
PLACEMENTS = st.one_of(
    st.builds(
        Placement,
        st.sampled_from([6, 5, 4, 0, -1, 99]),
        st.lists(
            st.tuples(st.integers(-2, 9), st.integers(-1, 3)), max_size=3
        ).map(tuple),
    ),
    st.sampled_from([Placement(6, ((k, 2),)) for k in range(4)]),
    st.none(),
)
TEXTS = st.sampled_from(["a reason", "", None, "\ud800"])
TIERS = st.sampled_from(["foreground", "background", "middle", None])
BOOLS = st.sampled_from([True, False, None])
HERE = st.sampled_from(["first", "second", "third"])
PLACED = st.sampled_from([Placement(6, ((k, 2),)) for k in range(4)])
LATER = st.sampled_from([13.0, 15.0, 20.0, 22.5, 40.0])
TIER = st.sampled_from(["foreground", "foreground", "background"])
RATES = st.sampled_from([0, 1000, 10**8, 10**9])
COSTS = st.sampled_from([0.0, 2.5, 10**6])
WHY = st.just("a reason")
ALWAYS = st.just(value=True)
SOUND = st.lists(
    st.one_of(
        st.builds(act.Start, HERE, PLACED, RATES),
        st.builds(act.Start, HERE, PLACED, RATES, LATER, ALWAYS, TIER),
        st.builds(act.Reserve, HERE, PLACED, RATES, LATER, LATER),
        st.builds(act.Rescale, HERE, RATES),
        st.builds(act.Shorten, HERE, LATER, WHY),
        st.builds(act.Preempt, HERE, WHY),
        st.builds(act.Resume, HERE, COSTS, TIER),
        st.builds(act.Migrate, HERE, PLACED, WHY, COSTS, TIER),
        st.builds(act.SwitchTier, HERE, TIER),
        st.builds(act.Wait, HERE, WHY, st.just(()), LATER),
        st.builds(act.Reject, HERE, WHY),
        st.builds(act.Kill, HERE, WHY),
        st.builds(act.Wake, LATER),
    ),
    max_size=2,
)
ANSWERS = st.one_of(
    SOUND,
    SOUND,
    SOUND,
    st.lists(
        st.one_of(
            st.builds(
                act.Start, IDS, PLACEMENTS, NUMBERS, NUMBERS, BOOLS, TIERS
            ),
            st.builds(
                act.Start,
                IDS,
                PLACEMENTS,
                st.sampled_from([0, 1000, 10**8]),
            ),
            st.builds(
                act.Reserve,
                IDS,
                PLACEMENTS,
                NUMBERS,
                NUMBERS,
                NUMBERS,
                BOOLS,
            ),
            st.builds(act.Rescale, IDS, NUMBERS),
            st.builds(act.Shorten, IDS, NUMBERS, TEXTS),
            st.builds(act.Preempt, IDS, TEXTS),
            st.builds(act.Resume, IDS, NUMBERS, TIERS),
            st.builds(act.Migrate, IDS, PLACEMENTS, TEXTS, NUMBERS, TIERS),
            st.builds(act.SwitchTier, IDS, TIERS),
            st.builds(act.Wait, IDS, TEXTS, st.just(()), NUMBERS),
            st.builds(act.Reject, IDS, TEXTS),
            st.builds(act.Kill, IDS, TEXTS),
            st.builds(act.Wake, NUMBERS),
            NUMBERS,
        ),
        max_size=4,
    ),
    st.none(),
)


class Nonsensical:
    """Answers what it was given; then starts what waits, where there is room."""

    name = "mine"

    def __init__(self, replies: list[Any]) -> None:
        self.replies = replies

    def decide(
        self, view: View, event: act.PolicyEvent
    ) -> list[act.Action]:
        if self.replies:
            return self.replies.pop()  # type: ignore[no-any-return]
        free = view.residual(view.now_s, None).free_slots
        for job_id in view.waiting():
            if view.left(job_id) is None and free[3] >= 2:
                return [act.Start(job_id, Placement(6, ((3, 2),)), 1000)]
        return []


@pytest.mark.slow
@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ANSWERS, max_size=10))
def test_whatever_is_answered_the_run_is_good_or_failed_and_the_folder_whole(
    plugs: Plugs, replies: list[Any]
) -> None:
    known = ("policy mine, at ", "the backend has nothing left")
    with suppress(RunFailed):
        plugs.run(Nonsensical(replies))
    last = plugs.lines()[-1]
    assert last["event"] == "run_ended"
    assert last["status"] == "completed" or last["reason"].startswith(known)
    plugs.audited()


def test_a_time_below_zero_is_past_at_the_beginning_too() -> None:
    assert _wake_time(-1e-12, 0.0) == -1e-12
    with pytest.raises(Nonsense, match="-1, which is past"):
        _wake_time(-1.0, 0.0)
