"""Mininet's own classes, changed so that they start and send nothing.

After :func:`nothing_starts` a process can execute a script that builds a
network with ``Mininet()``. Commands print nothing, programs end at once with 0,
and reading ends where the script would start the network.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from topologies.mininet_record import MininetRecord, Options

# Linux numbers processes up to 2**22 at most.
NO_PROCESS = (1 << 22) + 1
"""An unused process id."""
STARTS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn")
"""Audit events of Python for process starts past subprocess."""
DIRECTED = ("params1", "params2")
END_OF_READING = (
    "start",
    "stop",
    "interact",
    "run",
    "ping",
    "pingAll",
    "pingFull",
    "pingPair",
    "iperf",
    "waitConnected",
)
"""Methods of ``Mininet`` that need a network that is up."""
NETWORKS: list[Any] = []
"""Every ``Mininet`` that this process has made, in order."""
MOST_SLEEPS = 1000
_sleeps = 0


class NetworkRead(BaseException):
    """Raised where a script starts its network, which ends reading.

    No Exception, so that a script does not catch it by mistake.
    """


class EndedProcess:
    """A program that has ended at once with 0 and printed nothing."""

    pid = NO_PROCESS
    returncode = 0

    def __init__(
        self, args: Any, *_positional: Any, **options: Any
    ) -> None:
        self.args = args
        # Any of these options makes subprocess open the streams as text.
        named = ("text", "universal_newlines", "encoding", "errors")
        self._text = any(map(options.get, named))
        self.stdin = self._file()
        self.stdout = self._file()
        self.stderr = self._file()

    def _file(self) -> io.StringIO | io.BytesIO:
        return io.StringIO() if self._text else io.BytesIO()

    def __enter__(self) -> EndedProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is left to wait for."""

    def communicate(self, *_args: Any, **_options: Any) -> tuple[Any, Any]:
        return self.stdout.read(), self.stderr.read()

    def poll(self, *_args: Any, **_options: Any) -> int:
        return 0

    wait = poll
    kill = terminate = send_signal = poll


def nothing_starts() -> None:
    """Makes Mininet, and subprocess with it, start nothing in this process."""
    # Before Mininet is imported: its modules keep what they import by name.
    subprocess.Popen = EndedProcess  # type: ignore[misc,assignment]
    os.system = _returning(0)
    time.sleep = _sleep  # type: ignore[assignment]
    # Starts past subprocess, by os itself, are refused.
    sys.addaudithook(_refuse_starts)
    from mininet import clean, cli, link, net, node, nodelib, term, util

    # Mininet counts processors by a program, and caches the number.
    util.numCores.ncores = 1
    for module in (clean, cli, link, net, node, nodelib, term, util):
        _make_inert(module, node)
    _make_nodes_inert(node.Node)
    _make_kinds_inert((node, nodelib))
    for kind in (link.Intf, link.TCIntf, link.OVSIntf):
        kind.config = _configure
    cli.CLI.__init__ = _end_of_reading
    _make_network_inert(net.Mininet)


def _make_kinds_inert(modules: Iterable[Any]) -> None:
    """Replaces the methods by which each kind of switch and controller starts."""
    for module in modules:
        for kind in vars(module).values():
            for name in ("start", "checkListening", "isListening"):
                if isinstance(kind, type) and name in vars(kind):
                    setattr(kind, name, _returning(None))


def _sleep(_seconds: float) -> None:
    """Returns at once. Raises TimeoutError for a script that waits in a loop."""
    global _sleeps  # noqa: PLW0603 - one script a process
    _sleeps += 1
    if _sleeps > MOST_SLEEPS:
        raise TimeoutError(
            "it waits for something, and nothing starts while it is read"
        )


def _refuse_starts(event: str, _arguments: object) -> None:
    if event in STARTS:
        raise PermissionError(
            "a topology's file is read without starting a process"
        )


def _returning(value: object) -> Callable[..., Any]:
    def inert(*_args: Any, **_options: Any) -> Any:
        return value

    return inert


def _make_inert(module: Any, node: Any) -> None:
    """Replaces the functions that run programs, wherever they were imported."""
    done = ("", "", 0)
    inert = {
        "quietRun": _returning(""),
        "errRun": _returning(done),
        "errFail": _returning(done),
        "pathCheck": _returning(None),
        "ensureRoot": _returning(None),
        "fixLimits": _returning(None),
        "moveIntf": _returning(None),
        "makeTerms": _returning([]),
        "cleanUpScreens": _returning(None),
        "mountCgroups": _returning("cgroup"),
        "waitListening": _returning(1),
        "sleep": _sleep,
        # The default controller is the first that is installed; any will do.
        "findController": _returning(node.RemoteController),
    }
    for name, function in inert.items():
        if hasattr(module, name):
            setattr(module, name, function)


