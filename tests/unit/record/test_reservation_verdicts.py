"""A live job whose reservation was broken makes the run not good, without an `expect` too."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from testbed import events
from testbed.audit import audit
from testbed.expectations import ApplicationExpectation, Band, Expectation
from testbed.play.playing import RunRecord
from testbed.record.conclusion import Results
from testbed.record.metrics import tally
from testbed.record.verdicts import Verdicts, evaluate
from tests.support.examples import examples
from tests.unit.record import sample
from tests.unit.record.written import write_run

RATE = 100 * sample.MBIT
TOPOLOGY = sample.tree((4,), slots=2)
ROOT = TOPOLOGY["trees"][0]["root"]
HERE, THERE = [[0, 2], [1, 1]], [[2, 2], [3, 1]]


HALF = {
    "received_bps": [RATE, RATE // 2, RATE],
    "counted_bps": [RATE, RATE // 2, RATE],
}


@dataclass(frozen=True)
class Life:
    """A live job of 10 s: its request, its reservation, what happened to it, how it ended."""

    ratio: float | None = 1.0
    asked: dict[str, Any] = field(default_factory=dict)
    rate_bps: int = RATE
    estimated: bool = True
    started: bool = True
    happened: tuple[str, ...] = ()
    outcome: str = "finished"
    reason: str = ""
    detail: dict[str, Any] = field(
        default_factory=lambda: {"exit_codes": [0]}
    )

    def events(self, job_id: str = "j") -> list[events.Event]:
        links = sample.hose(TOPOLOGY, HERE, self.rate_bps)
        elsewhere = sample.hose(TOPOLOGY, THERE, self.rate_bps)
        asked = {"bandwidth_bps": RATE, "duration_s": 10.0, **self.asked}
        estimate_s = 10.0 if self.estimated else None
        reserved = (
            0.0,
            job_id,
            0.0,
            None,
            self.rate_bps,
            estimate_s,
            ROOT,
            HERE,
            links,
        )
        turns: dict[str, events.Event] = {
            "preempted": events.JobPreempted(2.0, job_id, "for another"),
            "resumed": events.JobResumed(3.0, job_id),
            "migrated": events.JobMigrated(
                4.0, job_id, "room", ROOT, THERE, elsewhere
            ),
            "same": events.JobRescaled(5.0, job_id, self.rate_bps, []),
            "slower": events.JobRescaled(
                5.0, job_id, self.rate_bps // 2, []
            ),
            "faster": events.JobRescaled(
                6.0, job_id, self.rate_bps * 2, []
            ),
        }
        measured_s = None if self.ratio is None else 10.0 * self.ratio
        end = events.JobEnded(
            90.0, job_id, self.outcome, self.reason, measured_s, self.detail
        )
        return [
            events.JobSubmitted(0.0, sample.request(job_id, 0.0, **asked)),
            events.JobReserved(*reserved),
            *(
                [events.JobStarted(1.0, job_id, self.rate_bps)]
                if self.started
                else []
            ),
            *(turns[name] for name in self.happened),
            end,
        ]


def run_of(
    *lives: Life, level: str = "ok", backend: str = "live"
) -> list[events.Event]:
    jobs = [
        event
        for n, life in enumerate(lives)
        for event in life.events(f"j{n or ''}")
    ]
    end = [events.RunEnded(90.0, "completed", "")]
    if backend == "live":
        end.insert(
            0, events.FidelityNoted(90.0, level, "drops", "some", {})
        )
    return [
        events.RunStarted(0.0, "live", "vc", backend, 1, TOPOLOGY),
        *jobs,
        *end,
    ]


def judged(
    stream: list[events.Event],
    expect: Expectation = Expectation(),  # noqa: B008
) -> Verdicts:
    taken = tally(stream)
    return evaluate(expect, taken.rows(), taken.fidelity())


FAILED = Life(
    None,
    outcome="killed",
    reason="agent j.0 ended with SIGKILL and no report",
)
UNSTARTED = Life(
    None,
    started=False,
    outcome="killed",
    reason="it could not be started: no port",
    detail={},
)
OUTLASTED = Life(
    None,
    outcome="killed",
    reason="its reservation ended before it did",
    detail={},
)
BY_POLICY = Life(
    None, outcome="killed", reason="preempted by lease 7", detail={}
)
UNFINISHED = Life(
    None, outcome="unfinished", reason="the run stopped", detail={}
)

CASES = {
    "held": (Life(1.05), "held"),
    "late": (Life(1.0501), "late"),
    "cut short": (Life(0.59), "early"),
    "early": (Life(0.9499), "early"),
    "nearly early": (Life(0.95), "held"),
    "shorter than stated": (Life(0.5, {"true_duration_s": 5.0}), "held"),
    "a demand curve that was cut short": (
        Life(0.5, {"kind": "demand"}),
        "early",
    ),
    "a demand curve scaled down": (
        Life(0.6, {"kind": "demand"}, rate_bps=RATE // 2),
        "held",
    ),
    "rescaled up, and early": (Life(0.6, happened=("faster",)), "held"),
    "early, and rescaled to what it has": (
        Life(0.6, happened=("same",)),
        "early",
    ),
    "a demand curve": (Life(3.0, {"kind": "demand"}), "late"),
    "its agent failed": (FAILED, "killed"),
    "it could not be started": (UNSTARTED, "killed"),
    "its reservation ended first": (OUTLASTED, "killed"),
    "the policy killed it": (BY_POLICY, "open"),
    "the run stopped": (UNFINISHED, "open"),
    "best effort": (Life(4.0, rate_bps=0, estimated=False), "open"),
    "best effort that failed": (
        replace(FAILED, rate_bps=0, estimated=False),
        "open",
    ),
    "compute": (
        Life(4.0, {"kind": "compute", "bandwidth_bps": 0}, 0),
        "open",
    ),
    "compute with bandwidth": (Life(4.0, {"kind": "compute"}), "open"),
    "compute whose agent failed": (
        replace(
            FAILED,
            asked={"kind": "compute", "bandwidth_bps": 0},
            rate_bps=0,
        ),
        "killed",
    ),
    "a lease that outlasts its time": (
        replace(
            OUTLASTED,
            asked={"kind": "compute", "bandwidth_bps": 0},
            rate_bps=0,
        ),
        "open",
    ),
    "a transfer that asks for nothing": (
        Life(4.0, {"bandwidth_bps": 0}, 0),
        "open",
    ),
    "iperf3": (Life(1.0, {"kind": "iperf3"}), "open"),
    "iperf3 with half of its reservation": (
        Life(1.0, {"kind": "iperf3"}, detail={"iperf3": HALF}),
        "open",
    ),
    "a command": (Life(4.0, {"command": ["sleep", "9"]}), "open"),
    "a command that failed": (
        replace(FAILED, asked={"command": ["false"]}),
        "killed",
    ),
    "longer than stated": (Life(2.0, {"true_duration_s": 20.0}), "open"),
    "longer than stated, and killed": (
        replace(OUTLASTED, asked={"true_duration_s": 20.0}),
        "open",
    ),
    "shorter than stated, late": (
        Life(1.2, {"true_duration_s": 5.0}),
        "late",
    ),
    "preempted": (Life(4.0, happened=("preempted", "resumed")), "open"),
    "migrated": (Life(4.0, happened=("preempted", "migrated")), "open"),
    "preempted, then failed": (
        replace(FAILED, happened=("preempted", "resumed")),
        "killed",
    ),
    "rescaled down": (Life(2.0, happened=("slower",)), "open"),
    "rescaled down and up": (
        Life(2.0, happened=("slower", "faster")),
        "open",
    ),
    "rescaled to what it has": (Life(2.0, happened=("same",)), "late"),
    "rescaled up": (Life(2.0, happened=("faster",)), "late"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_live_job_of_which_the_file_states_nothing(name: str) -> None:
    life, answer = CASES[name]
    found = judged(run_of(life))
    (row,) = found.rows
    assert (row.verdict, found.met) == (answer, answer in ("held", "open"))
    assert row.why
    assert row.why != "nothing expected"
    assert found.complaints == (() if found.met else (f"j: {row.why}",))


def test_the_reason_is_in_the_verdict() -> None:
    assert "SIGKILL" in judged(run_of(FAILED)).rows[0].why
    assert "preempted by lease 7" in judged(run_of(BY_POLICY)).rows[0].why
    half = Life(1.0, {"kind": "iperf3"}, detail={"iperf3": HALF})
    assert (
        "worst VM received 0.5000 of its reservation"
        in judged(run_of(half)).rows[0].why
    )
    assert (
        "1.0501, held is at most 1.05"
        in judged(run_of(Life(1.0501))).rows[0].why
    )


@pytest.mark.parametrize("backend", ["sim", "replay"])
@pytest.mark.parametrize("life", [Life(4.0), FAILED, OUTLASTED])
def test_a_simulated_time_is_the_models_own(
    backend: str, life: Life
) -> None:
    found = judged(run_of(life, backend=backend))
    assert (found.rows[0].verdict, found.met) == ("open", True)


@pytest.mark.parametrize(
    ("expect", "answer"),
    [
        (Expectation(Band(max=5.0)), "ok"),
        (Expectation(Band(max=1.01)), "outside"),
        (Expectation(Band(min=0.9)), "ok"),
        (
            Expectation(
                applications={"sort": ApplicationExpectation(Band(max=5.0))}
            ),
            "ok",
        ),
        (
            Expectation(
                applications={
                    "index": ApplicationExpectation(Band(max=5.0))
                }
            ),
            "late",
        ),
        (
            Expectation(
                applications={
                    "sort": ApplicationExpectation(scaled_down_below=9.0)
                }
            ),
            "late",
        ),
        (Expectation(fidelity="ok"), "late"),
    ],
)
def test_what_the_file_states_of_a_job_goes_first(
    expect: Expectation, answer: str
) -> None:
    others = Life(1.0, {"application": "index"})
    found = judged(
        run_of(Life(4.0, {"application": "sort"}), others), expect
    )
    assert found.rows[0].verdict == answer
    assert found.met is (answer == "ok")


@pytest.mark.parametrize(
    ("accepted", "level", "met"),
    [
        ("suspect", "suspect", True),
        ("suspect", "invalid", False),
        ("ok", "suspect", False),
        ("invalid", "invalid", True),
        (None, "invalid", True),
    ],
)
def test_an_invalid_run_is_not_good_unless_the_file_accepts_it(
    accepted: Any, level: str, met: bool
) -> None:
    assert (
        judged(
            run_of(Life(1.0), level=level), Expectation(fidelity=accepted)
        ).met
        is met
    )
    assert Expectation().fidelity == "suspect"


@pytest.mark.parametrize("level", ["ok", "suspect", "invalid"])
def test_accepting_invalid_accepts_broken_reservations_and_shows_them(
    tmp_path: Path, level: str
) -> None:
    accepting = Expectation(fidelity="invalid")
    found = judged(
        run_of(Life(4.0), FAILED, Life(1.0), level=level), accepting
    )
    assert [row.verdict for row in found.rows] == ["late", "killed", "held"]
    assert found.met
    assert [row.job_id for row in found.bad] == ["j", "j1"]
    folder, _ = write_run(
        tmp_path, run_of(Life(4.0), FAILED, level=level), accepting
    )
    assert findings(folder.path) == []
    own = replace(accepting, estimate_ratio=Band(max=1.1))
    assert not judged(run_of(Life(4.0), level=level), own).met


@pytest.mark.slow
def test_each_verdict_is_audited(tmp_path: Path) -> None:
    for number, (life, answer) in enumerate(CASES.values()):
        folder, results = write_run(
            tmp_path, run_of(life), name=f"run-{number}"
        )
        assert findings(folder.path) == []
        stored = json.loads(
            (folder.path / "summary.json").read_text("utf-8")
        )
        forged = "late" if answer == "held" else "held"
        stored["expectations"]["rows"][0]["verdict"] = forged
        stored["expectations"].update(met=True, complaints=[])
        folder.write_json("summary.json", stored)
        assert any(
            f"by the events '{answer}'" in text
            for text in findings(folder.path)
        )
        assert results.verdicts.rows[0].verdict == answer


def findings(path: Path) -> list[str]:
    (found,) = (
        result
        for result in audit(path).results
        if result.name == "expectations"
    )
    return [str(finding) for finding in found.findings]


BANDS = st.sampled_from([None, Band(max=1.1), Band(min=0.9)])
ANY = st.builds(
    Expectation,
    BANDS,
    st.dictionaries(
        st.sampled_from(["sort", "j"]),
        st.builds(ApplicationExpectation, BANDS),
        max_size=1,
    ),
    st.sampled_from([None, "ok", "suspect", "invalid"]),
    st.sampled_from([None, 1.05, 3.0]),
)


@pytest.mark.slow
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.sampled_from(sorted(CASES)), min_size=1, max_size=5),
    level=st.sampled_from(["ok", "suspect", "invalid"]),
    expect=ANY,
)
def test_the_audit_comes_to_the_same_verdicts(
    tmp_path: Path, names: list[str], level: str, expect: Expectation
) -> None:
    folder, _ = write_run(
        tmp_path, run_of(*(CASES[n][0] for n in names), level=level), expect
    )
    assert findings(folder.path) == []
    shutil.rmtree(folder.path)


def test_a_folder_of_an_earlier_version_is_read_as_it_was_judged(
    tmp_path: Path,
) -> None:
    old = Expectation(fidelity=None, late_above=None, early_below=None)
    folder, results = write_run(
        tmp_path, run_of(Life(4.0), FAILED, level="invalid"), old
    )
    assert results.verdicts.met
    resolved = json.loads(
        (folder.path / "spec.resolved.json").read_text("utf-8")
    )
    del resolved["expect"]["late_above"]
    del resolved["expect"]["early_below"]
    folder.write_json("spec.resolved.json", resolved)
    assert findings(folder.path) == []


def record(results: Results) -> RunRecord:
    folder, policy = results.path, results.summary.policy
    return RunRecord(
        folder=_Folder(folder),
        policy=policy,
        results=results,
        audit=audit(folder),
    )  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Folder:
    path: Path


@pytest.mark.parametrize(
    ("expect", "good", "says"),
    [
        (
            Expectation(),
            False,
            "outside what was expected: j: measured/estimate 4.0000",
        ),
        (
            Expectation(fidelity="invalid"),
            True,
            "late, early or killed, which the file accepts: 2 jobs",
        ),
    ],
)
def test_the_sentences_of_a_run(
    tmp_path: Path, expect: Expectation, good: bool, says: str
) -> None:
    _, results = write_run(
        tmp_path, run_of(Life(4.0), FAILED, Life(1.0)), expect
    )
    sentences = record(results).sentences()
    assert results.verdicts.met is good
    assert any(line.startswith(says) for line in sentences)
    assert "every job is within what was expected" not in sentences


@pytest.mark.parametrize(
    ("ratio", "delay_s", "verdict"),
    [
        (1.04, [0.2, 0.3], "held"),
        (1.07, [0.2, 0.3], "held"),
        (1.07, [0.0, 0.0], "late"),
        (1.09, [0.2, 0.3], "late"),
        (0.9, [0.2, 0.3], "early"),
    ],
)
def test_the_delay_of_its_links_is_no_lateness(
    ratio: float, delay_s: list[float], verdict: str
) -> None:
    life = Life(ratio, detail={"exit_codes": [0], "delay_s": delay_s})
    (row,) = judged(
        run_of(life), Expectation(late_above=1.05, early_below=0.95)
    ).rows
    assert row.verdict == verdict
    if delay_s[1] and verdict != "early":
        assert "and 0.3 s by its links' delay" in row.why


def test_a_job_over_links_that_lose_packets_shows_nothing() -> None:
    life = Life(1.7, detail={"exit_codes": [0], "loss_share": 0.01})
    (row,) = judged(run_of(life), Expectation(late_above=1.05)).rows
    assert row.verdict == "open"
    assert row.why == "its links lose packets: no rate can be kept to"
