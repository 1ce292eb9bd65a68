"""The kernel's counters of a VM's network: its interface's, and TCP's.

A child reads them: an agent that launches a program sees the /proc of its children
(:mod:`jobs.vm_processes`), in which it is not itself and /proc/net leads nowhere.
"""

from __future__ import annotations

import subprocess

from jobs.live.agent_protocol import VmTraffic

INTERFACE = "eth0"
READER = (
    "cat",
    "/proc/net/dev",
    "/proc/net/snmp",
    "/proc/net/netstat",
)
PATIENCE_S = 10.0


def vm_traffic() -> VmTraffic | None:
    """The counters of this network namespace since it was made; None where they
    cannot be read, or it has no interface of this name.
    """
    try:
        done = subprocess.run(
            READER,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return traffic_of(done.stdout.decode("ascii"))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def traffic_of(
    text: str,
    interface: str = INTERFACE,
) -> VmTraffic:
    """The counters in what the kernel writes. Raises ValueError, and KeyError for
    a counter that the kernel lacks.
    """
    counts = _interface(text, interface)
    tcp = _table(text, "Tcp")
    extended = _table(text, "TcpExt")
    # The kernel counts each attempt to send a segment again, also one that the
    # VM's own full queue refuses: at 150 Mbit/s Dask's connections made 1.8
    # such attempts for each segment that they sent.
    resent = tcp["RetransSegs"] - extended["TCPRetransFail"]
    return VmTraffic(
        sent_bytes=counts[8],
        packets_sent=counts[9],
        received_bytes=counts[0],
        packets_received=counts[1],
        segments=tcp["OutSegs"],
        resent=max(0, resent),
        timeouts=extended["TCPTimeouts"],
    )


def _interface(
    text: str,
    name: str,
) -> list[int]:
    """Eight counters of receiving, then eight of sending; each time bytes are the
    first and packets the second. Raises ValueError.
    """
    for line in text.splitlines():
        label, colon, counts = line.partition(":")
        if colon and label.strip() == name:
            return list(map(int, counts.split()))
    raise ValueError(f"there is no {name}")


def _table(
    text: str,
    name: str,
) -> dict[str, int]:
    """A protocol's counters by name, from a line of names and one of numbers.
    Raises ValueError.
    """
    rows = []
    for line in text.splitlines():
        label, _, rest = line.partition(":")
        if label == name:
            rows.append(rest.split())
    if len(rows) != 2:
        raise ValueError(f"there are no counters of {name}")
    names, numbers = rows
    return dict(zip(names, map(int, numbers), strict=True))
