"""One file that a stranger can judge again: a figure's experiments with the
settings and policy of each point, its rules, values, verdicts and environment.

Rules and values are whole in it, so that nothing of this checkout but the
arithmetic decides. ``digest`` is over all the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from reproductions.catalogue import folder_of, measures_for
from reproductions.claim_ledger import (
    LedgerError,
    judged_by,
    named,
    path_of,
)
from reproductions.claim_ledger import (
    digest_of as digest_of_rules,
)
from reproductions.configuration import FOLDER
from reproductions.further_seeds import VALUES_OF
from reproductions.published_figure import (
    RESULTS,
    AnyFigure,
    Reproduced,
    digest_of_played,
)
from reproductions.stored_results import (
    DATA,
    compact,
    is_results_of,
    restored,
    sections,
)
from reproductions.stored_results import FOLDER as PAGES
from testbed.errors import BadInput
from testbed.record.provenance import TREE, machine, packages, python
from testbed.record.stored_json import (
    fault_of,
    first_fault,
    from_json,
    open_regular,
    read_json,
)

FORMAT = 1
# Limits the memory that a file from outside may ask for.
MOST_SEEDS = 100_000
Content = dict[str, Any]


class StateOfLedger(BaseModel, strict=True):
    """The name of a state of a figure's rules."""

    digest: str
    commit: str | None


class LedgerPart(StateOfLedger):
    """The rules in a claim file."""

    text: str


class ResultsPart(BaseModel):
    """The values in a claim file. Those of each measure are fields of their
    own, ``values of NAME``: series, x, and one value a seed.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    seeds: int = Field(ge=1, le=MOST_SEEDS)
    first_seed: int = Field(default=1, ge=1)
    size: str
    stages: list[int] = []
    ledger: StateOfLedger | None = None

    @model_validator(mode="after")
    def _values_by_seed(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if name.startswith(VALUES_OF):
                VALUES.validate_python(value)
        return self


VALUES = TypeAdapter(list[tuple[str, float, list[float | None]]])


# A claim's sentence, status and verdict.
Verdict = Annotated[list[str], Field(min_length=3, max_length=3)]


class ClaimFile(BaseModel, strict=True):
    """The types of a claim file's parts. ``points``: series, x, and what the
    first seed's run plays there; earlier files have none.
    """

    format: Literal[1]
    figure: str
    experiments: dict[str, str]
    points: list[list[Any]] | None = None
    ledger: LedgerPart
    results: ResultsPart
    verdicts: list[Verdict]
    played: str
    environment: dict[str, Any]
    digest: str


@dataclass(frozen=True)
class Checked:
    """A claim file judged again: the sentences whose verdict is another now.

    ``remarks``: what is different here from where it was written.
    """

    done: Reproduced
    differ: tuple[str, ...]
    remarks: tuple[str, ...]


def claim_content(section: str, record: Mapping[str, Any]) -> Content:
    """The content of a claim file, from a compact record of results."""
    figure = sections()[section]
    done = restored(figure, record)
    content: Content = {
        "format": FORMAT,
        "figure": section,
        "experiments": experiments_of(figure),
        "points": figure.played(quick=False),
        "ledger": {
            **named(figure),
            "text": path_of(section).read_text("utf-8"),
        },
        "results": dict(record),
        "verdicts": verdicts_of(done),
        "played": figure.played_digest(),
        "environment": {
            "machine": machine(),
            "python": python(),
            "packages": packages(),
        },
    }
    return {**content, "digest": digest_of(content)}


def experiments_of(figure: AnyFigure) -> dict[str, str]:
    """The experiment files that a figure plays, by name."""
    names: dict[str, None] = {}
    for _, _, run in figure.played(quick=False):
        names.update(_files_in(run))
    return {name: (FOLDER / name).read_text("utf-8") for name in names}


def _files_in(run: Mapping[str, Any]) -> dict[str, None]:
    """The names of experiment files in what a run plays, at any depth: a point
    may show several runs.
    """
    names: dict[str, None] = {}
    for key, value in run.items():
        if isinstance(value, dict):
            names.update(_files_in(value))
        elif key == "file":
            names[value] = None
    return names


def verdicts_of(done: Reproduced) -> list[list[str]]:
    """Each claim's sentence, status and verdict."""
    return [
        [judged.claim.text, judged.claim.status, judged.verdict]
        for judged in done.judged
    ]


