"""Traces as others export them: with columns of their own, byte order marks, in
any archive; and files that are no traces, told by what they are.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from jobs.workload.lwf import read_lwf
from jobs.workload.packed_files import CutOff, checksum, unpacked_bytes
from jobs.workload.swf import read_swf
from jobs.workload.swim import read_swim
from jobs.workload.traces import TraceErrors

SWF = "1 5 -1 10 4 -1 -1 4 10 -1 1 1 1 1 1 -1 -1 -1"
SWIM = "a\t5\t5\t1\t2\t3"
LWF = "0 -1 60 60 1 1 64 0 i 1"
XML = """<?xml version="1.0"?>
<lease-workload><lease-request arrival="00:00:10.50"><lease id="1">
<nodes><node-set numnodes="3"><res amount="100" type="CPU"/></node-set></nodes>
<start/><duration time="01:00:00.00"/></lease></lease-request></lease-workload>
"""
READERS: dict[str, tuple[Callable[..., Any], str]] = {
    "swf": (read_swf, SWF),
    "swim": (read_swim, SWIM),
    "lwf": (read_lwf, LWF),
    "lwf-xml": (read_lwf, XML),
}
LINES = {kind: READERS[kind] for kind in ("swf", "swim", "lwf")}


def zstandard(content: bytes) -> bytes:
    """A frame of one uncompressed block, put together by RFC 8878, Section 3."""
    single_segment_with_4_bytes_of_size = bytes([0b1010_0000])
    last_raw_block = struct.pack("<I", len(content) << 3 | 1)[:3]
    return (
        b"\x28\xb5\x2f\xfd"
        + single_segment_with_4_bytes_of_size
        + struct.pack("<I", len(content))
        + last_raw_block
        + content
    )


def alone(content: bytes) -> bytes:
    return lzma.compress(content, format=lzma.FORMAT_ALONE)


ARCHIVES = [
    bytes,
    gzip.compress,
    bz2.compress,
    lzma.compress,
    alone,
    zstandard,
]


def taken(result: Any) -> list[Any]:
    """The jobs of any reader's result."""
    return list(getattr(result, "jobs", getattr(result, "records", ())))


def message(path: Path, read: Callable[..., Any]) -> str:
    with pytest.raises(TraceErrors) as caught:
        read(path)
    assert not caught.value.lines_alone
    return caught.value.problems[0].message


# -- columns


@pytest.mark.parametrize("kind", LINES)
def test_columns_after_the_known_ones_are_read_past_and_counted(
    kind: str, tmp_path: Path
) -> None:
    read, line = LINES[kind]
    gap = "\t" if kind == "swim" else " "
    path = tmp_path / "log"
    path.write_text(f"{line}\n")
    plain = read(path)
    assert plain.remarks == ()
    path.write_text(f"{line}{gap}node7{gap}q_2h\n")
    longer = read(path)
    assert taken(longer) == taken(plain)
    wanted = len(line.split())
    (remark,) = longer.remarks
    assert remark == (
        f"1 line has more than {wanted} fields, the first of them line 1 with"
        f" {wanted + 2}: what follows is not read"
    )
    # A short line is wrong, beside longer ones too.
    short = gap.join(line.split()[:-1]).replace("a", "b")
    path.write_text(f"{line}{gap}x\n{short}\n{line}{gap}7\n")
    with pytest.raises(TraceErrors, match="the line is cut off"):
        read(path)


