"""The keeper of a standing network: the process that holds it and serves it.

It is forked from ``testbed up``, in a session of its own, and holds the machine
lock, the cleanup journal and the controller. SIGTERM and ``testbed down`` take
the network down; after SIGKILL the network forwards as before, until ``testbed
clean``.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, NoReturn

from jobs.live.agent_pool import AgentPoolError
from jobs.request import JobRequest
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
)
from testbed.backends.emu.emulation import Emulation, LiveOptions, emulate
from testbed.backends.emu.interrupts import terminated_as_interrupt
from testbed.backends.emu.netlink import DeviceEvents
from testbed.errors import BadInput, RunFailed, TestbedError
from testbed.owned_files import user_name
from testbed.schedulers.registry import known_policies
from testbed.spec.document import unknown_name
from testbed.spec.experiment import Experiment, PolicySpec
from testbed.standing.keeper_protocol import (
    AddTenant,
    KeeperRequest,
    RemoveTenant,
    RerateTenant,
    RestartSwitch,
    SetCapacity,
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
from testbed.standing.network_layout import (
    NetworkLayout,
    ShowLayout,
    ShowPlans,
    TenantPlans,
)
from testbed.standing.network_state import NetworkState
from testbed.standing.standing_links import StandingLinks
from testbed.standing.standing_switches import StandingSwitches
from testbed.standing.standing_tenants import INSTANT_S, StandingTenants
from testbed.standing.tenant_placement import open_placement
from testbed.units import number_of

Narrate = Callable[[str], None]

# Of refused jobs, those that are narrated one by one.
MOST_REFUSED = 10


@dataclass(frozen=True)
class StandingSetup:
    """A network that is to stay up.

    ``with_jobs``: the file's jobs are its first tenants. ``open``: one tenant
    has all slots, without reservations.
    """

    experiment: Experiment
    options: LiveOptions
    with_jobs: bool = False
    open: bool = False


def bring_up(setup: StandingSetup, narrate: Narrate) -> NetworkState:
    """Starts a keeper, and waits until its network is up.

    A failure, or Ctrl-C, leaves nothing. Raises as
    :func:`testbed.backends.emu.emulation.emulate` does.
    """
    _check_setup(setup)
    log = standing_dir() / "keeper.log"
    read_fd, write_fd = os.pipe()
    # A fork, not a new program: the file has been read, and the command's
    # modules, a second's work, are loaded.
    pid = os.fork()
    if pid == 0:
        os.close(read_fd)
        _become_keeper(setup, log, write_fd)
    # Only the keeper's end is left open: its lines end when its process does.
    os.close(write_fd)
    try:
        with os.fdopen(read_fd, "rb") as lines:
            reply = _narrated(lines, narrate)
        if not reply:
            died = RunFailed(
                "the keeper ended while it came up", f"see {log}"
            )
            reply = reply_line(died)
        return read_reply(reply, NetworkState)
    except BaseException:
        # Ctrl-C has reached this command alone: the keeper is in another
        # session.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise


def _check_setup(setup: StandingSetup) -> None:
    """Raises BadInput before anything is built."""
    if setup.experiment.scale.auto:
        raise BadInput(
            "scale.rate: auto or largest is found by the preflight of a run; "
            "a network that stays up has none",
            "--set scale.rate=0.1, or what a run of this file has found",
        )
    if setup.open:
        open_placement(setup.experiment.datacentre)


def _narrated(lines: Iterable[bytes], narrate: Narrate) -> bytes:
    """Narrates a keeper's lines up to its reply, and returns that; empty: the
    keeper ended before it.
    """
    for line in lines:
        # Its death has cut this one short.
        if not line.endswith(b"\n"):
            break
        text = json.loads(line).get("say")
        if text is None:
            return line
        narrate(text)
    return b""


def _become_keeper(
    setup: StandingSetup,
    log: Path,
    client_fd: int,
) -> NoReturn:
    """Leaves the terminal and keeps the network, in the child; never returns."""
    code = RunFailed.exit_code
    try:
        _leave_terminal(log, client_fd)
        form = "%(asctime)s %(levelname)s %(message)s"
        # By force: the command has set up logging of its own.
        logging.basicConfig(format=form, level=logging.INFO, force=True)
        with os.fdopen(client_fd, "wb", buffering=0) as client:
            code = Keeper(setup, client).keep()
    # Nothing may leave this function: the forked process would run the
    # command's own code from there.
    except BaseException:
        logging.exception("the keeper ends")
    finally:
        # Without the exit handlers and buffers of the process that forked it.
        os._exit(code)


def _leave_terminal(log: Path, client_fd: int) -> None:
    """Detaches from the terminal, and from all files but the client's."""
    # In a session of its own neither Ctrl-C nor the terminal's end reaches it.
    os.setsid()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log_fd = os.open(log, flags, 0o600)
    null_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    # Whatever the command had open, except the pipe on which it waits.
    os.closerange(3, client_fd)
    os.closerange(client_fd + 1, os.sysconf("SC_OPEN_MAX"))


