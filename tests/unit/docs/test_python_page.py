"""docs/python.md: its snippets run, it names all that is public, its types are the frames'."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import testbed
from testbed.record.columns import (
    EVENT_TABLE,
    JOBS,
    LINKS,
    SUMMARY,
    Columns,
)

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "python.md").read_text("utf-8")
FRAMES: dict[str, Columns] = {
    "jobs": JOBS, "links": LINKS, "events": EVENT_TABLE, "summary": SUMMARY,
}  # fmt: skip
WORDS = {"json": "string, of JSON"}


def test_every_public_name_has_a_row() -> None:
    rows = re.findall(
        r"^\| (`[^|]+) \|", PAGE.split("## Load", 1)[0], re.MULTILINE
    )
    named = {
        name for row in rows for name in re.findall(r"`(\w+)[^`]*`", row)
    }
    assert named == set(testbed.__all__)


def test_the_table_of_types_is_the_frames() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([\w, ]+) \| (`.*`) \|$", PAGE, re.MULTILINE
    )
    shown = {
        (frame, kind): re.findall(r"`([\w.]+)`", columns)
        for frame, kind, columns in rows
        if frame in FRAMES
    }
    wanted: dict[tuple[str, str], list[str]] = {}
    for frame, columns in FRAMES.items():
        for name, kind in columns.items():
            wanted.setdefault((frame, WORDS.get(kind, kind)), []).append(
                name
            )
    assert shown == wanted


@pytest.mark.slow
def test_the_snippets_run_one_after_another(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = re.search(
        r"```yaml\n(.*?)```",
        (DOCS / "start.md").read_text("utf-8"),
        re.DOTALL,
    )
    assert found is not None
    (tmp_path / "two-jobs.yaml").write_text(
        found.group(1), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "python.md", "exec"), names)  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    assert "('vc', 'fcfs') 4 servers" in printed
    assert "7 8 ('easy',)" in printed
    assert "policies[0]: unknown policy 'vcc'" in printed
    assert "seed=x: seed: must be a whole number" in printed
    assert "('gantt', 'servers', 'links')" in printed
    assert "\nTrue\n50.0\n" in printed
    assert "12 cells" in printed
    assert (tmp_path / "jobs.svg").is_file()
