"""Digests of everything that the policies decide: every example and every figure's runs.

    python -m tests.support.decisions record [FILE]   write the digests (default: decisions.json)
    python -m tests.support.decisions check [FILE]    exit 1 and name what differs from them
    python -m tests.support.decisions compare --python PATH
                                                      the same against another interpreter's, now

Recorded with one seed at quick size. For a run of an example: SHA-256 of ``events.jsonl``,
``jobs.csv`` and ``links.csv``. For a point of a figure: the digest of each engine run's events,
and the values of the figure's measures to nine digits, stopwatches left out. ``--only PREFIX``
restricts all; a file that is there keeps its other entries. Figures that need a trace of
TESTBED_DATA are recorded as missing without it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("decisions.json")
FILES = ("events.jsonl", "jobs.csv", "links.csv")
STOPWATCHES = (
    "cpu_s",
    "allocation_",
    "wall_s",
    "start_s",
    "_time_s",
    "decision_",
)
"""Parts of names of measures that are times of this machine."""


def digest(lines: list[str]) -> str:
    """SHA-256 of the lines; where the checkout lies does not count (commands name files in it)."""
    return hashlib.sha256(
        "\n".join(lines).replace(str(ROOT), "").encode()
    ).hexdigest()[:32]


@contextmanager
def engine_digests(runs: list[str]) -> Iterator[None]:
    """Adds the digest of the events of every engine that ends meanwhile to ``runs``."""
    from testbed.engine import engine as module

    begin, run = module.Engine.__init__, module.Engine.run

    def listening(self: Any, *args: Any, **kwargs: Any) -> None:
        lines: list[str] = []
        self.test_lines = lines
        names = (
            "datacentre",
            "jobs",
            "policy",
            "backend",
            "sink",
            "after_step",
        )
        settings = {**dict(zip(names, args, strict=False)), **kwargs}
        sink = settings.get("sink")

        def tee(event: Any) -> None:
            lines.append(json.dumps(event.to_json(), default=_plain))
            if sink is not None:
                sink(event)

        begin(self, **{**settings, "sink": tee})

    def running(self: Any) -> None:
        run(self)
        runs.append(digest(self.test_lines))

    module.Engine.__init__, module.Engine.run = listening, running  # type: ignore[method-assign]
    try:
        yield
    finally:
        module.Engine.__init__, module.Engine.run = begin, run  # type: ignore[method-assign]


def _plain(value: Any) -> Any:
    """Numpy's numbers, and job records that are made when they are looked at."""
    if hasattr(value, "to_json"):
        return value.to_json()
    return value.item() if hasattr(value, "item") else list(value)


# -- examples -------------------------------------------------------------------------------------


def examples() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "examples").glob("*.yaml")
        if "workload:" in path.read_text("utf-8")
    )


def of_example(file: str) -> dict[str, Any]:
    """Every policy of an example through ``testbed simulate``."""
    from testbed.cli.main import run

    with tempfile.TemporaryDirectory() as folder:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            code = run(["simulate", str(ROOT / file), "--out", folder])
        if code not in (0, 1):
            return {"missing": f"exit code {code}"}
        [out] = Path(folder).iterdir()
        return {
            str(path.relative_to(out)): digest(
                path.read_text("utf-8").splitlines()
            )
            for path in sorted(out.rglob("*"))
            if path.name in FILES
        }


# -- figures --------------------------------------------------------------------------------------


def figure_points() -> list[tuple[str, str, float]]:
    from reproductions.catalogue import FIGURES, LIVE_FIGURES

    simulated = [
        (f"figure:{f.name}", s, x)
        for f in FIGURES.values()
        for s, x in f.points
    ]
    live = [
        (f"live:{f.name}", s, x)
        for f in LIVE_FIGURES.values()
        for s, x in f.points
    ]
    return [*simulated, *live]


def of_point(name: str, series: str, x: float) -> dict[str, Any]:
    """One point of a figure: its engine runs, and what was measured of them."""
    from reproductions.configuration import load_loops
    from testbed.errors import MachineCannot

    kind, _, figure = name.partition(":")
    # Before the runs are listed: loading plays runs too, once a process.
    load_loops()
    runs: list[str] = []
    try:
        with engine_digests(runs):
            measures = (_simulated if kind == "figure" else _live)(
                figure, series, x
            )
    except MachineCannot as error:
        return {"missing": str(error)}
    return {"runs": runs, "measures": measures}


def _simulated(name: str, series: str, x: float) -> dict[str, float | None]:
    from reproductions.catalogue import FIGURES
    from reproductions.grid_quantities import Grid

    figure = FIGURES[name]
    [configuration] = figure.configurations(1, quick=True)[series, x]
    grid = Grid({(series, x): (configuration.run(),)}, figure.exact)
    out: dict[str, float | None] = {}
    for panel in figure.tables:
        if not any(part in panel.measure.name for part in STOPWATCHES):
            [value] = grid.values(panel.measure, series, x)
            out[panel.measure.name] = _rounded(value)
    return out


