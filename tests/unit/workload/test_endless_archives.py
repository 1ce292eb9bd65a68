"""Archives that unpack without end: told by the line, and read no further."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.workload import packed_files
from jobs.workload.lwf import read_lwf
from jobs.workload.packed_files import CutOff, checksum, opened
from jobs.workload.swf import read_swf
from jobs.workload.swim import read_swim
from jobs.workload.traces import TraceErrors

SWF = "1 5 -1 10 4 -1 -1 4 10 -1 1 1 1 1 1 -1 -1 -1\n"
SWIM = "a{}\t5\t5\t1\t2\t3\n"
LWF = "0 -1 60 60 1 1 64 0 i 1\n"
READERS = {
    "swf": (read_swf, SWF),
    "swim": (read_swim, SWIM),
    "lwf": (read_lwf, LWF),
}


def packed(folder: Path, text: str, repeated: int) -> Path:
    """An archive of a text that stands there so many times."""
    path = folder / "trace.gz"
    with gzip.open(path, "wb") as file:
        block = text.encode() * 1000
        for _ in range(repeated // 1000):
            file.write(block)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    ("text", "repeated", "message"),
    [("\n", 300_000, "lines"), (f"{'x' * 1000}\n", 12_000, "MiB")],
    ids=["lines", "bytes"],
)
def test_it_is_told_with_the_line(
    kind: str, text: str, repeated: int, message: str, tmp_path: Path
) -> None:
    read, _ = READERS[kind]
    path = packed(tmp_path, text, repeated)
    assert path.stat().st_size < 100_000
    with pytest.raises(TraceErrors) as caught:
        read(path)  # type: ignore[operator]
    assert not caught.value.lines_alone
    # It is the last of the problems, of which the first are kept.
    if message == "lines":
        (problem,) = caught.value.problems
        bound = 200_000 + path.stat().st_size
        assert problem.line == bound + 1
        assert problem.message.startswith(
            f"over {bound:,} lines: an archive of"
        )
    assert caught.value.total < 12_000


@pytest.mark.parametrize("kind", READERS)
def test_one_that_takes_too_long_is_told_with_the_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is 20 s of processor time after the last one."""
    read, _ = READERS[kind]
    path = packed(tmp_path, "\n", 100_000)
    clock = itertools.count(0, 20)
    monkeypatch.setattr(
        packed_files.time, "process_time", lambda: next(clock)
    )
    with pytest.raises(TraceErrors) as caught:
        read(path)  # type: ignore[operator]
    (problem,) = caught.value.problems
    assert problem.line == 4_000
    assert problem.message.startswith("too long a time: an archive of")


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_more_than_a_log_is_read(
    kind: str, tmp_path: Path
) -> None:
    read, good = READERS[kind]
    path = tmp_path / "log.gz"
    text = "".join(good.replace("a{}", f"a{n}") for n in range(20_000))
    if kind == "swf":
        text = "".join(f"{n}{good[1:]}" for n in range(1, 20_001))
    path.write_bytes(gzip.compress(text.encode()))
    read(path)  # type: ignore[operator]


def test_so_is_its_checksum(tmp_path: Path) -> None:
    path = packed(tmp_path, "x" * 1000, 12_000)
    with pytest.raises(CutOff, match=re.escape("that unpacks to so much")):
        checksum(path)


def test_a_plain_file_has_bounds_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_text(SWF * 5)

    def few(_kind: object, _packed: int | None) -> packed_files.Bounds:
        return packed_files.Bounds(3, 10**6, "so it is")

    monkeypatch.setattr(packed_files.Bounds, "of", classmethod(few))
    with pytest.raises(TraceErrors, match=":4:1: over 3 lines: so it is"):
        read_swf(path)


@pytest.mark.parametrize("packed", [bz2.compress, lzma.compress])
def test_logs_that_others_packed_are_read(
    tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    text = b"one\ntwo\n"
    path = tmp_path / "log"
    path.write_bytes(packed(text))
    with opened(path) as lines:
        assert [line.strip() for line in lines] == ["one", "two"]
    path.write_bytes(packed(text * 999)[:-9])
    with pytest.raises(CutOff, match="damaged here"), opened(path) as lines:
        list(lines)
