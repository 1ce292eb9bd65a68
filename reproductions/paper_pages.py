"""The page of results, ``docs/reproduction.md``, made from what runs left behind and checked by a
test: ``python -m reproductions.published OUT`` takes the full-size results in ``OUT`` in.

Beside the page lies a folder of the same name with the values behind it (one JSON per figure) and
the pictures. Verdicts are not stored: they are judged again from the values whenever the page is
made, by the rules as they are then.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reproductions.figure import Exhibit, Reproduced
from reproductions.grid_quantities import Grid
from reproductions.live.figure import LiveFigure
from reproductions.play import PICTURE, RESULTS
from reproductions.record import MARKS, claims_table, points_table
from reproductions.registry import FIGURES, LIVE_FIGURES

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
BEGIN, END = "<!-- results: made by reproductions.published -->", "<!-- end of results -->"
KEPT = ("name", "size", "seeds", "cpu_s", "code", "machine")
LIVE = "-live"
"""What the name of a live figure's files and section ends in: a figure may be simulated too."""
KEPT_OF_RUNS = ("series", "x", "seed", "verdict", "reasons", "attempts", "wall_s", "replay")


def exhibits() -> dict[str, Exhibit]:
    """Every figure by the name of its section on the page."""
    return {**FIGURES, **{f"{name}{LIVE}": figure for name, figure in LIVE_FIGURES.items()}}


def is_results_of(record: Mapping[str, Any], figure: Exhibit) -> bool:
    """Whether results are a live figure's or a simulated one's, as the figure is."""
    return ("runs" in record) == isinstance(figure, LiveFigure)


def take_in(out: Path, page: Path = PAGE) -> list[str]:
    """Copy values and pictures of all full-size results below ``out``; the names of the figures."""
    data = page.with_suffix("")
    data.mkdir(exist_ok=True)
    taken = []
    for name, figure in exhibits().items():
        folder = out / figure.name
        if not (folder / RESULTS).exists():
            continue
        record = json.loads((folder / RESULTS).read_text("utf-8"))
        if is_results_of(record, figure):
            (data / f"{name}.json").write_text(compact(record), "utf-8")
            picture = (folder / f"{PICTURE}.svg").read_text("utf-8")
            (data / f"{name}.svg").write_text(_trimmed(picture), "utf-8")
            taken.append(name)
    return taken


