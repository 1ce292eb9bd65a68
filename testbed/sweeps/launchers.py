"""Clusters that Dask's own launchers start for a sweep: SLURM, Kubernetes, SSH.

They get only the arguments that they must have: users' settings stand in Dask's
configuration files.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.errors import BadInput, MachineCannot

SETTINGS = (
    "its settings stand in Dask's configuration files (docs/clusters.md)"
)


@dataclass(frozen=True)
class Launcher:
    """A cluster class, and the packages that it needs. ``extra``: its name for
    ``--cluster``, and the extra of the package that installs them.
    """

    extra: str
    needs: tuple[str, ...]
    module: str
    class_name: str

    def imported(self) -> Any:
        """The class. Raises MachineCannot where a package is missing."""
        try:
            for name in self.needs:
                importlib.import_module(name)
            return getattr(
                importlib.import_module(self.module), self.class_name
            )
        except ModuleNotFoundError as error:
            raise MachineCannot(
                f"--cluster {self.extra} needs the Python package {error.name!r}",
                f"pip install 'hosenet[{self.extra}]'",
            ) from None


SLURM = Launcher(
    "slurm", ("dask_jobqueue",), "dask_jobqueue", "SLURMCluster"
)
KUBERNETES = Launcher(
    "kubernetes",
    ("dask_kubernetes",),
    "dask_kubernetes.operator",
    "KubeCluster",
)
SSH = Launcher("ssh", ("asyncssh",), "distributed", "SSHCluster")


@contextmanager
def scaled(launcher: Launcher, workers: int) -> Iterator[Any]:
    """A cluster that has been asked for that many workers; closed, with them,
    at the end.
    """
    with _started(launcher) as cluster:
        cluster.scale(workers)
        yield cluster


@contextmanager
def on_hosts(hosts: tuple[str, ...], workers: int) -> Iterator[Any]:
    """A scheduler on the first host, and at least ``workers`` workers, equally
    many on each host; closed at the end.

    The interpreter and the product have the same paths on all hosts as here.
    """
    per_host = math.ceil(workers / len(hosts))
    options = {"nthreads": 1, "n_workers": per_host}
    # It would log every line that a worker writes.
    logging.getLogger("distributed.deploy.ssh").setLevel(logging.WARNING)
    # The first is the scheduler's host; the list after it has the workers.
    with _started(
        SSH, [hosts[0], *hosts], worker_options=options
    ) as cluster:
        yield cluster


def hosts_of(name: str) -> tuple[str, ...]:
    """The hosts of ``ssh:HOST1,HOST2``. Raises BadInput if there is none, or an
    empty one.
    """
    hosts = tuple(
        host.strip() for host in name.removeprefix("ssh:").split(",")
    )
    if not all(hosts):
        raise BadInput(
            f"{name!r} names no host", "--cluster ssh:HOST1,HOST2"
        )
    return hosts


@contextmanager
def _started(
    launcher: Launcher, *arguments: object, **options: object
) -> Iterator[Any]:
    kind = launcher.imported()
    try:
        cluster = kind(*arguments, **options)
    except Exception as error:  # each launcher raises some of its own
        lines = str(error).splitlines() or [type(error).__name__]
        first = lines[0].rstrip(",:")
        raise MachineCannot(
            f"Dask's {launcher.class_name} does not start: {first}",
            SETTINGS,
        ) from error
    with cluster:
        yield cluster
