"""Where a sweep's tasks run: in this process, on the processors here, or on a
Dask cluster.
"""

from __future__ import annotations

import asyncio
import importlib
import warnings
from collections.abc import Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from testbed.errors import BadInput
from testbed.sweeps import launchers
from testbed.sweeps.dask_executor import DaskExecutor
from testbed.sweeps.local_processes import Processors
from testbed.sweeps.task_supply import Say
from testbed.sweeps.tasks import Executor, InProcess

ANSWER_S = 15.0
"""Time in which a scheduler must reply, in seconds: on a busy machine it may take
some.
"""
PATIENCE_S = 60.0
"""Time without a worker after which a sweep ends, in seconds; launched clusters
have no limit.
"""
KINDS = (
    "tcp://HOST:PORT",
    "tls://HOST:PORT",
    "slurm",
    "kubernetes",
    "ssh:HOST1,HOST2",
)


def executor(cluster: str | None, processes: int, say: Say) -> Executor:
    """The executor that ``--cluster`` names; ``processes`` are the workers that
    it starts.

    Raises BadInput for what is no cluster, MachineCannot where the package of
    its launcher is missing; entering it raises BadInput if no scheduler replies,
    or if no worker runs the driver's code.
    """
    if cluster is None:
        if processes == 1:
            return InProcess()
        return Processors(processes, say)
    if cluster.startswith(("tcp://", "tls://")):
        opened = partial(client, _address(cluster))
        return DaskExecutor(cluster, opened, say, patience_s=PATIENCE_S)
    return DaskExecutor(
        cluster, partial(_client_of, _launched(cluster, processes)), say
    )


def _address(cluster: str) -> str:
    # Dask's client finds an address wrong only when it is half made, and then
    # takes long to end.
    parts = urlsplit(cluster)
    try:
        complete = bool(parts.hostname and parts.port)
    except ValueError:
        complete = False
    if not complete or parts.path:
        raise BadInput(
            f"{cluster!r} is no address of a Dask scheduler",
            f"--cluster {KINDS[0]}",
        )
    return cluster


def _check(cluster: str) -> None:
    """Raises BadInput where keys are missing, or something else than a scheduler
    listens there, for whose reply Dask's client would wait for ever.
    """
    security = importlib.import_module("distributed.security").Security()
    if (
        cluster.startswith("tls://")
        and not security.get_tls_config_for_role("client")["cert"]
    ):
        raise BadInput(
            f"{cluster} needs keys, and Dask's configuration has none for clients",
            "set distributed.comm.tls there; docs/clusters.md says how",
        )
    # In another thread: in a notebook this one has an event loop already.
    with futures.ThreadPoolExecutor(1) as apart:
        try:
            apart.submit(asyncio.run, _ask(cluster, security)).result()
        except Exception as error:  # noqa: BLE001 - whatever replies, it is no scheduler
            raise _no_answer(cluster, error) from None


async def _ask(cluster: str, security: Any) -> None:
    """Asks a scheduler who it is, by its protocol."""
    rpc = importlib.import_module("distributed.core").rpc
    async with rpc(
        cluster, connection_args=security.get_connection_args("client")
    ) as scheduler:
        await asyncio.wait_for(scheduler.identity(n_workers=0), ANSWER_S)


def _no_answer(cluster: object, error: Exception) -> BadInput:
    return BadInput(
        f"no Dask scheduler answers at {cluster}: {_first_line(error)}",
        "start one with: dask scheduler; docs/clusters.md says how, with TLS too",
    )


def _launched(cluster: str, workers: int) -> AbstractContextManager[Any]:
    if cluster.startswith("ssh:"):
        return launchers.on_hosts(launchers.hosts_of(cluster), workers)
    known = {"slurm": launchers.SLURM, "kubernetes": launchers.KUBERNETES}
    if cluster not in known:
        raise BadInput(
            f"{cluster!r} is no cluster", f"--cluster {', '.join(KINDS)}"
        )
    return launchers.scaled(known[cluster], workers)


@contextmanager
def client(cluster: Any) -> Iterator[Any]:
    """A client of a scheduler, by its address or its Dask cluster object.
    Raises BadInput.
    """
    distributed = _distributed()
    from distributed.versions import VersionMismatchWarning

    if isinstance(cluster, str):
        _check(cluster)
    try:
        with warnings.catch_warnings():
            # What must agree is compared, and reported, worker by worker.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            client_ = distributed.Client(
                cluster,
                timeout=ANSWER_S,
                # A notebook's own client stays its default.
                set_as_default=False,
                name="testbed-sweep",
            )
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise _no_answer(cluster, error) from None
    with client_:
        yield client_


@contextmanager
def _client_of(opened: AbstractContextManager[Any]) -> Iterator[Any]:
    """A client of a cluster that is started for it, and closed with it."""
    with opened as cluster, client(cluster) as client_:
        yield client_


def _distributed() -> Any:
    # As Any: the type checker would object to each call of an untyped function.
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise
    except Exception as error:
        # It reads its settings when it is imported.
        raise BadInput(
            f"Dask does not start: {str(error) or type(error).__name__}",
            "correct or remove the files in ~/.config/dask and DASK_CONFIG",
        ) from error


def _first_line(error: Exception) -> str:
    # A timeout has no words.
    for line in str(error).splitlines():
        return line
    return f"nothing within {ANSWER_S:g} s"
