"""Hostile inputs of every kind, seeded: each can be tried again alone.

    python -m tests.support.fuzz --inputs 100000 --seed 1 [--kind files]
    python -m tests.support.fuzz --kind files --seed 1 --only 4711

The inputs are shared among experiment files, traces, files to import, run folders, and what is
sent to a controller's API and OpenFlow port. Sound is an answer that names file and place, or
success; whatever else happens is a failure, and printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.support.fuzz import files, folders, imports, traces
from tests.support.fuzz.workers import (
    REPORT_EVERY_S,
    Outcome,
    Progress,
    Tried,
    Try,
    try_all,
    try_alone,
)
from tests.support.fuzz_controller import FuzzResult, fuzz

READ: dict[str, Try] = {
    "files": files.attempt,
    "traces": traces.attempt,
    "imports": imports.attempt,
    "folders": folders.attempt,
}
SENT = ("api", "openflow")
SHARES = {
    "files": 20,
    "traces": 20,
    "imports": 10,
    "folders": 10,
    "api": 20,
    "openflow": 20,
}
"""Per cent of the inputs; a run folder takes longest, for its page."""


def _reporting(kind: str, total: int) -> Progress:
    """Prints a line now and then, with the time left."""
    last_s = 0.0

    def report(done: int, elapsed_s: float) -> None:
        nonlocal last_s
        if elapsed_s - last_s >= REPORT_EVERY_S:
            last_s = elapsed_s
            left_s = elapsed_s / done * (total - done)
            rate = done / elapsed_s
            line = f"{kind}: {done} of {total}, {rate:.0f} inputs/s, {left_s:.0f} s left"
            print(line, flush=True)

    return report


def _try(
    kind: str, options: argparse.Namespace, inputs: int
) -> Outcome | Tried | FuzzResult:
    """Try a kind's inputs, or the one that is asked for; prints and returns the outcome."""
    only: int | None = options.only
    numbers = range(inputs) if only is None else range(only, only + 1)
    report = _reporting(kind, len(numbers))
    if kind == "folders":
        folders.prepare()
    if kind in SENT:
        sent = fuzz(kind, numbers, options.seed, options.library, report)
        print(sent.text(), flush=True)
        return sent
    if only is not None:
        tried = try_alone(kind, READ[kind], options.seed, only)
        print(
            f"{tried.outcome} after {tried.took_s:.2f} s: {tried.why or 'sound'}"
        )
        return tried
    outcome = try_all(
        kind,
        READ[kind],
        numbers,
        options.seed,
        report,
        workers=options.workers,
    )
    print(outcome.text(), flush=True)
    return outcome


def main() -> int:
    """Fuzz all kinds, or one of them. 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz")
    parser.add_argument(
        "--inputs", type=int, default=1000, metavar="N", help="of all kinds"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kind", choices=tuple(SHARES), help="of this kind alone"
    )
    parser.add_argument(
        "--only",
        type=int,
        metavar="I",
        help="try input I of the kind alone",
    )
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="side by side"
    )
    parser.add_argument(
        "--library", choices=("auto", "ryu", "os-ken"), default="auto"
    )
    options = parser.parse_args()
    if options.only is not None and options.kind is None:
        parser.error("--only needs a --kind")
    shares = SHARES if options.kind is None else {options.kind: 100}
    begin_s = time.monotonic()
    outcomes = [
        _try(kind, options, max(1, options.inputs * share // 100))
        for kind, share in shares.items()
    ]
    tried = sum(getattr(outcome, "inputs", 1) for outcome in outcomes)
    print(
        f"{tried} inputs in {time.monotonic() - begin_s:.0f} s", flush=True
    )
    return 0 if all(outcome.sound for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
