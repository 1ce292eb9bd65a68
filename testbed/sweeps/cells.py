"""Cells of a sweep, made when they are looked at; a cell's key is the digest of
its inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

from testbed.spec.document import read_document
from testbed.spec.experiment_file import key_path
from testbed.spec.sweep_section import as_yaml
from testbed.sweeps.cell_runs import Cell
from testbed.sweeps.computing_sources import code_digest, versions
from testbed.sweeps.sweep_plan import POLICIES, SweepPlan, overrides
from testbed.sweeps.tasks import FileRef

FORM = "cell 1"
"""Changes with the form of a cell's result."""


class Cells:
    """All cells of a plan by combination; none is kept."""

    def __init__(self, plan: SweepPlan) -> None:
        self.plan = plan
        keys = [swept.key for swept in plan.over]
        # Without a name of its own an experiment has that of its file.
        named = "name" in plan.data or "name" in keys
        self._base = [
            FORM,
            "" if named else plan.name,
            plan.backend,
            code_digest(live=plan.live),
            versions(),
        ]
        self._paths = {key: key_path(key) for key in keys}
        # Thousands of cells share sections and files: each digest is made
        # once.
        self._section = lru_cache(4096)(self._section_digest)
        self._of_files = lru_cache(1024)(self._files_after)
        heads = {str(path[0]) for path in self._paths.values()}
        self._fixed = {
            head: _digest(value, head)
            for head, value in plan.data.items()
            if head not in heads
        }
        # The same order whichever of them is swept.
        self._heads = sorted(heads | self._fixed.keys())

    def combinations(self) -> Iterator[tuple[Any, ...]]:
        """The values of all keys but the seed, in order."""
        return product(*self.plan.combined)

    def of(self, combination: Sequence[Any]) -> Iterator[Cell]:
        """The cells of a combination, in the order of the seeds."""
        if not self.plan.has_seeds:
            yield self._cell(tuple(combination))
            return
        for seed in self.plan.over[-1]:
            yield self._cell((*combination, seed))

    def _cell(self, values: tuple[Any, ...]) -> Cell:
        plan = self.plan
        texts = overrides(plan.over, values)
        changed = tuple(self._changed(values))
        files, files_digest = self._of_files(changed)
        parts = [*self._base, files_digest]
        for head in self._heads:
            digest = self._fixed.get(head) or self._swept(head, texts)
            parts.append(f"{head}={digest}")
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return Cell(
            key=key,
            live=plan.live,
            name=plan.path.name,
            values=values,
            overrides=texts,
            named=files,
        )

    def _swept(self, head: str, texts: Sequence[tuple[str, str]]) -> str:
        inside = []
        for path, (_, text) in zip(
            self._paths.values(), texts, strict=True
        ):
            if path[0] == head:
                inside.append((path, text))
        return self._section(head, tuple(inside))

    def _changed(self, values: Sequence[Any]) -> Iterator[tuple[str, str]]:
        """Those of the values that read other files than the first cell does."""
        if self.plan.changes:
            for swept, value in zip(self.plan.over, values, strict=True):
                change = swept.key, as_yaml(value)
                if change in self.plan.changes:
                    yield change

    def _files_after(
        self, changed: tuple[tuple[str, str], ...]
    ) -> tuple[Mapping[str, FileRef], str]:
        """The files that cells with these values read, and the digest of names
        and contents.
        """
        changes = [self.plan.changes[value] for value in changed]
        files = dict(self.plan.files)
        for name in set().union(*changes):
            files.pop(name, None)
        for change in changes:
            # One value may take away what another one adds.
            for name, ref in change.items():
                if ref:
                    files[name] = ref
        digests = {name: files[name].sha256 for name in sorted(files)}
        return files, _digest(digests, "")

    def _section_digest(
        self, head: str, swept: tuple[tuple[Any, str], ...]
    ) -> str:
        """The digest of a top-level section with a cell's values in it."""
        data: Any = {}
        if head in self.plan.data:
            data = {head: self.plan.data[head]}
        for path, text in swept:
            data = with_value(data, path, _plain(text))
        return _digest(data[head], head)


def with_value(data: Any, path: Sequence[str | int], value: Any) -> Any:
    """A copy of plain data with another value at a path; mappings on the way
    are made.
    """
    if not path:
        return value
    head, *rest = path
    if isinstance(data, list) and isinstance(head, int):
        changed = list(data)
        changed[head] = with_value(data[head], rest, value)
        return changed
    mapping = data or {}
    return {**mapping, head: with_value(mapping.get(head), rest, value)}


def _plain(text: str) -> Any:
    """The value of an override."""
    return read_document(text, "").data


def _digest(value: Any, head: str) -> str:
    # The order of a policy's parameters is that of its label.
    text = json.dumps(value, ensure_ascii=False, sort_keys=head != POLICIES)
    return hashlib.sha256(text.encode()).hexdigest()
