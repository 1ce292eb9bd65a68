#!/usr/bin/env python3
"""All ranks send a block to the first at the same time: MPI's Gather, several
times (an incast).

    mpi_gather.py MEGABYTES ROUNDS

The first rank receives so many megabytes in all. It checks where every block
came from.
"""

import sys

from mpi4py import MPI


def main() -> None:
    ranks = MPI.COMM_WORLD
    rank, size = ranks.Get_rank(), ranks.Get_size()
    rounds = int(sys.argv[2])
    block = round(float(sys.argv[1]) * 1e6 / rounds / (size - 1))
    sent = bytes([rank]) * block
    received = bytearray(block * size) if rank == 0 else None
    for _ in range(rounds):
        ranks.Gather(sent, received, root=0)
        # Nobody is a round ahead: all begin the next one together.
        ranks.Barrier()
        for peer in range(size if received else 0):
            if received[peer * block] != peer:
                sys.exit(f"block {peer} is another's")
    if rank == 0:
        print(f"gathered {block * (size - 1) * rounds} bytes: PASSED")


if __name__ == "__main__":
    main()
