"""Values given on the command line in place of a file's: ``--set scale.rate=0.05``."""

from __future__ import annotations

import re
from typing import Any

from testbed.spec.document import Document, read_document
from testbed.spec.problems import Path, Place, Problem, SpecErrors, dotted


def override(document: Document, key: str, text: str) -> None:
    """Replace the value at a dotted ``key`` by YAML ``text``; problems go to the document."""
    source = Place(f"--set {key}={text}")
    path = _path(key)
    holder = _holder(document, path, source)
    if holder is None:
        document.problems.append(Problem(source, key, "is not a place in this file"))
        return
    _forget(document, path)
    try:
        given = read_document(text, source.source)
    except SpecErrors as errors:
        given = Document(problems=list(errors.problems), places={(): source}, poisoned={()})
    holder[path[-1]] = given.data
    document.key_places[path] = source
    document.places.update({path + sub: source for sub in given.places})
    document.key_places.update({path + sub: source for sub in given.key_places})
    document.poisoned.update(path + sub for sub in given.poisoned)
    document.problems.extend(Problem(source, dotted(path), p.message) for p in given.problems)


def _path(key: str) -> Path:
    """``workload.jobs[0].vms`` or ``workload.jobs.0.vms``."""
    parts = re.findall(r"[^.\[\]]+", key)
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _holder(document: Document, path: Path, source: Place) -> Any:
    """The mapping or list whose item the path names; missing mappings on the way are made."""
    holder = document.data
    for depth, part in enumerate(path):
        inside = isinstance(holder, dict) and isinstance(part, str)
        inside |= isinstance(holder, list) and isinstance(part, int) and part < len(holder)
        if not inside:
            return None
        if depth == len(path) - 1:
            return holder
        if isinstance(holder, dict) and part not in holder:
            holder[part] = {}
            document.places[path[: depth + 1]] = source
            document.key_places[path[: depth + 1]] = source
        holder = holder[part]
    return None


def _forget(document: Document, path: Path) -> None:
    """What was known of the places below a path that is about to be replaced."""
    for table in (document.places, document.key_places):
        for old in [known for known in table if known[: len(path)] == path]:
            del table[old]
    document.poisoned = {known for known in document.poisoned if known[: len(path)] != path}
