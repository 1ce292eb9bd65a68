"""A run as an object: frames with their types, equal to the files; verdicts, pictures, damage."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import testbed
from testbed.cli import main
from testbed.errors import BadInput
from testbed.events import EVENTS
from testbed.record.columns import (
    EVENT_TABLE,
    JOBS,
    LINKS,
    SUMMARY,
    Columns,
)
from testbed.record.conclusion import conclude_all
from testbed.record.frames import dtype_of
from tests.support.undrawn import nothing_drawn
from tests.unit.interface.given import (
    SMALL,
    by_command,
    csv_rows,
    event_records,
)
from tests.unit.record import sample
from tests.unit.record.written import write_run

FRAMES: dict[str, Columns] = {
    "jobs": JOBS, "links": LINKS, "events": EVENT_TABLE, "summary": SUMMARY,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies of a small experiment, as the command left them."""
    with nothing_drawn():
        return by_command(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def run(folder: Path) -> testbed.Run:
    return testbed.open_run(folder)


def assert_typed(run: testbed.Run) -> None:
    for name, columns in FRAMES.items():
        wanted = {
            column: dtype_of(column, kind)
            for column, kind in columns.items()
        }
        frame: pd.DataFrame = getattr(run, name)
        assert dict(frame.dtypes) == wanted, name
        assert list(frame.columns) == list(wanted), name


def text_of(value: Any) -> str:
    """A frame's value as a CSV file has it."""
    if value is pd.NA or value is None or value != value:  # noqa: PLR0124 - a category's NaN
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def assert_equals_csv(
    frame: pd.DataFrame, rows: list[dict[str, str]]
) -> None:
    shown = frame.to_dict("records")
    assert len(shown) == len(rows)
    for one, row in zip(shown, rows, strict=True):
        assert {name: text_of(one[name]) for name in row} == {
            name: text_of(float(text))
            if isinstance(one[name], float) and text
            else text
            for name, text in row.items()
        }


def assert_equals_files(run: testbed.Run) -> None:
    """Every cell of every frame by Python's own CSV and JSON."""
    (label,) = run.policies
    assert_equals_csv(run.jobs, csv_rows(run.folder / "jobs.csv"))
    assert_equals_csv(run.links, csv_rows(run.folder / "links.csv"))
    assert set(run.links["policy"]) <= {label}
    records = event_records(run.folder / "events.jsonl")
    shown = run.events.to_dict("records")
    assert len(shown) == len(records)
    for row, record in zip(shown, records, strict=True):
        for name, kind in EVENT_TABLE.items():
            if name == "policy":
                assert row[name] == label
            elif name == "job_id" and record["event"] == "job_submitted":
                assert row[name] == record["job"]["id"]
            elif record.get(name) is None:
                assert pd.isna(row[name]), (name, row, record)
            else:
                found = (
                    json.loads(row[name]) if kind == "json" else row[name]
                )
                assert found == record[name]


@pytest.mark.slow
def test_frames_have_their_types(run: testbed.Run) -> None:
    assert_typed(run)
    assert list(run.jobs["outcome"].cat.categories) == [
        "finished", "rejected", "killed", "unfinished",
    ]  # fmt: skip
    assert list(run.events["event"].cat.categories) == list(EVENTS)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_frames_say_what_the_files_say(run: testbed.Run) -> None:
    for policy in run.policies:
        assert_equals_files(run[policy])


def test_all_policies_are_in_one_frame_in_the_files_order(
    run: testbed.Run,
) -> None:
    assert run.policies == ("vc", "dcloud-gamma=0.12")
    for frame in (run.jobs, run.links, run.events, run.summary):
        assert tuple(frame["policy"].unique()) == run.policies
    parts = [run[policy].jobs for policy in run.policies]
    assert pd.concat(parts, ignore_index=True).equals(run.jobs)


def test_the_summary_is_summary_json(run: testbed.Run) -> None:
    stored = json.loads((run.folder / "summary.json").read_text("utf-8"))
    for row, record in zip(
        run.summary.to_dict("records"), stored, strict=True
    ):
        for name, kind in SUMMARY.items():
            value: Any = record
            for part in name.split("."):
                value = None if value is None else value[part]
            found = row[name]
            if value is None:
                assert pd.isna(found), name
            else:
                assert (
                    json.loads(found) if kind == "json" else found
                ) == value, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "stream",
    [sample.main_example, sample.eventful, sample.leases, sample.two_tiers],
)
def test_live_and_eventful_runs(
    tmp_path: Path, stream: Callable[[], list[testbed.events.Event]]
) -> None:
    written, results = write_run(tmp_path, stream())
    run = testbed.open_run(written.path)
    assert_typed(run)
    assert_equals_files(run)
    assert run.summary["jobs"][0] == results.summary.jobs
    assert run.links["sent_bps"].notna().any() == (
        run.summary["backend"][0] != "sim"
    )


