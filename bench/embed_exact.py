"""``exact`` in loaded data centres of 8,000 and 100,000 servers."""

from __future__ import annotations

from bench import embed_states
from bench.samples import Result

LIMITS_MS = {8_000: 0.5, 100_000: 5.0}


def run(quick: bool) -> list[Result]:
    """Rows of :func:`bench.embed_states.run`."""
    return embed_states.run("exact", LIMITS_MS, quick=quick)
