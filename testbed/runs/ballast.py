"""Room kept on the run folder's disk, so that a run which fills it can still say how it ended."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from testbed import events
from testbed.errors import RunFailed
from testbed.runs.play import Sink

BALLAST_BYTES = 8 << 20
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Ballast:
    """A file of zeros that is given up when the disk is full, or at the end."""

    def __init__(self, folder: Path, size_bytes: int = BALLAST_BYTES) -> None:
        self._path = folder / ".ballast"
        self._size_bytes = size_bytes

    def __enter__(self) -> Ballast:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._size_bytes)
        except OSError as error:
            self.release()
            if error.errno in FULL:
                raise RunFailed(
                    f"the disk of {self._path.parent} has under {self._size_bytes >> 20} MiB left",
                    "make room on it, or name another folder with --out",
                ) from error
            # A file system that cannot keep room does without.
        finally:
            os.close(descriptor)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the room to whatever is written next. A second call does nothing."""
        with suppress(OSError):
            self._path.unlink()

    @contextmanager
    def guarding(self) -> Generator[None, None, None]:
        """Turn a full disk into the end of the run; what is written from then on has room.

        What could not be written is still in its file's buffer and goes out with the next line.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.release()
            raise RunFailed(
                f"the disk of the run folder is full: {self._path.parent}",
                "make room on it, or name another folder with --out",
            ) from error

    def guarded(self, sink: Sink) -> Sink:
        """The sink, under :meth:`guarding`."""

        def passed(event: events.Event) -> None:
            with self.guarding():
                sink(event)

        return passed
