"""Files from outside, packed or not: their lines and bytes, within bounds.

A small archive may unpack without end, and a file may be something else than its
name says: its content decides.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import math
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, cast

LINES_A_CHECK = 1_000
LONGEST_LINE = 1 << 20
_BLOCK_BYTES = 1 << 20


class CutOff(ValueError):
    """A file that cannot be read any further, as a damaged or an endless archive;
    ``line`` where that is known.
    """

    def __init__(
        self,
        message: str,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Bounds:
    """Most lines and bytes that are read of a file, and the reason.

    ``until_s``: this process's processor time after which no more is read.
    """

    lines: int
    size_bytes: int
    reason: str
    until_s: float = math.inf

    @classmethod
    def of(cls, packed_bytes: int | None) -> Bounds:
        """Those of a plain file (None), or of an archive of that size.

        A small archive may unpack without end: a real log's lines take some
        bytes each in it, and unpack to 5 to 15 times its size.
        """
        if packed_bytes is None:
            reason = "no trace has so much before this line"
            return cls(20_000_000, 4 << 30, reason)
        reason = (
            f"an archive of {packed_bytes:,} bytes that unpacks to so much before this"
            " line is no trace's; if it is one, unpack it first"
        )
        n_lines = 200_000 + packed_bytes
        # Of a real log a megabyte takes some 3 s.
        until_s = time.process_time() + 60 + packed_bytes / 100_000
        return cls(n_lines, (8 << 20) + 30 * packed_bytes, reason, until_s)

    def check(
        self,
        n_lines: int,
        n_bytes: int,
    ) -> None:
        """Raises CutOff beyond them."""
        if n_lines > self.lines:
            raise CutOff(
                f"over {self.lines:,} lines: {self.reason}", n_lines
            )
        if n_bytes > self.size_bytes:
            raise CutOff(
                f"over {self.size_bytes >> 20:,} MiB: {self.reason}",
                n_lines,
            )
        # Asking for the time takes as long as reading a line.
        if (
            n_lines % LINES_A_CHECK == 0
            and time.process_time() > self.until_s
        ):
            raise CutOff(f"too long a time: {self.reason}", n_lines)


# ------------------------------------------------------------------ archives


def _zstandard(file: BinaryIO) -> BinaryIO:
    """The content of a Zstandard file; its window is 128 MiB at most.

    Python has a module for it from 3.14 on. Arrow is here in any case, and
    takes a third of a second to import.
    """
    import pyarrow

    packed = pyarrow.PythonFile(file, "r")
    return cast(BinaryIO, pyarrow.CompressedInputStream(packed, "zstd"))


def _lzma(file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, lzma.LZMAFile(file))


_ARCHIVES: dict[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\x1f\x8b": lambda file: cast(BinaryIO, gzip.GzipFile(fileobj=file)),
    b"BZh": lambda file: cast(BinaryIO, bz2.BZ2File(file)),
    b"\xfd7zXZ\x00": _lzma,
    b"\x5d\x00\x00": _lzma,  # the older form, .lzma
    b"\x28\xb5\x2f\xfd": _zstandard,
    b"\x50\x2a\x4d\x18": _zstandard,  # from pzstd
}
"""Functions that open archives, by the archives' first bytes."""

_UNPACK = "unpack it first"
_FOREIGN: dict[bytes, tuple[str, str]] = {
    b"PK\x03\x04": ("a ZIP archive", _UNPACK),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", _UNPACK),
    b"Rar!\x1a": ("a RAR archive", _UNPACK),
    b"\x1f\x9d": ("packed by compress (.Z)", _UNPACK),
    b"\x04\x22\x4d\x18": ("packed by LZ4", _UNPACK),
    b"PAR1": ("a Parquet file", "write it as text"),
    b"\x89HDF": ("an HDF5 file", "write it as text"),
    b"SQLite format 3": ("an SQLite database", "write it as text"),
    b"%PDF": ("a PDF document", "take the data that it shows"),
    b"\x7fELF": ("a program", "take the data that it reads"),
    b"version https://git-lfs": (
        "what Git LFS left in the file's place",
        "git lfs pull brings the file",
    ),
    b"<!doctype html": (
        "a web page",
        "download what the page has a link to",
    ),
    b"<html": ("a web page", "download what the page has a link to"),
}
"""Files that are often taken for a text: their first bytes, compared without
case, their kind, and advice.
"""
_TAR_MARK = slice(257, 262)
_LOOKED_AT = 512


@contextmanager
def unpacked(path: Path) -> Iterator[tuple[io.BufferedReader, Bounds]]:
    """The content and its bounds. It is unpacked where its first bytes are those
    of gzip, bzip2, xz or Zstandard, whatever the name says.

    Raises OSError; :class:`CutOff` where an archive is damaged, or the path
    is that of a pipe or a device.
    """
    _check_is_stored(path)
    with path.open("rb") as file, _damage_as_cut_off():
        # Without moving on: an unpacker, or the reader of a plain file,
        # starts at the first byte.
        begin = file.peek(_LOOKED_AT)
        inside = file
        bounds = Bounds.of(None)
        for magic, unpacking in _ARCHIVES.items():
            if begin.startswith(magic):
                source = cast(io.RawIOBase, unpacking(file))
                inside = io.BufferedReader(source)
                bounds = Bounds.of(os.fstat(file.fileno()).st_size)
        yield inside, bounds


