"""VMs of tenants on the standing network: control groups and hosts files."""

from __future__ import annotations

import os
from pathlib import Path

from jobs.vm_names import machines_hosts
from testbed.backends.emu.cleanup_journal import JournalEntry
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.backends.emu.vm_process import VmPlace
from testbed.errors import RunFailed
from testbed.plan.network_plan import TenantPlan, TenantVm


class StandingVms:
    """The VMs of one network. ``folder`` is where their hosts files are."""

    def __init__(self, emulation: Emulation, folder: Path) -> None:
        self._emulation = emulation
        self._folder = folder
        # An open network's hosts have Mininet's names.
        self.mininet_names = False

    def bring_up(self, plan: TenantPlan) -> tuple[VmPlace, ...]:
        """Brings a tenant to the network: its VMs, each with its place.

        What fails is undone. Raises RunFailed.
        """
        self._emulation.admit(plan)
        try:
            cgroups = [self._emulation.open_vm(vm.slot) for vm in plan.vms]
            hosts = self._write_hosts(plan)
        except BaseException as error:
            self._emulation.dismiss(plan)
            self._remove_hosts(plan)
            if isinstance(error, OSError):
                raise RunFailed(f"tenant {plan.job_id}: {error}") from error
            raise
        return tuple(
            self._place(plan, vm, joins, hosts)
            for vm, joins in zip(plan.vms, cgroups, strict=True)
        )

    def remove(self, plan: TenantPlan) -> None:
        """Ends whatever runs in a tenant's VMs, and removes all of them.

        A call that fails may be repeated. Raises RunFailed.
        """
        # Before its programs are ended: while the controller is stopped, the
        # tenant stays whole.
        self._emulation.await_controller()
        try:
            # In this order: without limits its programs would send as they
            # like.
            self._emulation.end_processes(plan)
            self._emulation.dismiss(plan)
            self._remove_hosts(plan)
        except OSError as error:
            raise RunFailed(f"tenant {plan.job_id}: {error}") from error

    def _place(
        self,
        plan: TenantPlan,
        vm: TenantVm,
        cgroups: tuple[Path, ...],
        hosts: Path,
    ) -> VmPlace:
        return VmPlace(
            name=self._name(plan, vm),
            host=vm.slot.host,
            server=self._emulation.datacentre.names[vm.slot.server],
            ip=str(vm.ip),
            netns=str(NETNS_DIR / vm.slot.netns),
            cgroups=tuple(map(str, cgroups)),
            hosts=str(hosts),
            user=self._emulation.users.of_program(vm.slot),
            shared_bytes=self._emulation.limits.memory_bytes // 2,
            folder=str(self._emulation.folder_of(vm.slot)),
            mounts=self._emulation.agent_mounts,
        )

    def _name(self, plan: TenantPlan, vm: TenantVm) -> str:
        """A VM's host name: NAME.0, NAME.1, …; on an open network its host's,
        else by Mininet's rule h1, h2, …
        """
        if self.mininet_names:
            return vm.slot.host or f"h{vm.index + 1}"
        return f"{plan.job_id}.{vm.index}"

    def _hosts_file(self, plan: TenantPlan) -> Path:
        return self._folder / f"hosts.{plan.job_id}"

    def _remove_hosts(self, plan: TenantPlan) -> None:
        hosts = self._hosts_file(plan)
        hosts.unlink(missing_ok=True)
        self._emulation.journal.remove([JournalEntry("file", str(hosts))])

    def _write_hosts(self, plan: TenantPlan) -> Path:
        """Writes the machine's hosts and the tenant's VMs; all may read it."""
        path = self._hosts_file(plan)
        # In the journal first: what is not in it outlives a crash.
        self._emulation.journal.add([JournalEntry("file", str(path))])
        path.unlink(missing_ok=True)
        # Created anew by this call: neither a file left behind nor a link to
        # one is written to.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(path, flags)
        # Not in the locale's encoding, which may lack characters of the
        # machine's hosts.
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            # Whatever root's umask: programs in VMs run as the users who start
            # them.
            os.fchmod(file.fileno(), 0o644)
            file.write(self._hosts(plan))
        return path

    def _hosts(self, plan: TenantPlan) -> str:
        lines = [machines_hosts().rstrip("\n")]
        for vm in plan.vms:
            names = dict.fromkeys((self._name(plan, vm), vm.slot.host))
            lines.append(f"{vm.ip}\t{' '.join(filter(None, names))}")
        return "\n".join(lines) + "\n"
