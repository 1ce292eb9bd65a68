"""Packets at devices of the live network, by tcpdump with few rights.

tcpdump starts as root with three capabilities, opens its packet socket, changes
its user and drops them. It opens no file and writes to a pipe. A packet that is
crafted to take tcpdump over thus gains a process without rights.
"""

from __future__ import annotations

import os
import pwd
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf

from jobs import linux
from jobs.call_filter import refuse_calls
from jobs.vm_names import HOSTS
from testbed.backends.emu.interrupts import (
    terminated_as_interrupt,
    uninterrupted,
)
from testbed.errors import BadInput, MachineCannot, RunFailed, install_hint

# Debian's package makes an account for tcpdump.
ACCOUNTS = ("tcpdump", "nobody")
# The latter two are for its own change of user, which drops them.
KEPT = (linux.CAP_NET_RAW, linux.CAP_SETGID, linux.CAP_SETUID)
CHUNK_BYTES = 1 << 16
ENDING_S = 5.0
ASK_EVERY_S = 1.0
STDIN = 0
_CAPTURED = re.compile(r"(\d+) packets? captured")
_DROPPED = re.compile(r"(\d+) packets? dropped by kernel")

Take = Callable[[int, bytes], object]
"""Called with a point's number and what its tcpdump has written."""


@dataclass(frozen=True)
class CapturePoint:
    """A device where packets pass; ``netns``: a path, empty for the host's.

    ``hosts``: a file in place of ``/etc/hosts``, for names in filters.
    """

    name: str
    device: str
    netns: str = ""
    hosts: str = ""


@dataclass(frozen=True)
class CaptureRequest:
    """Packets to capture: those that a filter of tcpdump's lets pass.

    ``count`` packets of each point, for ``seconds``; None: without end.
    ``as_text``: a line a packet, otherwise a pcap file.
    """

    filter: str = ""
    count: int | None = None
    seconds: float | None = None
    as_text: bool = False


@dataclass(frozen=True)
class CaptureCounts:
    """Packets captured, and those that the kernel had no room for."""

    captured: int
    dropped: int


def _never() -> bool:
    return False


def capture(
    points: Sequence[CapturePoint],
    request: CaptureRequest,
    take: Take,
    is_over: Callable[[], bool] = _never,
) -> CaptureCounts:
    """Captures until the request is met, ``is_over`` or Ctrl-C; the last call
    of ``take`` for a point has no bytes. ``is_over`` is asked each second.

    Raises MachineCannot without tcpdump, BadInput for a filter that it does
    not know, RunFailed for a device that it cannot read.
    """
    with terminated_as_interrupt(), _started(points, request) as children:
        streams = _Streams(children, take)
        with suppress(KeyboardInterrupt, BrokenPipeError):
            streams.follow(request.seconds or inf, is_over)
        # By SIGINT tcpdump passes on what it holds, and says what it counted.
        with uninterrupted():
            for child in children:
                child.send_signal(signal.SIGINT)
            with suppress(BrokenPipeError):
                streams.follow(ENDING_S)
        return _counts(children, request.filter)


class _Streams:
    """Output of several programs, while they run."""

    def __init__(
        self, children: Sequence[subprocess.Popen[bytes]], take: Take
    ) -> None:
        self._take = take
        self._selector = selectors.DefaultSelector()
        for number, child in enumerate(children):
            assert child.stdout is not None  # noqa: S101 - a pipe
            self._selector.register(
                child.stdout, selectors.EVENT_READ, number
            )

    def follow(
        self, seconds: float, is_over: Callable[[], bool] = _never
    ) -> None:
        """Passes on what is written, until all have ended or time is up."""
        now_s = time.monotonic()
        until_s = now_s + seconds
        asking_s = now_s + ASK_EVERY_S
        while self._selector.get_map():
            now_s = time.monotonic()
            if now_s >= until_s:
                return
            if now_s >= asking_s:
                if is_over():
                    return
                asking_s = now_s + ASK_EVERY_S
            left_s = min(until_s, asking_s) - now_s
            for key, _ in self._selector.select(left_s):
                data = os.read(key.fd, CHUNK_BYTES)
                if not data:
                    self._selector.unregister(key.fileobj)
                self._take(key.data, data)