@contextmanager
def _damage_as_cut_off() -> Iterator[None]:
    """Raises CutOff in place of what unpackers raise."""
    try:
        yield
    except MemoryError:
        # Its first bytes name the memory that xz is to take.
        more = "wants more memory to be unpacked than there is"
        raise CutOff(f"{more}: {_UNPACK}") from None
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        # Those of the system have a number, gzip's and Arrow's have none.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        damage = "the compressed file is cut off or damaged here"
        raise CutOff(f"{damage} ({error})") from None


def _check_is_stored(path: Path) -> None:
    """Raises CutOff for what cannot be read a second time: a pipe without a
    writer would be waited for, and a device may have no end.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise CutOff(
            "is a pipe or a device, and is read more than once: write it"
            " to a file first"
        )


def unpacked_bytes(
    path: Path,
    most_bytes: int,
) -> bytes:
    """The whole content. Raises OSError; :class:`CutOff` where an archive is
    damaged, something else than a text, in UTF-16 or UTF-32, or larger.
    """
    content = bytearray()
    with unpacked(path) as (inside, bounds):
        begin = inside.peek(_LOOKED_AT)
        encoding = _wide_encoding(begin)
        if encoding is not None:
            raise CutOff(
                f"is written in {encoding.upper()}: save the file as UTF-8",
                1,
            )
        _check_is_text(begin)
        while block := inside.read(_BLOCK_BYTES):
            content += block
            if len(content) > most_bytes:
                raise CutOff(f"over {most_bytes >> 20:,} MiB")
            bounds.check(0, len(content))
    return bytes(content)


def checksum(path: Path) -> str:
    """SHA-256 of the unpacked content, in hexadecimal. Raises OSError,
    :class:`CutOff`.
    """
    digest = hashlib.sha256()
    n_bytes = 0
    with unpacked(path) as (inside, bounds):
        while block := inside.read(_BLOCK_BYTES):
            n_bytes += len(block)
            bounds.check(0, n_bytes)
            digest.update(block)
    return digest.hexdigest()


# ------------------------------------------------------------------ texts

_WIDE = {
    # UTF-32's mark begins as that of UTF-16.
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by their byte order mark: what Windows writes, now and then."""


@contextmanager
def opened(path: Path) -> Iterator[Iterator[str]]:
    """The file's lines. Raises OSError; :class:`CutOff` while iterating over a
    damaged archive, or what is no text.

    Bytes are taken as Latin-1: every one is a character, and a trace's fields
    are ASCII. A byte order mark is no part of the lines; UTF-16 and UTF-32 are
    read as if they were UTF-8.
    """
    with unpacked(path) as (inside, bounds):
        yield _decoded_lines(inside, bounds)


def _decoded_lines(
    inside: io.BufferedReader,
    bounds: Bounds,
) -> Iterator[str]:
    begin = inside.peek(_LOOKED_AT)
    encoding = _wide_encoding(begin)
    if encoding is None:
        _check_is_text(begin)
    if begin.startswith(codecs.BOM_UTF8):
        inside.read(len(codecs.BOM_UTF8))
    with io.TextIOWrapper(
        inside, encoding=encoding or "latin-1", errors="replace"
    ) as text:
        for line in _lines(text, bounds):
            if encoding is None:
                yield line
            else:
                yield line.encode().decode("latin-1")


def _wide_encoding(begin: bytes) -> str | None:
    for mark, encoding in _WIDE.items():
        if begin.startswith(mark):
            return encoding
    return None


def _check_is_text(begin: bytes) -> None:
    """Raises CutOff where a content begins as no text does."""
    if begin[_TAR_MARK] == b"ustar":
        raise CutOff("is a tar archive: take the file out of it", 1)
    start = begin.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    for magic, (noun, advice) in _FOREIGN.items():
        if start.startswith(magic.lower()):
            raise CutOff(f"is {noun}: {advice}", 1)
    # What was packed once is unpacked by now.
    for magic in _ARCHIVES:
        if begin.startswith(magic):
            raise CutOff(f"is packed twice: {_UNPACK}", 1)
    # A few may stand in a log that a machine's crash cut off.
    if begin.count(0) > len(begin) // 8:
        raise CutOff("is no text: many of its bytes are NUL", 1)


def _lines(
    text: TextIO,
    bounds: Bounds,
) -> Iterator[str]:
    """The lines of a file; CutOff at one that no trace has, which a small
    archive may hold.
    """
    number = 0
    n_bytes = 0
    # With a limit: a gigabyte without a line's end would be read whole.
    while line := text.readline(LONGEST_LINE + 1):
        number += 1
        n_bytes += len(line)
        if len(line) > LONGEST_LINE:
            long = f"a line of more than {LONGEST_LINE:,} characters"
            raise CutOff(f"{long} is no trace's", number)
        bounds.check(number, n_bytes)
        yield line