def digest_of(content: Content) -> str:
    """SHA-256 of all but the digest itself."""
    # A file may have its keys in any order.
    rest = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def results_of(section: str, out: Path) -> Content:
    """The compact results of a figure: those below ``out``, else those beside
    the papers' pages of this checkout, wherever the command was typed. Raises
    BadInput where there are none.
    """
    figure = sections()[section]
    # Results of this machine come before those of the checkout.
    path = out / folder_of(figure) / RESULTS
    stored = TREE / PAGES / DATA / f"{section}.json"
    values: Content = {}
    record = read_json(path)
    if record is not None:
        try:
            if is_results_of(record, figure):
                values = compact(record)
                ResultsPart.model_validate(values)
        except (KeyError, TypeError, ValidationError) as error:
            raise BadInput(
                f"{path}: damaged: no results of a figure",
                f"testbed reproduce {figure.name}",
            ) from error
    if not values and stored.exists():
        values = json.loads(stored.read_text("utf-8"))
    if values:
        return values
    raise BadInput(
        f"there are no results of {section}: neither {path} nor {stored}",
        f"testbed reproduce {figure.name}",
    )


def read_claim_file(path: Path) -> Content:
    """A claim file's content. Raises BadInput where it is none, or was changed."""
    try:
        with open_regular(path) as file:
            content: Content = from_json(file.read())
        ClaimFile.model_validate(content)
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror}",
            "testbed claim FIGURE writes such a file",
        ) from error
    except ValidationError as error:
        fault = first_fault(error, "file")
        raise BadInput(f"{path}: no claim file: {fault}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: no claim file: {fault_of(error)}"
        ) from error
    if content["figure"] not in sections():
        raise BadInput(f"{path}: no figure is called {content['figure']}")
    if content["digest"] != digest_of(content):
        raise BadInput(
            f"{path}: its content is not that of its digest: it was changed",
            ASK,
        )
    _require_parts(content, path)
    return content


ASK = "ask for the file as it was written"


def _require_parts(content: Content, path: Path) -> None:
    """Raises BadInput where a part is not that of the digest beside it."""
    ledger = content["ledger"]
    # Files of an earlier form have no points.
    points = content.get("points")
    if digest_of_rules(ledger["text"].encode()) != ledger["digest"]:
        raise BadInput(
            f"{path}: its rules are not those of the ledger's digest", ASK
        )
    if points is not None and digest_of_played(points) != content["played"]:
        raise BadInput(
            f"{path}: its points are not those that it says were played",
            ASK,
        )


def judged_again(content: Content) -> Checked:
    """The file's values, by the file's own rules. Raises BadInput where these
    are no rules of its figure.
    """
    figure = figure_of(content)
    done = restored(figure, content["results"])
    try:
        judged = verdicts_of(done)
    except (KeyError, TypeError) as error:
        # A ledger's series and places are looked up when it judges; a series
        # that is a list is of a type that cannot be.
        raise BadInput(
            f"a rule of {figure.section} is about {error}, which is no point of it"
        ) from error
    before = content["verdicts"]
    if _judged_claims(before) != _judged_claims(judged):
        raise BadInput(
            f"the verdicts on {figure.section} are not about the claims of its ledger"
        )
    differ = []
    for former, now in zip(before, judged, strict=True):
        if former != now:
            text, _, verdict = now
            differ.append(f"{text}: {verdict}, and not {former[2]}")
    return Checked(done, tuple(differ), tuple(_remarks(content)))


def _judged_claims(
    verdicts: Iterable[Sequence[str]],
) -> list[Sequence[str]]:
    """Sentences and statuses without their verdicts."""
    return [verdict[:2] for verdict in verdicts]


def figure_of(content: Content) -> AnyFigure:
    """The figure with the claims that the file has for it. Raises BadInput."""
    figure = sections()[content["figure"]]
    text = content["ledger"]["text"].encode()
    try:
        # The ledger's loader is in C, where a text that is nested deeply
        # enough ends the process: this one raises RecursionError.
        yaml.compose(text, yaml.SafeLoader)
        return judged_by(figure, text, measures_for(figure))
    except RecursionError as error:
        raise BadInput(
            "the rules cannot be read: nested too deeply"
        ) from error
    except (LedgerError, yaml.YAMLError) as error:
        raise BadInput(f"the rules cannot be read: {error}") from error


def _remarks(content: Content) -> list[str]:
    """Differences from this checkout to where the file was written, each as a
    sentence.
    """
    figure = sections()[content["figure"]]
    remarks = []
    if figure_of(content).ledger != figure.ledger:
        remarks.append("the ledger has other rules for this figure now")
    if content["played"] != figure.played_digest():
        remarks.append("the figure plays something else now")
    # Results of an earlier form do not name what was played.
    results = content["results"]
    if results.get("played", content["played"]) != content["played"]:
        remarks.append("its runs played something else than its points say")
    of_runs = results.get("ledger")
    if of_runs is None:
        remarks.append("its runs are older than its rules")
    experiments = experiments_of(figure)
    for name, text in content["experiments"].items():
        if experiments.get(name) != text:
            remarks.append(f"{name} is another file here")
    return remarks
