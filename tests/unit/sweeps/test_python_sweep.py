"""Sweeps from Python, and their pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import BadInput, MachineCannot
from testbed.spec.document import read_document
from testbed.spec.sweep_section import as_yaml, read_option
from testbed.sweeps.python_sweep import sweep
from testbed.sweeps.sweep_pictures import MOST_LINES, sweep_figure
from tests.support.dask_processes import ROOT
from tests.unit.sweeps.small_sweep import FILE, done, planned

QUEUE: dict[str, Any] = {
    "name": "queue",
    "topology": {"kind": "flat", "nodes": 16},
    "policies": ["fcfs", "easy"],
    "workload": {
        "kind": "exponential",
        "jobs": 12,
        "mean_vms": 4,
        "load": 0.7,
    },
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_mapping_and_a_file_are_the_same_sweep(tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(FILE)
    over = {"workload.load": [0.4, 0.8], "seed": range(1, 4)}
    first = sweep(QUEUE, over, out=tmp_path, processes=1)
    second = sweep(
        tmp_path / "queue.yaml",
        {**over, "seed": "1..3"},
        out=tmp_path,
        processes=1,
    )
    assert first.counts == {"computed": 12, "kept": 0, "failed": 0}
    assert second.counts == {"computed": 0, "kept": 12, "failed": 0}
    cells, table = first.cells, first.table
    assert cells["policy"].tolist() == (["fcfs"] * 3 + ["easy"] * 3) * 2
    assert table["workload.load"].tolist() == [0.4, 0.4, 0.8, 0.8]
    means = cells.groupby(["workload.load", "policy"], sort=False)[
        "response_mean_s"
    ].mean()
    assert table["response_mean_s"].tolist() == pytest.approx(
        means.tolist()
    )
    assert len(first.plot().axes) == 4


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_numpys_numbers_are_numbers(tmp_path: Path) -> None:
    over = {
        "workload.load": np.linspace(0.4, 0.8, 2),
        "seed": np.arange(1, 3),
    }
    workload = {**QUEUE["workload"], "jobs": np.int64(12)}
    first = sweep(
        {**QUEUE, "workload": workload}, over, out=tmp_path, processes=1
    )
    assert first.counts == {"computed": 8, "kept": 0, "failed": 0}
    plain = {"workload.load": [0.4, 0.8], "seed": [1, 2]}
    assert (
        sweep(QUEUE, plain, out=tmp_path, processes=1).counts["kept"] == 8
    )
    one = {"workload.load": np.float32(0.5), "seed": np.int64(2)}
    assert sweep(QUEUE, one, out=tmp_path, processes=1).cells[
        "seed"
    ].tolist() == [2, 2]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_fewer_seeds_where_they_are_enough(tmp_path: Path) -> None:
    found = sweep(QUEUE, {"seed": range(1, 40)}, stop=0.2, stop_metric="response_mean_s",
                  out=tmp_path, processes=1)  # fmt: skip
    assert found.table["needed"].tolist() == found.table["cells"].tolist()
    assert all(3 <= needed < 39 for needed in found.table["needed"])


@pytest.mark.usefixtures("undrawn")
def test_a_range_with_steps_is_written_as_its_values(
    tmp_path: Path,
) -> None:
    workload = {**QUEUE["workload"], "jobs": 2}
    over = {"seed": range(1, 6, 2), "workload.mean_vms": range(3, 1, -1)}
    one = {**QUEUE, "policies": ["fcfs"], "workload": workload}
    found = sweep(one, over, out=tmp_path, processes=1)
    asked = json.loads((found.folder / "sweep.json").read_text())
    assert asked["over"]["seed"] == [1, 3, 5]
    assert asked["over"]["workload.mean_vms"] == [3, 2]
    page = (found.folder / "report.html").read_text()
    assert "<dt>seed</dt><dd>1, 3, 5</dd>" in page


def test_live_cells_want_python_itself_to_be_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    live = {
        "name": "pair",
        "topology": {"kind": "tree", "fanout": [2, 2], "links": "1 Gbit/s", "slots_per_server": 2},
        "policies": ["simple-jsa"],
        "workload": {"kind": "jobs", "jobs": [
            {"id": "a", "vms": 2, "bandwidth": "10 Mbit/s", "duration": "6 s", "deadline": "60 s"},
        ]},
    }  # fmt: skip
    with pytest.raises(MachineCannot) as caught:
        sweep(live, {"seed": [1, 2]}, live=True, out=tmp_path)
    assert caught.value.hint == "start Python by sudo"


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"seed": []}, "over['seed'] has no values"),
        ({"seed": range(3, 3)}, "over['seed'] has no values"),
        (
            {"workload.lod": [0.4]},
            "over['workload.lod']: workload.lod: is an unknown key",
        ),
        ({"seed": "3..1"}, "ends before it begins"),
        ({}, "has no sweep: section"),
        ({"seed": [1, 1, 1]}, "over['seed']: seed: 1 is there twice"),
        (
            {"workload.load": [0.4, None]},
            "over['workload.load']: workload.load: has no value",
        ),
        (
            {"workload.load": None},
            "over['workload.load']: workload.load: has no value",
        ),
        (
            {"workload.load": [float("nan")]},
            "must be a value as a file can hold it, not nan",
        ),
        (
            {"workload.load": object()},
            "as a file can hold it, not an object of builtins.object",
        ),
        (
            {"workload.load": [object()]},
            "as a file can hold it, not an object of builtins.object",
        ),
    ],
)
def test_bad_values_are_one_sentence(
    over: Any, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as caught:
        sweep(QUEUE, over, out=tmp_path, processes=1)
    assert sentence in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "parts", [{"least": 5}, {"stop_metric": "response_mean_s"}]
)
def test_parts_of_a_stop_rule_need_its_share(
    parts: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="stop is missing"):
        sweep(QUEUE, {"seed": range(1, 4)}, out=tmp_path, **parts)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_the_least_number_of_seeds_replaces_that_of_the_file(
    tmp_path: Path,
) -> None:
    stops = {"interval": 1.0, "metric": "response_mean_s"}
    section = {"over": {"seed": "1..6"}, "stop": stops}
    swept = {**QUEUE, "policies": ["fcfs"], "sweep": section}
    done = sweep(swept, stop=1.0, least=5, out=tmp_path, processes=1)
    assert done.table["cells"].tolist() == [5]
    assert repr(done).startswith("<Sweep ")
    assert repr(done).endswith("1 not needed>")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"processes": -1}, "processes=-1 is no number of processes"),
        ({"processes": 1.5}, "processes=1.5 is no number of processes"),
        ({"cluster": 3}, "cluster=3 is no text"),
        ({"out": 3}, "out is a path, not int"),
        ({"progress": True}, "progress=True is no function"),
        ({"metrics": "wait_mean_s"}, "metrics='wait_mean_s' is no list"),
        ({"metrics": None}, "metrics=None is no list of names"),
        ({"over": "seed=1..3"}, "over='seed=1..3' is no mapping"),
        ({"over": {5: [1]}}, "a key is a text such as 'seed'"),
        ({"stop": "5%"}, "stop='5%' is no share of the mean"),
        ({"stop": 0.1, "least": 2.5}, "least=2.5 is no number of seeds"),
    ],
)
def test_arguments_of_the_wrong_type_are_one_sentence(
    arguments: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    usual = {"over": {"seed": range(1, 4)}, "out": tmp_path}
    keywords: dict[str, Any] = {**usual, **arguments}
    with pytest.raises(BadInput) as caught:
        sweep(QUEUE, **keywords)
    assert sentence in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_without_a_folder_it_is_made_where_runs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made: list[Path] = []
    monkeypatch.setattr(
        "testbed.sweeps.python_sweep.run_sweep",
        lambda _, options, *__: made.append(options.out),
    )
    sweep(QUEUE, {"seed": range(1, 4)}, out=None)
    assert made == [Path("runs")]


def test_two_policies_of_one_label_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="easy is there twice"):
        sweep(
            QUEUE,
            {"policies": ["easy", {"name": "easy"}], "seed": [1, 2]},
            out=tmp_path,
        )


@pytest.mark.parametrize("stop", [5.0, -0.1, float("nan")])
def test_a_stop_rule_is_a_share(stop: float, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no share of the mean") as caught:
        sweep(QUEUE, {"seed": range(1, 4)}, stop=stop, out=tmp_path)
    assert caught.value.hint == "write 5 % as stop=0.05"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("least", [-5, 0, 1, 1001])
def test_a_stop_rule_needs_two_seeds_at_least(
    least: int, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="seeds from 2 to 1,000"):
        sweep(
            QUEUE,
            {"seed": range(1, 4)},
            stop=0.1,
            least=least,
            out=tmp_path,
            processes=1,
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.short("options1", "options2", "options4")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "lines", "x"),
    [
        (("seed=1..3",), 1, "policy"),
        (("policies=easy", "seed=1..3"), 1, "policy"),
        (("workload.load=0.4,0.8", "seed=1..3"), 2, "workload.load"),
        (("policies=easy", "workload.load=0.4,0.8"), 1, "workload.load"),
        (("workload.load=0.4,0.8", "workload.jobs=6,12"), 4, "workload.load"),
        (("workload.mean_run_time=1 h,90 min",), 2, "workload.mean_run_time [h]"),
        (("embedder=oktopus,greedy",), 2, "embedder"),
        (("topology.nodes=8,9,10,11", "workload.load=0.4,0.8"), 4, "topology.nodes"),
    ],
)  # fmt: skip
def test_what_a_picture_shows(
    options: tuple[str, ...], lines: int, x: str, tmp_path: Path
) -> None:
    plan = planned(*options)
    found = done(plan, tmp_path)
    png = (found.folder / "sweep.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 20_000
    figure = sweep_figure(plan, found.rows)
    axes = figure.axes[2]
    # In minutes, as the means of these runs are of some minutes.
    assert axes.get_title(loc="left") == "Mean response [min]"
    shown = [
        bars for bars in axes.containers if bars.lines[0].get_xdata().size
    ]  # type: ignore[attr-defined]
    assert len(shown) == lines
    assert axes.get_xlabel() == x
    if x.endswith("[h]"):
        places = [float(at) for at in shown[0].lines[0].get_xdata()]  # type: ignore[attr-defined]
        assert places == pytest.approx([1, 1.5], abs=0.01)
    colours = {bars.lines[0].get_color() for bars in shown}  # type: ignore[attr-defined]
    assert len(colours) == min(lines, 2)
    first = [60 * float(y) for y in shown[0].lines[0].get_ydata()]  # type: ignore[attr-defined]
    mean_s = found.rows[0].estimates[2].mean
    assert any(seconds == pytest.approx(mean_s) for seconds in first)
    for bars, has in ((shown[0], "seed=1..3" in options),):
        (segments,) = bars.lines[2]  # type: ignore[attr-defined]
        heights = [
            abs(seg[1][1] - seg[0][1]) for seg in segments.get_segments()
        ]
        assert any(heights) is has


@pytest.mark.slow
def test_too_many_lines_are_counted_in_the_title(tmp_path: Path) -> None:
    loads = ",".join(
        str(round(0.3 + number / 50, 2)) for number in range(9)
    )
    plan = planned("workload.jobs=6,8", f"workload.load={loads}")
    found = done(plan, tmp_path)
    figure = sweep_figure(plan, found.rows)
    assert len(figure.axes[2].containers) == MOST_LINES == 14
    (legend,) = figure.legends
    title = legend.get_title().get_text()
    assert title.endswith("; 4 more lines in table.csv")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_script_is_not_run_again_in_its_worker_processes(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    over = '{"workload.load": [0.4, 0.8]}'
    script.write_text(
        f"import testbed\nprint('once')\nfound = testbed.sweep({QUEUE!r}, {over}, processes=2)\n"
        "print(found.counts, __name__)\nimport __main__\nassert __main__.found is found\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, check=False,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout.count("once")) == (0, 1), (
        done.stderr
    )
    assert "{'computed': 4, 'kept': 0, 'failed': 0} __main__" in done.stdout


def test_quantities_have_places_on_an_axis() -> None:
    for text, title, places in (
        ("k=500 Mbit/s,1 Gbit/s", "k [Mbit/s]", [500, 1000]),
        ("k=10/h,1/min", "k [/h]", [10, 60]),
        ("w.per_hour=10/h,1/min", "jobs an hour (w.per_hour)", [10, 60]),
        ("w.per_hour=1/min,10/h", "jobs a minute (w.per_hour)", [1, 1 / 6]),
        ("w.per_hour=10,20", "jobs an hour (w.per_hour)", [10, 20]),
        ("k=5 %,12 %", "k [%]", [5, 12]),
        ("k=90 s,1 h", "k [s]", [90, 3600]),
        ("k=1,2.5", "k", [1, 2.5]),
    ):
        axis = read_option(text).axis
        assert axis is not None
        assert axis.title == title
        assert list(axis.places.values()) == pytest.approx(places)
    for text in ("k=a,b", "k=1 s,1 Mbit/s", "k=1,1 s", "k=true,false"):
        assert read_option(text).axis is None


@pytest.mark.parametrize(
    "text",
    ["a\x7fb", "a\x85b", "a \u2028 b", "\ufeff", "é 𝄞", 'a "\\"\tb\n'],
)
def test_a_text_is_the_same_after_it_was_written(text: str) -> None:
    document = read_document(as_yaml([text]), "file")
    assert (document.data, document.problems) == ([text], [])
