"""What is wrong with a file, where: collected, sorted and raised together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from testbed.errors import BadInput

Path = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Place:
    """A place in a source, counted from 1; line 0 where a source has none (a command's option)."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. ``path`` is the key as people write it: ``topology.fanout[2]``."""

    place: Place
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.place}: {self.path}" if self.path else str(self.place)
        return f"{where}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.place.source,
            "line": self.place.line,
            "column": self.place.column,
            "path": self.path,
            "message": self.message,
        }


class SpecErrors(BadInput):
    """All that is wrong with one file; its text is the list, one problem a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(
            sorted(problems, key=lambda p: (p.place, p.path, p.message))
        )
        if not self.problems:
            raise ValueError("there is nothing wrong")
        super().__init__("\n".join(str(problem) for problem in self.problems))


def dotted(path: Path) -> str:
    """``('jobs', 0, 'at')`` as ``jobs[0].at``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known name is near."""
    close = near(name, known)
    return f" (did you mean {close!r}?)" if close is not None else ""


def near(name: str, known: Sequence[str]) -> str | None:
    """The known name that ``name`` was probably meant to be."""
    folded = {k.lower().replace("_", "-"): k for k in known}
    key = name.lower().replace("_", "-").replace(" ", "-")
    if key in folded:
        return folded[key]
    close = get_close_matches(key, list(folded), n=1, cutoff=0.6)
    if not close:
        close = [k for k in folded if min(len(k), len(key)) > 2 and (k in key or key in k)]
    return folded[close[0]] if len(close) == 1 else None


def unknown_name(what: str, name: str, known: Sequence[str]) -> str:
    """``unknown policy 'vv' (did you mean 'vc'?); known: scripted, vc``."""
    return f"unknown {what} {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}"
