"""The table of programs of others says what the values beside it say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reproductions.generated_text import updated
from reproductions.scaling_page import (
    BEGIN,
    PAGE,
    PICTURE,
    VALUES,
    generated_part,
    merged,
    picture,
    take_in,
)
from testbed.record.provenance import unsound_commit
from tests.support.history import require_history

ROOT = Path(__file__).parents[3]


def measured(name: str, ratio: float) -> dict[str, Any]:
    point = {
        "bandwidth_bps": 150e6,
        "ratio": ratio,
        "ratio_half_width": 0.1,
        "network_share": 0.5,
        "traffic_at_b": {"use": 0.25},
        "verdict": "holds",
        "reason": "computes: used 25 % of b",
    }
    return {
        "application": name,
        "bandwidth_bps": 750e6,
        "profiled_s": 2.0,
        "profiled_half_width_s": None,
        "points": [point],
    }


def sweep(
    out: Path, name: str, ratio: float, *, dirty: bool = False
) -> None:
    folder = out / name
    folder.mkdir(parents=True)
    results = {
        "applications": [measured(f"program-{ratio}", ratio)],
        "fidelity": ["ok", "suspect"],
    }
    record = {
        "written": "2026-11-29",
        "code": {"commit": "0123456789", "dirty": dirty},
    }
    (folder / "scaling.json").write_text(json.dumps(results))
    (folder / "provenance.json").write_text(json.dumps(record))


def test_the_newest_of_each_file_is_taken_and_the_nearest_to_the_rule_is_first(
    tmp_path: Path,
) -> None:
    sweep(tmp_path, "20261129T01Z-wild-a-scaling-sweep", 0.1)
    sweep(tmp_path, "20261129T02Z-wild-a-scaling-sweep", 0.2)
    sweep(tmp_path, "20261129T03Z-wild-b-scaling-sweep", 0.9)
    # Of several files: it measures nothing of its own.
    sweep(tmp_path, "20261129T04Z-scaling-sweep", 0.9)
    for run in "123":
        run_name = f"20261129T0{run}Z-wild-a-scaling-s1"
        folder = tmp_path / ".cells" / "runs" / "c" / run_name
        folder.mkdir(parents=True)
        status = "interrupted" if run == "3" else "completed"
        summary = json.dumps({"status": status})
        (folder / "summary.json").write_text(summary)
    assert generated_part(take_in(tmp_path)).splitlines() == [
        "| program | p [s] | b' [Mbit/s] | ratio | bound | network | u | line | reason |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| `program-0.9` | 2.000 | 150 | 0.900 ± 0.100 | holds | 50 % | 25 % | 0.40 | computes |",
        "| `program-0.2` | 2.000 | 150 | 0.200 ± 0.100 | holds | 50 % | 25 % | 0.40 | computes |",
        "",
        "| file | fidelity of its repetitions | runs | commit |",
        "| --- | --- | --- | --- |",
        "| `wild-a.yaml` | ok, suspect | 2 | 01234567 |",
        "| `wild-b.yaml` | ok, suspect | 0 | 01234567 |",
    ]


def test_results_of_uncommitted_code_are_refused(tmp_path: Path) -> None:
    sweep(tmp_path, "20261129T01Z-a-scaling-sweep", 0.1, dirty=True)
    with pytest.raises(ValueError, match="uncommitted"):
        take_in(tmp_path)


def test_values_of_files_that_were_not_measured_again_stay() -> None:
    stored = [{"file": "b", "runs": 1}, {"file": "a", "runs": 1}]
    taken = [{"file": "b", "runs": 2}, {"file": "c", "runs": 2}]
    assert merged(stored, taken) == [
        {"file": "a", "runs": 1},
        {"file": "b", "runs": 2},
        {"file": "c", "runs": 2},
    ]


def test_the_picture_names_all_programs_whose_traffic_was_counted() -> None:
    values = json.loads((ROOT / VALUES).read_text("utf-8"))
    drawn = picture(values).decode("utf-8")
    stored = (ROOT / PICTURE).read_text("utf-8")
    for file in values:
        for application in file["applications"]:
            counted = application["points"][0]["traffic_at_b"] is not None
            label = f">{application['application']}<"
            assert (label in drawn) == counted, label
            assert (label in stored) == counted, label


def test_the_page_has_the_table_of_the_stored_values() -> None:
    values = json.loads((ROOT / VALUES).read_text("utf-8"))
    text = (ROOT / PAGE).read_text("utf-8")
    assert updated(text, generated_part(values), BEGIN) == text


@pytest.mark.slow
def test_stored_values_were_taken_by_code_of_this_history() -> None:
    require_history(ROOT)
    for file in json.loads((ROOT / VALUES).read_text("utf-8")):
        state = {"commit": file["commit"], "dirty": False}
        assert unsound_commit(state) == "", file["file"]
