"""A token bucket: so many requests a second, and some more at once after a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """Admits ``rate_per_s`` requests a second in the long run, and at most ``burst`` at once.

    Threads may share it. ``clock`` is in seconds and never runs backwards.
    """

    def __init__(
        self, rate_per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at_s = clock()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Take a token. 0.0, or the time in seconds until there is one: then none was taken."""
        with self._lock:
            now_s = self._clock()
            gained = (now_s - self._at_s) * self._rate_per_s
            self._tokens, self._at_s = min(self._burst, self._tokens + gained), now_s
            if self._tokens < 1.0:
                return (1.0 - self._tokens) / self._rate_per_s
            self._tokens -= 1.0
            return 0.0
