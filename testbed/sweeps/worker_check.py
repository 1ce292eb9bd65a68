"""Agreement between the driver and a worker that joins: Python, packages, the
product's code.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.errors import MachineCannot
from testbed.sweeps import worker_side
from testbed.sweeps.computing_sources import DECIDING

PACKAGES = ("distributed", *DECIDING)
"""Those that a result may depend on, or that tasks are sent with."""

AGREE = "install the driver's version of Hosenet, with requirements/run.txt, where the workers run"
"""Hint where a worker's code differs from the driver's."""


@dataclass(frozen=True)
class WorkerRefused:
    """A worker has joined and cannot be used."""

    sentence: str
    hint: str = AGREE


async def joined_worker(
    client: Any, address: str
) -> worker_side.WorkerFacts | WorkerRefused | None:
    """A worker's facts if its code is the driver's; None for one that left
    meanwhile.

    Python and packages are asked for by functions of Dask and the standard
    library alone, which a worker without the product has too.
    """
    from distributed.versions import get_versions

    versions = await _asked(
        client, address, get_versions, packages=list(PACKAGES)
    )
    if not isinstance(versions, Mapping):
        return None
    theirs = _versions(versions)
    apart = []
    for name, version in own_versions().items():
        if theirs[name] != version:
            apart.append(f"{name} {theirs[name]} (here {version})")
    if apart:
        return await _refused(client, address, f"has {', '.join(apart)}")
    facts = await _asked(client, address, worker_side.facts)
    if facts is None:
        return None
    if fault := _fault(facts):
        return await _refused(client, address, fault)
    checked_facts: worker_side.WorkerFacts = facts
    return checked_facts


def _fault(facts: Any) -> str:
    """The reason why a worker cannot be used; empty where it can.

    ``facts``: its facts, or the exception that it raised when asked for them.
    """
    # A worker without the product replies by the error of its import.
    if lacks := re.search(r"No module named '([\w.]+)'", str(facts)):
        return f"has no Python package {lacks[1]!r}"
    if isinstance(facts, MachineCannot):
        return facts.message
    if not isinstance(facts, worker_side.WorkerFacts):
        return f"fails: {facts}"
    digest = worker_side.worker_digest(live=facts.live)
    if facts.digest == digest:
        return ""
    return f"has other code of Hosenet: {facts.digest[:12]} (here {digest[:12]})"


def own_versions() -> dict[str, str | None]:
    """Versions of the driver that a worker must have too."""
    from distributed.versions import get_versions

    return _versions(get_versions(packages=list(PACKAGES)))


def _versions(record: Mapping[str, Any]) -> dict[str, str | None]:
    packages = record["packages"]
    python = str(packages["python"]).split(".")
    return {
        "Python": ".".join(python[:2]),
        **{name: packages[name] for name in PACKAGES},
    }


async def _refused(client: Any, address: str, fault: str) -> WorkerRefused:
    host = await _asked(client, address, socket.gethostname)
    return WorkerRefused(
        f"worker {address} on host {host} is not used: it {fault}"
    )


async def _asked(
    client: Any, address: str, function: Any, **arguments: Any
) -> Any:
    """A function's result on a worker, or its exception; None where the worker
    cannot be reached.
    """
    asking = client.run(
        function, workers=[address], on_error="return", **arguments
    )
    try:
        answer = (await asking).get(address)
    except OSError:
        return None
    # An error that names a file is of the worker's own.
    if isinstance(answer, OSError) and answer.filename is None:
        return None
    return answer
