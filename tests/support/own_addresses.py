"""Ports and loopback addresses of one test process: no other one on this machine has them.

A port that is probed and given back may be another process's when it is used: whoever binds
port 0 meanwhile may get it. These are below what the kernel gives away, and each process of
the tests has a share of its own.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import cycle

# Below the kernel's own (from 32768 on). Tests with networks take some hundreds.
PORTS = range(10_000, 32_500)
PORTS_EACH = 500
SUBNETS = range(1, 251)


def free_port() -> int:
    """A port at which nobody listens on 127.0.0.1, and no other test process will."""
    ports = _ports()
    for _ in range(PORTS_EACH):
        port = next(ports)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("all ports of this test process are taken")


def loopback_subnet() -> str:
    """The first three numbers of addresses below 127/8, others with each call."""
    return next(_subnets())


@cache
def _ports() -> Iterator[int]:
    first = _claimed("ports from", PORTS[::PORTS_EACH])
    return cycle(range(first, first + PORTS_EACH))


@cache
def _subnets() -> Iterator[str]:
    first = _claimed("subnet", SUBNETS)
    return cycle([f"127.{first}.{second}" for second in range(256)])


def _claimed(what: str, numbers: Iterable[int]) -> int:
    """The first of the numbers that no other process has; this one has it to its end."""
    for number in numbers:
        claim = socket.socket(socket.AF_UNIX)
        try:
            # A name without a file: it is free again as soon as its processes end.
            claim.bind(f"\0hosenet-tests {what} {number}")
        except OSError:
            claim.close()
            continue
        # Open without an object that would be closed.
        claim.detach()
        return number
    raise RuntimeError(f"other test processes have every {what}")
