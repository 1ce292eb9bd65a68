#!/usr/bin/env python3
"""The first VM's rank stays until all others have done their part.

    meet.py

What its VM serves is counted until its ranks have ended.
"""

import os
import socket

PORT = 5950


def main() -> None:
    peers = os.environ["HOSENET_PEERS"].split(",")
    if os.environ["HOSENET_RANK"] != "0":
        socket.create_connection((peers[0], PORT)).close()
        return
    with socket.create_server((peers[0], PORT)) as listener:
        for _ in peers[1:]:
            caller, _ = listener.accept()
            caller.close()


if __name__ == "__main__":
    main()
