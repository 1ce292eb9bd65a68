"""A live run that something stops: exit 4 or 130, a word why, and a folder as whole as it can be.

The emulation is :mod:`tests.support.fake_emulation`;
what the real one does is tests/emu/test_faults.py's.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from jobs.live.agent_pool import AgentPoolError
from testbed.audit import audit
from testbed.backends.emu import cleanup, cleanup_journal
from testbed.backends.emu import live_backend as emu
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
)
from testbed.backends.emu.emulation import LiveOptions
from testbed.errors import BadInput, MachineCannot, RunFailed
from testbed.plan.fidelity import Finding, preflight
from testbed.play import live_run
from testbed.play.playing import RunRecord, new_run
from testbed.record.folder import RunFolder
from testbed.spec.experiment_file import load_experiment
from tests.support.fake_emulation import SCALE_RATE, FakeEmulation

pytestmark = pytest.mark.usefixtures("undrawn")

FILE = """
name: faults
topology: {kind: tree, fanout: [4], links: 1 Gbit/s, slots_per_server: 1}
scale: {rate: %s}
policies: [%s]
workload:
  kind: jobs
  jobs:
    - {id: a, at: 0 s, vms: 2, bandwidth: 400 Mbit/s, duration: 3 s, pattern: ring}
    - {id: b, at: 0 s, vms: 2, bandwidth: 400 Mbit/s, duration: 3 s, pattern: ring}
"""
WHOLE = {
    "spec.yaml",
    "events.jsonl",
    "jobs.csv",
    "links.csv",
    "summary.json",
    "report.html",
}

Prepare = Callable[[FakeEmulation], None]
Run = Callable[..., list[RunRecord]]


@pytest.fixture
def top(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "faults", 1)


@pytest.fixture
def narrated() -> list[str]:
    """Sentences of a run while it runs."""
    return []


@pytest.fixture
def run(
    tmp_path: Path,
    top: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    narrated: list[str],
) -> Run:
    """Play the file in a fake emulation, which ``prepare`` may spoil."""

    def play(
        prepare: Prepare = lambda _: None,
        policies: str = "fcfs",
        rate: str = str(SCALE_RATE),
        *,
        force: bool = False,
        expect: str = "",
    ) -> list[RunRecord]:
        path = tmp_path / "faults.yaml"
        path.write_text(FILE % (rate, policies) + expect)

        @contextmanager
        def fake(
            datacentre: Any, *_: Any, **__: Any
        ) -> Iterator[FakeEmulation]:
            emulation = FakeEmulation(datacentre, (3,) * 4)
            emulation.agents.otherwise_s = 0.05
            prepare(emulation)
            yield emulation

        monkeypatch.setattr(live_run, "emulate", fake)
        show = live_run.LiveRun(
            narrated.append, lambda *_: nullcontext(lambda _: None)
        )
        return live_run.run_live(
            load_experiment(path),
            top,
            LiveOptions(force=force),
            show,
            ["testbed"],
        )

    return play


def test_a_refused_run_leaves_no_folder_and_names_none(
    run: Run, top: RunFolder, narrated: list[str]
) -> None:
    def refuse(_: FakeEmulation) -> None:
        raise MachineCannot("another testbed runs on this machine")

    with pytest.raises(MachineCannot):
        run(refuse)
    assert not top.path.exists()
    assert str(top.path) not in " ".join(narrated)


def test_a_live_runs_folder_is_not_named_when_it_is_made(
    tmp_path: Path,
) -> None:
    """It may be refused yet."""
    path = tmp_path / "faults.yaml"
    path.write_text(FILE % (SCALE_RATE, "fcfs"))
    experiment = load_experiment(path)
    said: list[str] = []
    new_run(experiment, tmp_path / "runs", said.append, live=True)
    assert "run folder" not in " ".join(said)
    folder = new_run(experiment, tmp_path / "runs", said.append)
    assert f"run folder: {folder.path}" in said


def test_a_refused_run_leaves_no_log(run: Run, top: RunFolder) -> None:
    def refuse(_: FakeEmulation) -> None:
        top.write_text("logs/controller.log", "why")
        raise MachineCannot("nobody listens at tcp:127.0.0.1:6699")

    with pytest.raises(MachineCannot):
        run(refuse)
    assert not top.path.exists()


def test_the_log_of_an_application_that_does_not_start_is_kept(
    run: Run, top: RunFolder
) -> None:
    def refuse(_: FakeEmulation) -> None:
        top.write_text("logs/controller.log", "why")
        raise BadInput("the controller app.py does not start", "see logs")

    with pytest.raises(BadInput):
        run(refuse)
    assert (top.path / "logs/controller.log").exists()


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
def test_nothing_spoilt(
    run: Run, top: RunFolder, narrated: list[str]
) -> None:
    (one,) = run()
    assert f"run folder: {top.path}" in narrated
    assert one.results.summary.finished == 2
    assert {path.name for path in top.path.iterdir()} >= WHOLE


@pytest.mark.slow
def test_a_load_test_that_does_not_connect_is_found_invalid_and_jobs_continue(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emu, "READY_TIMEOUT_S", 0.3)
    emulations: list[FakeEmulation] = []

    def spoil(emulation: FakeEmulation) -> None:
        emulations.append(emulation)
        emulation.agents.deaf = lambda name: name.startswith("preflight.b")

    (one,) = run(spoil)
    assert one.results.summary.fidelity.verdict == "invalid"
    assert "could not be load-tested" in " ".join(
        one.results.summary.fidelity.reasons
    )
    assert one.results.summary.finished == 2
    assert not emulations[0].here
    assert not emulations[0].agents.alive


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The load of every plan at a rate of 1."""
    cost = {"load": 1.0}

    def load_test(*args: Any) -> Finding:
        *_, scale, _again = args
        return preflight(1e9, 1.0, cost["load"] * scale.rate, scale.rate)

    monkeypatch.setattr(live_run, "load_test", load_test)
    return cost


