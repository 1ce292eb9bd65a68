"""Tables, summary and experiment changed after the run, one value at a time: the audit notices.

What it does not notice is named here (``UNCHECKED``), and in docs/runs-and-fidelity.md.
"""

from __future__ import annotations

import copy
import csv
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from testbed import events
from testbed.audit import audit
from testbed.expectations import ApplicationExpectation, Band, Expectation
from testbed.record.folder import EVENTS
from testbed.record.link_rates import LINK_COLUMNS
from testbed.record.metrics import JOB_COLUMNS, Recording, Summary
from testbed.record.reading import read_recording
from tests.support.examples import examples
from tests.unit.record import sample
from tests.unit.record.written import FIG10, Record, write_run

JOBS, LINKS, SUMMARY, SPEC = (
    "jobs.csv",
    "links.csv",
    "summary.json",
    "spec.resolved.json",
)

# Half a minute of sweeps; test_audit.py has the lies that matter most.
pytestmark = pytest.mark.slow

UNCHECKED = {
    "wall_s",
    "expectations.rows[].why",
    "expectations.complaints[]",
}
"""Values of the summary that no event decides: the clock on the wall, and words.

A job's complaint is its row's ``why``; the words of the others are free, their subject is not.
"""

EXPECT = Expectation(
    applications={
        **FIG10.applications,
        "grep": ApplicationExpectation(Band(0.98, 1.01)),
    },
    fidelity="ok",
)


def seldom_sampled() -> list[events.Event]:
    """A live run with every tenth sample of its links.

    Each audit reads all samples, and no lie here depends on their number.
    """
    stream = sample.eventful()
    samples = [
        event for event in stream if isinstance(event, events.LinkSample)
    ]
    assert len(samples) > 50
    left_out = {id(event) for event in samples} - {
        id(event) for event in samples[::10]
    }
    return [event for event in stream if id(event) not in left_out]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, results = write_run(
        tmp_path_factory.mktemp("honest"), seldom_sampled(), EXPECT
    )
    assert findings(folder.path) == {}
    assert {row.outcome for row in results.rows} == {
        "finished",
        "rejected",
        "killed",
    }
    assert not any(row.outcome == "unfinished" for row in results.rows)
    assert len(results.verdicts.complaints) == 4
    return folder.path


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    return shutil.copytree(honest, tmp_path / "run")


_recordings: dict[bytes, Recording] = {}


def findings(run: Path) -> dict[str, list[str]]:
    """The findings of the audit of a run, by check.

    Events are parsed and folded once for each content of their file: no
    lie here is in them.
    """
    content = (run / EVENTS).read_bytes()
    if content not in _recordings:
        _recordings[content] = read_recording(run)
    audited = audit(run, _recordings[content])
    return {
        result.name: [str(finding) for finding in result.findings]
        for result in audited.results
        if result.status == "failed"
    }


