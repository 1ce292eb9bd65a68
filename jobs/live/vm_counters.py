"""The kernel's counters of a VM's network: its interface's, and TCP's.

They are read by a child: a launched program's children have a /proc of their own
(:mod:`jobs.vm_processes`), in which the agent itself is not.
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
    """The counters of this network namespace, since it is there; None where
    they cannot be read, or there is no such interface.
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
    """The counters in what the kernel writes. Raises ValueError."""
    counts = _interface(text, interface)
    tcp = _table(text, "Tcp")
    more = _table(text, "TcpExt")
    # One that the VM's own full queue refuses counts as sent again each time
    # that it is tried: Dask's connections did at 150 Mbit/s, 1.8 times for each
    # segment that they sent.
    resent = tcp["RetransSegs"] - more["TCPRetransFail"]
    return VmTraffic(
        sent_bytes=counts[8],
        packets_sent=counts[9],
        received_bytes=counts[0],
        packets_received=counts[1],
        segments=tcp["OutSegs"],
        resent=max(0, resent),
        timeouts=more["TCPTimeouts"],
    )


def _interface(
    text: str,
    name: str,
) -> list[int]:
    """Eight counters of receiving, then eight of sending."""
    for line in text.splitlines():
        label, colon, counts = line.partition(":")
        if colon and label.strip() == name:
            return list(map(int, counts.split()))
    raise ValueError(f"there is no {name}")


def _table(
    text: str,
    name: str,
) -> dict[str, int]:
    """A protocol's counters: a line of names, then one of numbers."""
    rows = []
    for line in text.splitlines():
        label, _, rest = line.partition(":")
        if label == name:
            rows.append(rest.split())
    if len(rows) != 2:
        raise ValueError(f"there are no counters of {name}")
    names, numbers = rows
    return dict(zip(names, map(int, numbers), strict=True))
