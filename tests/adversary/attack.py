"""An attack, and its result: tries, and those of them that got through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Tries(NamedTuple):
    """Tries of an attack: how many, and how many did harm."""

    attempts: int
    through: int


@dataclass(frozen=True)
class Attack:
    """An attack on the testbed, and the same one on a target without guard.

    ``on_testbed`` and ``on_unguarded`` try it and count. On the unguarded
    target at least one try must do harm: else the attack would be too weak to
    show anything. ``expected_s``: time of both, in s.
    """

    name: str
    about: str
    on_testbed: Callable[[], Tries]
    on_unguarded: Callable[[], Tries] | None = None
    expected_s: float = 5.0
