#!/usr/bin/env python3
"""A program that breaks the rule, so that one can see what that looks like.

    impatient.py BLOCKS KILOBYTES PATIENCE_MS

Each rank sends blocks to the next by UDP, each once the one before is
confirmed, and sends a block again if it is not confirmed soon enough. With less
bandwidth a block takes longer than its patience: the same bytes queue again.
"""

import os
import selectors
import socket
import struct
import sys
import time

PORT = 5700
PART_BYTES = 1400
HEADER = struct.Struct("!cII")
"""Kind (d or c), block, part."""


class Peer:
    """A sender to the next rank and a receiver from the one before."""

    def __init__(
        self, blocks: int, block_bytes: int, patience_s: float
    ) -> None:
        peers = os.environ["HOSENET_PEERS"].split(",")
        rank = int(os.environ["HOSENET_RANK"])
        self.next = (peers[(rank + 1) % len(peers)], PORT)
        self.before = (peers[rank - 1], PORT)
        self.blocks = blocks
        self.parts = -(-block_bytes // PART_BYTES)
        self.patience_s = patience_s
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((peers[rank], PORT))
        self.socket.settimeout(0)
        self.block = 0
        self.begun = -1
        self.again = 0
        self.received: set[int] = set()
        self.complete = 0
        self.due_s = 0.0

    def run(self) -> None:
        """Until all is confirmed, here and, by a last silence, at the next."""
        selector = selectors.DefaultSelector()
        selector.register(self.socket, selectors.EVENT_READ)
        while self.block < self.blocks or self.complete < self.blocks:
            if self.block < self.blocks:
                self.send_if_due()
            wait_s = max(0.0, self.due_s - time.monotonic())
            if selector.select(min(wait_s, 0.1)):
                self.hear()
        # The last confirmation may be lost: whoever asks again is answered.
        quiet_s = time.monotonic() + 2 * self.patience_s
        while time.monotonic() < quiet_s:
            if selector.select(self.patience_s):
                self.hear()

    def send_if_due(self) -> None:
        if self.begun == self.block:
            if time.monotonic() < self.due_s:
                return
            self.again += 1
        self.begun = self.block
        data = bytes(PART_BYTES)
        for part in range(self.parts):
            packet = HEADER.pack(b"d", self.block, part) + data
            self.put(packet, self.next)
        self.due_s = time.monotonic() + self.patience_s

    def put(self, packet: bytes, to: tuple[str, int]) -> None:
        while True:
            try:
                self.socket.sendto(packet, to)
            except BlockingIOError:
                # The kernel's buffer is full.
                time.sleep(0.001)
            else:
                return

    def hear(self) -> None:
        while True:
            try:
                packet = self.socket.recv(65536)
            except BlockingIOError:
                return
            kind, block, part = HEADER.unpack_from(packet)
            if kind == b"c":
                self.confirmed(block)
            else:
                self.take(block, part)

    def confirmed(self, block: int) -> None:
        if block == self.block:
            self.block += 1
            self.due_s = 0.0

    def take(self, block: int, part: int) -> None:
        if block == self.complete:
            self.received.add(part)
            if len(self.received) < self.parts:
                return
            self.complete += 1
            self.received = set()
        elif part != self.parts - 1:
            return
        if block < self.complete:
            self.put(HEADER.pack(b"c", block, 0), self.before)


def main() -> None:
    peer = Peer(
        int(sys.argv[1]),
        int(float(sys.argv[2]) * 1000),
        float(sys.argv[3]) / 1000,
    )
    peer.run()
    print(f"{peer.blocks} blocks, {peer.again} sent again: PASSED")


if __name__ == "__main__":
    main()
