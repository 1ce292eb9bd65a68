"""The log reader: what it takes, what it names by line and column, what it leaves out."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.workload.swf import NAMES, Swf, jobs_of, read_swf
from jobs.workload.traces import TraceErrors
from tests.support.examples import examples
from tests.unit.workload.traces import KTH, NASA, trace

HEADER = """\
; Version: 2.2
; MaxProcs: 128 (of 130)
; Note: one
; Note: two
;       and the rest of it
;
"""


def record(
    number: object = 1,
    submit: object = 0,
    run: object = 60,
    **named: object,
) -> str:
    values: dict[str, object] = dict.fromkeys(NAMES, -1)
    values.update(
        number=number, submit_s=submit, run_s=run, requested=4, **named
    )
    return " ".join(str(values[name]) for name in NAMES) + "\n"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "log.swf"
    path.write_text("".join(lines))
    return path


def errors_of(folder: Path, *lines: str) -> list[str]:
    with pytest.raises(TraceErrors) as caught:
        read_swf(written(folder, *lines))
    return [
        f"{p.line}:{p.column}: {p.message}" for p in caught.value.problems
    ]


def test_all_18_fields_and_the_header_are_read(tmp_path: Path) -> None:
    log = read_swf(
        written(
            tmp_path, HEADER, " ".join(str(k) for k in range(1, 19)) + "\n"
        )
    )
    assert log.records.tolist() == [tuple(range(1, 19))]
    assert log.header == {
        "Version": ("2.2",),
        "MaxProcs": ("128 (of 130)",),
        "Note": ("one", "two and the rest of it"),
    }
    assert log.lines.tolist() == [7]


def test_a_comment_of_a_million_blanks(tmp_path: Path) -> None:
    """Its time was of their square: half an hour."""
    blanks = " " * 1_000_000
    comment = f"; A{blanks}b\n; Two  words{blanks}: c\n"
    log = read_swf(written(tmp_path, comment, record(1)))
    assert log.header == {"Two  words": ("c",)}


def test_packed_or_not_is_seen_from_the_content(tmp_path: Path) -> None:
    plain = written(tmp_path, HEADER, record(1), record(2, 5))
    packed = tmp_path / "log"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert np.array_equal(read_swf(plain).records, read_swf(packed).records)


def test_comments_blank_lines_and_odd_line_ends_are_no_records(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(
        (record(1) + "\n; later\n" + record(2))
        .replace("\n", "\r\n")
        .encode()
    )
    log = read_swf(path)
    assert log.lines.tolist() == [1, 4]
    assert log.header == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            record(2, 9)[:-4] + "\n",
            "2:47: has 17 fields, not 18: the line is cut off",
        ),
        (
            record(2, 9, run="x1"),
            "2:8: field 4 (run time): 'x1' is not a number",
        ),
        (
            record(2, 9, run="1_0"),
            "2:8: field 4 (run time): '1_0' is not a number",
        ),
        (
            record(2, 9, run="nan"),
            "2:8: field 4 (run time): nan is not a finite number",
        ),
        (
            record(2, 9, run="inf"),
            "2:8: field 4 (run time): inf is not a finite number",
        ),
        (
            record(2, 9, run="1e300"),
            "2:8: field 4 (run time): 1e+300 is beyond what can be meant",
        ),
        (
            record(2, 9, run=-5),
            "2:8: field 4 (run time): -5 is negative; -1 is for what is unknown",
        ),
        (record(2, -1), "2:3: field 2 (submit time): -1 is negative"),
        (record(-1, 9), "2:1: field 1 (job number): -1 is negative"),
        (
            record("2.5", 9),
            "2:1: field 1 (job number): 2.5 is not a whole number",
        ),
        (
            record(2, 3),
            "2:3: field 2 (submit time): 3 s is before line 1's 5 s",
        ),
        (record(1, 9), "2:1: field 1 (job number): 1 stands in line 1 too"),
        (record(1, 5), "2:1: field 1 (job number): 1 stands in line 1 too"),
        ("<html>\n", "2:1: '<html>' is no line of this format: 18 numbers"),
        (
            "\x1b[2J\n",
            "2:1: '\\x1b[2J' is no line of this format: 18 numbers",
        ),
    ],
)
def test_a_wrong_line_is_named_and_left_out_where_that_is_wanted(
    tmp_path: Path, line: str, said: str
) -> None:
    lines = (record(1, 5), line, record(3, 10))
    assert errors_of(tmp_path, *lines) == [said]
    log = read_swf(written(tmp_path, *lines), lenient=True)
    assert log.records["number"].tolist() == [1, 3]
    assert log.skipped == 1
    assert [f"{p.line}:{p.column}: {p.message}" for p in log.examples] == [
        said
    ]


def test_all_wrong_lines_are_counted_and_the_first_twenty_named(
    tmp_path: Path,
) -> None:
    with pytest.raises(TraceErrors, match="and 15 more") as caught:
        read_swf(written(tmp_path, record(1), "x\n" * 35))
    assert len(caught.value.problems) == 20
    assert caught.value.total == 35


def test_an_archive_that_is_cut_off_is_wrong_where_it_ends(
    tmp_path: Path,
) -> None:
    whole = "".join(record(k, k) for k in range(1, 400))
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress(whole.encode())[:-40])
    with pytest.raises(TraceErrors, match="cut off or damaged"):
        read_swf(path)


@pytest.mark.parametrize("content", ["", "\n\n", HEADER])
def test_a_file_without_a_job_is_wrong_even_leniently(
    tmp_path: Path, content: str
) -> None:
    with pytest.raises(TraceErrors, match="holds no job"):
        read_swf(written(tmp_path, content), lenient=True)


def test_no_line_beyond_the_first_ones_wanted_is_looked_at(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path, HEADER, *(record(k, k) for k in range(1, 6)), "x\n"
    )
    assert read_swf(path, first=5).records["number"].tolist() == [
        1,
        2,
        3,
        4,
        5,
    ]
    with pytest.raises(TraceErrors):
        read_swf(path, first=6)


def slow_twin(text: str) -> list[int]:
    """The numbers of the lines that a reader without columns would keep."""
    kept: list[int] = []
    known: set[int] = set()
    latest = 0.0
    for number, line in enumerate(text.splitlines(), 1):
        try:
            values = [float(word) for word in line.split()]
        except ValueError:
            continue
        whole = all(
            v == int(v)
            for k, v in enumerate(values)
            if k not in (1, 2, 3, 5, 6, 8, 9, 17)
        )
        sound = (
            len(values) == 18
            and whole
            and all(v >= 0 or v == -1 for v in values)
        )
        if sound and min(values[:2]) >= 0:
            in_order = values[1] >= latest
            latest = max(latest, values[1])
            if in_order and int(values[0]) not in known:
                known.add(int(values[0]))
                kept.append(number)
    return kept


@examples(60)
@given(
    st.lists(
        st.one_of(
            st.builds(
                record,
                st.integers(-1, 12),
                st.integers(-1, 9),
                st.integers(-2, 5),
            ),
            st.sampled_from(
                ["", "; x", "1 2 3", "a b", record(2.5), record(7, 1.5)]
            ),
        ).map(str.strip),
        max_size=14,
    )
)
def test_it_keeps_what_a_slow_and_obvious_reader_keeps(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    text = "\n".join(lines)
    path = written(tmp_path_factory.mktemp("swf"), text)
    expected = slow_twin(text)
    if expected:
        assert read_swf(path, lenient=True).lines.tolist() == expected
    else:
        with pytest.raises(TraceErrors):
            read_swf(path, lenient=True)


def jobs_from(folder: Path, *lines: str) -> Swf:
    return read_swf(written(folder, *lines))


def test_records_become_jobs_and_what_cannot_is_counted_by_reason(
    tmp_path: Path,
) -> None:
    log = jobs_from(
        tmp_path,
        record(1, 0, 60, requested_s=30, status=1, user=7, queue=2),
        record(2, 1, 0, status=5),
        record(3, 2, -1),
        record(4, 3, 50, status=2),
        record(5, 4, 0, requested_s=100),
        record(6, 5, 40, status=5),
        record(7, 6, 40, requested_s=600).replace(" 4 ", " -1 ", 1),
    )
    taken = jobs_of(log)
    assert taken.jobs.number.tolist() == [1, 5, 6, 7]
    assert taken.jobs.run_s.tolist() == [60, 1, 40, 40]
    assert taken.jobs.stated_s[[0, 1, 3]].tolist() == [60, 100, 600]
    assert np.isnan(taken.jobs.stated_s[2])
    assert taken.jobs.processes.tolist() == [4, 4, 4, 1]
    assert taken.jobs.user.tolist() == [7, -1, -1, -1]
    assert taken.skipped == {
        "part of a job that has a record of its own": 1,
        "cancelled before it ran": 1,
        "running time unknown": 1,
    }
    assert taken.repaired == {
        "processors neither requested nor allocated: 1 taken": 1,
        "running time below 1 s raised to it": 1,
        "requested time below the running time raised to it": 1,
        "no requested time: the running time taken": 1,
    }
    assert jobs_of(log, "skip").skipped["ran for 0 s"] == 1


def test_allocated_processors_stand_in_for_requested_ones(
    tmp_path: Path,
) -> None:
    line = record(1, 0, 60, allocated=16).split()
    line[7] = "-1"
    assert jobs_of(
        jobs_from(tmp_path, " ".join(line))
    ).jobs.processes.tolist() == [16]


# ------------------------------------------------------------------ the published logs


def test_kth_as_published() -> None:
    taken = jobs_of(read_swf(trace(KTH)))
    assert len(taken.jobs) == 28_476
    assert taken.skipped == {}
    assert taken.repaired == {
        "processors neither requested nor allocated: 1 taken": 1,
        "running time below 1 s raised to it": 8,
        "requested time below the running time raised to it": 475,
    }
    assert taken.jobs.processes.max() == 100


@pytest.mark.parametrize(
    ("name", "minutes", "load", "widest"),
    [(KTH, 72.4, 0.17, 84), (NASA, 10.4, 0.11, 128)],
)
def test_the_first_thousand_jobs_are_as_adabas_table_1_says(
    name: str, minutes: float, load: float, widest: int
) -> None:
    jobs = jobs_of(read_swf(trace(name), first=1000)).jobs
    assert len(jobs) == 1000
    assert round(float(jobs.run_s.mean()) / 60, 1) == minutes
    assert round(jobs.load(432), 2) == load
    assert int(jobs.processes.max()) == widest