def other(value: Any) -> Any:
    """Something else of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 2 + 1
        case str():
            return f"{value}x"
        case None:
            return 1.0
        case list():
            return value[:-1] if value else ["x"]
        case _:
            return {}


# ---------------------------------------------------------------------------------- jobs.csv


def read_table(path: Path, name: str = JOBS) -> list[list[str]]:
    with (path / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def write_table(
    path: Path, rows: list[list[str]], name: str = JOBS
) -> None:
    with (path / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def lies_about(cell: str) -> list[str]:
    """Other contents of a cell: something for nothing, nothing for something, almost the same."""
    out = ["7", "x"] if cell == "" else ["", f"{cell}x"]
    if cell in ("true", "false"):
        out.append("true" if cell == "false" else "false")
    with suppress(ValueError):
        out += [repr(float(cell) * 1.000001 + 1e-6), repr(float(cell) + 1)]
    return out


@pytest.mark.parametrize("column", JOB_COLUMNS)
def test_every_cell_of_the_table_is_checked(run: Path, column: str) -> None:
    table = read_table(run)
    at = table[0].index(column)
    for job_id in ("sort-600", "index-150", "no-room", "stopped"):
        row = next(row for row in table if row[0] == job_id)
        honest = row[at]
        for lie in lies_about(honest):
            row[at] = lie
            write_table(run, table)
            found = findings(run)
            assert set(found) == {"jobs.csv"}, (job_id, honest, lie)
            named = (
                f"{column} is {lie!r}"
                if column != "job_id"
                else f"{job_id} is missing"
            )
            assert any(named in message for message in found["jobs.csv"]), (
                found
            )
        row[at] = honest


@pytest.mark.parametrize("column", JOB_COLUMNS)
def test_every_column_of_the_table_has_to_be_there(
    run: Path, column: str
) -> None:
    table = read_table(run)
    at = table[0].index(column)
    write_table(run, [row[:at] + row[at + 1 :] for row in table])
    assert (
        f"jobs.csv:1: has no column {column}" in findings(run)["jobs.csv"]
    )


def _one_column_more(table: list[list[str]]) -> None:
    for i, row in enumerate(table):
        row.append("9" if i else "jobs_per_hour")


def _a_column_twice(table: list[list[str]]) -> None:
    for row in table:
        row.append(row[-1])


def _one_cell_more(table: list[list[str]]) -> None:
    table[3].append("9")


def _one_cell_less(table: list[list[str]]) -> None:
    del table[3][-1]


def _a_row_twice(table: list[list[str]]) -> None:
    table.append(table[3])


def _a_row_less(table: list[list[str]]) -> None:
    del table[3]


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (
            _one_column_more,
            "the column 'jobs_per_hour' is none of the table's",
        ),
        (_a_column_twice, "has the column iperf3_counted_bps twice"),
        (_one_cell_more, "does not have one field per column"),
        (_one_cell_less, "does not have one field per column"),
        (_a_row_twice, "stands here twice"),
        (_a_row_less, "is missing"),
    ],
)
def test_the_table_has_the_rows_and_columns_it_is_to_have(
    run: Path, lie: Callable[[list[list[str]]], None], words: str
) -> None:
    table = read_table(run)
    lie(table)
    write_table(run, table)
    assert any(words in message for message in findings(run)["jobs.csv"])


def test_columns_are_checked_in_a_run_without_jobs(tmp_path: Path) -> None:
    begun = [
        event
        for event in sample.eventful()
        if isinstance(event, events.RunStarted | events.RunEnded)
    ]
    folder, results = write_run(tmp_path, begun)
    assert not results.rows
    assert "jobs.csv" not in findings(folder.path)
    table = read_table(folder.path)
    table[0][0] = "job"
    write_table(folder.path, table)
    assert (
        "jobs.csv:1: has no column job_id"
        in findings(folder.path)["jobs.csv"]
    )


def test_a_table_that_is_none_is_a_finding(run: Path) -> None:
    (run / JOBS).write_bytes(b"job_id\n\xff\n")
    assert "damaged" in findings(run)["jobs.csv"][0]


# ------------------------------------------------------------------------------- summary.json

KEYS = [*(field.name for field in fields(Summary)), "expectations"]


def places(
    value: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Where there is something to change in a JSON value: each value and what holds it."""
    if path:
        yield path
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inside:
        yield from places(each, (*path, key))


def name_of(path: tuple[Any, ...]) -> str:
    """``expectations.rows[].why``: a place, whichever row it is in."""
    out = ""
    for key in path:
        out += (
            "[]" if isinstance(key, int) else f".{key}" if out else str(key)
        )
    return out


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def test_the_summary_has_the_keys_that_are_swept(honest: Path) -> None:
    assert list(read_json(honest / SUMMARY)) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_every_value_of_the_summary_is_checked(run: Path, key: str) -> None:
    stored = read_json(run / SUMMARY)
    unnoticed = set()
    for path in places({key: stored[key]}):
        changed = copy.deepcopy(stored)
        at(changed, path[:-1])[path[-1]] = other(at(stored, path))
        write_json(run / SUMMARY, changed)
        found = findings(run)
        if not found:
            unnoticed.add(name_of(path))
        assert set(found) <= {"summary", "expectations"}
    assert unnoticed == {
        name for name in UNCHECKED if name.split(".")[0] == key
    }


