from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from testbed.expectations import Band, Expectation
from testbed.record.conclusion import Results
from testbed.report import result_tables
from testbed.report.result_tables import verdict_table
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run


def shown(results: Results) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=140, no_color=True).print(
        verdict_table(results)
    )
    return out.getvalue().splitlines()


def cells(line: str) -> list[str]:
    return [
        cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]
    ]


def test_a_line_a_job_by_application(tmp_path: Path) -> None:
    _, results = write_run(tmp_path, sample.main_example(), FIG10)
    lines = [
        cells(line)
        for line in shown(results)
        if line.startswith(("│", "┃"))
    ]
    assert lines[0] == [
        "application",
        "b'",
        "estimate",
        "measured",
        "ratio",
        "verdict",
    ]
    assert [line[0] for line in lines[1:]] == ["sort"] * 5 + ["index"] * 5
    assert [line[1] for line in lines[1:6]] == [
        f"{mbit} Mbit/s" for mbit in (750, 600, 450, 300, 150)
    ]
    assert [line[2] for line in lines[1:6]] == [
        "4.00 s",
        "5.00 s",
        "6.67 s",
        "10.00 s",
        "20.00 s",
    ]
    assert {line[5] for line in lines[1:]} == {"ok"}


def test_what_is_outside_says_why(tmp_path: Path) -> None:
    _, results = write_run(
        tmp_path, sample.main_example(worst_ratio=1.043), FIG10
    )
    (line,) = [line for line in shown(results) if "OUTSIDE" in line]
    assert cells(line)[:5] == [
        "sort",
        "150 Mbit/s",
        "20.00 s",
        "20.86 s",
        "1.0430",
    ]
    assert "expected 0.98–1.01" in line


def test_markup_in_a_name_is_only_text(tmp_path: Path) -> None:
    _, results = write_run(
        tmp_path, sample.main_example(labels=("[red]x[/red]", "[/]"))
    )
    text = "\n".join(shown(results))
    assert "[red]x[/red]" in text
    assert "[/]" in text


def test_of_many_jobs_those_outside_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_tables, "MAX_ROWS", 4)
    expect = Expectation(Band(0.98, 1.01))
    _, results = write_run(tmp_path, sample.main_example(), expect)
    lines = shown(results)
    assert sum("OUTSIDE" in line for line in lines) == 4
    assert lines[-1].startswith("and 6 more jobs: see jobs.csv")


def test_a_late_job_says_so_without_an_expectation(tmp_path: Path) -> None:
    _, results = write_run(tmp_path, sample.main_example(worst_ratio=3.2))
    verdicts = [
        cells(line)[5] for line in shown(results) if line.startswith("│")
    ]
    (late,) = [verdict for verdict in verdicts if verdict != "held"]
    assert late == "LATE  measured/estimate 3.2000, held is at most 1.05"
