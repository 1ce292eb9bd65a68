"""Random streams by name: what is drawn for one purpose never shifts what another sees."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The generator of that name under ``seed``: always the same, independent of all others.

    numpy's SeedSequence is spawned with the name's digest as its key, so that streams need no
    common parent and no order in which they are asked for.
    """
    digest = hashlib.sha256("/".join(str(name) for name in names).encode()).digest()
    key = tuple(int.from_bytes(digest[k : k + 4], "big") for k in range(0, 16, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