class Keeper:
    """A network from its coming up to its end.

    ``client``: the pipe to the command that waits until it is up.
    """

    def __init__(
        self,
        setup: StandingSetup,
        client: IO[bytes],
    ) -> None:
        self._setup = setup
        self._experiment = setup.experiment
        self._client = client
        self._since_unix_s = time.time()
        # The client that has asked for the end, and waits for it.
        self._down_client: socket.socket | None = None
        self._emulation: Emulation
        self._tenants: StandingTenants
        self._links: StandingLinks
        self._switches: StandingSwitches
        self._port_events: Sequence[DeviceEvents]

    def keep(self) -> int:
        """Keeps the network until its end; returns the exit code."""
        failure: TestbedError | None = None
        try:
            with terminated_as_interrupt():
                self._keep()
        except KeyboardInterrupt:
            logging.info("ended by a signal")
        except TestbedError as error:
            logging.exception("it failed")
            failure = error
        except (AgentPoolError, OSError) as error:
            logging.exception("it failed")
            failure = RunFailed(str(error))
        logging.info("the network is down")
        # Not before: the reply says that everything is removed.
        if self._down_client is not None:
            send(self._down_client, failure)
        if failure is None:
            return 0
        # Still open: it failed while it came up, and the command waits for the
        # reason.
        if not self._client.closed:
            with suppress(OSError):
                self._client.write(reply_line(failure))
        return failure.exit_code

    def _keep(self) -> None:
        folder = standing_dir()
        with ExitStack() as stack:
            self._emulation = stack.enter_context(self._emulate(folder))
            # Until a tenant comes that shares links without a reservation.
            self._emulation.network.forbid_borrowing()
            self._admit_first_tenants(folder)
            journal = self._emulation.journal
            listener = stack.enter_context(
                _listening(folder / "socket", journal)
            )
            # Only now, with the socket there, is the network up for others.
            # What happens from here on is in the log alone: the command
            # returns.
            self._client.write(reply_line(self.state()))
            self._client.close()
            self._switches = StandingSwitches(
                self._emulation, self._tenants
            )
            self._port_events = stack.enter_context(
                self._emulation.network.port_events()
            )
            # A link that went down before these events is in none of them.
            self._follow_links()
            self._down_client = serve(
                listener, self._handle, watched=self._watched
            )

    def _emulate(self, folder: Path) -> AbstractContextManager[Emulation]:
        experiment = self._experiment
        return emulate(
            experiment.datacentre,
            experiment.scale,
            replace(self._setup.options, controller=experiment.controller),
            log_dir=folder,
            name=f"the network of {experiment.path} that is up",
            narrate=self._narrate,
        )

    def _admit_first_tenants(self, folder: Path) -> None:
        experiment = self._experiment
        self._tenants = StandingTenants(
            self._emulation,
            scale_rate=experiment.scale.rate,
            embedder_name=embedder_of(experiment),
            folder=folder,
            enforcement=experiment.enforcement,
        )
        self._links = StandingLinks(self._emulation, self._tenants)
        if self._setup.open:
            self._tenants.open()
        elif self._setup.with_jobs:
            admit_jobs(self._tenants, experiment.jobs, self._narrate)

    def _narrate(self, text: str) -> None:
        """Writes to the log, and to the command that waits.

        Without its reader the pipe raises, and the network is taken down again:
        nobody would know of it.
        """
        logging.info(text)
        line = json.dumps({"say": text}) + "\n"
        self._client.write(line.encode())

    def _watched(self) -> Watched:
        # Each round anew: a restarted switch is another process.
        watched = dict(self._switches.watched())
        for events in self._port_events:
            watched[events.fileno()] = partial(self._port_changed, events)
        return watched

    def _port_changed(self, events: DeviceEvents) -> None:
        if events.any():
            self._follow_links()

    def _follow_links(self) -> None:
        for text in self._tenants.follow_links():
            logging.info(text)

    def _handle(self, request: KeeperRequest) -> object:
        match request:
            case AddTenant() | RerateTenant() | RemoveTenant():
                return self._changed_tenant(request)
            case SetLink(names, up):
                return self._links.change(names, up=up)
            case SetCapacity(names, capacity_bps, way):
                return self._links.set_capacity(names, capacity_bps, way)
            case RestartSwitch(name):
                return self._switches.restart(name)
        return self._shown(request)

    def _shown(self, request: KeeperRequest) -> object:
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
                return self._tenant_plans()
        return self.state()

    def _changed_tenant(
        self,
        request: AddTenant | RerateTenant | RemoveTenant,
    ) -> object:
        if self._setup.open:
            raise BadInput(
                "the network is open: all its slots are one tenant's, "
                "without reservations",
                "sudo testbed down, then sudo testbed up FILE without --open",
            )
        match request:
            case AddTenant():
                return self._tenants.add(self._with_embedder(request))
            case RerateTenant(name, bandwidth_bps):
                return self._tenants.rerate(name, bandwidth_bps)
            case RemoveTenant(name):
                self._tenants.remove(name)
                return None

    def _with_embedder(self, request: AddTenant) -> AddTenant:
        """The request with the embedder of the policy that it may name."""
        if request.policy is None:
            return request
        chosen = embedder_of(self._experiment, request.policy)
        return replace(request, embedder=chosen)

    def layout(self) -> NetworkLayout:
        """The network as it was built."""
        switches = {}
        switch_of_bridge = self._emulation.network.switch_of_bridge
        for name, switch in switch_of_bridge.items():
            switches[name] = (str(switch.run_dir), switch.netns)
        port = self._emulation.controller.openflow_port
        return NetworkLayout(
            self._emulation.plan, switches, port, os.getpid()
        )

    def _tenant_plans(self) -> TenantPlans:
        return TenantPlans(
            self._tenants.plans,
            self._tenants.names,
            self._emulation.network.borrowing,
            str(self._experiment.controller or ""),
        )

    def state(self) -> NetworkState:
        """The network now."""
        experiment = self._experiment
        plan = self._emulation.plan
        # Checked first: the check starts a controller again that has ended.
        trouble = "; ".join(self._trouble())
        free = self._tenants.ledger.residual(INSTANT_S, None)
        slots = int(experiment.datacentre.slots.sum())
        free_slots = int(free.free_slots.sum())
        busiest_link, busiest_share = self._busiest_link()
        return NetworkState(
            file=str(experiment.path.absolute()),
            name=experiment.name,
            user=_user_name(),
            pid=os.getpid(),
            since_unix_s=self._since_unix_s,
            topology=_topology_text(experiment),
            scale_rate=experiment.scale.rate,
            bridges=len(plan.bridges),
            cables=len(plan.links),
            slots=slots,
            slots_taken=slots - free_slots,
            busiest_link=busiest_link,
            busiest_share=busiest_share,
            trouble=trouble,
            tenants=self._tenants.states(),
            open=self._setup.open,
            controller=str(experiment.controller or ""),
            pages=self._emulation.pages,
            removed=_removed_text(self._emulation.removed_rules()),
        )

    def _trouble(self) -> list[str]:
        trouble: list[str] = []
        try:
            self._emulation.check()
        except RunFailed as error:
            trouble.append(error.message)
        else:
            app = self._emulation.own_controller
            if app is not None and app.trouble:
                trouble.append(app.trouble)
        trouble += self._emulation.controller_trouble()
        return trouble + self._links.trouble()

    def _busiest_link(self) -> tuple[str, float]:
        """The directed link with the largest reserved share, and the share."""
        datacentre = self._tenants.datacentre
        capacities_bps = datacentre.link_capacity_bps.tolist()
        reserved_bps = self._tenants.reserved_bps
        name = ""
        most = 0.0
        for link, capacity_bps in enumerate(capacities_bps):
            share = reserved_bps[link] / capacity_bps
            if share > most:
                # Both directions have the same reservation: it fills the
                # narrower.
                up_bps, down_bps = datacentre.directed_capacity_bps[
                    2 * link : 2 * link + 2
                ]
                name = datacentre.link_name(2 * link + (down_bps < up_bps))
                most = share
        return name, most


