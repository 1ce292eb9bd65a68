"""Traces of every format, changed by line, field and byte: read alone, and by an experiment."""

from __future__ import annotations

import gzip
import json
import random
from itertools import islice
from pathlib import Path

from jobs.workload.lwf import read_lwf, requests_of
from jobs.workload.swf import jobs_of, read_swf
from jobs.workload.swim import read_swim
from jobs.workload.traces import TraceErrors
from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import load_experiment
from tests.support.fuzz.mutations import (
    NUMBERS,
    PIECES,
    SIZES,
    flipped,
    rearranged,
)
from tests.support.fuzz.workers import Unsound, sound_answer

LOOKED_AT_JOBS = 300
LINES = 40


def _swf() -> bytes:
    noise = random.Random("swf")
    lines = [
        "; Version: 2.2",
        "; MaxNodes: 100",
        "; Note: made",
        ";       further",
    ]
    submit_s = 0
    for number in range(1, LINES + 1):
        submit_s += noise.randrange(300)
        run_s, size = (
            noise.choice((0, 40, 900, 20_000)),
            noise.choice((1, 2, 8, 100)),
        )
        words = [
            number,
            submit_s,
            -1,
            run_s,
            size,
            -1,
            -1,
            size,
            noise.choice((-1, run_s + 60)),
        ]
        lines.append(
            " ".join(
                map(
                    str,
                    [*words, -1, noise.randrange(6), 3, 1, 1, 1, 1, -1, -1],
                )
            )
        )
    return "\n".join([*lines, ""]).encode()


def _lwf() -> bytes:
    noise = random.Random("lwf")
    lines, arrival_s = ["# made"], 0
    for _ in range(LINES):
        arrival_s += noise.randrange(300)
        start = noise.choice((-1, arrival_s, arrival_s + 600))
        took = noise.choice((60, 3600))
        words = [
            arrival_s,
            start,
            took,
            noise.choice((took, 30)),
            noise.choice((1, 4)),
            1,
            512,
            0,
        ]
        lines.append(" ".join(map(str, [*words, "image", 0])))
    return "\n".join([*lines, ""]).encode()


