"""``testbed capture VM|LINK|TENANT``: packets as text, or as a file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Annotated

import typer

from testbed.backends.emu import packet_capture
from testbed.backends.emu.packet_capture import (
    CaptureCounts,
    CapturePoint,
    CaptureRequest,
)
from testbed.backends.emu.pcapng import MergedPackets
from testbed.cli import console
from testbed.cli.options import Json, require_root
from testbed.errors import BadInput, TestbedError
from testbed.owned_files import caller, from_home, new_file, remove_file
from testbed.standing.capture_targets import capture_places
from testbed.units import number_of

IsOver = Callable[[], bool]
"""True once the target's packets pass there no more."""
FILE_MODE = 0o600
STANDARD_OUTPUT = "-"
SPECIAL_SIGNS = frozenset('"$`\\!')
"""Signs that a shell does not take as they are within double quotes."""

Target = Annotated[
    str,
    typer.Argument(
        metavar="VM|LINK|TENANT",
        help="A VM as a.0, a link as 'rack 0 - core 0', or a tenant's VMs.",
    ),
]
FilterWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILTER…]",
        help="tcpdump's filter, as: icmp or tcp port 80.",
    ),
]
Write = Annotated[
    str | None,
    typer.Option(
        "-w",
        "--write",
        metavar="FILE",
        help="Store the packets in a new file; - is standard output.",
    ),
]
Count = Annotated[
    int | None,
    typer.Option(min=1, help="End after so many packets (of each VM)."),
]
Seconds = Annotated[
    float | None, typer.Option(min=0.1, help="End after so many seconds.")
]


def capture(
    target: Target,
    words: FilterWords = None,
    write: Write = None,
    count: Count = None,
    seconds: Seconds = None,
    as_json: Json = False,
) -> None:
    """Show packets where they pass, or store them for Wireshark, until Ctrl-C
    or the end of the job, tenant or network.

    A VM's packets are taken at its interface, a tenant's at all its VMs, and a
    link's at its lower end, in both directions. The file is a new one, which
    its caller alone may read: pcap, or, for a tenant of several VMs, pcapng,
    which names the VM of each packet.
    """
    require_root("testbed capture")
    if as_json and write in (None, STANDARD_OUTPUT):
        raise BadInput("--json says what was stored: it goes with -w FILE")
    # Looked up again later by `_is_gone`: the name may then stand for another
    # place.
    points = capture_places().points(target)
    request = CaptureRequest(
        " ".join(words or ()), count, seconds, as_text=write is None
    )
    is_over = partial(_is_gone, target, points)
    console.say(f"capturing at {_named(points)}; Ctrl-C ends it")
    # Packets are shown as tcpdump's lines, and stored in its binary format.
    if write is None:
        console.say(f"in Wireshark: {_wireshark(target)}")
        take = _ShownLines(points).take
        counts = packet_capture.capture(points, request, take, is_over)
    else:
        counts = _stored(points, request, write, is_over)
    if as_json:
        console.print_json(
            {"target": target, "file": write, **vars(counts)}
        )
    _say_end(target, counts, is_over=is_over())


def _say_end(target: str, counts: CaptureCounts, *, is_over: bool) -> None:
    if is_over:
        console.say(
            f"{target} is not there any more: its job has ended or moved,"
            " or the network is down"
        )
    console.say(
        f"{number_of(counts.captured, 'packet')} captured, {counts.dropped:,} dropped"
        " by the kernel for lack of room"
    )


def _is_gone(target: str, points: Sequence[CapturePoint]) -> bool:
    """True once the target's packets pass at other points, or at none."""
    try:
        return capture_places().points(target) != points
    except (TestbedError, OSError, ValueError):
        return True


def _named(points: Sequence[CapturePoint]) -> str:
    """``a.0``, or ``a.0 to a.3``."""
    first = points[0].name
    last = points[-1].name
    if first == last:
        return first
    return f"{first} to {last}"


def _wireshark(target: str) -> str:
    """A command line for another machine, where a shell reads it; the shell
    that ssh starts here reads what is in quotes once more.
    """
    remote = shlex.join(
        ["sudo", "testbed", "capture", target, "-w", STANDARD_OUTPUT]
    )
    if SPECIAL_SIGNS.intersection(remote):
        remote = shlex.quote(remote)
    # Double quotes are easier to read.
    elif "'" in remote:
        remote = f'"{remote}"'
    return f"ssh HOST {remote} | wireshark -k -i -"


class _ShownLines:
    """Prints tcpdump's lines; of several points each line begins with the
    point's name.
    """

    def __init__(self, points: Sequence[CapturePoint]) -> None:
        self._labels = [""]
        if len(points) > 1:
            self._labels = [f"{point.name}: " for point in points]
        self._rest = [b""] * len(points)

    def take(self, number: int, data: bytes) -> None:
        lines = (self._rest[number] + data).split(b"\n")
        # The last line may be incomplete: the next data begin with its rest.
        self._rest[number] = lines.pop()
        for line in lines:
            # tcpdump ends its text with an empty line.
            if line:
                text = line.decode("utf-8", "replace")
                console.print_text(self._labels[number] + text)
        sys.stdout.flush()


def _stored(
    points: Sequence[CapturePoint],
    request: CaptureRequest,
    file_name: str,
    is_over: IsOver,
) -> CaptureCounts:
    """Captures into a new file, or to standard output (``-``)."""
    with _opened(file_name) as write:
        if len(points) == 1:
            return packet_capture.capture(
                points, request, lambda _, data: write(data), is_over
            )
        merged = MergedPackets([point.name for point in points], write)
        return packet_capture.capture(points, request, merged.take, is_over)


@contextmanager
def _opened(file_name: str) -> Iterator[Callable[[bytes], object]]:
    """A function that writes bytes to a new file, or to standard output.

    The caller alone may read the file. It is removed if the block fails before
    anything is written.
    """
    if file_name == STANDARD_OUTPUT:
        if sys.stdout.isatty():
            raise BadInput(
                "a terminal cannot show packets in binary",
                "-w FILE, or a pipe: … -w - | wireshark -k -i -",
            )
        yield partial(_write_at_once, sys.stdout.buffer)
        return
    path = Path(from_home(file_name))
    with os.fdopen(_created(path), "wb") as file:
        try:
            yield partial(_write_at_once, file)
        except BaseException:
            # An empty file would be in the way of the corrected command, as
            # after a filter that tcpdump does not know.
            if not os.fstat(file.fileno()).st_size:
                # Its caller may have removed it.
                with suppress(OSError):
                    remove_file(path)
            raise


def _created(path: Path) -> int:
    """A descriptor of the new file. Raises BadInput where it cannot be made."""
    try:
        return new_file(path, FILE_MODE, caller())
    except FileExistsError:
        raise BadInput(
            f"{path} is there already", "name another file, or remove it"
        ) from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error


def _write_at_once(file: IO[bytes], data: bytes) -> None:
    file.write(data)
    # A reader at the other end of a pipe sees packets as they come.
    file.flush()
