"""Mininet topologies in Python files, executed in a process of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from jobs.python_child import python_command, without_python_variables
from testbed.errors import MachineCannot, install_hint
from testbed.foreign_text import plain_text
from testbed.owned_files import caller
from testbed.spec.document import Location, Place, file_at
from topologies.mininet_record import MininetRecord


def read_network(
    location: Location,
    name: str,
    *,
    topo: str | None,
    args: Mapping[str, Any],
    argv: Sequence[str],
) -> MininetRecord | None:
    """The network that the file ``name`` describes, or None.

    - ``topo``: a class, a function or an entry of the file's ``topos``, which
      is called with ``args``. If None, the file is executed as a script with
      the arguments ``argv``, and the network is the last ``Mininet()`` with
      hosts that the script makes, or else its only topology.

    If the result is None, the reason is reported at ``location``; an exception
    is reported at its line of the file. Output of the file goes to standard
    error. Raises MachineCannot if Mininet is not installed.
    """
    file = file_at(location / "path", name)
    if file is None:
        return None
    # Checked in advance, since the child process would report a failed import
    # as a fault of the file.
    if find_spec("mininet") is None:
        raise MachineCannot(
            f"{location.place}: Mininet is missing", install_hint()
        )
    request = {
        "path": str(file),
        "topo": topo,
        "args": dict(args),
        "argv": list(argv),
    }
    reply = _reply(request)
    if reply.reason:
        _report(reply, file, location)
        return None
    return reply.network


@dataclass(frozen=True)
class _Reply:
    """The child's reply: a network, or the reason why the file has none.

    ``key``: the key of the section that the reason is about. ``line``,
    ``column``: place of an exception in the file, counted from 1; line 0 for
    other reasons. The code in the file may have forged the reply.
    """

    network: MininetRecord | None = None
    key: Literal["path", "topo", "args"] = "path"
    reason: str = ""
    line: int = 0
    column: int = 0


_REPLY = TypeAdapter(_Reply)


def _reply(request: Mapping[str, Any]) -> _Reply:
    """The child's reply after checks; without a reason its network is whole."""
    run_as: dict[str, Any] = {}
    # Under sudo the file runs as the user who called sudo, without root's
    # rights. Root without sudo runs the file as root, since the file may be in
    # a folder that only root can read.
    owner = caller(os.environ)
    if owner is not None:
        run_as = {"user": owner.uid, "group": owner.gid, "extra_groups": []}
    child = subprocess.run(
        python_command("testbed.spec.topo_child"),
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
        env=without_python_variables(),
        # By root's terminal, the file could otherwise type commands into root's
        # shell (TIOCSTI).
        start_new_session=True,
        **run_as,
    )
    # plain_text removes control sequences of a terminal.
    sys.stderr.write(plain_text(child.stderr.decode("utf-8", "replace")))
    try:
        reply = _REPLY.validate_json(child.stdout)
    except ValidationError:
        reply = _Reply()
    if reply.reason or _is_whole(reply.network):
        return reply
    reason = f"ends its process with {child.returncode}, without a network"
    # SIGXCPU or SIGKILL at the child's limit of processor time; SIGKILL also
    # if the machine runs out of memory.
    if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        reason = (
            "computes for minutes, or was killed: does it wait in a loop?"
        )
    return _Reply(reason=reason)


def _is_whole(network: MininetRecord | None) -> bool:
    """True for a network in which the ends of all links are nodes."""
    if network is None:
        return False
    for end, other, _ in network.links:
        if end not in network.nodes or other not in network.nodes:
            return False
    return True


def _report(reply: _Reply, file: Path, location: Location) -> None:
    """Reports the reason in a reply, at the line of the file if it has one."""
    if reply.line:
        place = Place(str(file), reply.line, reply.column)
        (location / "path").report_at(place, reply.reason)
    else:
        location.report(reply.reason, reply.key)