def _xml() -> bytes:
    noise = random.Random("xml")
    leases = []
    for number in range(1, LINES // 2 + 1):
        start = noise.choice(
            (
                "<start/>",
                "<start><now/></start>",
                '<exact time="05:00:00.00"/>',
            )
        )
        real = noise.choice(("", '<realduration time="00:30:00.00"/>'))
        leases.append(
            f'<lease-request arrival="0{number // 6}:{number % 6}0:00.00">'
            f'<lease id="{number}" preemptible="true"><nodes><node-set numnodes="2">'
            '<res type="CPU" amount="100"/><res type="Memory" amount="1024"/></node-set></nodes>'
            f'{start}<duration time="01:00:00.00"/>{real}</lease></lease-request>'
        )
    head = '<?xml version="1.0"?>\n<lease-workload name="made">\n<lease-requests>'
    return "\n".join(
        [head, *leases, "</lease-requests></lease-workload>", ""]
    ).encode()


def _swim() -> bytes:
    noise = random.Random("swim")
    lines, submit_s = [], 0
    for number in range(LINES):
        gap = noise.randrange(60)
        submit_s += gap
        sizes = [noise.choice((0, 1000, 10**8, 10**11)) for _ in range(3)]
        lines.append(
            "\t".join(map(str, [f"job{number}", submit_s, gap, *sizes]))
        )
    return "\n".join([*lines, ""]).encode()


SWF, LWF, XML, SWIM = _swf(), _lwf(), _xml(), _swim()
FORMATS = {"swf": (SWF,), "lwf": (LWF, XML), "swim": (SWIM,)}

FLAT = "topology: {kind: flat, nodes: 10, slots_per_server: 4, memory_per_server: 8 GiB}\n"
TREE = "topology: {kind: tree, fanout: [5], links: 1 Gbit/s, slots_per_server: 2}\n"
OPTIONS = {
    "swf": (
        *(
            "",
            ", load: 0.6",
            ", first: 5",
            ", zero_run_time: skip",
            ", shortest: 1 min",
        ),
        *(
            ", longest: 1 h",
            ", load: 1000, first: 1",
            ", processes_per_vm: 2",
        ),
    ),
    "lwf": ("", ", first: 3", ", memory: false", ", margin: 5 s"),
    "swim": (
        ", jobs: 20",
        ", jobs: 5, vms: as-is",
        ", jobs: 100, vms: 2",
        ", largest: 3",
    ),
}


def _changed(rng: random.Random, text: str) -> str:
    """The text with lines moved, doubled or left out, and fields replaced."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 6))):
        if not lines:
            break
        at = rng.randrange(len(lines))
        match rng.randrange(8):
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 2:
                lines[at] = rearranged(rng, lines[at])
            case 3:
                lines[at] = lines[at].replace(
                    "\n", rng.choice(("\r\n", "", "\r", "\x00", "\x85"))
                )
            case 4:
                lines[at] = lines[at].replace(
                    " ", rng.choice(("\t", "", "  ", "\xa0", '"'))
                )
            case _:
                lines[at] = _field_replaced(rng, lines[at])
    return "".join(lines)


def _field_replaced(rng: random.Random, line: str) -> str:
    for sign in ("\t", '"', " "):
        if sign in line:
            words = line.split(sign)
            words[rng.randrange(len(words))] = rng.choice(
                (*NUMBERS.values(), *SIZES, *PIECES)
            )
            return sign.join(words)
    return line


def _odd(rng: random.Random) -> bytes:
    """A file that is no trace of anything."""
    count = rng.choice((1, 100, 100_000))
    return rng.choice(
        (
            *(
                b"",
                b"\n" * count * 30,
                b"x" * count * 30,
                b"\x00" * count,
                b"\xff\xfe" * count,
            ),
            *(
                b" " * count + b"\n",
                b"<" * count,
                b"<a>" * count,
                b"<lease-workload/>",
            ),
            *(
                b";\n" * count,
                b"; a:\n" * count,
                b"#\n" * count,
                b"1 " * count,
                b"1\t" * count,
            ),
            *(
                b"-1 " * 18 + b"\n",
                b'<a b="' + b"x" * count + b'"/>',
                rng.randbytes(count),
            ),
            b"<?xml version='1.0' encoding='"
            + rng.choice((b"utf-16", b"x", b""))
            + b"'?><a/>",
        )
    )


def _content(rng: random.Random, kind: str) -> bytes:
    if rng.random() < 0.05:
        data = _odd(rng)
    else:
        text = _changed(rng, rng.choice(FORMATS[kind]).decode())
        data = text.encode("utf-8", "surrogatepass")
        if rng.random() < 0.2:
            data = flipped(rng, data)
        if rng.random() < 0.05:
            data = data[: rng.randrange(len(data) + 1)]
        if rng.random() < 0.05:
            data = (
                rng.choice(
                    (b"\xef\xbb\xbf", b"\xff\xfe", b"\n", b"\x1f\x8b")
                )
                + data
            )
    if rng.random() < 0.2:
        data = gzip.compress(data, 1, mtime=0)
        if rng.random() < 0.5:
            data = rng.choice(
                (
                    flipped(rng, data),
                    data[: rng.randrange(len(data))],
                    data + data,
                )
            )
    return data


def attempt(rng: random.Random, folder: Path) -> str:
    """Read a trace by its reader, leniently or not, then by an experiment that names it."""
    written, kind = rng.choice(tuple(FORMATS)), rng.choice(tuple(FORMATS))
    if rng.random() < 0.95:
        kind = written
    path = folder / rng.choice(("trace", "trace.gz", "log.swf"))
    path.write_bytes(_content(rng, written))
    lenient = rng.random() < 0.5
    outcome = _read(kind, path, lenient=lenient)
    file = folder / "x.yaml"
    keys = rng.choice(OPTIONS[kind])
    topology = rng.choice((FLAT, TREE)) if kind != "lwf" else FLAT
    file.write_text(
        f"{topology}workload: {{kind: {kind}, path: {path.name}{keys}}}\n"
    )
    if rng.random() < 0.3:
        options = ["--lenient"] if lenient else []
        sound_answer(
            folder, (0,), "validate", str(file), *options, "--json"
        )
    try:
        overrides = {"workload.lenient": "true"} if lenient else {}
        experiment = load_experiment(file, overrides)
    except SpecErrors as errors:
        if not all(
            p.message and str(folder) in p.place.source
            for p in errors.problems
        ):
            raise Unsound(f"a problem without a file: {errors}") from errors
        return f"{outcome}, refused"
    if outcome != "read" and "first" not in keys:
        raise Unsound("the reader refuses what the experiment takes")
    for job in islice(experiment.jobs, LOOKED_AT_JOBS):
        json.dumps(job.to_json(), allow_nan=False)
    json.dumps(experiment.resolved, allow_nan=False)
    return "read"


def _read(kind: str, path: Path, *, lenient: bool) -> str:
    try:
        if kind == "swf":
            taken = jobs_of(read_swf(path, lenient=lenient))
            assert all(count > 0 for count in taken.skipped.values())
        elif kind == "lwf":
            requests_of(read_lwf(path, lenient=lenient).jobs)
        else:
            for job in read_swim(path, lenient=lenient).jobs:
                assert job.tasks >= 1
                assert job.bytes_per_vm >= 0
    except TraceErrors as errors:
        if not errors.problems or any(
            p.line < 0 or not p.message for p in errors.problems
        ):
            raise Unsound(f"errors without a place: {errors}") from errors
        return "damaged"
    return "read"