def _removed_text(rules: Mapping[str, int]) -> str:
    """A sentence about flow rules of others that were removed, by bridge."""
    if not rules:
        return ""
    bridges = ", ".join(sorted(rules))
    return (
        f"{sum(rules.values())} flow rules of others were on {bridges}; "
        "the controller has removed them"
    )


def _user_name() -> str:
    """The person who started the keeper, by sudo or as root."""
    return os.environ.get("SUDO_USER") or user_name(os.getuid())


def _topology_text(experiment: Experiment) -> str:
    """A topology's kind and size, as ``fat-tree, k 4``."""
    section = experiment.topology
    text = str(section.get("kind", experiment.datacentre.kind))
    for key in ("fanout", "k"):
        if key in section:
            return f"{text}, {key} {section[key]}"
    return text


def embedder_of(experiment: Experiment, policy: str | None = None) -> str:
    """The embedder of a policy (None: the file's first).

    It is the one among the policy's parameters in the file, else the file's.
    Raises BadInput for a policy that has none.
    """
    spec = experiment.policies[0]
    if policy is not None:
        spec = _policy_with_embedder(experiment, policy)
    return str(dict(spec.parameters).get("embedder", experiment.embedder))


def _policy_with_embedder(experiment: Experiment, name: str) -> PolicySpec:
    """The file's first policy of this name, or a known one without parameters.

    Raises BadInput.
    """
    kinds = known_policies()
    able = [other for other, kind in kinds.items() if kind.embeds]
    spec = PolicySpec(name)
    for candidate in experiment.policies:
        if candidate.name == name:
            spec = candidate
            break
    else:
        if name not in kinds:
            raise BadInput(unknown_name("policy", name, able))
    if not spec.kind.embeds:
        raise BadInput(
            f"policy {name} cannot place one tenant at once: "
            "it has no embedder",
            f"name one that has: {', '.join(able)}",
        )
    return spec


def admit_jobs(
    tenants: StandingTenants,
    jobs: Iterable[JobRequest],
    narrate: Narrate,
) -> None:
    """Admits the jobs that fit, in order, and narrates the others' reasons."""
    admitted = 0
    refused = 0
    for job in jobs:
        try:
            tenants.add(AddTenant(job.id, job.n_vms, job.bandwidth_bps))
            admitted += 1
        # A failure of the network, not of this job.
        except RunFailed:
            raise
        # One that does not fit leaves room for smaller ones after it.
        except TestbedError as error:
            refused += 1
            if refused <= MOST_REFUSED:
                narrate(f"job {job.id} is not admitted: {error.message}")
    narrate(
        f"{number_of(admitted, 'job is a tenant', 'jobs are tenants')}, {refused} not admitted"
    )


@contextmanager
def _listening(
    path: Path,
    journal: CleanupJournal,
) -> Iterator[socket.socket]:
    """The keeper's socket, root's alone.

    It is removed before the network is, so that nobody waits.
    """
    journal.add([JournalEntry("file", str(path))])
    # A keeper that was killed has left its own.
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))  # in a folder that only root can look into
        path.chmod(0o600)
        listener.listen(64)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
