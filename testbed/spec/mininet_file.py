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
    """The network that the file ``name`` describes.

    ``topo`` is a class, a function or an entry of the file's ``topos``, and
    ``args`` its arguments. Without it the network is the ``Mininet()`` that the
    file makes as a script, with the arguments ``argv``. None where there is no
    network: the reason is reported, an exception at its line of the file. What
    the file prints goes to standard error. Raises MachineCannot without
    Mininet.
    """
    file = file_at(location / "path", name)
    if file is None:
        return None
    # The child process could only name a failed import.
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
    if reply.network is None:
        _report(reply, file, location)
    return reply.network


@dataclass(frozen=True)
class _Reply:
    """A network, or the reason why there is none: at ``key`` of the section, or
    in the file where ``line`` is not 0.

    The file's own code may have written it.
    """

    network: MininetRecord | None = None
    key: Literal["path", "topo", "args"] = "path"
    reason: str = ""
    line: int = 0
    column: int = 0


_REPLY = TypeAdapter(_Reply)


def _reply(request: Mapping[str, Any]) -> _Reply:
    user: dict[str, Any] = {}
    # A user's file runs without root's rights; root's own file may be in a
    # folder that only root can read.
    person = caller(os.environ)
    if person is not None:
        user = {"user": person.uid, "group": person.gid, "extra_groups": []}
    done = subprocess.run(
        python_command("testbed.spec.topo_child"),
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
        env=without_python_variables(),
        **user,
    )
    # The output may contain control sequences of a terminal.
    sys.stderr.write(plain_text(done.stderr.decode("utf-8", "replace")))
    try:
        reply = _REPLY.validate_json(done.stdout)
    except ValidationError:
        reply = _Reply()
    if reply.reason or _is_whole(reply.network):
        return reply
    reason = f"ends its process with {done.returncode}, without a network"
    # The child's limit of processor time ends it by the first signal, the
    # kernel by the second.
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        reason = (
            "computes for minutes, or was killed: does it wait in a loop?"
        )
    return _Reply(reason=reason)


def _is_whole(network: MininetRecord | None) -> bool:
    """True for a network whose links have known ends."""
    if network is None:
        return False
    ends = {end for link in network.links for end in link[:2]}
    return ends <= network.nodes.keys()


def _report(reply: _Reply, file: Path, location: Location) -> None:
    if reply.line:
        place = Place(str(file), reply.line, reply.column)
        (location / "path").report_at(place, reply.reason)
    else:
        location.report(reply.reason, reply.key)