def _make_nodes_inert(node: Any) -> None:
    for name in ("cmd", "cmdPrint", "sendCmd", "waitOutput", "monitor"):
        setattr(node, name, _returning(""))
    for name in ("startShell", "mountPrivateDirs", "terminate", "write"):
        setattr(node, name, _returning(None))
    # These would set the addresses that Mininet chooses.
    node.config = node.configDefault = _returning({})
    node.checkSetup = _returning(None)
    node.popen = lambda _node, *args, **options: EndedProcess(
        args, **options
    )
    node.pexec = _returning(("", "", 0))
    node.setIP = _set_address
    node.setMAC = _set_mac


def _set_address(node: Any, ip: str, *length: Any, **options: Any) -> None:
    """As Mininet's ``setIP(ip, prefixLen=8, intf=None)``."""
    with_length = ip
    if "/" not in ip:
        bits = length[0] if length else options.get("prefixLen", 8)
        with_length = f"{ip}/{bits}"
    _options_of(node)["ip"] = with_length


def _set_mac(node: Any, mac: str, *_interface: Any, **_more: Any) -> None:
    _options_of(node)["mac"] = mac


def _options_of(part: Any) -> dict[str, Any]:
    """The options that the script gives to a node or an interface."""
    options: dict[str, Any] = part.__dict__.setdefault("given_options", {})
    return options


def _configure(interface: Any, **options: Any) -> dict[str, Any]:
    """Keeps the options of one end of a link, without setting them."""
    _options_of(interface).update(options)
    return {}


def _end_of_reading(*_args: Any, **_options: Any) -> None:
    raise NetworkRead


def _make_network_inert(network: Any) -> None:
    network.init = _returning(None)
    build = network.__init__

    def remembered(net: Any, *args: Any, **options: Any) -> None:
        NETWORKS.append(net)
        build(net, *args, **options)

    network.__init__ = remembered
    for name in ("addHost", "addSwitch"):
        setattr(network, name, _noting_options(getattr(network, name)))
    for name in END_OF_READING:
        setattr(network, name, _end_of_reading)


def _noting_options(add: Callable[..., Any]) -> Callable[..., Any]:
    def adding(net: Any, name: str, cls: Any = None, **options: Any) -> Any:
        node = add(net, name, cls, **options)
        _options_of(node).update(options)
        return node

    return adding


def options_by_class(
    end: str, other: str, options: Options
) -> Options | None:
    """A link's options by end, as classes of the file's own make them.

    The classes in ``options`` make a link between two nodes of these names.
    None where they fail: in a whole network they might not.
    """
    from mininet.link import Link
    from mininet.node import Node

    arguments = dict(options)
    kind = arguments.pop("cls", None) or Link
    # The names of the ends, which Mininet replaces by nodes.
    arguments.pop("node1", None)
    arguments.pop("node2", None)
    try:
        link = kind(Node(end), Node(other), **arguments)
        ends = (link.intf1, link.intf2)
    except Exception:  # noqa: BLE001 - a user's class raises what it likes
        return None
    return dict(zip(DIRECTED, map(_options_of, ends), strict=True))


def record_of_network(net: Any) -> MininetRecord:
    """The record of a ``Mininet`` that was built in this process."""
    from mininet.nodelib import NAT

    record = MininetRecord()
    for node in (*net.hosts, *net.switches):
        if isinstance(node, NAT):
            record.left_out.append(
                f"{node.name} is left out: a network that is emulated here has"
                " no way to others"
            )
            continue
        options = dict(_options_of(node))
        # Mininet chooses these addresses, and the script may rely on them.
        if net.autoSetMacs and node in net.hosts:
            options.setdefault("mac", node.params.get("mac"))
        options["isSwitch"] = node in net.switches
        record.nodes[node.name] = options
    for link in net.links:
        ends = (link.intf1.node.name, link.intf2.node.name)
        # A link to what was left out.
        if not record.nodes.keys() >= set(ends):
            continue
        both = (_options_of(link.intf1), _options_of(link.intf2))
        options = dict(zip(DIRECTED, both, strict=True))
        record.links.append((*ends, options))
    return record