@pytest.mark.parametrize("key", KEYS)
def test_every_value_of_the_summary_has_to_be_there(
    run: Path, key: str
) -> None:
    stored = read_json(run / SUMMARY)
    for path in places({key: stored[key]}):
        changed = copy.deepcopy(stored)
        del at(changed, path[:-1])[path[-1]]
        write_json(run / SUMMARY, changed)
        assert findings(run), path


@pytest.mark.parametrize("key", KEYS)
def test_the_summary_holds_no_text_or_truth_for_a_number(
    run: Path, key: str
) -> None:
    stored = read_json(run / SUMMARY)
    for path in places({key: stored[key]}):
        value = at(stored, path)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            for lie in (str(value), bool(value)):
                changed = copy.deepcopy(stored)
                at(changed, path[:-1])[path[-1]] = lie
                write_json(run / SUMMARY, changed)
                assert findings(run), (path, lie)


def test_the_words_that_are_free_are_free_of_their_subject_alone(
    run: Path,
) -> None:
    stored = read_json(run / SUMMARY)
    for number, text in enumerate(stored["expectations"]["complaints"]):
        changed = copy.deepcopy(stored)
        changed["expectations"]["complaints"][number] = "something or other"
        write_json(run / SUMMARY, changed)
        assert findings(run)["expectations"], text
    for number, row in enumerate(stored["expectations"]["rows"]):
        changed = copy.deepcopy(stored)
        changed["expectations"]["rows"][number]["why"] = "because"
        write_json(run / SUMMARY, changed)
        assert bool(findings(run)) == (row["verdict"] == "outside"), row


def test_a_key_that_nothing_defines_is_found(run: Path) -> None:
    stored = read_json(run / SUMMARY)
    write_json(run / SUMMARY, {**stored, "speedup": 3.0})
    assert findings(run) == {
        "summary": ["summary.json: 'speedup' is none of the summary's keys"]
    }


@pytest.mark.parametrize("text", ["[]", "{", "7"])
def test_a_summary_that_is_none_is_a_finding(run: Path, text: str) -> None:
    (run / SUMMARY).write_text(text, encoding="utf-8")
    assert {"summary", "expectations"} <= set(findings(run))


# ------------------------------------------------------------------------------- expectations


def _without_the_block(summary: Record) -> None:
    del summary["expectations"]


def _met_all_the_same(summary: Record) -> None:
    summary["expectations"]["met"] = True


def _nobody_complains(summary: Record) -> None:
    summary["expectations"].update(met=True, complaints=[])


def _all_is_well(summary: Record) -> None:
    _nobody_complains(summary)
    for row in summary["expectations"]["rows"]:
        row["verdict"] = (
            "ok" if row["verdict"] == "outside" else row["verdict"]
        )


def _nothing_was_expected(summary: Record) -> None:
    _nobody_complains(summary)
    for row in summary["expectations"]["rows"]:
        row["verdict"] = "open"


def _a_ratio_of_its_own(summary: Record) -> None:
    _all_is_well(summary)
    for row in summary["expectations"]["rows"]:
        row["ratio"] = 1.0


def _without_who_was_outside(summary: Record) -> None:
    _nobody_complains(summary)
    rows = summary["expectations"]["rows"]
    summary["expectations"]["rows"] = [
        row for row in rows if row["verdict"] != "outside"
    ]


def _a_better_one_twice(summary: Record) -> None:
    rows = summary["expectations"]["rows"]
    rows.append(copy.deepcopy(rows[0]))


