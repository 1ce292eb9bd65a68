"""A few hundred of the inputs that ``make fuzz`` tries, and that it finds what goes wrong."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.examples import seeded_inputs
from tests.support.fuzz import files, folders, imports, traces
from tests.support.fuzz.workers import Outcome, Unsound, randomness, try_all

SEED = 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "attempt", "inputs"),
    [
        ("files", files.attempt, seeded_inputs(150)),
        ("traces", traces.attempt, seeded_inputs(150)),
        ("imports", imports.attempt, seeded_inputs(150)),
        ("folders", folders.attempt, seeded_inputs(20)),
    ],
    ids=["files", "traces", "imports", "folders"],
)
def test_hostile_inputs_are_answered(
    kind: str, attempt: object, inputs: int
) -> None:
    folders.prepare()
    # Longer than `make fuzz` waits: beside other tests an input may take a while.
    outcome = try_all(
        kind, attempt, range(inputs), SEED, workers=1, limit_s=120.0
    )
    assert outcome.sound, outcome.text()
    assert outcome.inputs == inputs
    assert len(outcome.replies) > 1


@pytest.mark.parametrize("module", [files, traces, imports, folders])
def test_a_number_decides_its_input(module: object, tmp_path: Path) -> None:
    def content(name: str) -> dict[str, bytes]:
        folder = tmp_path / name
        folder.mkdir()
        module.attempt(randomness("any", SEED, 7), folder)
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name != "report.html"
        }

    assert content("a") == content("b") != {}


def misbehaving(rng: random.Random, folder: Path) -> str:
    """One input of each kind of failure between sound ones."""
    number = rng.randrange(6)
    if number == 1:
        raise KeyError("a key")
    if number == 2:
        raise Unsound("an answer that is none")
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 4:
        time.sleep(60)
    if number == 5:
        bytearray(1 << 40)
    return "sound"


@pytest.mark.slow
def test_every_kind_of_failure_is_found_and_named_with_its_command() -> (
    None
):
    outcome: Outcome = try_all(
        "files", misbehaving, range(30), 3, limit_s=1.0
    )
    found = {tried.outcome for tried in outcome.failures}
    assert found == {"traceback", "unsound", "died", "hang"}
    assert {"KeyError: 'a key'", "MemoryError: "} <= {
        tried.why for tried in outcome.failures
    }
    assert outcome.inputs == 30
    assert outcome.replies["sound"] == 30 - len(outcome.failures)
    first = min(tried.number for tried in outcome.failures)
    assert (
        f"python -m tests.support.fuzz --kind files --seed 3 --only {first}"
        in outcome.text()
    )
