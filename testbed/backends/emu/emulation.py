"""The live network as a whole: machine lock, cleanup journal, bridges,
controller, agents.

Taken up in that order, taken down in the reverse, whatever happens.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from controller import values
from controller.api_client import (
    CONFIRM_TIMEOUT_S,
    ControllerError,
    ControllerRefused,
    ControllerUnreachable,
    SwitchesMissing,
)
from controller.launch import API_PORT, OPENFLOW_PORT, unprivileged_user
from controller.process import (
    APP_ERROR,
    REMOTE_ERROR,
    ControllerNotStarted,
    ControllerProcess,
    start_controller,
)
from jobs.live.agent_pool import AgentPool
from jobs.live.agent_protocol import Plan, SpawnRequest
from jobs.live.command import CommandPlan
from jobs.live.compute import ComputePlan
from jobs.live.connections import VM_SYSCTLS
from jobs.vm_folders import paths_in, working_directory
from testbed.backends.emu.cgroups import RunCgroup, probe_layout
from testbed.backends.emu.cleanup import clean_leftovers, remove_run
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
    expedited_rcu,
    machine_lock,
    start_ticks,
)
from testbed.backends.emu.controller_user import unused_uid
from testbed.backends.emu.emulated_network import EmulatedNetwork
from testbed.backends.emu.held_ports import held_ports
from testbed.backends.emu.machine_checks import (
    machine_limits,
    require_netem,
    require_room,
)
from testbed.backends.emu.open_vswitch import (
    MACHINE,
    SwitchDaemons,
    foreign_bridges,
    has_service,
)
from testbed.backends.emu.own_flows import OwnController
from testbed.backends.emu.part_switches import RUN_ROOT, switch_in_parts
from testbed.backends.emu.requirement_environment import with_packages
from testbed.backends.emu.shared_numbers import raised_numbers
from testbed.backends.emu.switch_preload import is_paced
from testbed.backends.emu.switch_sockets import switch_listeners, switch_uid
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.backends.emu.vm_users import VmUsers
from testbed.backends.emu.work_evidence import Claim
from testbed.errors import (
    BadInput,
    MachineCannot,
    RunFailed,
    TestbedError,
    install_hint,
)
from testbed.failures import Failure
from testbed.owned_files import held_folder, opened_folder
from testbed.plan.fidelity import Finding
from testbed.plan.installation import network_text, reroot_text, tenant_text
from testbed.plan.network_plan import (
    NetworkPlan,
    Slot,
    TenantPlan,
    controller_switches,
    controller_tenant,
    network_plan,
)
from testbed.schedulers.actions import Tier
from testbed.spec.controller_choice import ControllerChoice
from testbed.spec.experiment import Scale
from testbed.units import number_of
from topologies.datacentre import DataCentre

CONNECT_TIMEOUT_S = 60.0
# The weights of a foreground and a background VM on one node (CMBF, Section 3).
WEIGHTS: dict[Tier, int] = {"foreground": 10_000, "background": 1}
CONTROLLER_LOG = "controller.log"
CONFIRM_EVERY_S = 0.5
"""Interval at which a waiting request checks that switches and controller
still live.
"""
DYING_S = 1.0
"""Longest time from the end of a killed process's connections to its own end."""
STOPPED_S = 2.5
"""Time that a signal may stop the controller before requests fail."""
CONTROLLER_STATE = "controller"
HTTP_NOT_FOUND = 404
MOVE_TIMEOUT_S = 5.0
MOVES_AT_ONCE = 32
"""Tenants that change their tree at once, each by a connection to the
controller.
"""

Builder = Literal["batched", "plain"]
"""Builders of the network: the testbed, in batches, or Mininet, link by link."""

WriteText = Callable[[str, str], object]


@dataclass(frozen=True)
class LiveOptions:
    """Choices of the user.

    ``force``: run although the preflight says that the machine is too slow.
    ``controller``: a person's controller in place of the testbed's.
    """

    prefix: str = "hn"
    openflow_port: int = OPENFLOW_PORT
    api_port: int = API_PORT
    library: str | None = None
    force: bool = False
    builder: Builder = "batched"
    controller: ControllerChoice | None = None


