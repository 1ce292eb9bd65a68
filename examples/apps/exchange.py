#!/usr/bin/env python3
"""An application that reads from a slow disk and sends it to all others, through plain sockets.

exchange.py MEGABYTES DISK [PORT]: every rank reads MEGABYTES (10^6 bytes) from a disk of DISK
Mbit/s, which is a clock here, and sends equal parts to all others while it reads: in rounds, to the
next rank, to the one after that, and so on, as message-passing libraries do it. It ends when it has
sent all and heard all. With more bandwidth than the disk gives nothing gets faster.

Its place it finds in the environment, as any application under a job's `command` does.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

CHUNK_BYTES = 16384
PATIENCE_S = 20.0


def connect(address: str, port: int) -> socket.socket:
    """Ranks start when they start: a peer that does not listen yet is asked again."""
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(
                (address, port), timeout=PATIENCE_S
            )
        except ConnectionRefusedError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.02)


def send(peer: socket.socket, part_bytes: int, disk_bps: float) -> None:
    """Chunk after chunk, none before the disk has given it."""
    begun_s = time.monotonic()
    for start in range(0, part_bytes, CHUNK_BYTES):
        end = min(start + CHUNK_BYTES, part_bytes)
        time.sleep(
            max(0.0, begun_s + end * 8 / disk_bps - time.monotonic())
        )
        peer.sendall(bytes(end - start))
    peer.shutdown(socket.SHUT_WR)


def hear(peer: socket.socket) -> int:
    """Bytes received until the peer has said its last."""
    heard_bytes = 0
    while data := peer.recv(1 << 16):
        heard_bytes += len(data)
    return heard_bytes


def main(megabytes: float, disk_mbit: float, port: float = 5300) -> None:
    rank = int(os.environ["HOSENET_RANK"])
    ranks = os.environ["HOSENET_PEERS"].split(",")
    # From the next rank on, round the circle: not all of them to rank 0 at once.
    others = ranks[rank + 1 :] + ranks[:rank]
    part_bytes = round(megabytes * 1e6 / len(others))
    heard_bytes = 0
    with (
        socket.create_server(
            (ranks[rank], int(port)), backlog=len(others)
        ) as listener,
        ThreadPoolExecutor(1) as beside,
    ):
        listener.settimeout(PATIENCE_S)
        outgoing = [connect(address, int(port)) for address in others]
        accepted = [listener.accept() for _ in others]
        incoming = {
            address: connection for connection, (address, _) in accepted
        }
        for to, origin in zip(outgoing, reversed(others), strict=True):
            sent = beside.submit(send, to, part_bytes, disk_mbit * 1e6)
            heard_bytes += hear(incoming[origin])
            sent.result()
    sys.stdout.write(f"rank {rank} heard {heard_bytes} bytes\n")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
