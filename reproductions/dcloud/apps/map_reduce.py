#!/usr/bin/env python3
"""Two small data-parallel programs over plain sockets: a sort, and a word count.

map_reduce.py sort MEGABYTES [PORT]: every rank makes records of 1,000 bytes with random keys,
sends each to the rank that its key belongs to, and sorts what it got. Nearly all records move: the
network is its limit.

map_reduce.py count MEGABYTES [PORT]: every rank counts the words of a text of its own, sends each
word's count to the rank that the word belongs to, and adds up what it got. Counts are small: the
processor is its limit.

Ranks find their place in the environment, as any program under a job's `command` does. They
exchange in rounds: with the next rank, the one after that, and so on, as message-passing libraries
do it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from random import Random

PATIENCE_S = 60.0
KEY_BYTES = 10
RECORD_BYTES = 1000
WORDS = 50_000
BLOCK_WORDS = 50_000
WORD_BYTES = 7


def connect(own: str, address: str, port: int) -> socket.socket:
    """A connection from this rank's address to another's. Raises
    ConnectionRefusedError where that one does not listen for PATIENCE_S.
    """
    # Ranks start at different times.
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(
                (address, port), PATIENCE_S, source_address=(own, 0)
            )
        except ConnectionRefusedError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.02)


def send(peer: socket.socket, part: bytes) -> None:
    peer.sendall(part)
    peer.shutdown(socket.SHUT_WR)


def received(peer: socket.socket) -> bytes:
    """All that a peer sends, until it closes its side."""
    got = bytearray()
    while data := peer.recv(1 << 16):
        got += data
    return bytes(got)


def exchanged(
    parts: Sequence[bytes], rank: int, ranks: Sequence[str], port: int
) -> list[bytes]:
    """The parts that all ranks have for this one; ``parts`` are its own by rank."""
    # Sent by another thread while this one receives: two ranks that both
    # only send would fill each other's buffers, and wait for ever.
    n = len(ranks)
    got = [parts[rank]]
    with (
        socket.create_server((ranks[rank], port), backlog=n) as listener,
        ThreadPoolExecutor(1) as beside,
    ):
        listener.settimeout(PATIENCE_S)
        others = [(rank + step) % n for step in range(1, n)]
        outgoing = []
        for other in others:
            outgoing.append(connect(ranks[rank], ranks[other], port))
        accepted = [listener.accept() for _ in others]
        incoming = {}
        for connection, (address, _) in accepted:
            connection.settimeout(PATIENCE_S)
            incoming[address] = connection
        for step, (other, peer) in enumerate(
            zip(others, outgoing, strict=True), 1
        ):
            sent = beside.submit(send, peer, parts[other])
            got.append(received(incoming[ranks[(rank - step) % n]]))
            sent.result()
    return got


def records_by_rank(megabytes: float, rank: int, n: int) -> list[bytes]:
    """Random records, by the rank that their keys belong to."""
    random = Random(rank)  # noqa: S311 - the same each time
    value = bytes(RECORD_BYTES - KEY_BYTES)
    parts = [bytearray() for _ in range(n)]
    for _ in range(round(megabytes * 1e6 / RECORD_BYTES)):
        key = random.randbytes(KEY_BYTES)
        parts[key[0] * n // 256] += key + value
    return list(map(bytes, parts))


def sort(got: Sequence[bytes]) -> str:
    """Sorts the records of several parts; their number and the first one."""
    records = []
    for part in got:
        for start in range(0, len(part), RECORD_BYTES):
            records.append(part[start : start + RECORD_BYTES])
    records.sort()
    first = records[0][:KEY_BYTES].hex()
    return f"{len(records)} records from {first} on"


def counts_by_rank(megabytes: float, rank: int, n: int) -> list[bytes]:
    """Counts of the words of a random text, by the rank that a word belongs to."""
    random = Random(rank)  # noqa: S311 - the same each time
    words = [f"{number:0{WORD_BYTES - 1}}" for number in range(WORDS)]
    # After Zipf: the word of rank r is as frequent as 1/r.
    weights = list(accumulate(1 / r for r in range(1, WORDS + 1)))
    counts: Counter[str] = Counter()
    left = round(megabytes * 1e6 / WORD_BYTES)
    while left > 0:
        block = random.choices(
            words, cum_weights=weights, k=min(left, BLOCK_WORDS)
        )
        text = " ".join(block)
        counts.update(text.split())
        left -= len(block)
    lines: list[list[str]] = [[] for _ in range(n)]
    for word, times in counts.items():
        owner = zlib.crc32(word.encode()) % n
        lines[owner].append(f"{word} {times}")
    return ["\n".join(own).encode() for own in lines]


def add_up(got: Sequence[bytes]) -> str:
    """Adds up counts of words; their numbers and the most frequent word."""
    counts: Counter[str] = Counter()
    for part in got:
        for line in part.decode().splitlines():
            word, _, count = line.partition(" ")
            counts[word] += int(count)
    ((first, times),) = counts.most_common(1)
    total = sum(counts.values())
    return f"{total} words, {len(counts)} different; {times} times {first}"


def main(job: str, megabytes: str, port: str = "5300") -> None:
    """Runs a program's two parts around the exchange, and prints the outcome."""
    rank = int(os.environ["HOSENET_RANK"])
    ranks = os.environ["HOSENET_PEERS"].split(",")
    first, last = {
        "sort": (records_by_rank, sort),
        "count": (counts_by_rank, add_up),
    }[job]
    parts = first(float(megabytes), rank, len(ranks))
    found = last(exchanged(parts, rank, ranks, int(port)))
    sys.stdout.write(f"rank {rank}: {found}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
