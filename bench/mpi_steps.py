"""An MPI program of steps: each rank computes, waits as for a message, and all
exchange a sum.

    mpi_steps.py BURST_MS WAIT_MS BEGIN SECONDS [GROUP_FILES …]

Rank r keeps to processor r and joins the control groups of its line of files,
given with commas. From the monotonic time BEGIN on it takes steps for SECONDS;
rank 0 prints the steps, the time, and the mean processor time of a rank.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

BLOCK = bytes(1 << 14)


def compute(cpu_s: float) -> None:
    """Hashes until this thread has used so much more processor time."""
    digest = hashlib.sha256()
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        digest.update(BLOCK)


def main() -> None:
    burst_s = float(sys.argv[1]) / 1e3
    wait_s = float(sys.argv[2]) / 1e3
    begin_s = float(sys.argv[3])
    seconds = float(sys.argv[4])
    ranks = MPI.COMM_WORLD
    rank = ranks.Get_rank()
    os.sched_setaffinity(0, {rank})
    for file in filter(None, sys.argv[5 + rank].split(",")):
        Path(file).write_text("0", encoding="ascii")
    ranks.allreduce(0)
    if time.monotonic() > begin_s:
        sys.exit("started too late")
    time.sleep(begin_s - time.monotonic())
    began_cpu_s = time.process_time()
    steps = 0
    over = 0
    while not over:
        compute(burst_s)
        if wait_s > 0:
            time.sleep(wait_s)
        steps += 1
        over = ranks.allreduce(
            int(time.monotonic() >= begin_s + seconds), op=MPI.MAX
        )
    took_s = time.monotonic() - begin_s
    used_s = ranks.allreduce(time.process_time() - began_cpu_s)
    if rank == 0:
        print(steps, took_s, used_s / ranks.Get_size())


if __name__ == "__main__":
    main()
