"""``testbed.up``: a standing network from Python, its tenants, Mininet's object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from controller.launch import API_PORT, OPENFLOW_PORT
from jobs.python_child import python_command
from testbed.backends.emu.interrupts import uninterrupted
from testbed.errors import BadInput, MachineCannot, RunFailed, install_hint
from testbed.spec.sweep_section import as_yaml
from testbed.standing import keeper_protocol
from testbed.standing.keeper_protocol import ask
from testbed.standing.network_state import NetworkState, TenantState
from testbed.standing.vm_measurement import PairMeasurement, measure
from testbed.units import UnitError, parse_bandwidth

if TYPE_CHECKING:
    from testbed.standing.attached_mininet import StandingMininet


WEEK_S = 7 * 86_400.0


def up(
    file: str | os.PathLike[str],
    *,
    open: bool = False,  # noqa: A002 - as the option of the command
    jobs: bool = False,
    settings: Mapping[str, object] | None = None,
    prefix: str = "hn",
    openflow_port: int = OPENFLOW_PORT,
    api_port: int = API_PORT,
) -> StandingNetwork:
    """Brings up an experiment file's network, as ``sudo testbed up FILE`` does.

    In a ``with`` block it is taken down at the end, also by an exception or
    Ctrl-C; else by :meth:`StandingNetwork.down`. ``open``: no reservations, all
    hosts reach each other. ``jobs``: the file's jobs are its first tenants.
    ``settings``: values in place of the file's, as ``{"scale.rate": 0.05}``.
    Progress messages go to standard error.

    Raises BadInput, MachineCannot (also without root), RunFailed; no part of
    the network is left then.
    """
    if os.geteuid() != 0:
        raise MachineCannot(
            "the live network needs root", "start Python by sudo"
        )
    # Through the command, so that Python and the shell bring up the same network.
    arguments = ["up", os.fspath(file), "--json"]
    if open:
        arguments.append("--open")
    if jobs:
        arguments.append("--jobs")
    if settings is not None:
        for key, value in settings.items():
            text = value if isinstance(value, str) else as_yaml(value)
            arguments += ["--set", f"{key}={text}"]
    arguments += ["--prefix", prefix]
    arguments += ["--openflow-port", str(openflow_port)]
    arguments += ["--api-port", str(api_port)]
    record = _run_command(arguments)
    return StandingNetwork(int(record["pid"]))


def _run_command(arguments: list[str]) -> dict[str, Any]:
    """Runs ``testbed up`` in a process of its own; returns the JSON it prints.

    Its process becomes the network's keeper by a fork, which a process with
    threads, such as a notebook's, cannot do. An interrupt takes the network
    down.
    """
    # In a new session it gets no Ctrl-C from the terminal, only the one that
    # :func:`_output` sends.
    with subprocess.Popen(
        python_command("testbed.cli.main", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        text = _output(child)
    if not text.strip():
        raise RunFailed(
            f"testbed up ended with exit code {child.returncode}"
        )
    record: dict[str, Any] = json.loads(text)
    if child.returncode != 0:
        raise keeper_protocol.error_of(record)
    return record


def _output(child: subprocess.Popen[bytes]) -> bytes:
    """The output of ``testbed up``. An interrupt ends it, and waits until it has
    cleaned up.
    """
    try:
        # With a time limit, however long, an interrupt does not lose what was
        # read.
        text, _ = child.communicate(timeout=WEEK_S)
    except BaseException:
        # The command takes its network down again; a second Ctrl-C would
        # leave parts of it.
        with uninterrupted():
            child.send_signal(signal.SIGINT)
            text, _ = child.communicate()
            # The interrupt came too late: the network is up.
            if child.returncode == 0:
                record = json.loads(text)
                StandingNetwork(int(record["pid"])).down()
        raise
    return text


class StandingNetwork:
    """A network that stays up until it is taken down.

    ``pid``: its keeper's process. ``tenants`` admits, changes and removes
    tenants, ``mininet`` is the network as an object of Mininet, :meth:`measure`
    compares a tenant's bandwidth with its reservation. Commands such as
    ``testbed status`` can be used at the same time.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.tenants = NetworkTenants()
        self._mininet: StandingMininet | None = None

    def __enter__(self) -> StandingNetwork:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    @property
    def state(self) -> NetworkState:
        """The network now: file, sizes, tenants. Raises NothingUp, RunFailed."""
        return ask(keeper_protocol.ShowNetwork(), NetworkState)

    @property
    def mininet(self) -> StandingMininet:
        """The network as Mininet's: ``net.mininet["a.0"].cmd("ip addr")``.

        Its hosts are the VMs of this moment: get it anew after a tenant was
        added or removed. Raises MachineCannot without Mininet.
        """
        if self._mininet is not None:
            self._mininet.follow_tenants()
            return self._mininet
        try:
            # Mininet is not on every machine.
            from testbed.standing.attached_mininet import StandingMininet
        except ModuleNotFoundError as error:
            raise MachineCannot(
                f"the Python package {error.name!r} is not installed",
                install_hint(),
            ) from error
        self._mininet = StandingMininet()
        return self._mininet

    def measure(
        self,
        name: str,
        seconds: int = 5,
    ) -> list[PairMeasurement]:
        """Measures a tenant's VMs in a ring, all at once: ping, then iperf3.

        ``seconds``: how long iperf3 measures. Raises BadInput, MachineCannot,
        RunFailed.
        """
        return measure(
            self.tenants.show(name), seconds, tick=lambda _: None
        )

    def down(self) -> None:
        """Takes the network down; returns when all of it is removed.

        Does nothing if it is down already. An interrupt is held until the end.
        Raises RunFailed.
        """
        with uninterrupted(), suppress(keeper_protocol.NothingUp):
            if self._mininet is not None:
                # Its shells are in namespaces that are about to go.
                self._mininet.close()
                self._mininet = None
            # Another network may be up by now, and has to stay up.
            if self.state.pid == self.pid:
                ask(keeper_protocol.TakeDown(), type(None))


