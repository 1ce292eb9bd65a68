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
    """Hashes for ``cpu_s`` of this thread's processor time."""
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
    keep_to_node(rank, sys.argv[5 + rank])
    # All are there, and connected, before the clock starts.
    ranks.allreduce(0)
    if time.monotonic() > begin_s:
        sys.exit("started too late")
    time.sleep(begin_s - time.monotonic())
    began_cpu_s = time.process_time()
    steps = take_steps(ranks, burst_s, wait_s, begin_s + seconds)
    took_s = time.monotonic() - begin_s
    used_s = ranks.allreduce(time.process_time() - began_cpu_s)
    if rank == 0:
        print(steps, took_s, used_s / ranks.Get_size())


def keep_to_node(rank: int, files: str) -> None:
    """Binds the rank to its node: a processor and control groups."""
    os.sched_setaffinity(0, {rank})
    for file in filter(None, files.split(",")):
        # 0 stands for the process that writes.
        Path(file).write_text("0", encoding="ascii")


def take_steps(
    ranks: MPI.Comm, burst_s: float, wait_s: float, end_s: float
) -> int:
    """The number of steps until a rank finds that the time is over."""
    steps = 0
    over = 0
    while not over:
        compute(burst_s)
        if wait_s > 0:
            time.sleep(wait_s)
        steps += 1
        # All ranks end with the same step: one alone would wait for ever.
        over = ranks.allreduce(int(time.monotonic() >= end_s), op=MPI.MAX)
    return steps


if __name__ == "__main__":
    main()
