"""``testbed.up``: a network that stays up, from Python, with its tenants and Mininet's object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from controller.launch import API_PORT, OPENFLOW_PORT
from testbed.backends.emu.interrupts import uninterrupted
from testbed.errors import BadInput, MachineCannot, RunFailed, install_hint
from testbed.runs import keeper_protocol as requests
from testbed.runs.keeper_protocol import ask
from testbed.runs.network_state import NetworkState, TenantState
from testbed.runs.vm_measurement import Measured, measure
from testbed.units import UnitError, parse_bandwidth

if TYPE_CHECKING:
    from testbed.runs.attached_mininet import StandingMininet


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
    """Bring up the network of an experiment file, as ``sudo testbed up FILE`` does.

    In a ``with`` block it is taken down at the end, also by an exception or Ctrl-C; else by
    :meth:`StandingNetwork.down`. ``open``: no reservations, all hosts reach each other. ``jobs``:
    the file's jobs are its first tenants. ``settings``: values in place of the file's, as
    ``{"scale.rate": 0.05}``. Narration goes to standard error.

    Raises BadInput, MachineCannot (also where this is not root), RunFailed; then nothing is left.
    """
    if os.geteuid() != 0:
        raise MachineCannot("the live network needs root", "start Python by sudo")
    flags = [*(["--open"] if open else []), *(["--jobs"] if jobs else [])]
    values = [
        word for key, value in (settings or {}).items() for word in ("--set", f"{key}={value}")
    ]
    names = ["--prefix", prefix]
    ports = ["--openflow-port", str(openflow_port), "--api-port", str(api_port)]
    record = _answer("up", os.fspath(file), "--json", *flags, *values, *names, *ports)
    return StandingNetwork(int(record["pid"]))


def _answer(*arguments: str) -> dict[str, Any]:
    """The JSON that ``testbed up`` prints; interrupted, it leaves no network.

    A process of its own: one with threads, as a notebook's, cannot be forked into a keeper.
    """
    command = [sys.executable, "-m", "testbed.cli.main", *arguments]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    # In a session of its own Ctrl-C reaches it once, from here.
    with subprocess.Popen(command, start_new_session=True, **streams) as child:
        try:
            text, _ = child.communicate()
        except BaseException:
            with uninterrupted():
                child.send_signal(signal.SIGINT)
                text, _ = child.communicate()
                if child.returncode == 0:  # it was up already
                    StandingNetwork(int(json.loads(text)["pid"])).down()
            raise
    if not text.strip():
        raise RunFailed(f"testbed up ended with exit code {child.returncode}")
    record: dict[str, Any] = json.loads(text)
    if child.returncode != 0:
        raise requests.error_of(record)
    return record


class StandingNetwork:
    """A network that stays up until it is taken down. ``pid``: its keeper's process.

    ``tenants`` changes who reserves what, ``mininet`` is the network as Mininet's object,
    :meth:`measure` compares a tenant's bandwidth with its reservation. Commands such as ``testbed
    status`` work beside it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.tenants = Tenants()
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
        """The network now: its file, sizes, tenants. Raises NothingUp, RunFailed."""
        return ask(requests.ShowNetwork(), NetworkState)

    @property
    def mininet(self) -> StandingMininet:
        """The network as a ``mininet.net.Mininet``: ``net.mininet["a.0"].cmd("ip addr")``.

        VMs have the names that they have at this moment. Raises MachineCannot without Mininet.
        """
        if self._mininet is not None:
            self._mininet.follow_tenants()
            return self._mininet
        try:
            from testbed.runs.attached_mininet import StandingMininet
        except ModuleNotFoundError as error:
            why = f"the Python package {error.name!r} is not installed"
            raise MachineCannot(why, install_hint()) from error
        self._mininet = StandingMininet()
        return self._mininet

    def measure(self, name: str, seconds: int = 5) -> list[Measured]:
        """Measure a tenant in a ring among its VMs, all at once: ping, then iperf3.

        ``seconds``: how long iperf3 measures. Raises BadInput, MachineCannot, RunFailed.
        """
        return measure(self.tenants.show(name), seconds, lambda _: None)

    def down(self) -> None:
        """Take the network down; ends when all is removed. Where it is down, does nothing.

        An interrupt is held until then. Raises RunFailed.
        """
        with uninterrupted(), suppress(requests.NothingUp):
            if self._mininet is not None:
                self._mininet.stop()
                self._mininet = None
            if self.state.pid == self.pid:
                ask(requests.TakeDown(), type(None))


class Tenants:
    """The tenants of the network that is up. Bandwidths are the file's, in bit/s or with a unit.

    Every call does all that it says or changes nothing. All raise BadInput for a name that is
    unknown or taken, NothingUp, RunFailed.
    """

    def add(
        self,
        name: str,
        *,
        bandwidth: str | int,
        vms: int | None = None,
        embedder: str | None = None,
        at: Mapping[str, int] | None = None,
    ) -> TenantState:
        """Admit a tenant; ``at``: server -> VMs, placed by hand. Raises DoesNotFit too."""
        places = tuple((at or {}).items())
        if vms is None and not places:
            raise BadInput(f"tenant {name}: how many VMs? vms=N, or at={{server: VMs}}")
        n_vms = sum(count for _, count in places) if vms is None else vms
        wanted = requests.AddTenant(name, n_vms, _bps(bandwidth), embedder, places)
        return ask(wanted, TenantState)

    def rerate(self, name: str, bandwidth: str | int) -> TenantState:
        """Change the bandwidth of a tenant's VMs in place. Raises DoesNotFit too."""
        return ask(requests.RerateTenant(name, _bps(bandwidth)), TenantState)

    def remove(self, name: str) -> None:
        """Remove a tenant, and end whatever runs in its VMs."""
        ask(requests.RemoveTenant(name), type(None))

    def show(self, name: str) -> TenantState:
        """A tenant: its VMs, and what it reserves on which links."""
        return ask(requests.ShowTenant(name), TenantState)

    def list(self) -> tuple[TenantState, ...]:
        """All tenants, in order of admission."""
        return ask(requests.ShowNetwork(), NetworkState).tenants


def _bps(bandwidth: str | int) -> int:
    try:
        return parse_bandwidth(bandwidth) if isinstance(bandwidth, str) else bandwidth
    except UnitError as error:
        raise BadInput(str(error)) from None
