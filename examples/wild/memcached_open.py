#!/usr/bin/env python3
"""A service whose clients do not wait: values are stored in memcached at random
instants, on average so many a second, whether earlier ones are confirmed or not.

    memcached_open.py SECONDS BYTES A_SECOND

The latency of a value counts from the instant that it was due. The first VM has
memcached (memcached.sh prepare).
"""

import os
import random
import socket
import sys
import threading
import time

import meet

PORT = 11311
STORED = b"STORED\r\n"


def instants(seconds: float, a_second: float, rank: int) -> list[float]:
    """A Poisson process, another one in each rank and the same in each run."""
    draw = random.Random(rank)  # noqa: S311 - arrivals
    found: list[float] = []
    now = draw.expovariate(a_second)
    while now < seconds:
        found.append(now)
        now += draw.expovariate(a_second)
    return found


def hear(service: socket.socket, ends: list[float], count: int) -> None:
    """Notes the instant of each confirmation; they come in order."""
    rest = b""
    while len(ends) < count:
        rest += service.recv(65536)
        while rest.startswith(STORED):
            rest = rest[len(STORED) :]
            ends.append(time.monotonic())


def main() -> None:
    rank = int(os.environ["HOSENET_RANK"])
    if rank == 0:
        meet.main()
        return
    due = instants(float(sys.argv[1]), float(sys.argv[3]), rank)
    value = bytes(int(sys.argv[2]))
    service = socket.create_connection(("vm0", PORT))
    service.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ends: list[float] = []
    hearing = threading.Thread(target=hear, args=(service, ends, len(due)))
    hearing.start()
    begin = time.monotonic()
    for number, at in enumerate(due):
        time.sleep(max(0.0, begin + at - time.monotonic()))
        head = f"set {rank}-{number % 100} 0 0 {len(value)}\r\n".encode()
        service.sendall(head + value + b"\r\n")
    hearing.join()
    meet.main()
    late = [end - begin - at for end, at in zip(ends, due, strict=True)]
    print(f"latency: {sum(late) / len(late):.6f} s")
    print(f"{len(late)} values stored: PASSED")


if __name__ == "__main__":
    main()