def _a_stranger(summary: Record) -> None:
    rows = summary["expectations"]["rows"]
    rows.append({**rows[0], "job_id": "stranger"})


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (_without_the_block, "expectations is missing or damaged"),
        (_met_all_the_same, "expectations.met is True, with 4 complaints"),
        (_nobody_complains, "complains of 0 things, there are 4"),
        (
            _all_is_well,
            "sort-150: the verdict is 'ok', by the events 'outside'",
        ),
        (
            _nothing_was_expected,
            "sort-750: the verdict is 'open', by the events 'ok'",
        ),
        (_a_ratio_of_its_own, "judged at 1.0, by the events 1.2"),
        (_without_who_was_outside, "no verdict on sort-150"),
        (_a_better_one_twice, "2 verdicts on sort-750"),
        (_a_stranger, "a verdict on 'stranger', never submitted"),
    ],
)
def test_a_forged_verdict_is_found(
    run: Path, lie: Callable[[Record], None], words: str
) -> None:
    stored = read_json(run / SUMMARY)
    lie(stored)
    write_json(run / SUMMARY, stored)
    found = findings(run)
    assert set(found) == {"expectations"}
    assert any(words in message for message in found["expectations"]), found


BANDS = st.one_of(
    st.none(),
    st.builds(
        Band,
        st.sampled_from([None, 0.5, 0.98]),
        st.sampled_from([None, 0.99, 1.01]),
    ),
)
OWN = st.builds(
    ApplicationExpectation, BANDS, st.sampled_from([None, 0.6, 0.97])
)
EXPECTATIONS = st.builds(
    Expectation,
    BANDS,
    st.dictionaries(
        st.sampled_from(["sort", "index", "late", "nobody's"]),
        OWN,
        max_size=3,
    ),
    st.sampled_from([None, "ok", "suspect", "invalid"]),
)


def best_effort() -> list[events.Event]:
    """One job, started without an estimate."""
    topology = sample.tree((2,), slots=2)
    root = topology["trees"][0]["root"]
    return [
        events.RunStarted(0.0, "best effort", "bl", "sim", 1, topology),
        events.JobSubmitted(
            0.0, sample.request("a", 0.0, n_vms=2, application="sort")
        ),
        events.JobReserved(
            0.0, "a", 0.0, None, 0, None, root, [[0, 2]], []
        ),
        events.JobStarted(0.0, "a", 0),
        events.JobEnded(10.0, "a", "finished", "", 10.0, {}),
        events.RunEnded(10.0, "completed", ""),
    ]


STREAMS = (
    sample.eventful(),
    sample.simulated(40),
    sample.sliding(),
    sample.two_tiers(),
    best_effort(),
    sample.main_example(policy="dcloud", fidelity="invalid", samples=False),
)


@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stream=st.sampled_from(STREAMS), expect=EXPECTATIONS)
def test_honest_verdicts_pass_whatever_is_expected(
    tmp_path: Path, stream: list[events.Event], expect: Expectation
) -> None:
    folder, _ = write_run(tmp_path, stream, expect)
    assert "expectations" not in findings(folder.path)
    shutil.rmtree(folder.path)


# -------------------------------------------------------------------------- spec.resolved.json


@pytest.mark.parametrize(
    "key", ["name", "seed", "policy", "jobs", "expect"]
)
def test_the_experiment_is_the_one_that_was_run(
    run: Path, key: str
) -> None:
    spec = read_json(run / SPEC)
    for path in places({key: spec[key]}):
        changed = copy.deepcopy(spec)
        at(changed, path[:-1])[path[-1]] = other(at(spec, path))
        write_json(run / SPEC, changed)
        found = findings(run)
        # A band may be moved as long as every verdict stays what it is.
        assert found or key == "expect", path
        assert set(found) <= {"experiment", "expectations"}
    del spec[key]
    write_json(run / SPEC, spec)
    assert findings(run)


