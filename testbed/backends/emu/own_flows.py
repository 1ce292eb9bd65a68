"""A person's OpenFlow application in the place of the testbed's controller.

There is no API then. The testbed makes the network, limits and jobs as always,
and asks the switches, not the application, whether they are connected to it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import RunFailed
from testbed.owned_files import opened_file
from testbed.plan.fidelity import Finding
from testbed.units import number_of

if TYPE_CHECKING:
    from controller.process import ControllerProcess
    from controller.values import Switch, Tenant
    from testbed.backends.emu.emulated_network import EmulatedNetwork
    from testbed.spec.controller_choice import ControllerChoice

POLL_S = 0.1
LOG_TAIL_BYTES = 1 << 20
# The indented lines of a traceback, and the error that ends it.
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class OwnController:
    """Stand-in for :class:`~controller.api_client.ControllerClient`.

    It takes the same calls and installs nothing: all flows are the
    application's.
    """

    app: ControllerChoice
    log: Path
    process: ControllerProcess
    network: EmulatedNetwork

    def put_network(self, switches: Sequence[Switch]) -> None:
        """The application learns of the switches as they connect."""

    def add_tenant(self, tenant: Tenant, timeout_s: float = 0.0) -> None:
        """Flows are the application's."""

    def move_tenant(self, tenant: Tenant, timeout_s: float = 0.0) -> None:
        """Flows are the application's."""

    def remove_tenant(self, tenant_id: int, timeout_s: float = 0.0) -> None:
        """Flows are the application's."""

    def close(self) -> None:
        """Nothing is open."""

    def wait_connected(
        self, _: Sequence[int] | None = None, timeout_s: float = 10.0
    ) -> None:
        """Waits until every bridge is connected to the application.

        Raises RunFailed, which names a bridge that is not.
        """
        until_s = time.monotonic() + timeout_s
        while missing := self.network.unconnected_bridges():
            # An application that has ended will never connect: its error says
            # more than a time-out.
            self.check()
            if time.monotonic() > until_s:
                message = (
                    f"the controller {self.app}: {_several(missing)}"
                    f" not connected after {timeout_s:g} s"
                )
                why = "bridges speak OpenFlow 1.3 alone"
                raise RunFailed(message, f"{why}; see {self.log}")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raises RunFailed where the application's process has ended."""
        code = self.process.process.poll()
        if code is None:
            return
        message = f"the controller {self.app} has ended with {code}"
        # A log that cannot be read explains no end.
        with suppress(OSError):
            message = ": ".join([message, *self.errors()[-1:]])
        raise RunFailed(message, f"see {self.log}")

    def errors(self) -> list[str]:
        """The last line of each traceback in the last MiB of its log.

        Raises OSError for a link, a FIFO or a device: the log is in a folder of
        the caller's, who may have put another file in its place.
        """
        descriptor = opened_file(self.log, follow_link=False)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            # The end alone: an application may log without end, also while its
            # log is read.
            begin = max(0, status.st_size - LOG_TAIL_BYTES)
            end = os.pread(descriptor, LOG_TAIL_BYTES, begin)
        finally:
            os.close(descriptor)
        return TRACEBACK.findall(end.decode(errors="replace"))

    @property
    def trouble(self) -> str:
        """Sentences on bridges that are not connected to the application, and on
        errors in its log; empty without any.
        """
        sentences = []
        if missing := self.network.unconnected_bridges():
            sentences.append(
                f"{_several(missing)} not connected to {self.app}"
            )
        if trouble := self._logged_trouble():
            sentences.append(trouble)
        return "; ".join(sentences)

    def _logged_trouble(self) -> str:
        """A sentence on the errors in the application's log; empty without any."""
        try:
            errors = self.errors()
        except OSError as error:
            return f"{self.log} cannot be read: {error.strerror}"
        if not errors:
            return ""
        count = number_of(len(errors), "error")
        return f"{count} in {self.log}, the last {errors[-1]}"

    def findings(self, n_trees: int) -> list[Finding]:
        """Fidelity of a run whose flows are the application's.

        In a data centre of several trees, a tenant's flows may take other links
        than those of its reserved tree.
        """
        why = f"all flows are those of {self.app}: which VMs reach which, over which links"
        findings = [Finding("ok", "flows", why)]
        if n_trees > 1:
            why += f"; what is reserved is on one of {n_trees} trees, flows may not be"
            findings = [Finding("suspect", "flows", why)]
        if trouble := self.trouble:
            findings.append(Finding("suspect", "flows", trouble))
        return findings


def _several(bridges: Sequence[str]) -> str:
    if len(bridges) == 1:
        return f"bridge {bridges[0]}"
    return f"bridge {bridges[0]} and {len(bridges) - 1} more"
