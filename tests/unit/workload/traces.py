"""Published traces for tests: found as experiments find them, or the test is skipped saying why."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.workload.traces import published, published_traces
from testbed.spec.document import find_file

KTH = "KTH-SP2-1996-2.1-cln.swf.gz"
NASA = "NASA-iPSC-1993-3.1-cln.swf.gz"


def trace(name: str) -> Path:
    """The file of a published trace."""
    found = find_file(name, Path("/nowhere"))
    if found is None:
        known = published(name)
        origin = known.origin if known is not None else "unknown"
        pytest.skip(
            f"no {name} along TESTBED_DATA or in the cache; its origin: {origin}"
        )
    return found


def skip_without_traces_of(text: str) -> None:
    """Skip where an experiment file's text names a published trace that is not here."""
    for known in published_traces():
        if known.name in text:
            trace(known.name)
