"""Executes a Python file of a Mininet topology, and prints the network in JSON.

A program of its own, started by :mod:`testbed.spec.mininet_file`: what the file
does to Python ends with the process, and root's rights are not the file's. The
request comes by standard input, the reply goes to standard output; what the
file prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from inspect import isclass, isfunction
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from jobs.python_start import ROOT
from testbed.plugins import plugin_error, shown_value
from testbed.spec.document import unknown_name
from testbed.spec.unstarted_mininet import (
    NETWORKS,
    NetworkRead,
    nothing_starts,
    options_by_class,
    record_of_network,
)
from topologies.mininet_record import MininetRecord

MOST_CPU_S = 120
LIBRARY = "mininet_topology"
SCRIPT = "__main__"
TOPO_METHODS = ("addHost", "addSwitch", "addLink", "iterLinks", "nodeInfo")
ARGUMENTS = re.compile(rb"argv|argparse|optparse|getopt|click")
OURS = ("controller", "jobs", "testbed", "topologies")


class NoNetwork(Exception):
    """Raised for a file without a network; ``key`` of the section is at fault."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def main() -> None:
    """Reads the request, and prints the reply."""
    request = json.load(sys.stdin)
    # Ends a loop without end.
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    reply_file = _only_reply_on_stdout()
    path = Path(request["path"])
    nothing_starts()
    _prepare_imports(path, request["argv"])
    reply: dict[str, Any]
    try:
        record = _record(path, request["topo"], request["args"])
        reply = {"network": asdict(record)}
    except NoNetwork as error:
        reply = {"key": error.key, "reason": str(error), "line": 0}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's file raises what it likes
        reply = _reply_of_error(error, path)
    with reply_file:
        json.dump(reply, reply_file, default=_plain)


def _only_reply_on_stdout() -> TextIO:
    """The file of the reply; all other output goes to standard error."""
    reply_file = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # An empty input: a script that reads it would wait for the request's end.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    return reply_file


def _prepare_imports(path: Path, argv: Iterable[str]) -> None:
    """Sets modules and arguments as ``python3 FILE`` has them."""
    for name in list(sys.modules):
        # A module beside the file may have the name of one of ours.
        if name.partition(".")[0] in OURS:
            del sys.modules[name]
    # Ours last: the file's neighbours win, as they do where Python runs it.
    sys.path[:] = [entry for entry in sys.path if entry != ROOT]
    sys.path.insert(0, str(path.parent))
    sys.path.append(ROOT)
    sys.argv[:] = [str(path), *argv]


def _record(
    path: Path, wanted: str | None, args: Mapping[str, Any]
) -> MininetRecord:
    """The network that the file describes. Raises NoNetwork."""
    module = _executed(path, by_name=wanted is not None)
    known = _known(module)
    if wanted is None:
        built = _last_network()
        if built is not None:
            return built
        if len(known) != 1:
            raise NoNetwork("path", _nothing_built(known))
        wanted = next(iter(known))
    if wanted not in known:
        reason = unknown_name("Topo class", wanted, list(known) or ["none"])
        raise NoNetwork("topo", reason)
    return _made(wanted, known[wanted], args)


def _executed(path: Path, *, by_name: bool) -> ModuleType:
    """The file's module; ``by_name``: as an import, not as a script."""
    # A script builds its network below `if __name__ == "__main__"`, which is
    # skipped for a file of which a class is named.
    module = ModuleType(LIBRARY if by_name else SCRIPT)
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        code = compile(
            path.read_bytes(), str(path), "exec", dont_inherit=True
        )
        exec(code, vars(module))  # noqa: S102 - what the file is for
    except NetworkRead:
        # The module has what the file defines before it starts a network.
        pass
    except SystemExit as ended:
        # A script may exit with success once its network is built.
        if by_name or ended.code or not NETWORKS:
            raise
    return module


def _nothing_built(known: Mapping[str, Any]) -> str:
    reason = "builds no Mininet(): name a class or a function of it as topo"
    if known:
        reason += f", of {', '.join(known)}"
    return reason


def _known(module: ModuleType) -> dict[str, Any]:
    """Names of topologies: entries of ``topos``, classes that are a
    Topo, also by a copy of Mininet's class, the file's functions, Topos.
    """
    # Files for Mininet's --custom name their topologies there.
    topos = vars(module).get("topos")
    known: dict[str, Any] = dict(topos) if isinstance(topos, dict) else {}
    for name, value in vars(module).items():
        if isclass(value):
            named = _looks_like_topo(value) and value.__name__ != "Topo"
        elif isfunction(value):
            named = value.__module__ == module.__name__
        else:
            named = _looks_like_topo(value)
        if named:
            known.setdefault(name, value)
    return known


def _looks_like_topo(value: object) -> bool:
    # By its methods: the file may bring a copy of Mininet's class.
    return all(
        callable(getattr(value, name, None)) for name in TOPO_METHODS
    )


def _made(
    wanted: str, maker: Any, args: Mapping[str, Any]
) -> MininetRecord:
    """The network that a class, a function or an object gives."""
    # Networks that were built as the file was imported do not count.
    NETWORKS.clear()
    made = maker
    try:
        if callable(maker):
            made = maker(**args)
    except NetworkRead:
        made = None
    built = _last_network()
    if made is None or made in NETWORKS:
        if built is not None:
            return built
    elif _looks_like_topo(made) and hasattr(made, "g"):
        record = MininetRecord.of_topo(made, options_by_class)
        if not record.nodes:
            raise NoNetwork("topo", _empty(wanted, made))
        return record
    raise NoNetwork(
        "topo", f"{wanted} makes {made!r}, not a whole mininet.topo.Topo"
    )


def _empty(wanted: str, topo: Any) -> str:
    """The reason for a Topo without nodes, with the methods that may add them."""
    steps = [
        name
        for name, value in vars(type(topo)).items()
        if isfunction(value)
        and not name.startswith("_")
        and name != "build"
    ]
    reason = f"{wanted} makes a Topo without nodes"
    if steps:
        reason += (
            f"; if {', '.join(steps[:4])} add them, write a function in the"
            " file that calls them and returns the Topo, and name that"
        )
    return reason


def _last_network() -> MininetRecord | None:
    """The last ``Mininet()`` with hosts that the file has built."""
    for net in reversed(NETWORKS):
        if net.topo and not net.built:
            net.build()
        if net.hosts:
            return record_of_network(net)
    return None


def _reply_of_error(error: BaseException, path: Path) -> dict[str, Any]:
    """The reply about an exception, at the last of the file's lines on its way."""
    fault = plugin_error(error, path)
    if isinstance(error, TypeError) and not fault.line:  # the call itself
        reason = " ".join(str(error).split())
        return {"key": "args", "reason": reason, "line": 0}
    return {
        "key": "path",
        "reason": fault.reason + _hint(error, path),
        "line": fault.line,
        "column": fault.column,
    }


def _hint(error: BaseException, path: Path) -> str:
    """A hint at ``argv`` for a script that lacks arguments; else empty."""
    lacking = isinstance(error, SystemExit | IndexError)
    if len(sys.argv) > 1 or not lacking:
        return ""
    if ARGUMENTS.search(path.read_bytes()) is None:
        return ""
    return "; a script's arguments are topology: {argv: [--hosts, 4]}"


def _plain(value: object) -> object:
    """Numbers of other libraries as Python's, other values as text."""
    if isinstance(value, Real):
        return float(value)
    return shown_value(value)


if __name__ == "__main__":
    main()
