"""The keeper of a network that stays up: the process that holds it, and serves those who ask.

It is forked from ``testbed up``, in a session of its own, and holds the machine lock, the cleanup
journal and the controller. SIGTERM and ``testbed down`` take the network down; after SIGKILL the
network forwards as before, until ``testbed clean``.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, NoReturn

from jobs.live.agent_pool import AgentPoolError
from jobs.request import JobRequest
from testbed.backends.emu.cleanup_journal import CleanupJournal, Entry
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.interrupts import terminated_as_interrupt
from testbed.backends.emu.netlink import DeviceEvents
from testbed.errors import BadInput, RunFailed, TestbedError
from testbed.runs.keeper_protocol import (
    AddTenant,
    RemoveTenant,
    Request,
    RerateTenant,
    RestartSwitch,
    SetLink,
    ShowLinks,
    ShowSwitches,
    ShowTenant,
    Watched,
    read_reply,
    reply_line,
    send,
    serve,
    standing_dir,
)
from testbed.runs.network_layout import NetworkLayout, ShowLayout, ShowPlans, TenantPlans
from testbed.runs.network_state import NetworkState
from testbed.runs.standing_links import StandingLinks
from testbed.runs.standing_switches import StandingSwitches
from testbed.runs.standing_tenants import StandingTenants, open_placement
from testbed.schedulers.registry import known_policies
from testbed.spec.document import unknown_name
from testbed.spec.experiment import Experiment, PolicySpec

Narrate = Callable[[str], None]

# Of refused jobs, those that are narrated one by one.
MOST_REFUSED = 10


@dataclass(frozen=True)
class Standing:
    """A network that is to stay up; ``with_jobs``: the file's jobs are its first tenants.

    ``open``: one tenant has all slots, without reservations.
    """

    experiment: Experiment
    options: LiveOptions
    with_jobs: bool = False
    open: bool = False


def bring_up(standing: Standing, narrate: Narrate) -> NetworkState:
    """Start a keeper, and wait until its network is up. What fails, or Ctrl-C, leaves nothing.

    Raises as :func:`testbed.backends.emu.emulation.emulate` does.
    """
    if standing.experiment.scale.auto:
        raise BadInput(
            "scale.rate: auto is found by the preflight of a run; a network that stays up has none",
            "--set scale.rate=0.1, or what a run of this file has found",
        )
    if standing.open:
        open_placement(standing.experiment.datacentre)  # or there is none: better known now
    log = standing_dir() / "keeper.log"
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_fd)
        _become_keeper(standing, log, write_fd)
    os.close(write_fd)
    reply = b""
    try:
        with os.fdopen(read_fd, "rb") as lines:
            for reply in lines:
                if (text := json.loads(reply).get("say")) is None:
                    break
                narrate(text)
            else:
                reply = reply_line(RunFailed("the keeper ended while it came up", f"see {log}"))
        return read_reply(reply, NetworkState)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise


def _become_keeper(standing: Standing, log: Path, client_fd: int) -> NoReturn:
    """In the child: leave the terminal, and keep the network; never returns."""
    code = RunFailed.exit_code
    try:
        os.setsid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        log_fd, null_fd = os.open(log, flags, 0o600), os.open(os.devnull, os.O_RDONLY)
        for target, source in enumerate((null_fd, log_fd, log_fd)):
            os.dup2(source, target)
        os.closerange(3, client_fd)
        os.closerange(client_fd + 1, os.sysconf("SC_OPEN_MAX"))
        form = "%(asctime)s %(levelname)s %(message)s"
        logging.basicConfig(format=form, level=logging.INFO, force=True)
        with os.fdopen(client_fd, "wb", buffering=0) as client:
            code = Keeper(standing, client).keep()
    except BaseException:
        logging.exception("the keeper ends")
    finally:
        os._exit(code)


class Keeper:
    """A network from its coming up to its end. ``client``: who waits until it is up."""

    def __init__(self, standing: Standing, client: IO[bytes]) -> None:
        self._standing = standing
        self._client = client
        self._since_unix_s = time.time()
        self._asker: socket.socket | None = None
        self._emulation: Emulation
        self._tenants: StandingTenants
        self._links: StandingLinks
        self._switches: StandingSwitches
        self._ports: Sequence[DeviceEvents]

    def keep(self) -> int:
        """Keep the network until its end; returns the exit code."""
        failed: TestbedError | None = None
        try:
            with terminated_as_interrupt():
                self._keep()
        except KeyboardInterrupt:
            logging.info("ended by a signal")
        except (TestbedError, AgentPoolError, OSError) as error:
            logging.exception("it failed")
            failed = error if isinstance(error, TestbedError) else RunFailed(str(error))
        logging.info("the network is down")
        if self._asker is not None:
            send(self._asker, failed)
        if failed is not None and not self._client.closed:
            with suppress(OSError):
                self._client.write(reply_line(failed))
        return 0 if failed is None else failed.exit_code

    def _keep(self) -> None:
        experiment, folder = self._standing.experiment, standing_dir()
        name = f"the network of {experiment.path} that is up"
        options = replace(self._standing.options, app=experiment.controller_app)
        given = experiment.datacentre, experiment.scale, options, folder, name
        with ExitStack() as stack:
            self._emulation = stack.enter_context(emulate(*given, self._narrate))
            self._emulation.network.forbid_borrowing()
            placing = self._emulation, experiment.scale.rate, embedder_of(experiment), folder
            self._tenants = StandingTenants(*placing, experiment.enforcement)
            self._links = StandingLinks(self._emulation, self._tenants)
            if self._standing.open:
                self._tenants.open()
            elif self._standing.with_jobs:
                admit_jobs(self._tenants, experiment.jobs, self._narrate)
            journal = self._emulation.journal
            listener = stack.enter_context(_listening(folder / "socket", journal))
            self._client.write(reply_line(self.state()))
            self._client.close()
            self._switches = StandingSwitches(self._emulation, self._tenants)
            self._ports = stack.enter_context(self._emulation.network.port_events())
            self._follow_links()  # one may have gone down before
            self._asker = serve(listener, self._handle, watched=self._watched)

    def _narrate(self, text: str) -> None:
        """To the log, and to whoever waits: one that is gone does not want the network."""
        logging.info(text)
        self._client.write(json.dumps({"say": text}).encode() + b"\n")

    def _watched(self) -> Watched:
        ports = {each.fileno(): partial(self._port_changed, each) for each in self._ports}
        return {**ports, **self._switches.watched()}

    def _port_changed(self, ports: DeviceEvents) -> None:
        if ports.any():
            self._follow_links()

    def _follow_links(self) -> None:
        for text in self._tenants.follow_links():
            logging.info(text)

    def _handle(self, request: Request) -> object:
        match request:
            case AddTenant() | RerateTenant() | RemoveTenant() if self._standing.open:
                raise BadInput(
                    "the network is open: all its slots are one tenant's, without reservations",
                    "sudo testbed down, then sudo testbed up FILE without --open",
                )
            case AddTenant(name, n_vms, bandwidth_bps, chosen, at, enforcement, policy):
                if policy is not None:
                    chosen = embedder_of(self._standing.experiment, policy)
                return self._tenants.add(name, n_vms, bandwidth_bps, chosen, at, enforcement)
            case RerateTenant(name, bandwidth_bps):
                return self._tenants.rerate(name, bandwidth_bps)
            case RemoveTenant(name):
                self._tenants.remove(name)
                return None
            case SetLink(names, up):
                return self._links.change(names, up=up)
            case RestartSwitch(name):
                return self._switches.restart(name)
        return self._shown(request)

    def _shown(self, request: Request) -> object:
        match request:
            case ShowTenant(name):
                return self._tenants.state(name)
            case ShowLayout():
                return self.layout()
            case ShowLinks():
                return self._links.states()
            case ShowSwitches():
                return self._switches.states()
            case ShowPlans():
                plans, borrowing = self._tenants.plans, self._emulation.network.borrowing
                app = str(self._standing.experiment.controller_app or "")
                return TenantPlans(plans, self._tenants.names, borrowing, app)
        return self.state()

    def layout(self) -> NetworkLayout:
        """The network as it was built."""
        of_bridge = self._emulation.network.switch_of_bridge
        switches = {name: (str(each.run_dir), each.netns) for name, each in of_bridge.items()}
        port = self._emulation.controller.openflow_port
        return NetworkLayout(self._emulation.plan, switches, port, os.getpid())

    def state(self) -> NetworkState:
        """The network now."""
        experiment, plan = self._standing.experiment, self._emulation.plan
        centre, trouble = experiment.datacentre, list[str]()
        try:
            self._emulation.check()
            if self._emulation.own is not None and self._emulation.own.trouble:
                trouble = [self._emulation.own.trouble]
        except RunFailed as error:
            trouble = [error.message]
        trouble += self._links.trouble()
        free = self._tenants.ledger.residual(0.0, None)
        pairs = zip(self._tenants.reserved_bps, centre.link_capacity_bps.tolist(), strict=True)
        shares = [reserved / capacity for reserved, capacity in pairs]
        busiest = max(shares, default=0.0)
        shape = experiment.topology
        size = next((f", {key} {shape[key]}" for key in ("fanout", "k") if key in shape), "")
        slots = int(centre.slots.sum())
        return NetworkState(
            file=str(experiment.path.absolute()),
            name=experiment.name,
            user=os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name,
            pid=os.getpid(),
            since_unix_s=self._since_unix_s,
            topology=f"{shape.get('kind', centre.kind)}{size}",
            scale_rate=experiment.scale.rate,
            bridges=len(plan.bridges),
            cables=len(plan.links),
            slots=slots,
            slots_taken=slots - int(free.free_slots.sum()),
            busiest_link=centre.link_name(2 * shares.index(busiest)) if busiest else "",
            busiest_share=busiest,
            trouble="; ".join(trouble),
            tenants=self._tenants.states(),
            open=self._standing.open,
            controller=str(experiment.controller_app or ""),
        )


def embedder_of(experiment: Experiment, policy: str | None = None) -> str:
    """The embedder that a policy (None: the file's first) places by: of its parameters in the file,
    else the file's. Raises BadInput for a policy that has none.
    """
    specs = {spec.name: spec for spec in reversed(experiment.policies)}
    own = experiment.policies[0] if policy is None else specs.get(policy, PolicySpec(policy))
    if policy is not None:
        kinds = known_policies()
        able = [name for name, kind in kinds.items() if kind.embeds]
        if policy not in specs and policy not in kinds:
            raise BadInput(unknown_name("policy", policy, able))
        if not own.kind.embeds:
            reason = f"policy {policy} cannot place one tenant at once: it has no embedder"
            raise BadInput(reason, f"name one that has: {', '.join(able)}")
    return str(dict(own.parameters).get("embedder", experiment.embedder))


def admit_jobs(tenants: StandingTenants, jobs: Iterable[JobRequest], narrate: Narrate) -> None:
    """The jobs as tenants, in the file's order: those that fit; of the others, the reasons."""
    admitted = refused = 0
    for job in jobs:
        try:
            tenants.add(job.id, job.n_vms, job.bandwidth_bps)
            admitted += 1
        except RunFailed:
            raise
        except TestbedError as error:
            refused += 1
            if refused <= MOST_REFUSED:
                narrate(f"job {job.id} is not admitted: {error.message}")
    narrate(f"{admitted} jobs are tenants, {refused} are not admitted")


@contextmanager
def _listening(path: Path, journal: CleanupJournal) -> Iterator[socket.socket]:
    """The keeper's socket, root's alone: gone before the network is, so that nobody waits."""
    journal.add([Entry("file", str(path))])
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))  # in a folder that only root can look into
        path.chmod(0o600)
        listener.listen(64)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