@dataclass
class Emulation:
    """A live network with its controller and its agents. Made by
    :func:`emulate`.
    """

    datacentre: DataCentre
    network: EmulatedNetwork
    controller: ControllerProcess
    agents: AgentPool
    cgroup: RunCgroup
    log_dir: Path
    quotas: dict[str, Any]
    journal: CleanupJournal
    own_controller: OwnController | None = None
    start_controller: Callable[[], ControllerProcess] | None = None
    held_logs: Path | None = None

    def __post_init__(self) -> None:
        self.plan: NetworkPlan = self.network.plan
        self.limits = machine_limits(self.datacentre.slots.tolist())
        self.users = VmUsers(self.plan.slots, os.environ)
        self._client = self.own_controller or self.controller.client()
        self._app = (
            None if self.own_controller is None else self.own_controller.app
        )
        # One thread, since the client has one connection and requests must not
        # overtake each other. Flows are installed in it while the caller's
        # thread waits for tc.
        self._flows = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="flows"
        )
        self._write: WriteText | None = None
        # Admitted tenants by number, and the callback for their changes.
        self._tenants: dict[int, TenantPlan] = {}
        self.on_tenants: Callable[[Iterable[TenantPlan]], object] | None = (
            None
        )
        # Control groups of VMs that are made, but without an agent yet.
        self._opened: dict[Slot, tuple[Path, ...]] = {}
        self._installed = 0
        self._stopped_since_s: float | None = None
        self._earlier_stood_s = 0.0
        self.held_up_s = 0.0
        # Tenants that were refused while the controller was stopped: it may
        # still carry out the request that it has in its socket.
        self._unknown_flows: set[str] = set()
        self._closed = threading.Event()
        # Ports that failures have taken down, by kind of part and number.
        self._failed: dict[tuple[str, int], set[str]] = {}

    def close(self) -> None:
        """Ends the thread that talks to the controller."""
        self._closed.set()
        self._flows.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    @property
    def mininet(self) -> Any:
        """The network as one Mininet object; with the plain builder the one
        that built it.

        Limits and addresses are set on its interfaces, agents run in its hosts'
        namespaces, and the controller's flows are in its switches.
        """
        return self.network.mininet

    def check(self) -> None:
        """Raises RunFailed where a switch part or a person's controller has
        died.

        The testbed's own controller is started again.
        """
        self.network.check_switch(self.log_dir)
        self.revive_controller()
        if self.own_controller is not None:
            self.own_controller.check()

    @property
    def pages(self) -> str:
        """Address of the web pages of a person's applications, or empty."""
        return pages_address(self.controller)

    def controller_trouble(self) -> list[str]:
        """Sentences about a controller that a signal has stopped."""
        trouble = []
        if self._is_stopped:
            pid = self.controller.process.pid
            trouble.append(
                f"{self._stopped()}: VMs reach each other as before, tenants "
                f"can be neither added nor removed; kill -CONT {pid} resumes it"
            )
        for name in sorted(self._unknown_flows):
            trouble.append(
                f"tenant {name} is not in; whether the controller has its "
                "flows is known, and they are removed, when it answers"
            )
        return trouble

    def removed_rules(self) -> dict[str, int]:
        """Number of foreign flow rules that the controller removed, by bridge."""
        if self.own_controller is not None or self.controller.is_stopped:
            return {}
        try:
            # A connection of its own: the client's belongs to the flows' thread.
            with closing(self.controller.client()) as client:
                return client.foreign_flows()
        except ControllerError:
            return {}

    @property
    def _is_stopped(self) -> bool:
        """True if a signal has stopped the testbed's own controller."""
        return self.own_controller is None and self.controller.is_stopped

    def _stopped(self) -> str:
        pid = self.controller.process.pid
        return f"the controller (process {pid}) is stopped by a signal"

    @property
    def controller_stood_s(self) -> float | None:
        """Total time without progress in the controller; None if unknown.

        ``held_up_s`` is the part of it in which a tenant's flows waited.
        """
        controller = self.controller
        stood_s = controller.passes.stood_s(controller.process.pid)
        if stood_s is None:
            return None
        return self._earlier_stood_s + stood_s

    @contextmanager
    def _waits_for_controller(self) -> Iterator[None]:
        """Adds the controller's standstill in the block to ``held_up_s``."""
        before_s = self.controller_stood_s or 0.0
        try:
            yield
        finally:
            after_s = self.controller_stood_s or 0.0
            self.held_up_s += max(0.0, after_s - before_s)

    def _require_running(self) -> None:
        """Raises RunFailed for a controller stopped for STOPPED_S or longer."""
        if not self._is_stopped:
            self._stopped_since_s = None
            return
        # The time of the signal is unknown: it counts from the first call
        # that finds the controller stopped.
        now_s = time.monotonic()
        if self._stopped_since_s is None:
            self._stopped_since_s = now_s
        if now_s - self._stopped_since_s >= STOPPED_S:
            pid = self.controller.process.pid
            raise RunFailed(
                f"{self._stopped()} and does not answer",
                f"sudo kill -CONT {pid} resumes it, "
                f"sudo kill -KILL {pid} has it started again",
            )

    def await_controller(self) -> None:
        """Raises RunFailed for a controller that stays stopped for STOPPED_S."""
        while self._is_stopped:
            self._require_running()
            time.sleep(CONFIRM_EVERY_S)

    def flow_findings(self) -> list[Finding]:
        """Findings about flows of a person's controller; none about our own."""
        if self.own_controller is None:
            return []
        return self.own_controller.findings(len(self.datacentre.trees))

    def revive_controller(self, dying_s: float = 0.0) -> bool:
        """Starts the controller again if it ends within ``dying_s``; True if so.

        It reads the state that it saved; switches reconnect and get the flows
        that they lack. Call it from the main thread: the kernel ends the
        controller with the thread that started it (PR_SET_PDEATHSIG). Raises
        RunFailed.
        """
        with suppress(subprocess.TimeoutExpired):
            self.controller.process.wait(dying_s)
        if (
            self.start_controller is None
            or self.controller.process.returncode is None
        ):
            return False
        self._client.close()
        # The new process counts from zero; a dead one no longer stands still.
        if (last := self.controller.passes.last()) is not None:
            self._earlier_stood_s += last.stood_ns / 1e9
        try:
            self.controller = self.start_controller()
        except TestbedError as error:
            raise RunFailed(
                f"the controller has ended: {error.message}", error.hint
            ) from error
        self._client = self.controller.client()
        return True

    def start_switch(
        self, switch: SwitchDaemons, tenants: Sequence[TenantPlan]
    ) -> int:
        """Starts a switch that has ended, with its bridges, limits and flows.

        ``tenants``: those whose limits are set again. Returns the number of
        limits that were missing. Raises MachineCannot, RunFailed.
        """
        with expedited_rcu(self.journal):
            missing = self.network.start_switch(switch, tenants)
        self._wait_connected(
            [bridge.dpid for bridge in self.network.bridges_of(switch)]
        )
        return missing

    def restart_switch(
        self, switch: SwitchDaemons, tenants: Sequence[TenantPlan]
    ) -> int:
        """Kills a switch by SIGKILL and starts it again.

        Raises MachineCannot if it is the machine's own and has bridges of
        others; otherwise as :meth:`start_switch`.
        """
        others = foreign_bridges(self.plan) if switch is MACHINE else []
        if others:
            why = f"the machine's Open vSwitch has bridges of others: {', '.join(others)}"
            raise MachineCannot(
                f"{why}; a restart would interrupt them",
                "ovs-vsctl del-br BRIDGE",
            )
        pid = switch.pid
        # A dying switch closes a packet socket per port, and each close waits
        # for an RCU grace period.
        with expedited_rcu(self.journal):
            # A service's daemon is left to systemd, which `start_again` has
            # restart it. A daemon without a service has a monitor: that starts
            # it again after programming errors alone, and after SIGKILL it ends.
            if pid is not None and not (
                switch is MACHINE and has_service()
            ):
                _kill_switch(pid)
        return self.start_switch(switch, tenants)

    def _wait_connected(self, dpids: Sequence[int]) -> None:
        try:
            self._client.wait_connected(dpids, CONNECT_TIMEOUT_S)
        except ControllerError as error:
            raise RunFailed(f"the controller: {error}") from error

    # -- tenants ------------------------------------------------------------------------------

    def admit(self, tenant: TenantPlan) -> None:
        """Installs a tenant's limits, addresses and flows. All or nothing.
        Raises RunFailed.
        """
        # Flows and limits at the same time; neither works without the other,
        # so a failure of one takes the other back.
        flows = None
        if not tenant.unconnected:
            wanted = controller_tenant(self.plan, tenant)
            flows = self._flows.submit(self._until_confirmed, wanted)
        try:
            self.network.configure_tenant(tenant)
        except BaseException:
            self._withdraw(flows, tenant)
            raise
        try:
            if flows is not None:
                self._settle(flows, lambda: self._until_confirmed(wanted))
        except (ControllerError, RunFailed) as error:
            self.network.remove_tenant(tenant)
            self._withdraw(flows, tenant)
            raise _of_job(tenant, error) from error
        self._record(tenant, "", tenant_text(self.plan, tenant, self._app))
        self._tenants[tenant.tenant_id] = tenant
        self._tell_tenants()

    def _tell_tenants(self) -> None:
        if self.on_tenants is not None:
            self.on_tenants(self._tenants.values())

    def _record(
        self,
        tenant: TenantPlan,
        change: str,
        text: str,
    ) -> None:
        self._installed += 1
        if self._write is not None:
            words = [f"{self._installed:04}", tenant.job_id]
            if change:
                words.append(change)
            self._write(f"plan/{'-'.join(words)}.txt", text)

    def _withdraw(
        self, flows: Future[Any] | None, tenant: TenantPlan
    ) -> None:
        """Removes the flows of a tenant that could not be admitted.

        ``flows``: the request to add them; None where there was none.
        """
        if flows is None:
            return

        def remove() -> None:
            self._client.remove_tenant(tenant.tenant_id, CONFIRM_EVERY_S)

        if self._is_stopped:
            # Once it continues it may carry out the request to add the tenant.
            self._unknown_flows.add(tenant.job_id)
            self._flows.submit(self._remove_late, tenant, remove)
            return
        # This waits until the request to add has ended, well or not: a
        # removal that came before it would find nothing.
        flows.exception()
        # The error for which the tenant is withdrawn is what the caller
        # learns of, not one of the withdrawal.
        with suppress(ControllerError, RunFailed):
            self._settle(self._flows.submit(remove), remove)

    def _remove_late(
        self, tenant: TenantPlan, remove: Callable[[], None]
    ) -> None:
        """Removes a tenant's flows, if any, once the controller replies.

        Runs in the flows' thread, so that a later request to add the same
        tenant cannot overtake it.
        """
        # Waiting for the event in place of a sleep lets close() end this at
        # once.
        while not self._closed.wait(CONFIRM_EVERY_S):
            with suppress(ControllerUnreachable):
                # A refusal means that it never had the tenant. Switches that
                # are missing get the change when they connect.
                with suppress(ControllerRefused, SwitchesMissing):
                    remove()
                break
        self._unknown_flows.discard(tenant.job_id)

    def _until_confirmed(self, tenant: values.Tenant) -> None:
        """Installs a tenant's flows; returns when the switches confirm them.

        Raises RunFailed early where a switch does not reply because it died.
        """
        until_s = time.monotonic() + CONFIRM_TIMEOUT_S
        while True:
            try:
                return self._client.add_tenant(tenant, CONFIRM_EVERY_S)
            except SwitchesMissing:
                self.network.check_switch(self.log_dir)
                if time.monotonic() > until_s:
                    raise

    def _settle(
        self, flows: Future[None], again: Callable[[], None]
    ) -> None:
        """Waits for a request to the controller.

        A controller that ends meanwhile is started and asked again by
        ``again``. A repeated request does no harm: the controller saved its
        state before it answered, or never saw the request.
        """
        with self._waits_for_controller():
            while not flows.done() or flows.exception() is not None:
                flows = self._asked(flows, again)

    def _asked(
        self, flows: Future[None], again: Callable[[], None]
    ) -> Future[None]:
        """Waits a moment for a request; returns it, or its repetition if lost."""
        try:
            flows.result(CONFIRM_EVERY_S)
        except ControllerUnreachable:
            if not self.revive_controller(DYING_S):
                raise
            return self._flows.submit(again)
        except TimeoutError:
            self.network.check_switch(self.log_dir)
            self._require_running()
            if not flows.running():
                # It waits behind a request that an ended controller never
                # completes.
                self.revive_controller()
        return flows

    def dismiss(self, tenant: TenantPlan) -> None:
        """The inverse of :meth:`admit`.

        Limits and flows that are gone already are no failure. Raises
        RunFailed.
        """

        def remove() -> None:
            self._client.remove_tenant(tenant.tenant_id)

        flows = None if tenant.unconnected else self._flows.submit(remove)
        self._tenants.pop(tenant.tenant_id, None)
        self._tell_tenants()
        self.network.remove_tenant(tenant)
        for vm in tenant.vms:
            self._opened.pop(vm.slot, None)
            self.cgroup.remove_vm(vm.slot.server, vm.slot.index)
            # rmdir also detaches mounts on it in other mount namespaces.
            with suppress(OSError):
                self.folder_of(vm.slot).rmdir()
        try:
            if flows is not None:
                self._settle(flows, remove)
        except (ControllerError, RunFailed) as error:
            if not (
                isinstance(error, ControllerRefused)
                and error.status == HTTP_NOT_FOUND
            ):
                raise _of_job(tenant, error) from error

    def rerate(self, tenant: TenantPlan, rate_bps: int) -> TenantPlan:
        """Changes a tenant's rate in place; returns the tenant at its new rate."""
        # A link's reservation is a whole number of VMs' rates, min(X, N -
        # X): divided first, it stays one.
        links = tuple(
            (link, bps // tenant.rate_bps * rate_bps)
            for link, bps in tenant.link_bps
        )
        new = replace(tenant, rate_bps=rate_bps, link_bps=links)
        self.network.rerate_tenant(tenant, new)
        return new

    def set_capacities(
        self,
        datacentre: DataCentre,
        plan: NetworkPlan,
        tenants: Sequence[tuple[TenantPlan, TenantPlan]],
    ) -> None:
        """Changes links to the capacities of another plan of this network, and
        tenants' limits with them. Raises RunFailed.
        """
        self.network.set_capacities(plan, tenants)
        self.plan = plan
        self.datacentre = datacentre

    def reroot(
        self, moves: Sequence[tuple[TenantPlan, TenantPlan]]
    ) -> dict[str, RunFailed]:
        """Moves tenants to new plans that differ only in their tree.

        Make before break: a tenant's new limits exist before its flows change,
        and its old ones until after, so connections survive. Returns the
        reasons of tenants that are still on their old tree, by job.
        """
        failed: dict[str, RunFailed] = {}
        if self._is_stopped:
            for _, new in moves:
                failed[new.job_id] = RunFailed(self._stopped())
            return failed
        begun = []
        for old, new in moves:
            try:
                self.network.begin_reroot(old, new)
                begun.append((old, new))
            except RunFailed as error:
                failed[new.job_id] = error
        asked = self.controller
        with (
            self._waits_for_controller(),
            ThreadPoolExecutor(MOVES_AT_ONCE) as pool,
        ):
            new_plans = [new for _, new in begun]
            replies = list(pool.map(self._move_flows, new_plans))
        for (old, new), reply in zip(begun, replies, strict=True):
            why = reply
            if isinstance(reply, ControllerUnreachable):
                why = self._move_flows_again(new, asked)
            self._end_reroot(old, new, moved=why is None)
            if why is not None:
                failed[new.job_id] = RunFailed(f"job {new.job_id}: {why}")
        return failed

    def _end_reroot(
        self,
        old: TenantPlan,
        new: TenantPlan,
        *,
        moved: bool,
    ) -> None:
        """Removes the limits of the tree that a tenant is not on."""
        if not moved:
            # A move that was not confirmed may be carried out all the same.
            self._move_flows(old)
            with suppress(RunFailed):
                self.network.end_reroot(new, old)
            return
        # Old limits that stay do no harm, and `verify` lists them.
        with suppress(RunFailed):
            self.network.end_reroot(old, new)
        text = reroot_text(self.plan, old, new, self._app)
        self._record(new, "reroot", text)

    def fail(self, failure: Failure, tenants: Sequence[TenantPlan]) -> None:
        """Brings about a failure, or the end of one.

        A restarted switch has its flows and the limits of ``tenants`` when this
        returns. Raises RunFailed, MachineCannot.
        """
        if failure.kind == "controller_killed":
            self.controller.process.kill()
            if self.revive_controller(DYING_S):
                # Switches look for the controller at most a second apart
                # (max_backoff). Until each is back, a tenant's flows would
                # lack it.
                self._wait_connected(
                    [bridge.dpid for bridge in self.plan.bridges]
                )
        elif failure.kind == "switch_restarted":
            bridge = self.plan.bridge_of_node[failure.part].name
            self.restart_switch(
                self.network.switch_of_bridge[bridge], tenants
            )
        else:
            # `link_failed`, `server_restored` and their like.
            kind, _, change = failure.kind.partition("_")
            self._set_part(kind, failure.part, up=change == "restored")

    def _set_part(
        self,
        kind: str,
        number: int,
        *,
        up: bool,
    ) -> None:
        """Takes the ports of a link or server down, or brings them back."""
        ports = self._ports_of(kind, number)
        if not up:
            self._failed[kind, number] = ports
        else:
            self._failed.pop((kind, number), None)
            # A port stays down while another failure holds it: a link's own
            # and its server's overlap.
            ports = ports.difference(*self._failed.values())
        self.network.set_ports(sorted(ports), up=up)

    def _ports_of(self, kind: str, number: int) -> set[str]:
        """Both ends of a link, or of all links from a server upward."""
        links = [self.plan.links[number]]
        if kind == "server":
            bridge = self.plan.bridge_of_node[number].name
            links = [
                link
                for link in self.plan.links
                if link.lower.bridge == bridge
            ]
        ports = set()
        for link in links:
            ports |= {link.lower.name, link.upper.name}
        return ports

    def restore_links(self) -> None:
        """Brings back all links that a failure has taken down. Raises RunFailed."""
        self.network.set_ports(
            sorted(set().union(*self._failed.values())), up=True
        )
        self._failed = {}

    def _move_flows(
        self, tenant: TenantPlan
    ) -> ControllerError | RunFailed | None:
        """Asks the controller to move a tenant; returns the error of a failure.

        Each call has a connection of its own, as several run at once.
        """
        try:
            with closing(
                self.own_controller or self.controller.client()
            ) as client:
                client.move_tenant(
                    controller_tenant(self.plan, tenant), MOVE_TIMEOUT_S
                )
        except ControllerError as error:
            return error
        return None

    def _move_flows_again(
        self, tenant: TenantPlan, asked: ControllerProcess
    ) -> ControllerError | RunFailed | None:
        """Repeats a move whose controller, ``asked``, ended before it replied."""
        try:
            # Several moves may have lost the same controller, and the first
            # of them has started another one already.
            if self.controller is asked and not self.revive_controller(
                DYING_S
            ):
                return RunFailed("the controller does not answer")
        except RunFailed as error:
            return error
        return self._move_flows(tenant)

    def spawn(
        self,
        name: str,
        slot: Slot,
        plan: Plan,
        cores: int = 1,
    ) -> None:
        """Asks for an unprivileged agent in a VM's namespace and control group.

        The VM is in the foreground until the agent is ready: at a background
        weight it would hardly start beside a busy VM. ``cores``: slots of its
        node that the VM takes.
        """
        joins = self._opened.pop(slot, None)
        if joins is None:
            joins = self.open_vm(slot, cores)
        user = self.users.of_program(slot)
        # By open descriptor: the run folder's owner could replace its name by a
        # link, and root would write where that points.
        logs = self.held_logs or self.log_dir.absolute()
        request = SpawnRequest(
            name,
            plan,
            user.uid,
            user.gid,
            netns=str(NETNS_DIR / slot.netns),
            cgroups=tuple(map(str, joins)),
            log=str(logs / f"agent-{name}.log"),
            cpus=self._cores(slot) if plan.pinned else (),
        )
        # Private folders and shared memory are for people's programs; the
        # testbed's own agents start sooner without.
        if isinstance(plan, CommandPlan):
            request = self._for_program(request, slot, plan)
        self.agents.spawn(request)

    def _for_program(
        self,
        request: SpawnRequest,
        slot: Slot,
        plan: CommandPlan,
    ) -> SpawnRequest:
        """The request for a person's program, with what it may see and own."""
        user = self.users.of_command(slot)
        run_folder = self.log_dir.absolute().parent
        shown = [str(run_folder), working_directory()]
        return replace(
            request,
            uid=user.uid,
            gid=user.gid,
            shared_bytes=self.limits.memory_bytes // 2,
            folder=str(self.folder_of(slot)),
            shown=(*shown, *paths_in(plan.named)),
            caller=self.users.callers_id,
        )

    def folder_of(self, slot: Slot) -> Path:
        """Mount point of a VM's own folders, in :attr:`agent_mounts`."""
        return RUN_ROOT / self.journal.tag.run / "vms" / slot.netns

    @property
    def agent_mounts(self) -> str:
        """The mount namespace of the agents' fork server."""
        return f"/proc/{self.agents.pid}/ns/mnt"

    @contextmanager
    def opening_vms(
        self, tenant: TenantPlan, cores: int = 1
    ) -> Iterator[None]:
        """Makes the control groups of a tenant's VMs beside the block, for
        agents that are spawned after it. Raises OSError at its end.
        """
        # The first move into a control group waits for a grace period of
        # the kernel's, which passes here while limits and flows go in.
        with ThreadPoolExecutor(1) as beside:
            opened = beside.submit(self._open_vms, tenant, cores)
            yield
        opened.result()

    def _open_vms(self, tenant: TenantPlan, cores: int) -> None:
        for vm in tenant.vms:
            self._opened[vm.slot] = self.open_vm(vm.slot, cores)
        self.cgroup.prepare_moves()

    def open_vm(self, slot: Slot, cores: int = 1) -> tuple[Path, ...]:
        """Makes a VM's control group, with foreground weight and its limits.

        Returns the files through which processes join the group.
        """
        joins = self.cgroup.add_vm(slot.server, slot.index)
        self.cgroup.set_weight(
            slot.server, slot.index, WEIGHTS["foreground"]
        )
        cpus_per_vm = self.quotas["cpus_per_slot"]
        if cpus_per_vm < 1.0:
            self.cgroup.set_quota(
                slot.server, cpus_per_vm * cores, slot.index
            )
        limits = self.limits
        self.cgroup.set_memory(slot.server, limits.memory_bytes, slot.index)
        self.cgroup.set_processes(slot.server, slot.index, limits.processes)
        return joins

    def limits_reached(self, tenant: TenantPlan) -> str:
        """Sentence about VMs that reached their limits, or empty."""
        reached = []
        for vm in tenant.vms:
            slot = vm.slot
            limits = self.cgroup.limits_reached(slot.server, slot.index)
            for limit in limits:
                reached.append(
                    f"VM {vm.index} reached its limit of {limit}"
                )
        if not reached:
            return ""
        return f"{', '.join(reached)}: a VM may have {self.limits}"

    def _cores(self, slot: Slot) -> tuple[int, ...]:
        """The processor to which a computing VM is pinned.

        VMs of a node that has at most one processor share it: weights count
        only between VMs on one processor. On two, a foreground and a background
        VM would each get half of the node's quota.
        """
        cores = sorted(os.sched_getaffinity(0))
        slots = int(self.datacentre.slots[slot.server])
        offset = 0
        if slots * self.quotas["cpus_per_slot"] > 1.0:
            offset = slot.index % slots
        return (cores[(slot.server + offset) % len(cores)],)

    def freeze(self, tenant: TenantPlan, *, frozen: bool) -> None:
        """Freezes all of a tenant's processes, or resumes them. Raises OSError."""
        for vm in tenant.vms:
            self.cgroup.freeze(vm.slot.server, vm.slot.index, frozen=frozen)

    def vm_groups(self, tenant: TenantPlan) -> tuple[Path, ...]:
        """The control groups that count the processor time of a tenant's VMs."""
        return tuple(
            self.cgroup.group(vm.slot.server, vm.slot.index)
            for vm in tenant.vms
        )

    def claim(
        self,
        slot: Slot,
        plan: ComputePlan,
        cores: int,
        tier: Tier,
    ) -> Claim:
        """Processors that a computing VM uses whenever it gets them.

        A background VM gets what its neighbours leave, so its claim is on the
        whole node's processors, counted together with theirs.
        """
        cpus = self.quotas["cpus_per_slot"]
        if tier == "background" and plan.share == 1.0:
            node_cpus = cpus * int(self.datacentre.slots[slot.server])
            return Claim(self.cgroup.account(slot.server), node_cpus)
        vm_cpus = min(1.0, cpus * cores)
        account = self.cgroup.account(slot.server, slot.index)
        return Claim(account, vm_cpus * plan.share)

    def set_tier(self, tenant: TenantPlan, tier: Tier) -> None:
        """Sets the CPU weight of a tenant's VMs by tier."""
        for vm in tenant.vms:
            self.cgroup.set_weight(
                vm.slot.server, vm.slot.index, WEIGHTS[tier]
            )

    def raise_priority(self, tenant: TenantPlan) -> None:
        """Raises the CPU priority of a tenant's VMs, so that processes which are
        to end do not wait for others. Raises OSError.
        """
        for vm in tenant.vms:
            self.cgroup.raise_priority(vm.slot.server, vm.slot.index)

    def end_processes(self, tenant: TenantPlan) -> None:
        """Kills whatever runs in a tenant's VMs, with all its children. Raises
        OSError.
        """
        for vm in tenant.vms:
            self.cgroup.end_vm(vm.slot.server, vm.slot.index)

    # -- records -------------------------------------------------------------------------------

    def write_plans_to(self, write: WriteText) -> None:
        """Stores the text of each installation from now on through ``write``.

        ``write`` takes a path in the run folder, and the text.
        """
        self._write = write
        self._installed = 0
        write("plan/0000-network.txt", network_text(self.plan, self._app))
        if self._app is not None:
            for file in self._app.files:
                write(
                    f"plan/{file.name}", file.read_text("utf-8", "replace")
                )

    def facts(self) -> dict[str, Any]:
        """Provenance of the live network."""
        conditions = self.network.conditions
        sockets = conditions.sockets
        return {
            "controller": {
                "library": self.controller.library,
                "version": self.controller.library_version,
                "user": self.controller.user,
                **({} if self._app is None else self._app.resolved),
            },
            "builder": self.network.builder,
            "datapath": conditions.datapath,
            "open_vswitch": conditions.version,
            "userspace_tso": sockets.offload,
            "send_buffer_bytes": sockets.send_buffer_bytes,
            # VMs' routes name it, whatever the machine's default is.
            "congestion_control": "cubic",
            "offloads": {
                "vm_checksum_and_segmentation": self.network.offloads
            },
            "vm_sysctls": dict(VM_SYSCTLS),
            "agents_user": self.users.of_program(self.plan.slots[0]).name,
            "first_vm_user_id": self.users.first_id,
            "switch_parts": len(self.network.switch_pids),
            "switch_paced": all(
                is_paced(pid or 0) for pid in self.network.switch_pids
            ),
            "bridges": len(self.plan.bridges),
            "links": len(self.plan.links),
            "vm_slots": len(self.plan.slots),
            "cgroup_version": self.cgroup.layout.version,
            "node_quotas": self.quotas,
        }


def _of_job(tenant: TenantPlan, error: Exception) -> RunFailed:
    """The error with its job; its hint, if it has one, is kept."""
    return RunFailed(
        f"job {tenant.job_id}: {error}", getattr(error, "hint", None)
    )


@contextmanager
def emulate(
    datacentre: DataCentre,
    scale: Scale,
    options: LiveOptions,
    log_dir: Path,
    name: str,
    narrate: Callable[[str], None] = lambda _: None,
    namespaces_per_server: Sequence[int] | None = None,
    n_agents: int = 0,
) -> Iterator[Emulation]:
    """The data centre live.

    ``namespaces_per_server``: VM namespaces of each server, if not one per
    slot. ``n_agents``: VMs in use at a time, for which the machine must have
    room. Removes leftovers of earlier runs first, and everything that it made
    at the end. Raises MachineCannot before anything is made, RunFailed later.
    """
    plan = network_plan(
        datacentre,
        prefix=options.prefix,
        scale_rate=scale.rate,
        namespaces_per_server=namespaces_per_server,
        scale_time=scale.time,
    )
    kind = network_kind(options.builder, plan, narrate)
    if options.controller is not None:
        options = replace(
            options, controller=with_packages(options.controller, narrate)
        )
    # The stack unwinds in reverse: agents end before the network that they
    # use, and the journal's removal, which finds what others missed, comes last
    # under the lock.
    with ExitStack() as stack:
        stack.enter_context(machine_lock(name))
        for thing in clean_leftovers():
            narrate(
                f"removed what an earlier run left: {thing.what} {thing.name}"
            )
        # After the leftovers are gone, which took memory and namespaces
        # too.
        require_room(plan, n_agents)
        journal = CleanupJournal.create(name)
        stack.callback(remove_run, journal)
        # Before anything is started: a child is born into its parent's
        # group, by which the cleanup finds it after a crash.
        cgroup = _enter_cgroup(stack, journal)
        quotas = _set_quotas(cgroup, datacentre, scale.cpu)
        parts = stack.enter_context(switch_in_parts(plan, journal))
        narrate(_network_up(plan, len(parts)))
        api_port = None if options.controller else options.api_port
        port = _openflow_port(options)
        held = stack.enter_context(held_ports(port, api_port))
        switches = stack.enter_context(switch_listeners(parts, journal))
        uid = controller_uid(options)
        start = partial(
            _start_controller,
            stack=stack,
            journal=journal,
            log_dir=log_dir,
            switches=switches,
            held=held,
            options=options,
            uid=uid,
            narrate=narrate,
        )
        controller = start()
        network = kind(
            plan=plan,
            journal=journal,
            controller_port=controller.openflow_port,
            parts=parts,
            ours=options.controller is None,
        )
        own_controller = None
        if options.controller:
            log = log_dir / CONTROLLER_LOG
            own_controller = OwnController(
                options.controller, log, controller, network
            )
        client = stack.enter_context(
            closing(own_controller or controller.client())
        )
        try:
            # Known to the controller first: a switch has its rules as soon as
            # it connects.
            client.put_network(controller_switches(plan))
            stack.enter_context(network)
            client.wait_connected(timeout_s=CONNECT_TIMEOUT_S)
            network.begin_pace()
        except ControllerError as error:
            raise RunFailed(f"the controller: {error}") from error
        if own_controller is not None:
            app = own_controller.app
            narrate(f"flows: those of {app}, none of the testbed's")
        if pages := pages_address(controller):
            narrate(f"pages of the application: {pages}")
        logs = stack.enter_context(held_folder(log_dir))
        agents = stack.enter_context(
            AgentPool(logs / "agents.log", log_dir)
        )
        _record_process(journal, "agents", agents.pid)
        emulation = Emulation(
            datacentre=datacentre,
            network=network,
            controller=controller,
            agents=agents,
            cgroup=cgroup,
            log_dir=log_dir,
            quotas=quotas,
            journal=journal,
            own_controller=own_controller,
            start_controller=None if options.controller else start,
            held_logs=logs,
        )
        stack.callback(emulation.close)
        try:
            yield emulation
        except RunFailed:
            # A dead switch is the cause of most other failures: name it.
            emulation.check()
            raise


def _openflow_port(options: LiveOptions) -> int:
    if options.controller and options.controller.remote:
        # The other controller may have that one.
        return 0
    return options.openflow_port


def _network_up(plan: NetworkPlan, n_parts: int) -> str:
    sizes = [
        number_of(len(plan.bridges), "bridge"),
        number_of(len(plan.links), "link"),
        number_of(len(plan.slots), "VM slot"),
    ]
    if n_parts:
        sizes.append(number_of(n_parts, "switch part"))
    return f"network up: {', '.join(sizes)}"


def network_kind(
    builder: Builder,
    plan: NetworkPlan,
    narrate: Callable[[str], None],
) -> type[EmulatedNetwork]:
    """The network's class for a builder.

    Raises BadInput if the builder cannot build this plan, MachineCannot if the
    machine cannot.
    """
    require_netem(plan)
    if builder == "batched":
        return EmulatedNetwork
    try:
        from testbed.backends.emu import plain_network
    except ImportError as error:
        raise MachineCannot("Mininet is missing", install_hint()) from error
    plain_network.refuse_parts(plan)
    seconds = plain_network.built_in_s(plan)
    cables = len(plan.slots) + len(plan.links)
    narrate(
        f"Mininet builds {cables:,} links one by one: about {seconds:.0f} s"
    )
    return plain_network.PlainNetwork


def _enter_cgroup(stack: ExitStack, journal: CleanupJournal) -> RunCgroup:
    cgroup = RunCgroup(probe_layout(), journal.tag.run)
    journal.add(
        [JournalEntry("cgroup", str(path)) for path in cgroup.paths]
    )
    cgroup.create()
    stack.callback(cgroup.leave)
    cgroup.enter()
    # From here on memory is what bounds them.
    stack.enter_context(raised_numbers(journal))
    return cgroup


def _set_quotas(
    cgroup: RunCgroup,
    datacentre: DataCentre,
    cpu: float,
) -> dict[str, Any]:
    """Sets each node's processor quota and memory; returns them as provenance.

    ``cpu``: processors per slot, as a share of one of this machine's. There is
    no quota where it changes nothing, as the kernel sometimes throttles groups
    that are within theirs: for nodes that may use all processors, and for those
    of one processor, to which their VMs are pinned.
    """
    cores = os.cpu_count() or 1
    limits = machine_limits(datacentre.slots.tolist())
    limited = False
    for server in range(datacentre.n_servers):
        cpus = int(datacentre.slots[server]) * cpu
        if cpus < cores and cpus != 1.0:
            cgroup.set_quota(server, cpus)
        limited = cgroup.set_memory(server, limits.node_memory_bytes)
    return {
        "cpus_per_slot": cpu,
        "memory_bytes_per_node": limits.node_memory_bytes
        if limited
        else None,
        "memory_bytes_per_vm": limits.memory_bytes if limited else None,
        "processes_per_vm": limits.processes,
    }


def _own_arguments(choice: ControllerChoice) -> list[str]:
    if choice.remote:
        return ["--remote", choice.remote]
    arguments = []
    for app in choice.apps:
        arguments += ["--app", app]
    if choice.python:
        arguments += ["--app-python", choice.python]
    # With an equals sign, since the value itself begins with dashes.
    arguments += [f"--app-option={option}" for option in choice.options]
    return arguments


def pages_address(controller: ControllerProcess) -> str:
    """Address of the web pages of a person's applications, or empty."""
    if controller.pages_port is None:
        return ""
    return f"http://127.0.0.1:{controller.pages_port}/"


def controller_uid(options: LiveOptions) -> int | None:
    """User id for the controller; None for the one who called sudo.

    The latter is for people's own applications, which may read their files,
    unless they are confined.
    """
    caller = unprivileged_user(os.environ)
    choice = options.controller
    runs_theirs = False
    if choice is not None:
        runs_theirs = bool(choice.apps) and not choice.confined
    if runs_theirs and caller.name != "nobody":
        return None
    return unused_uid()


def _start_controller(
    *,
    stack: ExitStack,
    journal: CleanupJournal,
    log_dir: Path,
    switches: Sequence[int],
    held: dict[str, int],
    options: LiveOptions,
    uid: int | None,
    narrate: Callable[[str], None],
) -> ControllerProcess:
    # The log is searched for an application's errors: an earlier run's must
    # not be among them.
    flags = (
        os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    )
    if options.controller is not None:
        flags |= os.O_TRUNC
    # By the open folder, and following no link: the folder is its caller's,
    # and root writes here.
    with opened_folder(log_dir, make=True) as folder:
        descriptor = os.open(CONTROLLER_LOG, flags, 0o600, dir_fd=folder)
    log = stack.enter_context(os.fdopen(descriptor, "a+b"))
    try:
        state = RUN_ROOT / journal.tag.run / CONTROLLER_STATE
        # As a part's: the cleanup then removes the run's folder with all in
        # it, also where the switch has no parts.
        journal.add([JournalEntry("part", str(state))])
        state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        arguments = ["--switch-uid", str(switch_uid())]
        if uid is not None:
            arguments += ["--uid", str(uid)]
        if options.library:
            arguments += ["--library", options.library]
        confined_to: list[Path] | None = None
        if options.controller is None:
            arguments += ["--state-dir", str(state)]
        else:
            arguments += _own_arguments(options.controller)
            if options.controller.confined:
                confined_to = [
                    file.parent for file in options.controller.files
                ]
                if options.controller.python:
                    # An environment is the folder above its bin.
                    environment = Path(options.controller.python).parent
                    if environment.name == "bin":
                        environment = environment.parent
                    confined_to.append(environment)
        controller = start_controller(
            log,
            *arguments,
            listeners=switches,
            held=held,
            confined_to=confined_to,
            narrate=narrate,
        )
    except FileNotFoundError as error:
        raise MachineCannot(
            f"{error.filename} is not installed: "
            "a confined controller needs it",
            install_hint(),
        ) from error
    except ControllerNotStarted as error:
        raise _start_error(error, options, log_dir) from error
    stack.callback(controller.stop)
    _record_process(journal, "controller", controller.process.pid)
    return controller


def _start_error(
    error: ControllerNotStarted,
    options: LiveOptions,
    log_dir: Path,
) -> TestbedError:
    """The kind of error by whose fault it is, with what to do."""
    if error.error == APP_ERROR:
        why = f"the controller {options.controller} does not start: {error}"
        return BadInput(why, f"see {log_dir / CONTROLLER_LOG}")
    if error.error == REMOTE_ERROR:
        hint = "start that controller first, or correct controller.remote"
        return MachineCannot(str(error), hint)
    if error.exit_code == MachineCannot.exit_code:
        return MachineCannot(str(error), install_hint())
    return RunFailed(f"the controller did not start: {error}")


def _kill_switch(pid: int) -> None:
    """Kills a switch's daemon, and waits for its end; nothing if it has ended."""
    # By pidfd: the number could be another process's by now.
    with suppress(ProcessLookupError):
        end = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(end, signal.SIGKILL)
            poll = select.poll()
            poll.register(end, select.POLLIN)
            poll.poll()
        finally:
            os.close(end)


def _record_process(
    journal: CleanupJournal,
    name: str,
    pid: int,
) -> None:
    journal.add(
        [
            JournalEntry(
                "process", name, pid=pid, start_ticks=start_ticks(pid) or 0
            )
        ]
    )
