"""A sweep on the page: on its way, at its end, and damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.cli.main import run
from testbed.errors import BadInput
from testbed.record.running import start_ticks
from testbed.sweeps import table_so_far
from testbed.sweeps.table_so_far import (
    TableSoFar,
    TableWriter,
    read_table,
    table_file,
    tables_below,
)
from testbed.web.followed_sweep import FollowedSweep

EXPERIMENT = """\
name: small
seed: 1
topology: {kind: flat, nodes: 8}
policies: [fcfs, easy]
workload: {kind: exponential, jobs: 12, mean_vms: 3, load: 0.8}
"""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[TableSoFar]:
    """All tables that a sweep writes on its way, each cell's at once."""
    tables = []
    monkeypatch.setattr(table_so_far, "EVERY_S", 0.0)
    write = TableWriter._write

    def noted(writer: TableWriter) -> None:
        write(writer)
        table = read_table(table_file(writer._folder.path))
        assert table is not None
        assert table.lives
        assert tables_below(writer._folder.path)
        tables.append(table)

    monkeypatch.setattr(TableWriter, "_write", noted)
    return tables


@pytest.fixture
def swept(tmp_path: Path, written: list[TableSoFar]) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(EXPERIMENT)
    out = tmp_path / "runs"
    sweep = ["sweep", str(file), "--over", "seed=1..3", "--processes", "1"]
    assert run([*sweep, "--out", str(out)]) == 0
    return out


@pytest.mark.slow
def test_the_table_grows_cell_by_cell(
    swept: Path, written: list[TableSoFar]
) -> None:
    counts = [table.computed for table in written]
    assert counts == list(range(7))
    assert [len(table.rows) for table in written][-1] == 2
    assert {table.asked for table in written} == {6}
    assert list(swept.glob(".sweep-*")) == []


@pytest.mark.slow
def test_at_its_end_it_has_the_folders_table(
    swept: Path, written: list[TableSoFar]
) -> None:
    (folder,) = swept.glob("*-sweep")
    followed = FollowedSweep(folder)
    assert followed.status == "finished"
    sweep = followed.frame()["sweep"]
    last = written[-1]
    place = last.columns.index("cells")
    so_far = []
    for row in last.rows:
        so_far.append([*row[:place], *row[place + 1 :]])
    assert sorted(sweep["rows"]) == sorted(so_far)
    assert sweep["asked"] == sweep["computed"] == 6


@pytest.mark.slow
def test_it_is_followed_from_before_it_begins_to_its_end(
    swept: Path, written: list[TableSoFar], tmp_path: Path
) -> None:
    out = tmp_path / "elsewhere"
    out.mkdir()
    file = table_file(out)
    followed = FollowedSweep(file)
    followed._began_unix_s = 0.0
    assert not followed.refresh()
    assert followed.status == "waiting"
    (finished,) = swept.glob("*-sweep")
    living = replace(written[3], start_ticks=start_ticks(written[3].pid))
    table_so_far.RunFolder(out).write_json(
        file.name, table_so_far.asdict(living)
    )
    assert followed.refresh()
    assert followed.status == "live"
    assert followed.header()["name"] == "small"
    assert not followed.refresh()
    file.unlink()
    assert not followed.refresh()
    finished.rename(out / finished.name)
    assert followed.refresh()
    assert followed.ended
    assert followed.frame()["sweep"]["computed"] == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder", "ends"),
    [
        ("load-", "20261120T141500Z-load-sweep", True),
        ("a b", "20261120T141500Z-a-b-sweep-2", True),
        ("a", "20261120T141500Z-a-sweeper-sweep", False),
    ],
)
def test_its_own_folder_ends_it_whatever_its_name(
    swept: Path,
    written: list[TableSoFar],
    tmp_path: Path,
    name: str,
    folder: str,
    *,
    ends: bool,
) -> None:
    out = tmp_path / "elsewhere"
    out.mkdir()
    file = table_file(out)
    living = replace(
        written[3], name=name, start_ticks=start_ticks(written[3].pid)
    )
    table_so_far.RunFolder(out).write_json(
        file.name, table_so_far.asdict(living)
    )
    followed = FollowedSweep(file)
    followed._began_unix_s = 0.0
    assert followed.refresh()
    file.unlink()
    (finished,) = swept.glob("*-sweep")
    finished.rename(out / folder)
    assert followed.refresh() is ends
    assert followed.trouble == ""


@pytest.mark.slow
def test_a_process_that_ended_without_a_folder_is_told(
    swept: Path, written: list[TableSoFar], tmp_path: Path
) -> None:
    file = table_file(tmp_path)
    ended = replace(written[3], start_ticks=1)
    table_so_far.RunFolder(tmp_path).write_json(
        file.name, table_so_far.asdict(ended)
    )
    followed = FollowedSweep(file)
    followed.refresh()
    assert followed.status == "interrupted"
    assert tables_below(tmp_path) == []


@pytest.mark.slow
def test_a_damaged_folder_is_told(swept: Path) -> None:
    (folder,) = swept.glob("*-sweep")
    (folder / "table.csv").write_text("nothing\n1\n")
    followed = FollowedSweep(folder)
    assert followed.status == "damaged"
    assert "table.csv" in followed.trouble
    with pytest.raises(BadInput):
        followed.item("job", "a")


def test_a_folder_without_its_table_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"cells": {}}')
    followed = FollowedSweep(tmp_path)
    assert followed.status == "damaged"
    assert "table.csv: No such file" in followed.trouble


def test_a_folder_that_is_removed_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "20261120T141500Z-small-sweep").mkdir()
    followed = FollowedSweep(table_file(tmp_path))
    followed._table = cast("Any", SimpleNamespace(name="small", lives=True))
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    assert not followed.refresh()
    assert followed.status == "live"


def test_without_a_sweep_on_its_way_watching_one_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["watch", "sweep"]) == 2
    assert "no sweep is on its way" in capsys.readouterr().err
