"""The commands that launch MPI programs, and Debian's packages that have them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from jobs.demand import Demand, MpiLibrary, Program

MPIRUN: dict[MpiLibrary, str] = {
    "openmpi": "mpirun.openmpi",
    "mpich": "mpiexec.hydra",
}
"""Debian's names: both libraries may be installed."""
PACKAGES: dict[MpiLibrary, str] = {
    "openmpi": "openmpi-bin",
    "mpich": "mpich",
}


def is_installed(library: MpiLibrary) -> bool:
    return shutil.which(MPIRUN[library]) is not None


def missing(demands: Iterable[Demand]) -> list[MpiLibrary]:
    """Libraries whose command the demands need and this machine lacks."""
    libraries: list[MpiLibrary] = []
    for demand in demands:
        if not isinstance(demand, Program) or demand.launch != "mpi":
            continue
        # Each is told once, however many jobs need it.
        if demand.mpi not in libraries and not is_installed(demand.mpi):
            libraries.append(demand.mpi)
    return libraries


def missing_sentence(library: MpiLibrary) -> str:
    """A sentence on a command that this machine lacks."""
    return f"{MPIRUN[library]} is missing (Debian: {PACKAGES[library]})"


def install_command(libraries: Iterable[MpiLibrary]) -> str:
    """The command that installs the libraries."""
    packages = " ".join(PACKAGES[library] for library in libraries)
    return f"sudo apt-get install {packages}"
