"""A batch of packets whose queue refuses some: the daemon's library sends the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from jobs.linux import C_COMPILERS
from testbed.backends.emu.switch_preload import preload

# A queue of 100 bytes takes the small packets and refuses the large ones.
SEND = """
import ctypes, socket, subprocess
for command in (
    "ip link add d0 type veth peer name d1",
    "ip link set d1 up",
    "ip link set d0 up",
    "tc qdisc add dev d0 root bfifo limit 100",
):
    subprocess.run(command.split(), check=True)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("size", ctypes.c_size_t)]
class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_size", ctypes.c_uint),
                ("vectors", ctypes.POINTER(Vector)), ("n_vectors", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("control_size", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("sent", ctypes.c_uint)]
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("d0", 0x88B5))
# Of this type alone: the kernel sends packets of its own on a device that is new.
arrived = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
arrived.bind(("d1", 0x88B5))
arrived.settimeout(1)
sizes = (60, 1400, 60, 1400, 1400, 60)
vectors = [Vector(bytes.fromhex("ff" * 12 + "88b5").ljust(size, b"x"), size) for size in sizes]
messages = (Message * len(sizes))()
for message, vector in zip(messages, vectors):
    message.vectors, message.n_vectors = ctypes.pointer(vector), 1
done, sent = 0, ctypes.CDLL(None, use_errno=True).sendmmsg
# As Open vSwitch: until an error.
while done < len(sizes):
    n = sent(out.fileno(), ctypes.byref(messages[done]), len(sizes) - done, 0)
    if n <= 0:
        break
    done += n
small = 0
try:
    while True:
        small += len(arrived.recv(2048)) == 60
except TimeoutError:
    print(done, small)
"""


def sent(
    environment: dict[str, str], files: tuple[int, ...] = ()
) -> list[int]:
    """Packets of a batch of six that were dealt with, and the small ones that arrived."""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", SEND],
        env={**os.environ, **environment},
        pass_fds=files,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(
    not any(map(shutil.which, C_COMPILERS)),
    reason="no C compiler (Debian: tcc)",
)
def test_what_follows_a_refused_packet_is_sent() -> None:
    assert sent({}) == [
        1,
        1,
    ]  # the kernel stops there, whatever comes after
    with preload() as library:
        assert sent(library.environment, library.files) == [6, 3]