def _live(name: str, series: str, x: float) -> dict[str, float | None]:
    """The live figure's experiment in the simulator."""
    from reproductions.catalogue import LIVE_FIGURES
    from testbed.play.playing import dry_run

    experiment = LIVE_FIGURES[name].variant(series, x, True).experiment()  # noqa: FBT003
    for policy in experiment.policies:
        dry_run(experiment, policy)
    return {}


def _rounded(value: float) -> float | None:
    return float(f"{value:.9g}") if math.isfinite(value) else None


# -- the command ----------------------------------------------------------------------------------


def collect(only: str = "", processes: int = 2) -> dict[str, Any]:
    """All of it, as ``{"examples/x.yaml": …, "figure:NAME|SERIES|X": …}``."""
    tasks: dict[
        str, tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]
    ] = {}
    for file in examples():
        tasks[file] = (of_example, (file,))
    for name, series, x in figure_points():
        tasks[f"{name}|{series}|{x:g}"] = (of_point, (name, series, x))
    wanted = {
        key: task for key, task in tasks.items() if key.startswith(only)
    }
    entries: dict[str, Any] = {}
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn")
    ) as pool:
        futures = {
            pool.submit(f, *args): key for key, (f, args) in wanted.items()
        }
        for done, future in enumerate(as_completed(futures), 1):
            entries[futures[future]] = future.result()
            if sys.stderr.isatty() or done % 25 == 0:
                print(f"{done} of {len(futures)}", file=sys.stderr)
    return dict(sorted(entries.items()))


def collect_with(python: Path, only: str, processes: int) -> dict[str, Any]:
    """``collect`` by another interpreter, in this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "decisions.json"
        options = ["--only", only, "--processes", str(processes)]
        call = [
            str(python),
            "-m",
            "tests.support.decisions",
            "record",
            str(file),
            *options,
        ]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        subprocess.run(
            call,
            cwd=ROOT,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        entries: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return entries


def version_of(python: Path) -> str:
    call = [
        str(python),
        "-c",
        "import platform; print(platform.python_version())",
    ]
    return subprocess.run(
        call, check=True, capture_output=True, text=True
    ).stdout.strip()


def told_apart(
    known: dict[str, Any], entries: dict[str, Any], names: tuple[str, str]
) -> list[str]:
    """The entries that differ, each printed. What is missing on both sides is no difference."""
    differ = [
        key
        for key in sorted(known | entries)
        if known.get(key) != entries.get(key)
    ]
    for key in differ:
        print(f"differs: {key}")
        print(
            f"  {names[0]:8} {known.get(key)}\n  {names[1]:8} {entries.get(key)}"
        )
    return differ


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("what", choices=("record", "check", "compare"))
    parser.add_argument("file", nargs="?", type=Path, default=RECORD)
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PATH",
        help="the interpreter to compare",
    )
    parser.add_argument("--only", default="", metavar="PREFIX")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1
    )
    options = parser.parse_args()
    if (options.what == "compare") != (options.python is not None):
        parser.error("compare and --python PATH go together")
    entries = collect(options.only, options.processes)
    if not entries:
        parser.error(
            f"no entry begins with {options.only!r}; they do with examples/, figure:, live:"
        )
    if options.what == "record":
        entries = {**_kept(options), **entries}
        rows = [
            f" {json.dumps(key)}: {json.dumps(entries[key], sort_keys=True)}"
            for key in sorted(entries)
        ]
        options.file.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
        print(f"{len(entries)} entries recorded in {options.file}")
        return 0
    return (
        _checked(options, entries)
        if options.what == "check"
        else _compared(options, entries)
    )


def _kept(options: argparse.Namespace) -> dict[str, Any]:
    """The entries of the file that a recording of ``--only PREFIX`` leaves alone."""
    if not (options.only and options.file.exists()):
        return {}
    known: dict[str, Any] = json.loads(options.file.read_text("utf-8"))
    return {
        key: value
        for key, value in known.items()
        if not key.startswith(options.only)
    }


def _checked(options: argparse.Namespace, entries: dict[str, Any]) -> int:
    known = json.loads(options.file.read_text("utf-8"))
    known = {
        key: value
        for key, value in known.items()
        if key.startswith(options.only)
    }
    differ = told_apart(known, entries, ("recorded", "now"))
    same = sum(key not in differ for key in known)
    print(f"{same} of {len(known)} entries are as recorded")
    return 1 if differ else 0


def _compared(options: argparse.Namespace, entries: dict[str, Any]) -> int:
    other = collect_with(options.python, options.only, options.processes)
    versions = version_of(options.python), platform.python_version()
    differ = told_apart(other, entries, versions)
    missing = [
        key
        for key in entries
        if "missing" in entries[key] and key not in differ
    ]
    same = len(other | entries) - len(differ) - len(missing)
    runs = sum(
        len(entries[key].get("runs", entries[key]))
        for key in entries
        if key not in missing
    )
    print(
        f"{same} of {len(other | entries)} entries ({runs} digests) are the same on Python"
        f" {versions[0]} as on {versions[1]}; {len(differ)} differ, {len(missing)} are missing"
    )
    return 1 if differ or not same else 0


if __name__ == "__main__":
    raise SystemExit(main())
