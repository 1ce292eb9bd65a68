"""A distribution that is not there: modules and entry points in a folder on the path."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path

from testbed.plugins import installed


@contextmanager
def installed_package(
    folder: Path,
    modules: Mapping[str, str],
    entries: str,
    name: str = "hosenet-extra",
) -> Iterator[None]:
    """Version 1.0 of a package with these modules, by name, and the text of its entry points."""
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(entries, encoding="utf-8")
    sys.path.insert(0, str(folder))
    # Python remembers a folder's files by the folder's time, which is too
    # coarse for what was written just now.
    invalidate_caches()
    installed.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for module in modules:
            sys.modules.pop(module, None)
        installed.cache_clear()