def test_a_column_of_numbers_is_no_field_either(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [f"{number}{SWF[1:]} 7" for number in range(1, 10)]
    path.write_text("\n".join(lines))
    log = read_swf(path)
    assert log.records["number"].tolist() == list(range(1, 10))
    assert log.records["think_s"].tolist() == [-1.0] * 9
    assert log.remarks[0].startswith("9 lines have more than 18 fields")


# -- encodings and archives


@pytest.mark.parametrize("pack", ARCHIVES)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("kind", READERS)
def test_byte_order_marks_in_any_archive(
    kind: str, encoding: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    read, line = READERS[kind]
    path = tmp_path / "log"
    path.write_text(line)
    plain = taken(read(path))
    path.write_bytes(pack(f"{line}\r\n".encode(encoding)))
    assert taken(read(path)) == plain


def test_what_zstd_itself_packs(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [f"{number}{SWF[1:]}" for number in range(1, 20_000)]
    path.write_text("\n".join(lines))
    before = checksum(path)
    try:
        subprocess.run(["zstd", "-q", "--rm", path], check=True)
    except FileNotFoundError:
        pytest.skip("zstd is not installed")
    packed = tmp_path / "log.zst"
    assert checksum(packed) == before
    assert len(read_swf(packed).records) == len(lines)
    packed.write_bytes(packed.read_bytes()[:-9])
    assert "cut off or damaged here" in message(packed, read_swf)


def test_a_damaged_zstandard_file(tmp_path: Path) -> None:
    path = tmp_path / "log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\xff" * 100)
    assert "cut off or damaged here" in message(path, read_swf)


def test_an_endless_zstandard_file_ends_with_its_line(
    tmp_path: Path,
) -> None:
    """Blocks of one repeated byte (RFC 8878, 3.1.1.2): 128 KiB from four
    bytes.
    """
    path = tmp_path / "log.zst"
    window_of_128_kib = bytes([0, 56])
    repeated = struct.pack("<I", 131072 << 3 | 0b010)[:3] + b"\n"
    path.write_bytes(
        b"\x28\xb5\x2f\xfd" + window_of_128_kib + repeated * 5000
    )
    assert message(path, read_swf).startswith("over 220,")


# -- what is no trace


def zip_file(content: bytes) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("log", content)
    return out.getvalue()


def tar_file(content: bytes) -> bytes:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("log")
        member.size = len(content)
        archive.addfile(member, BytesIO(content))
    return out.getvalue()


FOREIGN = {
    "zip": (zip_file(SWF.encode()), "is a ZIP archive: unpack it first"),
    "tar": (
        tar_file(SWF.encode()),
        "is a tar archive: take the file out of it",
    ),
    "twice": (gzip.compress(b"\n"), "is packed twice: unpack it first"),
    "page": (b"\n <!DOCTYPE HTML><html>", "is a web page: download what"),
    "lfs": (
        b"version https://git-lfs.example/spec\n",
        "is what Git LFS left in the file's place: git lfs pull brings",
    ),
    "parquet": (b"PAR1" + bytes(99), "is a Parquet file: write it as text"),
    "no mark": (SWF.encode("utf-16-le"), "is no text: many of its bytes"),
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("kind", READERS)
def test_what_is_no_trace_is_told_by_what_it_is(
    kind: str, what: str, tmp_path: Path
) -> None:
    read, _ = READERS[kind]
    content, said = FOREIGN[what]
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(content))
    assert message(path, read).startswith(said)
    if what != "twice":
        path.write_bytes(content)
        assert message(path, read).startswith(said)
        with pytest.raises(CutOff):
            unpacked_bytes(path, 1 << 20)


def test_a_lease_may_last_for_half_a_second(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(XML.replace("01:00:00.00", "00:00:00.50"))
    (lease,) = read_lwf(path).jobs
    assert lease.duration_s == 0.5
    path.write_text(XML.replace("01:00:00.00", "00:00:00.00"))
    assert "must be above 0" in message(path, read_lwf)


def test_a_whole_content_has_bounds(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bz2.compress(b"x" * (3 << 20)))
    assert len(unpacked_bytes(path, 4 << 20)) == 3 << 20
    with pytest.raises(CutOff, match="over 2 MiB"):
        unpacked_bytes(path, 2 << 20)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_whole_content_in_wide_characters_is_told_as_such(
    encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "network.gml"
    path.write_text("graph [ node [ id 1 ] ]", encoding)
    said = f"is written in {encoding.upper()}: save the file as UTF-8"
    with pytest.raises(CutOff, match=said):
        unpacked_bytes(path, 1 << 20)
