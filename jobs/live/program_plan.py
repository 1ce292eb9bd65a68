"""Plans of the agents of a launched program, and the launchers' commands. Pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.demand import Launch, Program
from jobs.launcher_commands import MPIRUN
from jobs.live.command import CommandPlan
from jobs.vm_names import vm_name

SHELL_PORT = 5002
FOLDER = ".hosenet"
"""Folder of the launcher's own files, in a VM's working folder."""
RANK_START = "rank-start"
REMOTE_SHELL = "remote-shell"
DASK_HEAD = "dask-head"
SPARK_HEAD = "spark-head"
SPARK_DRIVER = "spark-driver"
CLIENT_LAUNCHES: tuple[Launch, ...] = ("dask", "spark")
"""Launches of one rank, the client of workers in all VMs."""

OPEN_MPI_SETTINGS = {
    # The agents in place of sshd, called from the first VM alone.
    "plm": "rsh",
    "plm_rsh_no_tree_spawn": "1",
    "orte_keep_fqdn_hostnames": "1",
    # The VM's interface; ranks of one VM share its memory.
    "btl": "self,vader,tcp",
    "pml": "ob1",
    "btl_tcp_if_include": "eth0",
    "oob_tcp_if_include": "eth0",
    # Programs in VMs may not read the memory of other processes.
    "btl_vader_single_copy_mechanism": "none",
    # VMs may share a processor: a rank that waits leaves it to others, and
    # jobs.live.rank_waits makes that a sleep.
    "mpi_yield_when_idle": "1",
}


@dataclass(frozen=True)
class ProgramPlan(CommandPlan):
    """The agent of VM ``index`` starts ``ranks`` ranks of ``argv``.

    All VMs together have ``total`` ranks. ``launcher`` is the command by which
    the first VM starts them all. Without one each agent starts its own, whose
    numbers begin with ``first_rank``. ``folder``: the working folder. ``files``,
    ``prepare`` and ``expected`` are those of :class:`jobs.demand.Program`.
    """

    folder: str = ""
    launch: Launch = "each"
    ranks: int = 1
    first_rank: int = 0
    total: int = 1
    launcher: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        named = (*self.argv, *self.files, *self.prepare)
        # Dask's processes, and Spark's head, run in the testbed's own Python.
        if self.launch in CLIENT_LAUNCHES:
            named += (sys.executable,)
        return named

    @property
    def home(self) -> str:
        return self.folder


def ranks_in(
    demand: Program,
    index: int,
) -> int:
    """Ranks that start in a VM."""
    if demand.launch not in CLIENT_LAUNCHES:
        return demand.ranks_per_vm
    return 1 if index == 0 else 0


def launcher_words(
    demand: Program,
    n_vms: int,
    folder: str,
) -> tuple[str, ...]:
    """The command that starts all ranks from the first VM; empty where each
    agent starts its own.

    ``folder``: the folder of the launcher's own files.
    """
    # Names, not addresses: Open MPI compares them with the host's own.
    names = [vm_name(index) for index in range(n_vms)]
    rank = (f"{folder}/{RANK_START}", *demand.words)
    per_vm = demand.ranks_per_vm
    shell = f"{folder}/{REMOTE_SHELL}"
    if demand.launch == "mpi" and demand.mpi == "openmpi":
        return (*_open_mpi(names, per_vm, shell), *rank)
    if demand.launch == "mpi":
        return (*_mpich(names, per_vm, shell), *rank)
    if demand.launch in CLIENT_LAUNCHES:
        script = DASK_HEAD if demand.launch == "dask" else SPARK_HEAD
        head = (sys.executable, f"{folder}/{script}")
        return (*head, shell, ",".join(names), str(per_vm), *rank)
    return ()


def _hosts(
    names: Sequence[str],
    per_vm: int,
) -> str:
    return ",".join(f"{name}:{per_vm}" for name in names)


def _open_mpi(
    names: Sequence[str],
    per_vm: int,
    shell: str,
) -> tuple[str, ...]:
    words = [MPIRUN["openmpi"], "--host", _hosts(names, per_vm)]
    words += ["-np", str(per_vm * len(names))]
    # The testbed gives VMs their processors: Open MPI would bind the first
    # rank of every VM to the machine's first processor.
    words += ["--bind-to", "none"]
    # Its daemons in other VMs would leave their session, and with it the
    # remote shell that is to end them.
    words.append("--leave-session-attached")
    settings = OPEN_MPI_SETTINGS | {"plm_rsh_agent": shell}
    for name, value in settings.items():
        words += ["--mca", name, value]
    return tuple(words)


def _mpich(
    names: Sequence[str],
    per_vm: int,
    shell: str,
) -> tuple[str, ...]:
    words = [MPIRUN["mpich"], "-launcher", "rsh", "-launcher-exec", shell]
    words += ["-hosts", _hosts(names, per_vm), "-iface", "eth0"]
    return (*words, "-n", str(per_vm * len(names)))
