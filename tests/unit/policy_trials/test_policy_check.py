"""Checks of a policy: the testbed's own pass them, and each kind of fault is found by its check."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.errors import RunFailed
from testbed.policy_trials import policy_check
from testbed.policy_trials.policy_cases import cases, largest
from testbed.policy_trials.policy_check import (
    CHECKS,
    NO_STARVATION,
    policy_findings,
)
from testbed.policy_trials.policy_process import in_fresh_process
from testbed.policy_trials.policy_standing import Contest
from testbed.policy_trials.policy_subject import (
    QUICK,
    PolicyFinding,
    Subject,
)
from testbed.schedulers.registry import own_policies
from testbed.spec.experiment_file import parse_experiment

HEAD = """
import time
from testbed.embedding.placement import Placement, Refusal
from testbed.schedulers.actions import Arrived, Ended, Reject, Start, Wake

class Base:
    def __init__(self, embedder):
        self.embedder = embedder
    def order(self, view):
        return view.waiting()
    def decide(self, view, event):
        if isinstance(event, Ended) and event.more_at_this_time:
            return []
        for job_id in self.order(view):
            job, free = view.job(job_id), view.residual(view.now_s, None)
            found = self.embedder.embed(view.datacentre, free, job.n_vms, job.bandwidth_bps)
            if not isinstance(found, Refusal):
                return [Start(job_id, found, job.bandwidth_bps), Wake(view.now_s)]
        return []
"""

GOOD = "class Mine(Base): pass\n"
A_SET = """
class Mine(Base):
    def order(self, view):
        return set(view.waiting())
"""
SHARED_STATE = """
class Mine(Base):
    decisions = []
    def order(self, view):
        self.decisions.append(view.now_s)
        return view.waiting()[:: 1 if len(self.decisions) % 3 else -1]
"""
OVERCOMMITS = """
class Mine(Base):
    def decide(self, view, event):
        if not isinstance(event, Arrived):
            return []
        job = view.job(event.job_id)
        root = view.datacentre.trees[0].root
        return [Start(job.id, Placement(root, ((0, job.n_vms),)), job.bandwidth_bps)]
"""
STARVES = 'class Mine(Base):\n    claims = ("no-starvation",)\n'
LIES = 'class Mine(Base):\n    claims = ("in-order-of-arrival",)\n'
RAISES = """
class Mine(Base):
    def order(self, view):
        return {}["nothing"]
"""
OWN_RECORD = """
class Mine(Base):
    on_failure = ("kill",)
    def __init__(self, embedder):
        self.held = {}
    def decide(self, view, event):
        if isinstance(event, Ended):
            self.held.pop(event.job_id, None)
        if not isinstance(event, Arrived):
            return []
        centre, job = view.datacentre, view.job(event.job_id)
        for server in range(centre.n_servers):
            used = sum(n for at, n in self.held.values() if at == server)
            if job.n_vms <= centre.slots[server] - used:
                self.held[job.id] = server, job.n_vms
                placement = Placement(centre.trees[0].root, ((server, job.n_vms),))
                return [Start(job.id, placement, job.bandwidth_bps)]
        return [Reject(job.id, "no server has room")]
"""
REFUSED_THEN_BROKEN = """
class Mine(Base):
    on_failure = ("kill",)
    seen = 0
    def decide(self, view, event):
        if isinstance(event, Ended) and self.seen == 1:
            raise ValueError
        if not isinstance(event, Arrived):
            return []
        self.seen += 1
        job, free = view.job(event.job_id), view.residual(view.now_s, None)
        if self.seen > 1:
            root = view.datacentre.trees[0].root
            return [Start(job.id, Placement(root, ((0, 99),)), job.bandwidth_bps)]
        found = self.embedder.embed(view.datacentre, free, job.n_vms, job.bandwidth_bps)
        return [] if isinstance(found, Refusal) else [Start(job.id, found, job.bandwidth_bps)]
"""
ENDLESS = """
class Mine(Base):
    def decide(self, view, event):
        return [Wake(view.now_s)]
