"""Executing a plan's limits: the host's lines in one ``tc -batch``, the VMs' by netlink.

All or nothing: a failing batch leaves its earlier lines applied, so they are taken back here.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress

from testbed.backends.emu.commands import CommandFailed, remove_batch, tc_batch
from testbed.backends.emu.namespaces import VmNamespace
from testbed.backends.emu.netlink import NetlinkRefused, aimed, tc_message
from testbed.errors import RunFailed
from testbed.plan.limits import ByteFifo, Section, TcLine

GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.EINVAL})


def apply(sections: Sequence[Section], vms: Mapping[str, VmNamespace]) -> None:
    """Add or change limits. Raises RunFailed naming the line; then nothing has changed."""
    host = [line for section in sections if section.netns is None for line in section.lines]
    inside = [section for section in sections if section.netns is not None]
    try:
        tc_batch([line.text() for line in host])
    except CommandFailed as error:
        _take_back_host(host[: (error.line or 1) - 1])
        raise
    try:
        _send(inside, vms)
    except BaseException:
        _take_back_inside(inside, vms)
        _take_back_host(host)
        raise


def remove(sections: Sequence[Section], vms: Mapping[str, VmNamespace]) -> None:
    """Remove limits; what is gone already is no failure, anything else raises RunFailed."""
    inside = [section for section in sections if section.netns is not None]
    _send(inside, vms, allowed=GONE)
    for section in sections:
        if section.netns is None:
            remove_batch("tc", [line.text() for line in section.lines])


def _send(
    sections: Sequence[Section],
    vms: Mapping[str, VmNamespace],
    allowed: frozenset[int] = frozenset(),
) -> None:
    packed: dict[tuple[TcLine, ...], list[bytes]] = {}
    waiting = []
    for section in sections:
        vm = vms[section.netns or ""]
        messages = packed.get(section.lines)
        if messages is None:
            messages = packed[section.lines] = [tc_message(line) for line in section.lines]
        first = vm.socket.send(aimed(message, vm.ifindex) for message in messages)
        waiting.append((section, vm.socket, first))
    failed: RunFailed | None = None
    for section, route, first in waiting:
        try:
            route.finish(first, allowed)
        except NetlinkRefused as error:
            line = section.lines[error.position].text()
            failed = failed or RunFailed(f"{section.netns}: {line!r}: {error.strerror}")
    if failed is not None:
        raise failed


def _take_back_host(lines: Sequence[TcLine]) -> None:
    """Undo applied lines, last first. A queue goes with its class."""
    undo = [
        line.undo().text()
        for line in reversed(lines)
        if not (line.verb == "add" and isinstance(line.item, ByteFifo))
    ]
    with suppress(CommandFailed):
        remove_batch("tc", undo)


def _take_back_inside(sections: Sequence[Section], vms: Mapping[str, VmNamespace]) -> None:
    undone = [Section(s.netns, tuple(line.undo() for line in reversed(s.lines))) for s in sections]
    with suppress(RunFailed):
        _send(undone, vms, allowed=GONE)
