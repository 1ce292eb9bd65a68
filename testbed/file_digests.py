"""SHA-256 of files, computed again only where size or times have changed."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path


def file_digest(path: Path) -> str:
    """The digest of a file's content as it is now. Raises OSError where it
    cannot be read.
    """
    status = path.stat()
    return _digest_of(
        path, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


@lru_cache(4096)
def _digest_of(path: Path, *_state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
