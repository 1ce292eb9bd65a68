"""Where a file that an experiment names is looked for."""

from __future__ import annotations

import os
from pathlib import Path


def search_path(beside: Path) -> tuple[Path, ...]:
    """Folders in order: beside the experiment file, along ``TESTBED_DATA``, the cache."""
    data = [Path(part) for part in os.environ.get("TESTBED_DATA", "").split(os.pathsep) if part]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "testbed"
    return (beside, *data, cache)


def find_file(name: str, beside: Path) -> Path | None:
    """The first file of that name; an absolute name stands for itself."""
    if "\0" in name:
        return None
    candidates = (folder / name for folder in search_path(beside))
    return next((path for path in candidates if path.is_file()), None)