def test_a_band_that_was_widened_afterwards_is_found(run: Path) -> None:
    spec = read_json(run / SPEC)
    spec["expect"]["applications"]["sort"]["estimate_ratio"]["max"] = 1.5
    write_json(run / SPEC, spec)
    (message, *_) = findings(run)["expectations"]
    assert (
        "sort-150: the verdict is 'outside', by the events 'ok'" in message
    )


@pytest.mark.parametrize(
    "expect",
    [
        7,
        {"applications": []},
        {"applications": {"sort": 1}},
        {"applications": {}, "estimate_ratio": [1, 2]},
        {"applications": {}, "estimate_ratio": {"min": "low"}},
    ],
)
def test_an_expect_block_that_is_none_is_a_finding(
    run: Path, expect: Any
) -> None:
    write_json(run / SPEC, {**read_json(run / SPEC), "expect": expect})
    found = findings(run)["expectations"]
    assert found == [
        f"{SPEC}: has no expect: verdicts cannot be passed again"
    ]


@pytest.mark.parametrize("text", [None, "{", "[]", '{"jobs": 7}'])
def test_an_experiment_that_is_none_is_a_finding(
    run: Path, text: str | None
) -> None:
    if text is None:
        (run / SPEC).unlink()
    else:
        (run / SPEC).write_text(text, encoding="utf-8")
    assert {"experiment", "expectations"} <= set(findings(run))


def test_a_line_that_is_damaged_is_named(run: Path) -> None:
    (run / SPEC).write_text('{"jobs":\n1,}', encoding="utf-8")
    (found,) = findings(run)["experiment"]
    assert found.startswith(f"{SPEC}: 2: damaged: Expecting property name")


def test_what_several_policies_share_lies_above_them(run: Path) -> None:
    (run / SPEC).rename(run.parent / SPEC)
    assert findings(run) == {}


def test_an_experiment_without_expect_is_written_as_one_that_expects_nothing(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, sample.flat())
    assert read_json(folder.path / SPEC)["expect"] == asdict(Expectation())
    assert findings(folder.path) == {}


# ---------------------------------------------------------------------------------- links.csv


@pytest.fixture(params=["sampled", "reserved"])
def over_time(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run with samples, and one that has only its reservations."""
    stream = (
        seldom_sampled()
        if request.param == "sampled"
        else sample.preempting()
    )
    folder, _ = write_run(tmp_path, stream)
    assert findings(folder.path) == {}
    return folder.path


@pytest.mark.parametrize("column", LINK_COLUMNS)
def test_every_cell_over_time_is_checked(
    over_time: Path, column: str
) -> None:
    table = read_table(over_time, LINKS)
    place = table[0].index(column)
    for row in (table[1], table[len(table) // 2], table[-1]):
        honest = row[place]
        lies = ["7", "x"] if honest == "" else ["", f"{honest}x"]
        if column != "link" and honest:
            lies.append(str(float(honest) * 1.001 + 2))
        for lie in lies:
            row[place] = lie
            write_table(over_time, table, LINKS)
            assert set(findings(over_time)) == {"links.csv"}, (
                honest,
                lie,
            )
        row[place] = honest


def _cut_short(table: list[list[str]]) -> None:
    del table[-1]


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (_one_column_more, "the columns are"),
        (_one_cell_more, "does not have one field per column"),
        (_one_cell_less, "does not have one field per column"),
        (_a_row_twice, "is a row too many"),
        (_a_row_less, "by the events"),
        (_cut_short, "a row is missing"),
    ],
)
def test_rates_over_time_have_the_rows_they_are_to_have(
    over_time: Path, lie: Callable[[list[list[str]]], None], words: str
) -> None:
    table = read_table(over_time, LINKS)
    lie(table)
    write_table(over_time, table, LINKS)
    assert any(
        words in message for message in findings(over_time)["links.csv"]
    )