"""


def subject_of(source: str, folder: Path) -> Subject:
    file = folder / "mine.py"
    file.write_text(HEAD + source, encoding="utf-8")
    return Subject.of({"class": f"{file}:Mine"}, 1, QUICK)


def found_by(check: str, subject: Subject) -> PolicyFinding:
    subject.check = check
    return CHECKS[check](subject)


@pytest.mark.slow
@pytest.mark.parametrize(
    "check", ["determinism", "replay", "capacity", "sound"]
)
def test_a_sound_policy_passes(check: str, tmp_path: Path) -> None:
    found = found_by(check, subject_of(GOOD, tmp_path))
    assert (found.verdict, found.counterexample) == ("ok", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "check", "evidence"),
    [
        (
            A_SET,
            "determinism",
            "another process, with another hash seed differs at event",
        ),
        (
            SHARED_STATE,
            "determinism",
            "a second instance in the same process differs at event",
        ),
        (SHARED_STATE, "replay", "replay"),
        (OVERCOMMITS, "capacity", "server 0"),
        (LIES, "claims", "which arrived later"),
        (
            STARVES,
            "no starvation",
            "starts before large, which came earlier",
        ),
        (OWN_RECORD, "failures", "on_failure kill: "),
    ],
    ids=[
        "set",
        "shared state",
        "shared state replayed",
        "overcommits",
        "lies",
        "starves",
        "record",
    ],
)
def test_a_fault_is_found_by_its_check(
    source: str, check: str, evidence: str, tmp_path: Path
) -> None:
    subject = subject_of(source, tmp_path)
    found = found_by(check, subject)
    assert found.verdict == "failed"
    assert evidence in found.evidence
    assert found.counterexample is not None
    experiment = parse_experiment(
        found.counterexample, tmp_path / "counterexample.yaml"
    )
    assert experiment.policies[0].name == "mine"


@pytest.mark.slow
def test_a_counterexample_is_small(tmp_path: Path) -> None:
    found = found_by("claims", subject_of(LIES, tmp_path))
    assert found.counterexample is not None
    # One runs, one does not fit beside it, a third does.
    assert (
        len(parse_experiment(found.counterexample, Path("small.yaml")).jobs)
        <= 3
    )


def test_a_counterexample_of_failures_fails_by_itself(
    tmp_path: Path,
) -> None:
    found = found_by("failures", subject_of(REFUSED_THEN_BROKEN, tmp_path))
    assert found.counterexample is not None
    jobs = parse_experiment(found.counterexample, Path("small.yaml")).jobs
    # One alone breaks the run otherwise; the second is refused.
    assert len(jobs) == 2
    last = max(jobs, key=lambda job: job.submit_s)
    assert f"on the arrival of job {last.id}" in found.evidence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "evidence"),
    [
        (RAISES, "raised KeyError: 'nothing' (mine.py:"),
        (ENDLESS, "the run does not end"),
    ],
    ids=["raises", "endless"],
)
@pytest.mark.short("raises")
def test_a_policy_that_breaks_its_runs_is_checked_to_the_end(
    source: str, evidence: str, tmp_path: Path
) -> None:
    subject = subject_of(source, tmp_path)
    found = {one.check: one for one in policy_findings(subject)}
    assert list(found) == list(CHECKS)
    assert found["sound"].verdict == "failed"
    assert evidence in found["sound"].evidence
    assert subject.broken
    # Nothing else is said of a policy on which no run gives evidence.
    assert {found[name].verdict for name in ("replay", "capacity")} == {
        "not run"
    }


def test_a_check_that_cannot_be_made_still_says_what_it_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RunFailed("a fresh process ends with 1")

    monkeypatch.setattr(policy_check, "in_fresh_process", fails)
    finding = next(policy_findings(subject_of(GOOD, tmp_path)))
    assert finding.check == "determinism"
    assert finding.verdict == "failed"
    assert finding.evidence == "a fresh process ends with 1"
    assert finding.says == "the same experiment gives the same events"


@pytest.mark.slow
def test_the_same_seed_tries_the_same_experiments(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = (
        found_by("claims", subject_of(LIES, tmp_path / at))
        for at in ("a", "b")
    )
    assert (one.counterexample or "").replace(
        "/a/", "/b/"
    ) == two.counterexample
    assert one.evidence == two.evidence


@pytest.mark.short("easy", "v-mct")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in own_policies() if name != "scripted"]
)
def test_every_policy_of_the_testbed_passes(name: str) -> None:
    subject = Subject.of({"name": name}, 1, QUICK)
    found = list(policy_findings(subject))
    assert [
        (one.check, one.evidence)
        for one in found
        if one.verdict == "failed"
    ] == []
    declared = not NO_STARVATION.isdisjoint(subject.claims)
    [starves] = [one for one in found if one.check == "no starvation"]
    assert starves.verdict == ("ok" if declared else "not declared")


@pytest.mark.short("easy", "ambf")
@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [
        {"name": "fcfs"},
        {"name": "easy"},
        {"name": "bgmbf"},
        {"name": "bgmbf-sdf"},
        {"name": "cmbf"},
        {"name": "ambf"},
        {"name": "cmcbf"},
        {"name": "amcbf"},
        {"name": "oktopus-batch", "queue": "block", "late": "run"},
        {"name": "ps-p", "queue": "block", "late": "run"},
    ],
    ids=lambda entry: "-".join(entry.values()),
)
def test_no_job_starves_where_that_is_declared(
    entry: dict[str, str],
) -> None:
    subject = Subject.of(entry, 1, QUICK)
    found = found_by("no starvation", subject)
    assert found.verdict == "ok"
    assert "it was" not in found.evidence  # rejected, unfinished


@pytest.mark.short("jsa")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["sdf", "edf", "jsa", "oktopus-batch"])
def test_the_stream_starves_a_large_job_of_policies_that_do_not_declare_it(
    name: str,
) -> None:
    found = found_by("no starvation", Subject.of({"name": name}, 1, QUICK))
    assert (found.verdict, "it starts after 58" in found.evidence) == (
        "not declared",
        True,
    )


@pytest.mark.short("v-mct")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "families"), [("v-mct", ("leases",)), ("easy", ("flat",))]
)
def test_the_tables_have_three_workloads_and_mark_the_policy(
    name: str, families: tuple[str, ...]
) -> None:
    subject = Subject.of({"name": name}, 1, QUICK)
    contest = Contest(subject.entry, subject.spec, families, (1, 2))
    assert len(list(contest.run(print))) == contest.n_runs
    tables = contest.tables()
    assert len(tables) == 3
    for table in tables:
        assert [row.policy for row in table.rows if row.own] == [name]
        success = [row.metrics["success_rate"] for row in table.rows]
        shares = [each.mean for each in success if each is not None]
        assert len(shares) == len(table.rows) >= 3
        assert shares == sorted(shares, reverse=True)
        assert all(
            each is not None and each.half_width is not None
            for each in success
        )


PRINTS = """
import sys
class Mine(Base): pass
sys.__stdout__.write("of a library\\n")
sys.stderr.buffer.write(b"in Latin-1: \\xe9")
"""
ENDS = """
class Mine(Base):
    def __init__(self, embedder):
        os._exit(0)
"""


def text_of(source: str, folder: Path) -> str:
    subject = subject_of(source, folder)
    [case] = largest(cases(subject.families[0]), 1, subject.seed)
    return case.text(subject.entry)


def test_what_is_printed_past_pythons_streams_is_no_result(
    tmp_path: Path,
) -> None:
    [[lines]] = in_fresh_process([text_of(PRINTS, tmp_path)], 1, 1)
    assert json.loads(lines[0])


def test_a_fresh_process_that_the_policy_ends_is_a_failed_run(
    tmp_path: Path,
) -> None:
    text = text_of(GOOD, tmp_path)
    # This process would end by it as well.
    (tmp_path / "mine.py").write_text(f"import os\n{HEAD}{ENDS}")
    with pytest.raises(RunFailed, match="ends without a result"):
        in_fresh_process([text], 1, 1)
