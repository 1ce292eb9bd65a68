"""The results beside the papers' pages, ``docs/papers/data``: their values, the
verdicts made of them, and their standing.

Values are kept by figure (``NAME.json``). ``verdicts.json`` has each figure's
verdicts with the digest of the ledger that they were made by, and says where a
result is *old*: its commit cannot be checked out, or it was taken under another
interpretation. Old results are shown, and not counted.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproductions.catalogue import FIGURES, LIVE_FIGURES, folder_of
from reproductions.claim_ledger import path_of, rules_in
from reproductions.further_seeds import VALUES_OF, Record, joined
from reproductions.grid_quantities import Grid
from reproductions.interpretations import REVISED
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import (
    PICTURE,
    RESULTS,
    AnyFigure,
    Point,
    Reproduced,
)
from testbed.errors import BadInput
from testbed.record.provenance import content_at, unsound_commit

FOLDER = Path("docs/papers")
DATA = "data"
VERDICTS = "verdicts.json"
# Pages show no more of a result; machines differ in what else they record.
KEPT = (
    "name",
    "size",
    "seeds",
    "first_seed",
    "stages",
    "cpu_s",
    "code",
    "ledger",
    "played",
    "machine",
)
KEPT_OF_RUNS = (
    "series",
    "x",
    "seed",
    "verdict",
    "reasons",
    "attempts",
    "wall_s",
    "replay",
    "commit",
    "dirty",
)


@dataclass(frozen=True)
class StoredResult:
    """A figure's stored values, judged by the ledger of now.

    ``old``: the reason why it is not counted; empty where it is.
    ``in_advance``: its rules were fixed before its runs, and are the same now.
    """

    done: Reproduced
    record: Record
    old: str
    in_advance: bool

    @property
    def live(self) -> bool:
        return "runs" in self.record

    @property
    def runs_at(self) -> Counter[str | None]:
        """The number of live runs by the commit that played them, None where
        they name none: a run that was kept may be of an earlier one than the
        result.
        """
        runs = self.record.get("runs", ())
        return Counter(run.get("commit") for run in runs)


def sections() -> dict[str, AnyFigure]:
    """Every figure by the name of its section."""
    every = (*FIGURES.values(), *LIVE_FIGURES.values())
    return {figure.section: figure for figure in every}


def is_results_of(record: Record, figure: AnyFigure) -> bool:
    """True where results and figure are both live or both simulated: they once
    shared a folder where their names are the same.
    """
    return ("runs" in record) == isinstance(figure, LiveFigure)


def take_in(out: Path, folder: Path = FOLDER) -> list[str]:
    """Takes the values of all full-size results below ``out``; the names of
    their figures. Those of further seeds join the stored ones, as
    :func:`reproductions.further_seeds.joined` says; raises as it does.

    Curves over a run's time are not among the values: a figure that has some
    brings its picture, of its first seed.
    """
    data = folder / DATA
    data.mkdir(parents=True, exist_ok=True)
    taken = []
    for name, figure in sections().items():
        source = out / folder_of(figure)
        if not (source / RESULTS).exists():
            continue
        record = json.loads((source / RESULTS).read_text("utf-8"))
        if not is_results_of(record, figure):
            continue
        path = data / f"{name}.json"
        new = compact(record)
        is_further = record["first_seed"] > figure.first_seed
        if is_further:
            new = joined(_stored_record(path), new)
        path.write_text(to_text(new), "utf-8")
        # Other pictures are drawn from the values, in today's style.
        if has_curves(figure) and not is_further:
            picture = (source / f"{PICTURE}.svg").read_text("utf-8")
            (data / f"{name}.svg").write_text(trimmed(picture), "utf-8")
        taken.append(name)
    return taken


def _stored_record(path: Path) -> Record:
    """The values of a figure's first seeds. Raises BadInput without any."""
    try:
        record: Record = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise BadInput(
            f"there is no stored result that further seeds could join: {path}",
            "take the figure without --after first",
        ) from None
    return record


def compact(record: Record) -> dict[str, Any]:
    """The part of a ``results.json`` that pages need."""
    # Results from before some of the parts existed lack them.
    kept = {key: record[key] for key in KEPT if key in record}
    if "runs" in record:
        kept["runs"] = []
        for run in record["runs"]:
            parts = {key: run[key] for key in KEPT_OF_RUNS if key in run}
            kept["runs"].append(parts)
    for measure in record["measures"]:
        points = [
            [point["series"], point["x"], point["by_seed"]]
            for point in measure["points"]
        ]
        kept[f"{VALUES_OF}{measure['name']}"] = points
    return kept


