"""The builders' arguments, read and checked: every problem is collected with its path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topologies.datacentre import IntArray, Path

Problems = list[tuple[Path, str]]

MAX_NODES = 1_000_000
MAX_LINK_BPS = 10**15
MAX_MEMORY_MIB = 10**12


def whole(value: object) -> bool:
    """Whether ``value`` is a whole number (``True`` is none)."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def at_least(problems: Problems, path: Path, value: object, least: int, noun: str) -> bool:
    """Notes a problem unless ``value`` is a whole number of at least ``least``."""
    if not whole(value):
        problems.append((path, f"{noun} is a whole number, not {value!r}"))
        return False
    if int(value) < least:  # type: ignore[call-overload]
        problems.append((path, f"{noun} must be at least {least}, not {value}"))
        return False
    return True


def capacity(problems: Problems, path: Path, value: object) -> bool:
    """Notes a problem unless ``value`` is a usable link capacity in bit/s."""
    if not whole(value):
        problems.append((path, f"a link's capacity is a whole number of bit/s, not {value!r}"))
        return False
    if not 0 < int(value) <= MAX_LINK_BPS:  # type: ignore[call-overload]
        problems.append(
            (path, f"a link's capacity must be above 0 and at most 1000 Tbit/s, not {value} bit/s")
        )
        return False
    return True


def capacities(
    problems: Problems, link_bps: int | Sequence[int], levels: int, name: str = "link_bps"
) -> list[int]:
    """Capacity per level from the top down; one number serves all levels."""
    if isinstance(link_bps, int | np.integer):
        capacity(problems, (name,), link_bps)
        return [int(link_bps)] * levels
    if len(link_bps) not in (1, levels):
        problems.append(
            (
                (name,),
                f"{len(link_bps)} capacities for {levels} levels of links: give {levels}, or one",
            )
        )
    good = [capacity(problems, (name, i), value) for i, value in enumerate(link_bps)]
    if not all(good) or not len(link_bps):
        return [1] * levels
    return [int(value) for value in (link_bps if len(link_bps) > 1 else [link_bps[0]] * levels)]


def slot_array(
    problems: Problems, slots: int | Sequence[int], n_servers: int | None, name: str
) -> IntArray:
    """Slots of every server from one number or a list; None: nobody knows how many servers."""
    if isinstance(slots, int | np.integer) and not isinstance(slots, bool):
        at_least(problems, (name,), slots, 1, "slots per server")
        return np.full(n_servers or 0, int(slots), dtype=np.int64)
    if isinstance(slots, bool) or not isinstance(slots, Sequence | np.ndarray):
        problems.append(((name,), f"slots are a whole number or a list of them, not {slots!r}"))
        return np.zeros(n_servers or 0, dtype=np.int64)
    if n_servers is not None and len(slots) != n_servers:
        problems.append(((name,), f"{len(slots)} slot counts for {n_servers} servers"))
    good = [at_least(problems, (name, i), s, 0, "a slot count") for i, s in enumerate(slots)]
    if not all(good) or len(slots) != n_servers:
        return np.zeros(n_servers or 0, dtype=np.int64)
    if not any(slots):
        problems.append(((name,), "no server has a slot"))
    return np.array(slots, dtype=np.int64)


def memory_array(
    problems: Problems, memory: int | Sequence[int], n_servers: int | None, name: str
) -> IntArray:
    """Memory of every server in MiB from one number or a list; None: nobody knows how many."""
    listed = not isinstance(memory, int | np.integer)
    each: list[Any] = list(memory) if isinstance(memory, Sequence) else [memory]
    for i, value in enumerate(each):
        path: Path = (name, i) if listed else (name,)
        known = at_least(problems, path, value, 1, "a server's memory in MiB")
        if known and int(value) > MAX_MEMORY_MIB:
            problems.append((path, f"{value} MiB are more than any server has"))
    if listed and n_servers is not None and len(each) != n_servers:
        problems.append(((name,), f"{len(each)} amounts of memory for {n_servers} servers"))
    if problems or n_servers is None:
        return np.zeros(n_servers or 0, dtype=np.int64)
    return np.array(each if listed else each * n_servers, dtype=np.int64)
