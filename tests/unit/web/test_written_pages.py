"""Pages that verbs write, in a real Chromium: nothing is cut off on a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.labs.grading import Mark, write_tables
from testbed.record.folder import RunFolder
from tests.support.browser import Browser, browser

pytestmark = [pytest.mark.needs("browser"), pytest.mark.slow]

EXPERIMENT = """\
name: an-experiment-of-a-long-name
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, fcfs, dcloud]
workload:
  kind: jobs
  jobs:
    - {id: first, at: 0 s, vms: 6, bandwidth: 400 Mbit/s, duration: 60 s, deadline: 10 min}
    - {id: second-of-a-long-name, at: 10 s, vms: 4, bandwidth: 400 Mbit/s, duration: 60 s}
"""
CUT_OFF = """
const cut = [];
for (const part of document.querySelectorAll('table, svg, img, pre, p, h1, h2')) {
  let around = part;
  while (around && !['auto', 'scroll'].includes(getComputedStyle(around).overflowX))
    around = around.parentElement;
  if (around === null && part.getBoundingClientRect().right > innerWidth + 1)
    cut.push(part.tagName + ' ' + part.textContent.slice(0, 40));
}
if (document.documentElement.scrollWidth > innerWidth) cut.push('the page');
return cut;
"""
"""Parts beyond the window's edge that cannot be scrolled into it."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of a run, of its policies, of two runs, of a sweep, and of marks."""
    base = tmp_path_factory.mktemp("pages")
    file = base / "long.yaml"
    file.write_text(EXPERIMENT)
    out = ["--out", str(base / "runs")]
    assert run(["simulate", str(file), *out]) == 0
    (folder,) = (base / "runs").iterdir()
    compared = base / "compared.html"
    pair = [str(folder / policy) for policy in ("fcfs", "dcloud")]
    assert run(["compare", *pair, "--page", str(compared)]) == 0
    sweep = ["sweep", str(file), "--over", "seed=1..2", "--processes", "1"]
    assert run([*sweep, *out]) == 0
    (swept,) = (base / "runs").glob("*-sweep")
    marks = RunFolder(base / "marks")
    marks.make()
    student = "a-student-of-a-very-long-name@an-institute.example"
    problem = "the folder holds no lab: " + "its files are missing, " * 9
    write_tables(
        marks,
        "A class",
        [
            Mark(student, number, 8, problem=problem)
            for number in range(1, 9)
        ],
    )
    return [
        folder / "report.html",
        folder / "fcfs" / "report.html",
        compared,
        swept / "report.html",
        marks.path / "marks.html",
    ]


@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_is_cut_off(
    page: Browser, pages: list[Path], width: int
) -> None:
    page.look(width, dark=False)
    for path in pages:
        page.open(path.as_uri())
        assert page.script(CUT_OFF) == [], path
        assert page.errors() == []
