"""A digest of all that a figure plays: experiment files, settings, policies.

Results name it. Where it is another one now, they were taken under another
interpretation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from reproductions.configuration import FOLDER, Variant
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import AnyFigure, Figure

DIGITS = 16
PLACES = ("file", "file_sha256")
"""Keys of configurations in whose stead the file's content counts, without its
comments.
"""


def played_digest(figure: AnyFigure, *, quick: bool = False) -> str:
    """The beginning of the SHA-256 of what the first seed's runs play."""
    found = list(_played(figure, quick=quick))
    text = json.dumps(found, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _played(figure: AnyFigure, *, quick: bool) -> Iterator[object]:
    if isinstance(figure, LiveFigure):
        for series, x in figure.points:
            yield _of_variant(figure.variant(series, x, quick))
    elif isinstance(figure, Figure):
        for point, runs in figure.configurations(1, quick=quick).items():
            yield [point, _plain(runs[0].to_json())]


def _of_variant(variant: Variant) -> object:
    settings = dict(variant.settings)
    return [_content(variant.path), variant.policy, settings]


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """A configuration with its file's content in place of the file's name."""
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            found[key] = _plain(value)
        elif key not in PLACES:
            found[key] = value
    if "file" in record:
        found["content"] = _content(FOLDER / record["file"])
    return found


def experiment_files(figure: AnyFigure) -> list[Path]:
    """The experiment files that a figure plays, in order."""
    names: dict[str, None] = {}
    if isinstance(figure, LiveFigure):
        for series, x in figure.points:
            names[figure.variant(series, x, False).file] = None  # noqa: FBT003
    elif isinstance(figure, Figure):
        for runs in figure.configurations(1, quick=False).values():
            names.update(_files_in(runs[0].to_json()))
    return [FOLDER / name for name in names]


def _files_in(record: dict[str, Any]) -> dict[str, None]:
    names: dict[str, None] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            names.update(_files_in(value))
        elif key == "file":
            names[value] = None
    return names


@cache
def _content(path: Path) -> object:
    return yaml.safe_load(path.read_text("utf-8"))
