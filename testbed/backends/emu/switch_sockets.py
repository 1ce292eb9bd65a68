"""The controller's sockets for a network's switches, safe from other users.

This process holds them for the network's whole life, and hands them to each
controller. Open vSwitch connects only to files in its own run folder, where no
other user can make any.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from controller.launch import BACKLOG
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
)
from testbed.backends.emu.open_vswitch import (
    MACHINE,
    controller_socket,
    ensure_running,
)
from testbed.backends.emu.part_switches import Part


@contextmanager
def switch_listeners(
    parts: Sequence[Part], journal: CleanupJournal
) -> Iterator[list[int]]:
    """Descriptors of sockets that listen for the switches of a network.

    Without parts the machine's switch is started if it does not run. Raises
    MachineCannot.
    """
    folders = [part.switch.run_dir for part in parts]
    if not parts:
        ensure_running(journal)
        folders = [MACHINE.run_dir]
    name = controller_socket(journal.tag.run)
    paths = [folder / name for folder in folders]
    journal.add([JournalEntry("file", str(path)) for path in paths])
    with ExitStack() as stack:
        descriptors = []
        for path in paths:
            listener = stack.enter_context(_listening(path))
            descriptors.append(listener.fileno())
        yield descriptors


def _listening(path: Path) -> socket.socket:
    """A listening socket at a new file, for the owner of its folder alone."""
    owner = path.parent.stat()
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
        # Last: until it listens, nobody can connect with the file's first owner
        # and mode.
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def switch_uid() -> int:
    """The user of the machine's Open vSwitch: its run folder's owner."""
    return MACHINE.run_dir.stat().st_uid