def test_an_empty_run_has_the_same_types(tmp_path: Path) -> None:
    first, last = sample.flat()[0], sample.flat()[-1]
    written, _ = write_run(tmp_path, [first, last])
    run = testbed.open_run(written.path)
    assert_typed(run)
    assert (len(run.jobs), len(run.links), len(run.events)) == (0, 0, 2)
    assert run.pictures == ()
    with pytest.raises(BadInput, match="unknown picture ''; known: none"):
        run.plot()


def test_one_policy_by_its_label_or_folder(run: testbed.Run) -> None:
    one = run["dcloud-gamma=0.12"]
    assert one.policies == ("dcloud-gamma=0.12",)
    assert run[one.folder.name].folder == one.folder
    assert list(run) == list(run.policies)
    assert len(run) == len(run.policies)
    assert "dcloud-gamma=0.12" in run
    assert "nobody" not in run
    assert one["dcloud-gamma=0.12"].folder == one.folder
    with pytest.raises(
        BadInput,
        match=r"unknown policy 'dcloud'.*; known: vc, dcloud-gamma=0\.12",
    ):
        run["dcloud"]


def test_verdicts_are_the_commands(
    folder: Path, run: testbed.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.good
    assert run.sentences() == [
        line for policy in run.policies for line in (
            f"{policy}: audit: passed",
            f"{policy}: report: {run[policy].folder / 'report.html'}",
        )
    ]  # fmt: skip
    assert run["vc"].sentences()[0] == "audit: passed"
    assert main.run(["audit", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (
        json.loads(json.dumps([one.to_json() for one in run.audit()]))
        == shown
    )
    assert main.run(["explain", str(folder), "1.5", "--json"]) == 0
    by_name = sorted(
        json.loads(capsys.readouterr().out),
        key=lambda one: one["policy"] != "vc",
    )
    assert (
        json.loads(
            json.dumps([one.to_json() for one in run.explain("1.5")])
        )
        == by_name
    )
    with pytest.raises(BadInput, match="no job"):
        run.explain("nobody")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_run_outside_its_band_is_not_good(tmp_path: Path) -> None:
    expect = {"estimate_ratio": {"min": 3}}
    played = testbed.load(SMALL, policies=["vc"], expect=expect).simulate(
        tmp_path
    )
    again = testbed.open_run(played.folder)
    assert (played.good, again.good) == (False, False)
    assert played.sentences() == again.sentences()
    assert "outside what was expected" in played.sentences()[0]
    assert not played.summary["expectations.met"][0]


@pytest.mark.slow
def test_pictures_are_those_of_the_page(run: testbed.Run) -> None:
    from matplotlib.figure import Figure

    assert run.pictures == ("gantt", "servers", "links")
    one = run["vc"]
    drawn = one.plot("links")
    assert isinstance(drawn, Figure)
    assert {axes.get_title(loc="left")[:6] for axes in drawn.axes} == {
        "server"
    }
    (lanes,) = one.plot().axes
    assert [label.get_text() for label in lanes.get_yticklabels()] == list(
        one.jobs["job_id"]
    )
    assert one.plot()._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    with pytest.raises(
        BadInput, match=r"unknown picture 'gant' \(did you mean 'gantt'\?\)"
    ):
        one.plot("gant")
    with pytest.raises(
        BadInput, match="one policy, this run has 2"
    ) as caught:
        run.plot("links")
    assert caught.value.hint == 'run["vc"].plot()'


def test_a_notebook_shows_a_small_table_without_anybodys_html(
    tmp_path: Path,
) -> None:
    stream = sample.flat()
    object.__setattr__(stream[0], "policy", "<script>vc</script>")
    written, _ = write_run(tmp_path, stream)
    shown = testbed.open_run(written.path)._repr_html_()
    assert "<td>&lt;script&gt;vc&lt;/script&gt;</td>" in shown
    assert "<script>" not in shown
    assert shown.count("<tr>") == 2


@pytest.mark.slow
def test_its_report(run: testbed.Run) -> None:
    page = run.report
    assert page == run.folder / "report.html"
    assert "vc" in page.read_text("utf-8")
    assert run["vc"].report.parent.name == "vc"


# -- folders that are not whole


def copied(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder / "vc", tmp_path / "vc")


@pytest.mark.slow
def test_a_killed_run_is_read_as_far_as_it_came(
    folder: Path, tmp_path: Path
) -> None:
    path = copied(folder, tmp_path)
    whole = testbed.open_run(path)
    frames = whole.jobs, whole.links
    for name in ("jobs.csv", "links.csv", "summary.json", "report.html"):
        (path / name).unlink()
    again = testbed.open_run(path)
    assert again.jobs.equals(frames[0])
    assert again.links.equals(frames[1])
    lines = (path / "events.jsonl").read_bytes().splitlines(keepends=True)
    (path / "events.jsonl").write_bytes(
        b"".join(lines[:-2]) + lines[-2][:20]
    )
    cut = testbed.open_run(path)
    assert_typed(cut)
    assert list(cut.summary["status"]) == ["interrupted"]
    assert "unfinished" in set(cut.jobs["outcome"])
    assert len(cut.events) == len(lines) - 2
    assert cut.plot("gantt").axes


def commands_words(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    assert main.run([*arguments, "--json"]) == 2
    return str(json.loads(capsys.readouterr().out)["error"])


@pytest.mark.parametrize(
    "damage", [b'{"t": 1}\n', b"\xff\n", b'{"t":0.0,"event":"nothing"}\n']
)
def test_damaged_events_are_told_as_by_the_commands(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: bytes,
) -> None:
    path = copied(folder, tmp_path)
    lines = (path / "events.jsonl").read_bytes().splitlines(keepends=True)
    (path / "events.jsonl").write_bytes(
        b"".join([*lines[:3], damage, *lines[3:]])
    )
    words = commands_words(capsys, "explain", str(path), "no")
    run = testbed.open_run(path)
    for read in (
        lambda: run.events,
        lambda: run.good,
        run.plot,
        lambda: run.explain("a"),
    ):
        with pytest.raises(BadInput) as caught:
            read()
        assert caught.value.message == words
    assert f"{path / 'events.jsonl'}:4: damaged" in words


@pytest.mark.parametrize("name", ["", "nowhere", "vc/jobs.csv"])
def test_what_is_no_run_folder(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    copied(folder, tmp_path)
    (tmp_path / "vc" / "events.jsonl").unlink()
    path = tmp_path / name
    with pytest.raises(BadInput) as caught:
        testbed.open_run(path)
    assert caught.value.message == commands_words(
        capsys, "audit", str(path)
    )


def test_a_run_killed_before_it_began(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").touch()
    with pytest.raises(
        BadInput,
        match=r"events\.jsonl is empty: that run was killed before",
    ):
        testbed.open_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new", "where"),
    [
        ("jobs.csv", b"finished", b"ended", "outcome is 'ended'"),
        ("jobs.csv", b",3,", b",three,", "invalid value 'three'"),
        ("jobs.csv", b"vc", b"\xff", "jobs.csv: damaged"),
        ("links.csv", b"server", b'"server', "links.csv: damaged"),
        (
            "summary.json",
            b'"finished": 2',
            b'"finished": "2 of 3"',
            "summary.json: damaged",
        ),
        (
            "summary.json",
            b'"finished": 2',
            b'"finished": 20000000000000000000',
            "summary.json: damaged",
        ),
        (
            "summary.json",
            b'"finished": 2',
            b'"finished": ',
            "summary.json:",
        ),
    ],
)
def test_damaged_tables(
    folder: Path,
    tmp_path: Path,
    name: str,
    old: bytes,
    new: bytes,
    where: str,
) -> None:
    path = copied(folder, tmp_path)
    whole = (path / name).read_bytes()
    assert old in whole
    (path / name).write_bytes(whole.replace(old, new, 1))
    with pytest.raises(BadInput, match=where) as caught:
        getattr(testbed.open_run(path), name.split(".", maxsplit=1)[0])
    assert "run again" in (caught.value.hint or "")


def test_a_table_without_lines_it_had_is_no_table(
    folder: Path, tmp_path: Path
) -> None:
    path = copied(folder, tmp_path)
    for content in (b"", b"a,b\n1,2\n"):
        (path / "jobs.csv").write_bytes(content)
        with pytest.raises(BadInput, match=r"jobs\.csv: damaged"):
            _ = testbed.open_run(path).jobs


def test_policies_of_a_damaged_list_are_by_name(
    folder: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(folder, tmp_path / "run")
    (path / "summary.json").write_text('{"no": "list"}', encoding="utf-8")
    assert testbed.open_run(path).policies == ("dcloud-gamma=0.12", "vc")


def test_the_same_policy_twice(tmp_path: Path) -> None:
    written, one = write_run(tmp_path, sample.flat())
    for name in ("events.jsonl", "jobs.csv", "links.csv", "summary.json"):
        (written.path / name).unlink()
    results = [
        write_run(written, sample.flat(), name="vc")[1] for _ in range(2)
    ]
    conclude_all(written, results)
    run = testbed.open_run(written.path)
    label = one.summary.policy
    assert run.policies == (label, label)
    assert len(run.jobs) == 2 * len(one.rows)
    assert run["vc-2"].folder.name == "vc-2"
    assert run[label].folder.name == "vc"


def test_a_folder_by_any_spelling(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    relative = testbed.open_run(folder.name)
    monkeypatch.chdir("/")
    assert relative.folder == folder
    assert len(relative.jobs) == 6
    assert repr(testbed.open_run(os.fsencode(folder).decode())).startswith(
        "<Run 2"
    )
