#!/usr/bin/env python3
"""An application in two phases: it reads a disk and sends what it finds, then sends its index.

Every rank sends to the next one, at the pace that its own work allows, and ends when it has sent
all and heard all. The two phases are PHASES: seconds of work, and megabits that come of it; packed,
because the sweep is to tell them.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from threading import Thread

PACKED = "000000000000f83fcdcccccccccc16409a9999999999e93f9a99999999993e40"
PHASES = tuple(struct.iter_unpack("<2d", bytes.fromhex(PACKED)))
CHUNK_BYTES = 8192
PORT = 5301
PATIENCE_S = 20.0


def connect(address: str) -> socket.socket:
    """Ranks start when they start: one that does not listen yet is asked again."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=PATIENCE_S)
        except ConnectionRefusedError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.02)


def send(peer: socket.socket) -> None:
    """Chunk after chunk, none before the work for it is done."""
    for seconds, megabits in PHASES:
        begun_s = time.monotonic()
        size = round(megabits * 1e6 / 8)
        for start in range(0, size, CHUNK_BYTES):
            end = min(start + CHUNK_BYTES, size)
            time.sleep(max(0.0, begun_s + seconds * end / size - time.monotonic()))
            peer.sendall(bytes(end - start))
    peer.shutdown(socket.SHUT_WR)


def main() -> None:
    rank, ranks = int(os.environ["HOSENET_RANK"]), os.environ["HOSENET_PEERS"].split(",")
    with socket.create_server((ranks[rank], PORT)) as listener:
        listener.settimeout(PATIENCE_S)
        to = connect(ranks[(rank + 1) % len(ranks)])
        origin, _ = listener.accept()
        sending = Thread(target=send, args=(to,))
        sending.start()
        heard_bytes = 0
        while data := origin.recv(1 << 16):
            heard_bytes += len(data)
        sending.join()
    sys.stdout.write(f"rank {rank} heard {heard_bytes} bytes\n")


if __name__ == "__main__":
    main()
