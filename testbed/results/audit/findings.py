"""What an audit says: named checks, each passed, failed or not applicable, with its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from testbed.results.audit.history import History

Status = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Finding:
    """Something wrong, and where: the file and its line (None: the file as a whole)."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


@dataclass(frozen=True)
class Check:
    """One invariant. ``applies`` gives the reason why it does not, or None where it does."""

    name: str
    says: str
    find: Callable[[History], Iterator[Finding]]
    applies: Callable[[History], str | None] = lambda _: None


@dataclass(frozen=True)
class Result:
    """A check's outcome. ``findings`` holds the first ones, ``n_findings`` counts them all."""

    name: str
    says: str
    status: Status
    why: str
    n_findings: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Audit:
    """The whole audit of one run."""

    path: str
    run: str
    policy: str
    n_events: int
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        return all(result.status != "failed" for result in self.results)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}
