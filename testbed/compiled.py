"""Inner loops, compiled where Numba is installed; everything works without it.

Numba is an optional speed-up (``pip install hosenet[fast]``). What calls :func:`compiled` keeps a
numpy path beside the loop, with the same results bit for bit, and takes it when this returns None.
``HOSENET_NUMBA=0`` in the environment takes it too.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import cache
from typing import Any

SWITCH = "HOSENET_NUMBA"


@cache
def numba_available() -> bool:
    """Whether loops can be compiled. Looks for the package without importing it."""
    return os.environ.get(SWITCH, "1") != "0" and importlib.util.find_spec("numba") is not None


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any] | None:
    """``loop`` as machine code, or None without Numba. Compiled at the first call, then cached."""
    if not numba_available():
        return None
    import numba

    machine_code: Callable[..., Any] = numba.njit(cache=True, nogil=True)(loop)
    return machine_code
