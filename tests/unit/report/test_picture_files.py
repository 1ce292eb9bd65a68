"""``testbed report --pictures``: every picture as SVG and PNG, its values as CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from testbed.cli.main import run
from testbed.errors import BadInput
from testbed.record.job_lives import Stretch
from testbed.record.metrics import JobRow
from testbed.record.reading import load_run
from testbed.record.server_use import ServerUse
from testbed.record.verdicts import stored_verdicts
from testbed.report.gantt import gantt_figure
from testbed.report.picture_files import picture_files, picture_folder
from testbed.report.pictures import pictures
from testbed.report.plot_style import figure
from testbed.report.server_rows import MAX_SERVERS, server_lanes
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run

PNG = b"\x89PNG\r\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path, sample.main_example(), FIG10)[0].path


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_each_picture_of_the_page_has_three_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "pictures"
    arguments = ["report", str(folder), "--pictures", str(to), "--json"]
    assert run(arguments) == 0
    listed = [item["file"] for item in json.loads(capsys.readouterr().out)]
    recorded = load_run(folder)
    kinds = {
        picture.kind
        for picture in pictures(recorded, stored_verdicts(recorded))
    }
    assert kinds == {"scaling", "gantt", "servers", "links"}
    expected = set()
    for kind in kinds:
        for ending in ("svg", "png", "csv"):
            expected.add(str(to / f"{kind}.{ending}"))
        assert (to / f"{kind}.png").read_bytes().startswith(PNG)
        tree = ElementTree.fromstring((to / f"{kind}.svg").read_text())  # noqa: S314
        assert tree.tag.endswith("svg")
    assert set(listed) == expected
    assert not (folder / "pictures").exists()


@pytest.mark.slow
def test_tables_have_the_values_of_jobs_csv(
    folder: Path, tmp_path: Path
) -> None:
    assert run(["report", str(folder), "--pictures", str(tmp_path)]) == 0
    jobs = {row["job_id"]: row for row in table(folder / "jobs.csv")}
    rows = table(tmp_path / "scaling.csv")
    assert len(rows) == 10
    for row in rows:
        job = jobs[row["job_id"]]
        ratio = float(row["measured_s"]) / float(row["estimate_s"])
        assert ratio == pytest.approx(float(row["ratio"]))
        for column in ("granted_bps", "estimate_s", "measured_s"):
            assert float(row[column]) == float(job[column])
    links = table(tmp_path / "links.csv")
    assert {row["link"] for row in links} <= {
        row["link"] for row in table(folder / "links.csv")
    }
    used_s = 0.0
    for row in table(tmp_path / "servers.csv"):
        length_s = float(row["end_s"]) - float(row["start_s"])
        used_s += int(row["n_slots"]) * length_s
    held_s = 0.0
    for job in jobs.values():
        length_s = float(job["end_s"]) - float(job["start_s"])
        held_s += int(job["n_vms"]) * length_s
    assert used_s == pytest.approx(held_s)


class NamedByAnother:
    """A picture with names from a run folder of another's."""

    def draw(self) -> Figure:
        with figure(2.0, 1.0) as made:
            return made

    def rows(self) -> list[list[object]]:
        return [["job_id", "end_s"], ["=1+1", -2.5], ["a\udcff", None]]


def test_a_name_is_no_formula(tmp_path: Path) -> None:
    to = picture_folder(tmp_path)
    picture_files(to, "x", NamedByAnother())
    text = (tmp_path / "x.csv").read_text("utf-8")
    assert text == "job_id,end_s\n'=1+1,-2.5\na\\udcff,\n"


def test_a_loop_of_links_is_no_folder(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(BadInput, match="cannot be made") as refused:
        picture_folder(loop)
    assert str(refused.value.hint).endswith("with --pictures")


@pytest.mark.parametrize("n", [6, 8])
def test_applications_that_share_a_colour_are_others_in_the_legend(
    folder: Path, n: int
) -> None:
    rows = []
    for number, row in enumerate(load_run(folder).rows[:n]):
        rows.append(replace(row, application=f"app {number}"))
    labels = legend_labels(rows, stretches(*rows))
    assert labels[:5] == [f"app {number} runs" for number in range(5)]
    assert labels[5] == ("app 5 runs" if n == 6 else "others run")
    assert labels[6] == "estimated end"


def stretches(*rows: JobRow) -> list[Stretch]:
    """Each job runs for a second."""
    return [Stretch(row.job_id, "running", 0.0, 1.0) for row in rows]


def legend_labels(
    rows: Sequence[JobRow], all_spans: Sequence[Stretch]
) -> list[str]:
    (axes,) = gantt_figure(rows, all_spans, 100.0).axes
    legend = axes.get_legend()
    if legend is None:
        return []
    return [text.get_text() for text in legend.get_texts()]


def test_a_legend_has_what_the_picture_shows_alone(folder: Path) -> None:
    runs, waits, rejected, killed = (
        replace(row, application="a", estimate_s=None, deadline_s=None)
        for row in load_run(folder).rows[:4]
    )
    assert legend_labels([runs], stretches(runs)) == ["a runs"]
    waiting = Stretch(waits.job_id, "waiting", 0.0, 1.0)
    nothing = Stretch(waits.job_id, "reserved", 1.0, 1.0)
    assert legend_labels([waits], [waiting, nothing]) == ["waits"]
    rejected = replace(rejected, outcome="rejected", start_s=None)
    killed = replace(killed, outcome="killed")
    assert legend_labels([rejected, killed], ()) == ["rejected", "killed"]
    due = replace(runs, deadline_s=9.0)
    assert legend_labels([due], ()) == ["deadline"]
    estimated = replace(runs, start_s=1.0, estimate_s=9.0)
    assert legend_labels([estimated], ()) == ["estimated end"]
    later = replace(estimated, estimate_s=200.0)
    assert legend_labels([later], ()) == []


def test_of_many_servers_the_busiest_are_shown() -> None:
    uses = []
    for server in range(100):
        uses.append(
            ServerUse(
                f"job {server}",
                server,
                1,
                "foreground",
                0.0,
                1.0 + server,
                "ended",
            )
        )
    shown = server_lanes(uses)
    assert list(shown.lanes) == list(range(100 - MAX_SERVERS, 100))
    assert shown.n_used == 100