@pytest.mark.slow
@pytest.mark.parametrize("policies", ["fcfs", "fcfs, sbf"])
def test_a_run_that_the_machine_cannot_do_is_refused_and_leaves_a_readable_folder(
    run: Run, top: RunFolder, costs: dict[str, float], policies: str
) -> None:
    costs["load"] = 2 / SCALE_RATE
    emulations: list[FakeEmulation] = []
    with pytest.raises(
        MachineCannot, match="is 200% of what this machine can do"
    ) as refused:
        run(emulations.append, policies)
    hint = "--set scale.rate=0.0084 was tested and fits; --force runs all the same"
    assert refused.value.hint == hint
    folder = top.path / "fcfs" if "," in policies else top.path
    assert {path.name for path in folder.iterdir()} >= WHOLE
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["status"], summary["jobs"]) == ("failed", 0)
    assert summary["fidelity"]["verdict"] == "invalid"
    assert "0.0084 was tested and fits" in summary["fidelity"]["reasons"][0]
    assert audit(folder).passed
    assert len(emulations) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("force", "expect"),
    [(True, ""), (False, "expect: {fidelity: invalid}")],
)
def test_a_run_that_the_machine_cannot_do_is_played_where_that_is_forced_or_expected(
    run: Run, costs: dict[str, float], force: bool, expect: str
) -> None:
    costs["load"] = 2 / SCALE_RATE
    (one,) = run(force=force, expect=expect)
    assert one.results.summary.finished == 2
    assert one.results.summary.fidelity.verdict == "invalid"


@pytest.mark.slow
def test_auto_plays_on_a_network_of_the_rate_that_was_found_and_records_it(
    run: Run, top: RunFolder, costs: dict[str, float]
) -> None:
    costs["load"] = 20.0
    built: list[FakeEmulation] = []
    (one,) = run(built.append, rate="auto")
    assert one.results.summary.finished == 2
    assert len(built) == 2
    assert not any(emulation.here for emulation in built)
    for name in ("spec.resolved.json", "provenance.json"):
        found = json.loads((top.path / name).read_text())
        scale = (
            found["scale"] if "scale" in found else found["live"]["scale"]
        )
        assert (scale["rate"], scale["auto"]) == (0.04, True)


