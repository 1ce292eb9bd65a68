"""The labs on the live network: each page as it would be typed, marks repeated, wrong answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.lab_marks import (
    least_margin,
    live_rounds,
    live_wrong_answers,
    noise,
)
from testbed.labs.lab_catalogue import Lab, labs
from tests.emu.test_transcript import Shell, blocks, same_words, shell  # noqa: F401 - a fixture
from tests.emu.test_up import machine

WRITTEN = "<!-- the answer is written -->"
LABS = pytest.mark.parametrize(
    "lab", labs(), ids=lambda lab: f"{lab.number:02}-{lab.name}"
)


@pytest.mark.short("02-")
@LABS
def test_the_page_as_it_would_be_typed(
    lab: Lab,
    shell: Shell,  # noqa: F811
    prefix: str,
) -> None:
    page = lab.path("page.md").read_text("utf-8")
    assert page.count(WRITTEN) == 1
    before, folder = (
        machine(prefix),
        shell.folder / f"lab-{lab.number:02}-{lab.name}",
    )
    # A student's own controller runs unprivileged, and reads what is in the folder.
    for part in (shell.folder, *shell.folder.parents[:-2]):
        part.chmod(part.stat().st_mode | 0o011)
    for part in page.split(WRITTEN):
        if folder.is_dir():
            shutil.copytree(
                lab.path("solution"), folder, dirs_exist_ok=True
            )
            folder.chmod(
                0o755
            )  # a grading keeps the solution's folder to its owner
        for block in blocks(part):
            for one in block:
                code, text = shell.type(one.line)
                assert code == one.exit_code, f"{one.line}\n{text}"
                assert same_words(one.shown, text), f"{one.line}\n{text}"
    assert f"sudo testbed lab check {lab.number}" in page
    assert machine(prefix) == before


@pytest.mark.long
@LABS
@pytest.mark.timeout(900)
def test_live_marks_are_the_same_on_a_busy_machine(
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Five times: once by the page's last command, the others here."""
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path / "state"))
    with noise():
        rounds, found = live_rounds(lab, 4, live_wrong_answers(lab))
    wrong = [
        f"{one.check}: {one.sentence}"
        for each in rounds
        for one in each
        if not one.earned
    ]
    assert not wrong, "\n".join(wrong)
    seen = {
        answer.name: (outcome.verdict, outcome.check)
        for answer, outcome in found
    }
    assert seen == {
        one.name: ("failed", one.fails) for one in live_wrong_answers(lab)
    }
    margin = least_margin(rounds)
    with capsys.disabled():
        shown = "none measured" if margin is None else f"{margin:.0%}"
        print(
            f"\nlab {lab.number}: least margin {shown}, {len(found)} wrong answers found live"
        )