class NetworkTenants:
    """The tenants of the network that is up.

    Bandwidths are in bit/s or texts with a unit, as in the experiment file (not
    scaled). Every call does all of its task or changes nothing. All raise
    BadInput for a name that is unknown or in use, NothingUp, RunFailed.
    """

    def add(
        self,
        name: str,
        *,
        bandwidth: str | int,
        vms: int | None = None,
        embedder: str | None = None,
        policy: str | None = None,
        at: Mapping[str, int] | None = None,
        enforcement: str | None = None,
    ) -> TenantState:
        """Admits a tenant. Raises DoesNotFit too.

        ``policy``: placed by its embedder. ``at``: server -> number of its VMs,
        in place of an embedder. ``enforcement``: in place of the file's.
        """
        places = tuple((at or {}).items())
        methods = [bool(places), embedder is not None, policy is not None]
        if sum(methods) > 1:
            raise BadInput(
                f"tenant {name}: at= places VMs by hand, embedder= and policy="
                " by a method: choose one"
            )
        if vms is None:
            if not places:
                raise BadInput(
                    f"tenant {name}: how many VMs? vms=N, or at={{server: VMs}}"
                )
            vms = sum(count for _, count in places)
        request = keeper_protocol.AddTenant(
            name,
            n_vms=vms,
            bandwidth_bps=_bandwidth_bps(bandwidth),
            embedder=embedder,
            at=places,
            enforcement=enforcement,
            policy=policy,
        )
        return ask(request, TenantState)

    def rerate(self, name: str, bandwidth: str | int) -> TenantState:
        """Changes the bandwidth of VMs in place. Raises DoesNotFit too."""
        request = keeper_protocol.RerateTenant(
            name, _bandwidth_bps(bandwidth)
        )
        return ask(request, TenantState)

    def remove(self, name: str) -> None:
        """Removes a tenant, and ends whatever runs in its VMs."""
        ask(keeper_protocol.RemoveTenant(name), type(None))

    def show(self, name: str) -> TenantState:
        """A tenant: its VMs, and what it reserves on which links."""
        return ask(keeper_protocol.ShowTenant(name), TenantState)

    def list(self) -> tuple[TenantState, ...]:
        """All tenants, in order of admission."""
        return ask(keeper_protocol.ShowNetwork(), NetworkState).tenants


def _bandwidth_bps(bandwidth: str | int) -> int:
    if not isinstance(bandwidth, str):
        return bandwidth
    try:
        return parse_bandwidth(bandwidth)
    except UnitError as error:
        raise BadInput(str(error)) from None
