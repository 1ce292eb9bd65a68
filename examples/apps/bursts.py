#!/usr/bin/env python3
"""An application that computes in bursts and waits in between, as parallel
programs do.

bursts.py SHARE SECONDS [BURST_MS]: alone on a processor it uses SHARE of it for
SECONDS. Each burst of computing (10 ms) is followed by a wait of fixed length,
for a message, say: what delays a burst delays the whole program, and nothing is
caught up with.
"""

from __future__ import annotations

import hashlib
import sys
import time

BLOCK = bytes(range(256)) * 64


def compute(cpu_s: float) -> None:
    """Hash until this thread has used so much more processor time."""
    digest = hashlib.sha256()
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        digest.update(BLOCK)


def main(share: float, seconds: float, burst_ms: float = 10.0) -> None:
    burst_s = burst_ms / 1e3
    wait_s = burst_s * (1.0 - share) / share
    began_s = time.monotonic()
    for _ in range(round(seconds / (burst_s + wait_s))):
        compute(burst_s)
        if wait_s > 0:
            time.sleep(wait_s)
    sys.stdout.write(f"{time.monotonic() - began_s:.3f} s\n")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
