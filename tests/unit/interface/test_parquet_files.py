"""Parquet files: the same cells as CSV and events, in row groups, read where they are newer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import testbed
from testbed.cli import main
from testbed.errors import BadInput
from testbed.play.playing import dry_run
from testbed.record import parquet_tables
from testbed.record.columns import TABLES
from testbed.record.conclusion import conclude
from testbed.record.folder import RunFolder
from testbed.record.parquet_tables import parquet_name, schema
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import parse_experiment
from testbed.spec.given_values import yaml_of
from tests.support.examples import examples
from tests.unit.interface.given import SMALL, TEXT, by_command
from tests.unit.interface.test_finished_runs import (
    assert_equals_files,
    assert_typed,
)
from tests.unit.record import sample
from tests.unit.record.written import write_run

pytestmark = pytest.mark.usefixtures("undrawn")

FILES = tuple(map(parquet_name, TABLES))


def frames(folder: Path) -> dict[str, Any]:
    run = testbed.open_run(folder)
    return {table: getattr(run, table) for table in TABLES}


def without_sources(folder: Path) -> None:
    """Makes CSV files and events unreadable, and older than the Parquet files."""
    for name in ("jobs.csv", "links.csv"):
        (folder / name).write_text("nothing", encoding="utf-8")
        os.utime(folder / name, (0, 0))
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(lines[0] + b"nothing\n" * 2)
    os.utime(folder / "events.jsonl", (0, 0))


@pytest.mark.slow
def test_format_parquet_writes_them_beside_the_usual_files(
    tmp_path: Path,
) -> None:
    for name in ("plain", "parquet"):
        (tmp_path / name).mkdir()
    plain = by_command(tmp_path / "plain")
    folder = by_command(tmp_path / "parquet", TEXT, "--format", "parquet")
    for policy in ("vc", "dcloud-gamma-0.12"):
        assert not [
            name for name in FILES if (plain / policy / name).exists()
        ]
        assert all((folder / policy / name).is_file() for name in FILES)
        assert (folder / policy / "jobs.csv").is_file()
        assert "events.parquet" in (
            folder / policy / "report.html"
        ).read_text("utf-8")
        before = frames(plain / policy)
        without_sources(folder / policy)
        after = frames(folder / policy)
        assert all(after[table].equals(before[table]) for table in TABLES)
        assert all(
            (after[t].dtypes == before[t].dtypes).all() for t in TABLES
        )


@pytest.mark.slow
def test_python_writes_them_too(tmp_path: Path) -> None:
    run = testbed.load(SMALL, policies=["vc"]).simulate(
        tmp_path, format="parquet"
    )
    assert {path.name for path in run.folder.glob("*.parquet")} == set(
        FILES
    )
    assert_equals_files(run)
    assert_typed(run)


@pytest.mark.slow
def test_a_folder_is_converted_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = by_command(tmp_path)
    page = (folder / "vc" / "report.html").stat().st_mtime_ns
    before = frames(folder)
    assert main.run(["report", str(folder), "--format", "parquet"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [Path(line).name for line in printed[-6:]] == [*FILES, *FILES]
    assert (folder / "vc" / "report.html").stat().st_mtime_ns == page
    assert (
        main.run(["report", str(folder), "--format", "parquet", "--json"])
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert [one["bytes"] for one in shown] == [
        Path(one["file"]).stat().st_size for one in shown
    ]
    without_sources(folder / "vc")
    after = frames(folder)
    assert all(after[table].equals(before[table]) for table in TABLES)


def test_an_interrupted_run_is_converted_as_far_as_it_came(
    tmp_path: Path,
) -> None:
    written, _ = write_run(tmp_path, sample.main_example())
    for name in ("jobs.csv", "links.csv", "summary.json"):
        (written.path / name).unlink()
    lines = (
        (written.path / "events.jsonl")
        .read_bytes()
        .splitlines(keepends=True)
    )
    (written.path / "events.jsonl").write_bytes(
        b"".join(lines[:60]) + lines[60][:9]
    )
    before = frames(written.path)
    assert (
        main.run(["report", str(written.path), "--format", "parquet"]) == 0
    )
    assert len(before["events"]) == 60
    assert all(
        frames(written.path)[table].equals(before[table])
        for table in TABLES
    )


def test_a_damaged_folder_is_not_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, _ = write_run(tmp_path, sample.flat())
    lines = (
        (written.path / "events.jsonl")
        .read_bytes()
        .splitlines(keepends=True)
    )
    (written.path / "events.jsonl").write_bytes(
        lines[0] + b"{}\n" + lines[1]
    )
    assert (
        main.run(
            ["report", str(written.path), "--format", "parquet", "--json"]
        )
        == 2
    )
    assert (
        "events.jsonl:2: damaged"
        in json.loads(capsys.readouterr().out)["error"]
    )
    assert not (written.path / "events.parquet").exists()


def test_numbers_no_table_can_hold_are_damage(tmp_path: Path) -> None:
    written, _ = write_run(tmp_path, sample.flat())
    text = (written.path / "events.jsonl").read_text("utf-8")
    text = text.replace('"seed":1,', f'"seed":{10**25},')
    (written.path / "events.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"events\.jsonl: damaged"):
        _ = testbed.open_run(written.path).events


def test_they_are_read_only_where_they_are_newer(tmp_path: Path) -> None:
    written, _ = write_run(tmp_path, sample.flat())
    before = frames(written.path)
    parquet_tables.write_parquet(written)
    jobs = written.path / "jobs.csv"
    jobs.write_text(
        jobs.read_text("utf-8").replace("finished", "killed"),
        encoding="utf-8",
    )
    os.utime(written.path / "jobs.parquet", (0, 0))
    assert set(frames(written.path)["jobs"]["outcome"]) != set(
        before["jobs"]["outcome"]
    )


def test_a_damaged_file_is_told_and_another_form_is_passed_by(
    tmp_path: Path,
) -> None:
    written, _ = write_run(tmp_path, sample.flat())
    before = frames(written.path)
    parquet_tables.write_parquet(written)
    stored = written.path / "jobs.parquet"
    pq.write_table(pq.read_table(stored).drop_columns(["value"]), stored)
    assert frames(written.path)["jobs"].equals(before["jobs"])
    stored.write_bytes(b"PAR1 nothing")
    with pytest.raises(BadInput, match=r"jobs\.parquet: damaged"):
        frames(written.path)


@pytest.mark.parametrize("name", ["outcome", "job_id"])
def test_text_that_is_none_is_told(tmp_path: Path, name: str) -> None:
    written, _ = write_run(tmp_path, sample.flat())
    parquet_tables.write_parquet(written)
    stored = written.path / "jobs.parquet"
    table = pq.read_table(stored)
    place = table.column_names.index(name)
    texts = pa.array([b"\xff"] * len(table))
    texts = texts.view(pa.string())
    pq.write_table(table.set_column(place, name, texts), stored)
    with pytest.raises(BadInput, match=r"jobs\.parquet: damaged"):
        frames(written.path)


def test_row_groups_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_tables, "ROWS", 50)
    written, _ = write_run(tmp_path, sample.main_example())
    before = frames(written.path)
    parquet_tables.write_parquet(written)
    stored = pq.ParquetFile(written.path / "events.parquet").metadata
    assert stored.num_rows == len(before["events"]) > 150
    sizes = [
        stored.row_group(i).num_rows for i in range(stored.num_row_groups)
    ]
    assert max(sizes) == 50
    assert all(
        frames(written.path)[table].equals(before[table])
        for table in TABLES
    )


def test_other_programs_read_them_without_our_types(tmp_path: Path) -> None:
    written, _ = write_run(tmp_path, sample.main_example())
    parquet_tables.write_parquet(written)
    for table, columns in TABLES.items():
        found = pq.read_schema(written.path / parquet_name(table))
        assert found.equals(schema(columns))
    import pandas as pd

    plain = pd.read_parquet(written.path / "jobs.parquet")
    assert list(plain["job_id"]) == list(
        frames(written.path)["jobs"]["job_id"]
    )


def test_they_belong_to_the_folders_owner_with_its_modes(
    tmp_path: Path,
) -> None:
    written, _ = write_run(tmp_path, sample.flat())
    for path in parquet_tables.write_parquet(RunFolder.open(written.path)):
        assert path.stat().st_mode & 0o777 == 0o644
        assert path.stat().st_uid == written.path.stat().st_uid


JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.integers(0, 9).map("{} s".format),
            "vms": st.integers(1, 8),
            "bandwidth": st.sampled_from(
                ["1 Mbit/s", "0.3 Gbit/s", "900 Mbit/s"]
            ),
            "duration": st.sampled_from(["1 s", "2.5 s", "1 min"]),
        },
        optional={
            "deadline": st.sampled_from(["90 s", "1 h"]),
            "application": st.sampled_from(["sort", "nothing", "a-b"]),
            "reward": st.floats(0, 100).map(lambda value: round(value, 3)),
        },
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@examples(30)
@given(
    JOBS,
    st.sampled_from(["vc", "bl", "dcloud", "dcloud-ts", "oktopus-batch"]),
    st.lists(st.integers(1, 3), min_size=1, max_size=2),
)
def test_parquet_equals_csv_and_events(
    tmp_path_factory: pytest.TempPathFactory,
    jobs: list[dict[str, Any]],
    policy: str,
    fanout: list[int],
) -> None:
    experiment = experiment_of(jobs, policy, fanout)
    folder = RunFolder.create(tmp_path_factory.mktemp("any"), "any", 1)
    with folder.open_events() as log:
        for event in dry_run(experiment, experiment.policies[0]):
            log(event)
    conclude(folder)
    before = testbed.open_run(folder.path)
    assert_equals_files(before)
    parquet_tables.write_parquet(folder)
    saved = {
        name: (folder.path / name).read_bytes()
        for name in ("jobs.csv", "links.csv")
    }
    events = (folder.path / "events.jsonl").read_bytes()
    without_sources(folder.path)
    after = testbed.open_run(folder.path)
    for table in TABLES:
        assert getattr(after, table).equals(getattr(before, table))
    for name, content in saved.items():
        (folder.path / name).write_bytes(content)
    (folder.path / "events.jsonl").write_bytes(events)
    for name in ("jobs.csv", "links.csv", *FILES):
        (folder.path / name).unlink()
    from_events = testbed.open_run(folder.path)
    for table in TABLES:
        assert getattr(from_events, table).equals(getattr(before, table))


def experiment_of(
    jobs: list[dict[str, Any]], policy: str, fanout: list[int]
) -> Experiment:
    """An experiment on four slots a server; jobs that are too large for it are made smaller."""
    servers = 1
    for count in fanout:
        servers *= count
    own = [
        {"id": f"job-{place}", **job, "vms": min(job["vms"], 4 * servers)}
        for place, job in enumerate(jobs)
    ]
    topology = {
        "kind": "tree", "fanout": fanout, "links": ["1 Gbit/s"] * len(fanout),
        "slots_per_server": 4,
    }  # fmt: skip
    workload = {"kind": "jobs", "jobs": own}
    values = {
        "topology": topology,
        "policies": [policy],
        "workload": workload,
    }
    text, problems = yaml_of(values, "experiment")
    assert not problems
    return parse_experiment(text, Path("experiment"))
