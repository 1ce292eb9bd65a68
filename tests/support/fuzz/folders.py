"""Run folders changed after the run: audited, explained, compared and reported."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from testbed.events import Event
from testbed.record.folder import RunFolder
from tests.support.fuzz.mutations import (
    HOSTILE,
    NUMBERS,
    PIECES,
    SIZES,
    flipped,
    mutated,
    rearranged,
    replaced_word,
)
from tests.support.fuzz.workers import sound_answer
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run

STREAMS: dict[str, Callable[[], list[Event]]] = {
    "preempting": sample.preempting,
    "tiers": sample.two_tiers,
    "later": sample.sliding,
    "leases": sample.leases,
    "flat": sample.flat,
    "live": sample.eventful,
}
TWO = "two policies"
WEIGHTS = (3, 3, 3, 3, 3, 1, 2)
"""Of the streams, then of a run of two policies: a live run's page takes half a second."""
FILES = (
    *("events.jsonl",) * 8,
    *("jobs.csv", "links.csv", "summary.json", "spec.resolved.json") * 2,
    *("provenance.json", "spec.yaml"),
)


@cache
def _originals() -> dict[str, Path]:
    """The run folders as they were written, by the stream's name."""
    base = Path(tempfile.mkdtemp(prefix="fuzz-runs-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    originals = {}
    for name, stream in STREAMS.items():
        folder, _ = write_run(base, stream(), FIG10, name=name)
        folder.write_text("spec.yaml", f"name: {name}\n")
        machine = {"load_average": [0.1, 0.2, 0.3], "memory_bytes": 1 << 30}
        folder.write_json(
            "provenance.json",
            {"machine": machine, "code": {"commit": "0" * 40}},
        )
        originals[name] = folder.path
    two = RunFolder(base / TWO)
    two.path.mkdir()
    for name in ("a", "b"):
        write_run(two, sample.flat(), name=name)
    originals[TWO] = two.path
    return originals


def prepare() -> None:
    """Writes the run folders once, before there are workers."""
    _originals()


def _changed_lines(rng: random.Random, text: str) -> str:
    """Lines of JSON or of a table, with some changed, moved, doubled or left out."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not lines:
            break
        at = rng.randrange(len(lines))
        match rng.randrange(10):
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines) + 1), lines[at])
            case 2:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = rearranged(rng, lines[at])
            case 4:
                del lines[at:]
            case 5 | 6:
                lines[at] = replaced_word(rng, lines[at])
            case _:
                lines[at] = _changed_value(rng, lines[at])
    return "".join(lines)


def _changed_value(rng: random.Random, text: str) -> str:
    """A JSON value with others in it, or a row with another cell."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        cells = text.split(",")
        cells[rng.randrange(len(cells))] = rng.choice(
            (*NUMBERS.values(), *SIZES, *PIECES)
        )
        return ",".join(cells)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = mutated(rng, value, (*HOSTILE, *map(_number, SIZES)))
    return json.dumps(value, ensure_ascii=rng.random() < 0.5) + "\n"


def _number(text: str) -> int | float:
    return float(text) if any(sign in text for sign in ".e") else int(text)


def _change(rng: random.Random, path: Path) -> None:
    """One file of a run: changed, or no file any more."""
    act = rng.random()
    if act < 0.06 or not path.is_file():
        _replace_file(rng, path)
        return
    data = path.read_bytes()
    if act < 0.15:
        data = flipped(rng, data)
    elif act < 0.2:
        deep = rng.choice((10, 1000, 100_000))
        odd = (
            b"",
            b"\n",
            b"null",
            b"[]",
            b"{}",
            b"[" * deep,
            b'{"a":' * deep,
            b"9" * deep,
        )
        data = rng.choice(
            (
                *odd,
                b"\x00" * deep,
                b",\n" * deep,
                data[: rng.randrange(len(data) + 1)],
            )
        )
    else:
        change = (
            _changed_value if path.suffix == ".json" else _changed_lines
        )
        # Bytes that an earlier change left come back as they were.
        data = change(rng, data.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogatepass"
        )
    path.write_bytes(data)


def _replace_file(rng: random.Random, path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    match rng.randrange(5):
        case 0:
            path.mkdir(exist_ok=True)
        case 1:
            # To open it waits for a writer.
            os.mkfifo(path)
        case 2:
            # The first of these has no end, the third leads to itself.
            path.symlink_to(
                rng.choice(
                    ("/dev/zero", "/dev/null", path.name, "/nowhere")
                )
            )
        case 3:
            path.write_bytes(b"")
        case _:
            pass


def attempt(rng: random.Random, folder: Path) -> str:
    """Change files of a run, then ask every command about it."""
    (stream,) = rng.choices((*STREAMS, TWO), WEIGHTS)
    run = folder / "run"
    shutil.copytree(_originals()[stream], run)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        parts = [run, *(path for path in run.iterdir() if path.is_dir())]
        _change(rng, rng.choice(parts) / rng.choice(FILES))
    options = ["--json"] if rng.random() < 0.3 else []
    job = rng.choice(
        ("a", "b", "best", "wanted", "sort-750", "", "x" * 300, "\x1b[31m")
    )
    audited, _ = sound_answer(folder, (0, 1), "audit", str(run), *options)
    sound_answer(
        folder,
        (0,),
        "explain",
        str(run),
        *options,
        "--",
        job,
        names=("no job",),
    )
    other = _originals()[stream]
    pair = (
        [str(run), str(other)]
        if rng.random() < 0.5
        else [str(other), str(run)]
    )
    sound_answer(folder, (0,), "compare", *pair, *options)
    sound_answer(folder, (0,), "report", str(run), *options)
    return ("sound", "false", "damaged")[audited]
