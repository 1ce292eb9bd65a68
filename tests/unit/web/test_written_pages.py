"""Pages that verbs write, in a real Chromium: nothing is cut off on a telephone
or on paper, and axe-core finds no violation, light and dark.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.labs.grading import Mark, write_tables
from testbed.policy_trials.standing_pictures import standing_picture
from testbed.record.folder import RunFolder
from testbed.report.page import rendered
from tests.support.browser import Browser, browser
from tests.unit.policy_trials.test_standing_pictures import STANDING

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
A4_POINTS = (595.3, 841.9)
A4_PIXELS = 680
"""Width between margins of 15 mm, at 96 pixels an inch."""
PASSED = {
    "layer": "unit",
    "check": "it adds",
    "points": 8,
    "earned": 8,
    "verdict": "passed",
    "sentence": "it adds",
    "margins": [],
    "printed": "",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of a run, its policies, two runs, a sweep, marks, and a policy's check."""
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
            Mark(student, 1, 8, (PASSED,)),
            *(
                Mark(student, number, 8, problem=problem)
                for number in range(2, 9)
            ),
        ],
    )
    checked = base / "checked.html"
    row = ["a-policy-of-a-long-name", "1,234", "12.34 % ± 0.12 %"]
    standing = {
        "title": "a batch",
        "caption": "Means over seeds 1 to 3.",
        "rows": [row],
        "picture": standing_picture(STANDING, 1),
    }
    checked.write_text(
        rendered(
            "policy_check",
            policy="a-policy-of-a-long-name",
            seed=1,
            mood="good",
            sentences=["No check failed."],
            findings=[],
            standings=[standing],
            columns=["finished", "success"],
        ),
        "utf-8",
    )
    return [
        folder / "report.html",
        folder / "fcfs" / "report.html",
        compared,
        swept / "report.html",
        marks.path / "marks.html",
        checked,
    ]


@pytest.mark.short("400-light", "1280-dark")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_cut_off_or_violates_axe(
    page: Browser, pages: list[Path], width: int, dark: bool
) -> None:
    page.look(width, dark=dark)
    for path in pages:
        page.open(path.as_uri())
        assert page.script(CUT_OFF) == [], path
        assert page.errors() == []
        assert page.violations() == [], path


def test_they_print_on_a4(page: Browser, pages: list[Path]) -> None:
    page.look(A4_PIXELS, dark=False)
    command = page.driver.execute_cdp_cmd
    for path in pages:
        page.open(path.as_uri())
        command("Emulation.setEmulatedMedia", {"media": "print"})
        assert page.script(CUT_OFF) == [], path
        command("Emulation.setEmulatedMedia", {"media": ""})
        printed = command("Page.printToPDF", {"preferCSSPageSize": True})
        document = base64.b64decode(printed["data"])
        sizes = set(
            re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", document)
        )
        assert sizes, path
        for width, height in sizes:
            assert float(width) == pytest.approx(A4_POINTS[0], abs=1)
            assert float(height) == pytest.approx(A4_POINTS[1], abs=1)