def compact(record: Mapping[str, Any]) -> str:
    """What the page needs of a ``results.json``: one line per measure."""
    kept = {key: record[key] for key in KEPT}
    if "runs" in record:
        kept["runs"] = [{key: run[key] for key in KEPT_OF_RUNS} for run in record["runs"]]
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in kept.items()]
    for measure in record["measures"]:
        points = [[p["series"], p["x"], p["by_seed"]] for p in measure["points"]]
        lines.append(f" {json.dumps('values of ' + measure['name'])}: {json.dumps(points)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def restored(figure: Exhibit, record: Mapping[str, Any]) -> Reproduced:
    """The figure with its grid, from a compact record."""
    runs: dict[tuple[str, float], list[dict[str, float]]] = {
        point: [{} for _ in range(record["seeds"])] for point in figure.points
    }
    for panel in figure.tables:
        measure = panel.measure
        for series, x, by_seed in record.get(f"values of {measure.name}", ()):
            for run, value in zip(runs[series, float(x)], by_seed, strict=True):
                run[measure.name] = math.nan if value is None else value / measure.factor
    grid = Grid({point: tuple(own) for point, own in runs.items()}, figure.exact)
    return Reproduced(figure, record["seeds"], record["size"] == "quick", grid)


def results_text(page: Path = PAGE) -> str:
    """The generated part of the page."""
    records = {}
    known = exhibits()
    for name in known:
        path = page.with_suffix("") / f"{name}.json"
        if path.exists():
            records[name] = json.loads(path.read_text("utf-8"))
    done = {name: restored(known[name], record) for name, record in records.items()}
    parts = [_overview(done, records)]
    parts += [_section(name, done[name], records[name], page) for name in done]
    return "\n\n".join(parts)


def _overview(done: Mapping[str, Reproduced], records: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| name | what | seeds | came out | did not | cannot tell | processor time |",
        "|---|---|---|---|---|---|---|",
    ]
    total_s = 0.0
    for name, one in done.items():
        if "runs" not in records[name]:
            seconds = float(records[name]["cpu_s"])
            total_s += seconds
            lines.append(_overview_row(name, one, seconds))
    lines.append(f"| all | | | | | | {total_s / 60:.1f} min |")
    live = [
        _overview_row(name, one, sum(run["wall_s"] for run in records[name]["runs"]))
        for name, one in done.items()
        if "runs" in records[name]
    ]
    if live:
        header = lines[0].replace("processor time", "wall time of its live runs")
        lines += ["", "Measured on the live network:", "", header, lines[1], *live]
    return "\n".join(lines)


def _overview_row(name: str, done: Reproduced, took_s: float) -> str:
    verdicts = Counter[str](judged.verdict for judged in done.judged)
    counts = " | ".join(str(verdicts[verdict]) for verdict in MARKS)
    return (
        f"| [{name}](#{name}) | {done.figure.title} | {done.seeds} | {counts} "
        f"| {took_s / 60:.1f} min |"
    )


def _section(name: str, done: Reproduced, record: Mapping[str, Any], page: Path) -> str:
    figure = done.figure
    commit = str(record["code"]["commit"] or "unknown")[:10]
    parts = [
        f"## {name}",
        f"**{figure.title}** ({figure.source}). {figure.size}; {_seeds(done, record)}.",
        f"`{_command(done)}`; commit {commit}, {_machine(record)}",
        f"![{figure.title}]({page.stem}/{name}.svg)",
        claims_table(done),
    ]
    if isinstance(figure, LiveFigure) and figure.reduced:
        parts.insert(3, figure.reduced)
    remarks = [
        f"- *{judged.claim.text}*: {judged.claim.remark}"
        for judged in done.judged
        if judged.verdict != "came out" and judged.claim.remark
    ]
    if remarks:
        parts.append("Why not:\n\n" + "\n".join(remarks))
    if "runs" in record:
        parts.append(_runs_table(record["runs"]))
    tables = [
        f"{panel.measure.label}\n\n{points_table(done, panel)}"
        for panel in figure.tables
        if panel.measure.name != "cpu_s"
    ]
    inside = "\n\n".join(tables)
    parts.append(f"<details><summary>All values</summary>\n\n{inside}\n\n</details>")
    return "\n\n".join(parts)


def _command(done: Reproduced) -> str:
    figure = done.figure
    live = isinstance(figure, LiveFigure)
    command = f"testbed reproduce {figure.name} --seeds {done.seeds}"
    return f"sudo {command} --live" if live else command


def _seeds(done: Reproduced, record: Mapping[str, Any]) -> str:
    """Which seeds: a live figure's are its file's and those after it."""
    if done.figure.exact:
        return "nothing random"
    used = sorted({run["seed"] for run in record["runs"]}) if "runs" in record else []
    used = used or list(range(1, done.seeds + 1))
    return f"seeds {used[0]} to {used[-1]}" if len(used) > 1 else f"seed {used[0]}"


def _runs_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Every live run with its verdict, and how often it was tried."""
    lines = [
        "| live run | seed | validity | wall time | tries | replayed |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        why = f": {'; '.join(run['reasons'])}" if run["reasons"] else ""
        lines.append(
            f"| {run['series']} at {run['x']:g} | {run['seed']} | {run['verdict']}{why} "
            f"| {run['wall_s']:.0f} s | {run['attempts']} | {run['replay']} |"
        )
    return "\n".join(lines)


def _machine(record: Mapping[str, Any]) -> str:
    """``2 × AMD EPYC, 23.5 GiB``."""
    machine = record["machine"]
    processor = machine["cpu_model"] or "processors of unknown make"
    return f"{machine['cpus']} × {processor}, {machine['memory_bytes'] / 2**30:.1f} GiB"


def updated(text: str, results: str) -> str:
    """The page's text with its generated part replaced."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n\n{results}\n\n{END}", text)


def _trimmed(svg: str) -> str:
    """Without the blanks that matplotlib leaves at line ends."""
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        sys.stdout.write(f"{folder}: {', '.join(take_in(Path(folder)))}\n")
    PAGE.write_text(updated(PAGE.read_text("utf-8"), results_text()), "utf-8")