@contextmanager
def _started(
    points: Sequence[CapturePoint], request: CaptureRequest
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A tcpdump at each point, until the block ends."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for point in points:
            # A child that is in no list would not be ended.
            with uninterrupted():
                children.append(_tcpdump(point, request))
        yield children
    finally:
        for child in children:
            # Leaving its context closes the pipes, and waits for its end.
            with child:
                child.kill()


def _tcpdump(
    point: CapturePoint, request: CaptureRequest
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            _command(point, request),
            # Nothing is written to it: it ends with this process.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            # Ctrl-C is for this process to pass on.
            start_new_session=True,
            cwd="/",
            # No thread of this program has a lock that it needs.
            preexec_fn=partial(_confine, point),  # noqa: PLW1509
        )
    except subprocess.SubprocessError as error:
        raise RunFailed(
            f"{point.name}: its network namespace cannot be entered",
            "sudo testbed status says what is up",
        ) from error


def _environment() -> dict[str, str]:
    """The environment of tcpdump, whose lines have the caller's local time."""
    environment = {"PATH": os.defpath}
    # An empty TZ would mean UTC, not the machine's time zone.
    if "TZ" in os.environ:
        environment["TZ"] = os.environ["TZ"]
    return environment


def _command(point: CapturePoint, request: CaptureRequest) -> list[str]:
    program = shutil.which("tcpdump", path=f"{os.defpath}:/usr/sbin:/sbin")
    if program is None:
        raise MachineCannot(
            "tcpdump is missing (Debian: tcpdump)", install_hint()
        )
    # Immediately: libpcap otherwise holds packets back until a buffer is
    # full or a second over.
    command = [program, "-n", "--immediate-mode", "-i", point.device]
    command += ["-Z", _account()]
    if request.count is not None:
        command += ["-c", str(request.count)]
    # Its output is a pipe, which it would write to by the kilobyte: -l and
    # -U have it write each line, or packet, at once.
    if request.as_text:
        command.append("-l")
    else:
        command += ["-U", "-w", "-"]
    # The filter is no option, whatever it begins with.
    return [*command, "--", *filter(None, [request.filter])]


def _account() -> str:
    for name in ACCOUNTS:
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise MachineCannot(
        f"tcpdump has no account to run as: {' or '.join(ACCOUNTS)}"
    )


def _confine(point: CapturePoint) -> None:
    """In the child, before it is tcpdump."""
    linux.end_when_closed(STDIN)
    if point.netns:
        linux.enter_network_namespace(point.netns)
    if point.hosts and HOSTS.exists():
        linux.own_mounts()
        linux.bind(point.hosts, str(HOSTS))
    linux.keep_capabilities(KEPT)
    linux.set_no_new_privileges()
    refuse_calls()


def _counts(
    children: Sequence[subprocess.Popen[bytes]], wanted: str
) -> CaptureCounts:
    """Sums of tcpdumps that have been asked to end. Raises their complaints."""
    captured = 0
    dropped = 0
    for child in children:
        try:
            child.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            child.kill()
        assert child.stderr is not None  # noqa: S101 - a pipe
        text = child.stderr.read().decode("utf-8", "replace")
        counted = _CAPTURED.search(text)
        # SIGINT came before tcpdump was ready for it: it has counted nothing.
        if counted is None and child.returncode == -signal.SIGINT:
            continue
        if counted is None:
            raise _complaint(text, wanted)
        captured += int(counted.group(1))
        lost = _DROPPED.search(text)
        if lost is not None:
            dropped += int(lost.group(1))
    return CaptureCounts(captured, dropped)


def _complaint(text: str, wanted: str) -> BadInput | RunFailed:
    """The error of a tcpdump that has captured nothing, in its own words."""
    lines = []
    for line in text.splitlines():
        if "listening on" not in line:
            lines.append(line)
    complaint = " ".join(lines) or "tcpdump ended without a word"
    if wanted and "device" not in complaint:
        return BadInput(
            f"filter {wanted!r}: {complaint}",
            "man pcap-filter lists what it knows",
        )
    return RunFailed(complaint)
