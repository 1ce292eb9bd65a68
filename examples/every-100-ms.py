"""Mbit/s that this VM sends in each 100 ms, behind its limiter: python3 - SECONDS < this file."""

import sys
import time
from pathlib import Path

EVERY_S = 0.1


def sent_bytes() -> int:
    """Bytes that have left the VM's device so far."""
    with Path("/proc/net/dev").open() as devices:
        (eth0,) = (
            line for line in devices if line.lstrip().startswith("eth0:")
        )
    return int(eth0.split(":")[1].split()[8])


begun_s = was_s = time.monotonic()
was_bytes = sent_bytes()
for number in range(1, int(float(sys.argv[1]) / EVERY_S) + 1):
    time.sleep(max(0.0, begun_s + number * EVERY_S - time.monotonic()))
    now_s, now_bytes = time.monotonic(), sent_bytes()
    print(f"{(now_bytes - was_bytes) * 8 / (now_s - was_s) / 1e6:.2f}")
    was_s, was_bytes = now_s, now_bytes
