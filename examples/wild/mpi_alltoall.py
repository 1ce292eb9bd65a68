#!/usr/bin/env python3
"""All ranks exchange blocks with all others at once: MPI's Alltoall, several times.

    mpi_alltoall.py MEGABYTES ROUNDS

Each rank sends so many megabytes in all. It checks where every block came from.
"""

import sys

from mpi4py import MPI


def main() -> None:
    ranks = MPI.COMM_WORLD
    rank, size = ranks.Get_rank(), ranks.Get_size()
    rounds = int(sys.argv[2])
    block = round(float(sys.argv[1]) * 1e6 / rounds / (size - 1))
    sent = bytes([rank]) * (block * size)
    received = bytearray(block * size)
    for _ in range(rounds):
        ranks.Alltoall(sent, received)
        for peer in range(size):
            if received[peer * block] != peer:
                sys.exit(f"rank {rank}: block {peer} is another's")
    if rank == 0:
        print(f"exchanged {block * size * rounds} bytes a rank: PASSED")


if __name__ == "__main__":
    main()
