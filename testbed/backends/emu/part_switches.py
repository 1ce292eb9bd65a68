"""Parts of a network's switch, each with its own daemons in its own network
namespace.

Two userspace datapaths cannot share a namespace: both would make the device
``ovs-netdev``. The controller stays on the host.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.linux import inside_network_namespace
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
)
from testbed.backends.emu.commands import ip_batch, run
from testbed.backends.emu.open_vswitch import (
    SETTINGS,
    SwitchDaemons,
    datapath_type,
    detached,
    switch_command,
)
from testbed.backends.emu.switch_preload import BEGUN, Preload, preload
from testbed.backends.emu.traffic_control import NETNS_DIR, set_sysctls
from testbed.errors import MachineCannot
from testbed.owned_files import FILE_MODE, new_file
from testbed.plan.network_plan import Bridge, NetworkPlan
from testbed.plan.switch_parts import (
    MOST_WEIGHT,
    pass_interval_s,
    switch_parts,
)

RUN_ROOT = Path("/run/hosenet")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
STARTED_AT_ONCE = os.cpu_count() or 1


@dataclass(frozen=True)
class Part:
    """A part: its switch and its bridges."""

    switch: SwitchDaemons
    bridges: tuple[Bridge, ...]

    @property
    def netns(self) -> str:
        """The name of its network namespace."""
        return str(self.switch.netns)

    def begin_pace(self) -> None:
        """Paces the switch's passes from now on.

        Called when its bridges and their ports exist.
        """
        (self.switch.run_dir / BEGUN).touch()

    def end_pace(self) -> None:
        """Stops pacing the switch's passes, until :meth:`begin_pace`."""
        (self.switch.run_dir / BEGUN).unlink(missing_ok=True)

    def keep_logs(self, log_dir: Path) -> None:
        """Copies the daemons' logs, which are removed with the part.

        A copy is named ``PREFIX-part0-ovs-vswitchd.log``; one that exists is
        kept.
        """
        for log in self.switch.run_dir.glob("*.log"):
            # new_file() never writes over a file that others put there. An
            # error, as of a full disk, must not hide the part's death.
            path = log_dir / f"{self.netns}-{log.name}"
            with (
                suppress(OSError),
                os.fdopen(new_file(path, FILE_MODE, None), "wb") as copy,
            ):
                copy.write(log.read_bytes())


def name_taken(
    kind: str,
    name: str,
    *,
    removal_command: str,
) -> MachineCannot:
    """Returns the error for a name that others use.

    ``removal_command`` removes such a thing when its name is appended.
    """
    return MachineCannot(
        f"{kind} {name} exists and is not of this testbed's making",
        f"if nobody needs it: sudo {removal_command} {name}; or give the experiment another prefix",
    )


def refuse_taken_namespaces(names: Iterable[str]) -> None:
    """Raises MachineCannot for a network namespace that exists already."""
    for name in names:
        if (NETNS_DIR / name).exists():
            raise name_taken(
                "network namespace", name, removal_command="ip netns delete"
            )


def record_inodes(journal: CleanupJournal, names: Iterable[str]) -> None:
    """Records namespaces once more, now that their inodes are known.

    A later namespace of the same name has another inode.
    """
    entries = []
    for name in names:
        inode = (NETNS_DIR / name).stat().st_ino
        entries.append(JournalEntry("netns", name, inode))
    journal.add(entries)


@contextmanager
def switch_in_parts(
    network: NetworkPlan,
    journal: CleanupJournal,
    most_weight: int = MOST_WEIGHT,
) -> Iterator[tuple[Part, ...]]:
    """Makes the parts' namespaces and run folders, but starts no daemons.

    Yields no parts where one switch is enough. The journal removes what was
    made. Raises MachineCannot if a name is taken.
    """
    planned = switch_parts(network, most_weight)
    if datapath_type() == "system" or len(planned) == 1:
        yield ()
        return
    folder = RUN_ROOT / journal.tag.run
    names = [part.netns for part in planned]
    refuse_taken_namespaces(names)
    # Before they are made, so that a crash leaves none behind.
    entries = [JournalEntry("part", str(folder / name)) for name in names]
    entries += [JournalEntry("netns", name) for name in names]
    journal.add(entries)
    ip_batch([f"netns add {name}" for name in names])
    record_inodes(journal, names)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts = []
    for part in planned:
        bridges = tuple(network.bridge_of_node[node] for node in part.nodes)
        with inside_network_namespace(NETNS_DIR / part.netns):
            # No neighbour discovery on switch ports: it would be traffic that
            # no tenant sends.
            set_sysctls()
        run_dir = folder / part.netns
        run_dir.mkdir(mode=0o700)
        parts.append(Part(SwitchDaemons(run_dir, part.netns), bridges))
    yield tuple(parts)


def start_daemons(network: NetworkPlan, parts: Sequence[Part]) -> None:
    """Starts both daemons of each part, in parallel. Raises MachineCannot."""
    if not parts:
        return
    # Made once and copied: making one takes two processes.
    database = parts[0].switch.run_dir.parent / "empty.db"
    _make_database(database)
    interval_s = pass_interval_s(network, os.cpu_count() or 1)
    for part in parts:
        shutil.copyfile(database, part.switch.run_dir / "conf.db")
    with preload() as library, ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
        # Taking the results raises the first error of a thread.
        list(
            pool.map(lambda part: _start(part, library, interval_s), parts)
        )


def _make_database(path: Path) -> None:
    """A database without bridges, with the settings that count at the start."""
    settings = [[key, value] for key, value in SETTINGS.items()]
    row = {"other_config": ["map", settings]}
    insert = {"op": "insert", "table": "Open_vSwitch", "row": row}
    change = json.dumps(["Open_vSwitch", insert])
    run(["ovsdb-tool", "create", str(path), str(SCHEMA)])
    run(["ovsdb-tool", "transact", str(path), change])


def start_part_again(network: NetworkPlan, part: Part) -> None:
    """Starts whichever daemon of a part has died.

    The bridges are still in its database. Raises MachineCannot.
    """
    with preload() as library:
        _start(part, library, pass_interval_s(network, os.cpu_count() or 1))


def _start(
    part: Part,
    library: Preload,
    interval_s: float,
) -> None:
    """Starts whichever of a part's two daemons does not run."""
    folder = part.switch.run_dir
    environment = {
        **os.environ,
        "OVS_RUNDIR": str(folder),
        "OVS_LOGDIR": str(folder),
    }
    with part.switch.inside():
        if part.switch.database_pid is None:
            detached(
                [
                    "ovsdb-server",
                    str(folder / "conf.db"),
                    f"--remote=punix:{folder}/db.sock",
                    "-vconsole:emer",
                    "-vsyslog:err",
                    "-vfile:info",
                    "--no-chdir",
                    "--log-file",
                    "--pidfile",
                    "--detach",
                ],
                environment,
            )
        if part.switch.pid is None:
            command = switch_command(
                folder, library.paced(interval_s, folder)
            )
            detached(command, environment, library.files)
    if not part.switch.running:
        raise MachineCannot(
            f"switch part {part.netns} does not start",
            "sudo testbed doctor",
        )