def test_a_disk_that_is_full_before_the_first_event(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "write_text", full)
    with pytest.raises(RunFailed, match="disk of the run folder is full"):
        run()


@pytest.mark.slow
@pytest.mark.parametrize("policies", ["fcfs", "fcfs, sbf"])
def test_a_disk_that_is_full_when_all_is_to_be_written_down(
    run: Run, monkeypatch: pytest.MonkeyPatch, policies: str
) -> None:
    """Jobs have run: this is a run that failed, not a bad file."""
    monkeypatch.setattr(
        live_run,
        "conclude_run" if policies == "fcfs" else "conclude_several",
        full,
    )
    with pytest.raises(
        RunFailed, match=r"the run stopped: .*No space left"
    ):
        run(policies=policies)


@pytest.mark.slow
def test_a_fork_server_that_ends_between_two_polls(
    run: Run, top: RunFolder
) -> None:
    def spoil(emulation: FakeEmulation) -> None:
        spawn = emulation.spawn

        def gone(name: str, *more: Any) -> None:
            if name.startswith("b."):
                raise AgentPoolError(
                    "the agents' fork server was ended by SIGKILL"
                )
            spawn(name, *more)

        emulation.spawn = gone  # type: ignore[method-assign]

    with pytest.raises(RunFailed, match="fork server was ended by SIGKILL"):
        run(spoil)
    assert {path.name for path in top.path.iterdir()} >= WHOLE
    summary = json.loads((top.path / "summary.json").read_text())
    assert (summary["status"], summary["unfinished"]) == ("failed", 2)


@pytest.mark.slow
def test_what_asks_again_to_end_is_heard_when_all_is_written_down(
    run: Run, top: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    conclude = live_run.conclude_run
    asked: list[int] = []

    def interrupted(*more: Any) -> RunRecord:
        asked.append(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        return conclude(*more)

    monkeypatch.setattr(live_run, "conclude_run", interrupted)

    def spoil(emulation: FakeEmulation) -> None:
        def ended(tenant: Any) -> None:
            if tenant.job_id == "b":
                raise KeyboardInterrupt
            admit(tenant)

        admit, emulation.admit = emulation.admit, ended  # type: ignore[method-assign]

    with pytest.raises(KeyboardInterrupt):
        run(spoil)
    assert asked
    assert {path.name for path in top.path.iterdir()} >= WHOLE
    assert (
        json.loads((top.path / "summary.json").read_text())["status"]
        == "interrupted"
    )


@pytest.mark.slow
def test_of_several_policies_those_that_ran_are_summed_up(
    run: Run, top: RunFolder
) -> None:
    seen: list[str] = []

    def spoil(emulation: FakeEmulation) -> None:
        def gone(tenant: Any) -> None:
            seen.append(tenant.job_id)
            if seen.count("a") == 2:
                raise KeyboardInterrupt
            admit(tenant)

        admit, emulation.admit = emulation.admit, gone  # type: ignore[method-assign]

    with pytest.raises(KeyboardInterrupt):
        run(spoil, "fcfs, sbf, sdf")
    listed = json.loads((top.path / "summary.json").read_text())
    assert [(one["policy"], one["status"]) for one in listed] == [
        ("fcfs", "completed"),
        ("sbf", "interrupted"),
    ]


def test_a_network_is_removed_though_the_disk_of_its_journal_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    journal = CleanupJournal.create("test", tmp_path)
    journal.add([JournalEntry("netns", "nobody-s0v0")])
    grace = tmp_path / "rcu"
    grace.write_text("0")
    removed: list[str] = []
    monkeypatch.setattr(cleanup_journal, "RCU_EXPEDITED", grace)
    monkeypatch.setattr(
        cleanup._Removal, "_is_own_namespace", lambda *_: True
    )
    monkeypatch.setattr(cleanup, "devices_in_group", lambda _: set())
    monkeypatch.setattr(cleanup, "ip_remove", removed.extend)
    monkeypatch.setattr(os, "write", full)
    cleanup.remove_network(journal)
    assert removed == ["netns delete nobody-s0v0"]
    assert grace.read_text() == "0"
    assert not journal.entries
