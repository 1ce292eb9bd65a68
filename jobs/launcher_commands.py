"""The commands that launch programs, and Debian's packages that have them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.demand import Demand, MpiLibrary, Program


@dataclass(frozen=True)
class LauncherCommand:
    """A command that a machine has or lacks.

    ``package`` is Debian's, ``label`` the command's in lists of checks, and
    ``needed_by`` the setting of a program that needs it.
    """

    name: str
    package: str
    label: str
    needed_by: str

    @property
    def is_installed(self) -> bool:
        return shutil.which(self.name) is not None

    @property
    def missing(self) -> str:
        """A sentence on its absence."""
        return f"{self.name} is missing (Debian: {self.package})"


MPIRUN: dict[MpiLibrary, str] = {
    "openmpi": "mpirun.openmpi",
    "mpich": "mpiexec.hydra",
}
"""Debian's names: both libraries may be installed."""
OPEN_MPI = LauncherCommand(
    MPIRUN["openmpi"], "openmpi-bin", "MPI, openmpi", "mpi: openmpi"
)
MPICH = LauncherCommand(
    MPIRUN["mpich"], "mpich", "MPI, mpich", "mpi: mpich"
)
JAVA = LauncherCommand(
    "java", "default-jre-headless", "Java", "launch: spark"
)
COMMANDS = (OPEN_MPI, MPICH, JAVA)


def needed(demand: Demand) -> LauncherCommand | None:
    """The command that launches a program; None where none is needed."""
    if not isinstance(demand, Program):
        return None
    if demand.launch == "spark":
        return JAVA
    if demand.launch != "mpi":
        return None
    return OPEN_MPI if demand.mpi == "openmpi" else MPICH


def missing(demands: Iterable[Demand]) -> list[LauncherCommand]:
    """Commands that the demands need and this machine lacks, each once."""
    absent: list[LauncherCommand] = []
    for demand in demands:
        command = needed(demand)
        if command is None or command in absent:
            continue
        if not command.is_installed:
            absent.append(command)
    return absent


def install_command(commands: Iterable[LauncherCommand]) -> str:
    """The command that installs them."""
    packages = " ".join(command.package for command in commands)
    return f"sudo apt-get install {packages}"
