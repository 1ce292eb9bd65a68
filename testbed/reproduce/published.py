"""The page of results, ``docs/reproduction.md``, made from what runs left behind and checked by a
test: ``python -m testbed.reproduce.published OUT`` takes the full-size results in ``OUT`` in.

Beside the page lies a folder of the same name with the values behind it (one JSON per figure) and
the pictures. Verdicts are not stored: they are judged again from the values whenever the page is
made, by the rules as they are then.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.reproduce.figure import Figure, Reproduced
from testbed.reproduce.play import PICTURE, RESULTS
from testbed.reproduce.quantities import Grid
from testbed.reproduce.record import MARKS, claims_table, points_table
from testbed.reproduce.registry import FIGURES

PAGE = Path(__file__).parents[2] / "docs" / "reproduction.md"
BEGIN, END = "<!-- results: made by testbed.reproduce.published -->", "<!-- end of results -->"
KEPT = ("name", "size", "seeds", "cpu_s", "code", "machine")


def take_in(out: Path, page: Path = PAGE) -> list[str]:
    """Copy values and pictures of all full-size results below ``out``; the names of the figures."""
    data = page.with_suffix("")
    data.mkdir(exist_ok=True)
    taken = []
    for name in FIGURES:
        results = out / name / RESULTS
        if results.exists():
            values = compact(json.loads(results.read_text("utf-8")))
            (data / f"{name}.json").write_text(values, "utf-8")
            picture = (out / name / f"{PICTURE}.svg").read_text("utf-8")
            (data / f"{name}.svg").write_text(_trimmed(picture), "utf-8")
            taken.append(name)
    return taken


def compact(record: Mapping[str, Any]) -> str:
    """What the page needs of a ``results.json``: one line per measure."""
    kept = {key: record[key] for key in KEPT}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in kept.items()]
    for measure in record["measures"]:
        points = [[p["series"], p["x"], p["by_seed"]] for p in measure["points"]]
        lines.append(f" {json.dumps('values of ' + measure['name'])}: {json.dumps(points)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def restored(figure: Figure, record: Mapping[str, Any]) -> Reproduced:
    """The figure with its grid, from a compact record."""
    runs: dict[tuple[str, float], list[dict[str, float]]] = {
        point: [{} for _ in range(record["seeds"])] for point in figure.points
    }
    for panel in figure.tables:
        measure = panel.measure
        for series, x, by_seed in record.get(f"values of {measure.name}", ()):
            for run, value in zip(runs[series, float(x)], by_seed, strict=True):
                run[measure.name] = value / measure.factor
    grid = Grid({point: tuple(own) for point, own in runs.items()}, figure.exact)
    return Reproduced(figure, record["seeds"], record["size"] == "quick", grid)


def results_text(page: Path = PAGE) -> str:
    """The generated part of the page."""
    records = {}
    for name in FIGURES:
        path = page.with_suffix("") / f"{name}.json"
        if path.exists():
            records[name] = json.loads(path.read_text("utf-8"))
    done = {name: restored(FIGURES[name], record) for name, record in records.items()}
    parts = [_overview(done, records)]
    parts += [_section(done[name], records[name], page) for name in done]
    return "\n\n".join(parts)


def _overview(done: Mapping[str, Reproduced], records: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| name | what | seeds | came out | did not | cannot tell | processor time |",
        "|---|---|---|---|---|---|---|",
    ]
    total_s = 0.0
    for name, one in done.items():
        verdicts = Counter[str](judged.verdict for judged in one.judged)
        counts = " | ".join(str(verdicts[verdict]) for verdict in MARKS)
        seconds = float(records[name]["cpu_s"])
        total_s += seconds
        lines.append(
            f"| [{name}](#{name}) | {one.figure.title} | {one.seeds} | {counts} "
            f"| {seconds / 60:.1f} min |"
        )
    lines.append(f"| all | | | | | | {total_s / 60:.1f} min |")
    return "\n".join(lines)


def _section(done: Reproduced, record: Mapping[str, Any], page: Path) -> str:
    figure = done.figure
    commit = str(record["code"]["commit"] or "unknown")[:10]
    seeds = f"seeds 1 to {done.seeds}" if done.seeds > 1 else "seed 1"
    seeds = "nothing random" if figure.exact else seeds
    parts = [
        f"## {figure.name}",
        f"**{figure.title}** ({figure.source}). {figure.size}; {seeds}.",
        f"`testbed reproduce {figure.name} --seeds {done.seeds}`; commit {commit}, "
        + _machine(record),
        f"![{figure.title}]({page.stem}/{figure.name}.svg)",
        claims_table(done),
    ]
    remarks = [
        f"- *{judged.claim.text}*: {judged.claim.remark}"
        for judged in done.judged
        if judged.verdict != "came out" and judged.claim.remark
    ]
    if remarks:
        parts.append("Why not:\n\n" + "\n".join(remarks))
    tables = [
        f"{panel.measure.label}\n\n{points_table(done, panel)}"
        for panel in figure.tables
        if panel.measure.name != "cpu_s"
    ]
    inside = "\n\n".join(tables)
    parts.append(f"<details><summary>All values</summary>\n\n{inside}\n\n</details>")
    return "\n\n".join(parts)


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