def to_text(record: Record) -> str:
    """A compact record as the text of its file: one line per measure."""
    # A line for each, so that a difference of versions names what changed.
    lines = []
    for key, value in record.items():
        lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def restored(figure: AnyFigure, record: Record) -> Reproduced:
    """The figure with its grid, from a compact record.

    What the record lacks is not-a-number, and decides nothing.
    """
    measures = [panel.measure for panel in figure.tables]
    unknown = {measure.name: math.nan for measure in measures}
    runs: dict[Point, tuple[dict[str, float], ...]] = {}
    for point in figure.points:
        runs[point] = tuple(dict(unknown) for _ in range(record["seeds"]))
    for measure in measures:
        points = record.get(f"{VALUES_OF}{measure.name}", ())
        for series, x, by_seed in points:
            # Points that the figure had once are passed over.
            of_point = runs.get((series, float(x)), ())
            # Grids have values in plain units, records in those of
            # measures.
            for run, value in zip(of_point, by_seed, strict=False):
                if value is not None:
                    run[measure.name] = value / measure.factor
    grid = Grid(runs, figure.exact)
    stages = tuple(record.get("stages", ()))
    return Reproduced(
        figure=figure,
        seeds=record["seeds"],
        quick=record["size"] == "quick",
        grid=grid,
        stages=stages,
    )


Stored = Mapping[str, StoredResult]
"""Stored results by the names of their sections."""


def stored(folder: Path = FOLDER) -> Stored:
    """All figures that have values in ``data/``."""
    verdicts = read_verdicts(folder)
    results = {}
    for name, figure in sections().items():
        path = folder / DATA / f"{name}.json"
        if path.exists():
            record = json.loads(path.read_text("utf-8"))
            made = verdicts.get(name, {})
            results[name] = StoredResult(
                done=restored(figure, record),
                record=record,
                old=made.get("old", ""),
                in_advance=made.get("rules_first", False),
            )
    return results


def read_verdicts(folder: Path = FOLDER) -> dict[str, Any]:
    """``verdicts.json``; nothing where there is none."""
    path = folder / DATA / VERDICTS
    if not path.exists():
        return {}
    record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return record


def verdicts_of(result: StoredResult) -> list[list[str]]:
    """Each claim's sentence with its verdict."""
    return [
        [judged.claim.text, judged.verdict] for judged in result.done.judged
    ]


def standing(result: StoredResult) -> str:
    """The reason why a result is old; empty where it is not.

    A result is old if the repository has no sound commit of its runs, or if its
    figure plays something else now.
    """
    # Without its commit nobody can take a result again.
    unsound = unsound_commit(result.record["code"])
    if unsound:
        return unsound
    for run in result.record.get("runs", ()):
        unsound = unsound_commit(run)
        if unsound:
            return f"a live run: {unsound}"
    if _revised(result):
        return "taken under another interpretation"
    return ""


def rules_first(result: StoredResult) -> bool:
    """True where the state of the ledger that a result names has the rules that
    judge it now, and so had the commit of each live run.
    """
    commit = (result.record.get("ledger") or {}).get("commit")
    if not commit:
        return False
    path = path_of(result.done.figure.section)
    now = rules_in(path.read_bytes())
    # A live run that was kept may be older than the rules. One that names no
    # commit makes the result old, whatever its rules.
    for state in {commit, *result.runs_at} - {None}:
        before = content_at(state, path)
        if before is None or rules_in(before.encode()) != now:
            return False
    return True


def _revised(result: StoredResult) -> bool:
    figure = result.done.figure
    if "played" in result.record:
        return bool(result.record["played"] != figure.played_digest())
    # From before results named what was played.
    return figure.section in REVISED


def write_verdicts(folder: Path = FOLDER) -> None:
    """Judges all stored values again, by the ledger as it is committed."""
    # Standing depends on the repository's history, which an installed
    # package does not have: it is stored.
    verdicts = {}
    for name, result in stored(folder).items():
        verdicts[name] = {
            "ledger": result.done.figure.ledger,
            "old": standing(result),
            "rules_first": rules_first(result),
            "verdicts": verdicts_of(result),
        }
    text = json.dumps(verdicts, ensure_ascii=False, indent=1)
    (folder / DATA / VERDICTS).write_text(f"{text}\n", "utf-8")


def trimmed(svg: str) -> str:
    """A picture without the blanks that matplotlib leaves at line ends."""
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def has_curves(figure: AnyFigure) -> bool:
    """True where a figure shows curves over a run's time."""
    return isinstance(figure, LiveFigure) and bool(figure.curves)
