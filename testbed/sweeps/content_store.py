"""Data files on a worker, by their content: found where they are, else received
and kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import RunFailed
from testbed.file_digests import file_digest
from testbed.spec.document import search_path

PART_BYTES = 4 << 20
"""Size of the parts in which a file is sent: one is in memory at a time."""


@dataclass(frozen=True)
class Content:
    """A file by size and SHA-256, and the path that it has on the driver."""

    sha256: str
    size_bytes: int
    path: Path


class ContentStore:
    """Places of contents on this machine.

    A content that is received is kept in ``folder`` under its hash. ``also``:
    folders of data that may hold a content under any name.
    """

    def __init__(self, folder: Path, also: tuple[Path, ...] = ()) -> None:
        self._folder = folder
        self._also = also
        self._places: dict[str, Path] = {}

    def __getitem__(self, sha256: str) -> Path:
        """Place of a content that was found or received before."""
        return self._places[sha256]

    def find(self, content: Content) -> Path | None:
        """Place of that content: the driver's path, the cache, the folders of
        data; or None.
        """
        for path in self._candidates(content):
            with suppress(OSError):
                # The size first: a folder of data is not read whole for
                # each file.
                same_size = (
                    path.is_file()
                    and path.stat().st_size == content.size_bytes
                )
                if same_size and file_digest(path) == content.sha256:
                    self._places[content.sha256] = path
                    return path
        return None

    def _candidates(self, content: Content) -> Iterator[Path]:
        # The slowest last: folders of data are walked through.
        yield self._places.get(content.sha256, content.path)
        yield content.path
        yield self._folder / content.sha256
        for top in self._also:
            for folder, _, names in os.walk(top):
                yield from (Path(folder) / name for name in names)

    def receive(
        self, content: Content, sender: str, offset: int, part: bytes
    ) -> None:
        """Takes the parts of a content in order; the last one has it verified
        and stored.

        Raises RunFailed if it is not that content.
        """
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        # A name for each sender: two of them do not write into one file.
        partial = self._folder / f".{content.sha256}.{sender}"
        _write_part(partial, offset, part)
        # Without bytes: the driver's file has become shorter.
        if part and offset + len(part) < content.size_bytes:
            return
        if file_digest(partial) != content.sha256:
            partial.unlink()
            raise RunFailed(
                f"{content.path} has changed since the sweep began: its SHA-256 is no longer"
                f" {content.sha256[:12]}…",
                "start the sweep again",
            )
        # Renamed when it is whole and right: no reader finds a part of it.
        place = self._folder / content.sha256
        partial.replace(place)
        self._places[content.sha256] = place


def _write_part(partial: Path, offset: int, part: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    # The first part empties what an interrupted transfer has left.
    if offset == 0:
        flags |= os.O_TRUNC
    with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
        file.seek(offset)
        file.write(part)


def parts(content: Content) -> Iterator[tuple[int, bytes]]:
    """A file's parts with their offsets, each read when it is asked for; at
    least one.
    """
    with content.path.open("rb") as file:
        offset = 0
        while offset < max(1, content.size_bytes):
            part = file.read(min(PART_BYTES, content.size_bytes - offset))
            yield offset, part
            if not part:
                return
            offset += len(part)


def standard_store() -> ContentStore:
    """The store of this machine: what is received goes below the user's cache
    folder.
    """
    *data, cache = search_path(Path())[1:]
    return ContentStore(cache / "sweeps" / "files", (*data, cache))
