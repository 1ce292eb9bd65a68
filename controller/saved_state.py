"""The desired state on disk, so that it outlives the controller's process.

One directory, one small file per tenant and one for the network: a change costs
one write, however many tenants there are. Each file is written beside its place
and moved in, so that it is always either the old or the new one. Nothing is
synced to the medium: the state has to outlive the process and not the machine,
whose switches are gone with it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from controller.values import (
    DesiredState,
    InvalidValues,
    NetworkSwitches,
    Switch,
    Tenant,
    Value,
    from_json,
    to_json,
)

_NETWORK = "network.json"
_TENANT = re.compile(r"tenant-[0-9]+\.json")
_UNFINISHED = ".unfinished"


def _file_of(tenant_id: int) -> str:
    return f"tenant-{tenant_id}.json"


@dataclass(frozen=True)
class StateStore:
    """The files in a directory that belongs to the controller alone.

    Works on the open directory, not on its path: the process has given up root
    since it was opened, and may no longer enter the folders above. `directory`
    is for messages.
    """

    directory: Path
    descriptor: int

    @classmethod
    def at(cls, directory: Path) -> StateStore:
        """The store in an existing directory, open until the process ends."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return cls(directory, os.open(directory, flags))

    def load(self) -> DesiredState:
        """The state that was saved last.

        Raises `InvalidValues` with the name of a file that makes no sense.
        """
        names = sorted(os.listdir(self.descriptor))  # noqa: PTH208 - the open directory
        for name in names:
            # Left by a process that ended while it wrote.
            if name.endswith(_UNFINISHED):
                os.unlink(name, dir_fd=self.descriptor)
        state = DesiredState()
        # The network first: a tenant is checked against its switches.
        if _NETWORK in names:
            state = state.with_network(
                self._read(_NETWORK, NetworkSwitches).switches
            )
        for name in names:
            if _TENANT.fullmatch(name):
                tenant = self._read(name, Tenant)
                # Under another name it could not be forgotten.
                if name != _file_of(tenant.id):
                    why = ValueError(f"it holds tenant {tenant.id}")
                    raise self._unusable(name, why)
                try:
                    # Whole files may still contradict each other: somebody may
                    # have edited them.
                    state = state.with_tenant(tenant)
                except ValueError as error:
                    raise self._unusable(name, error) from None
        return state

    def save_network(self, switches: Iterable[Switch]) -> None:
        """Replaces the network."""
        self._write(_NETWORK, to_json(NetworkSwitches(tuple(switches))))

    def save_tenant(self, tenant: Tenant) -> None:
        """Adds or replaces one tenant."""
        self._write(_file_of(tenant.id), to_json(tenant))

    def forget_tenant(self, tenant_id: int) -> None:
        """Removes one tenant."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_file_of(tenant_id), dir_fd=self.descriptor)

    def _open(self, name: str, flags: int) -> int:
        return os.open(
            name,
            flags | os.O_NOFOLLOW | os.O_CLOEXEC,
            mode=0o600,
            dir_fd=self.descriptor,
        )

    def _write(self, name: str, text: bytes) -> None:
        unfinished = name + _UNFINISHED
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(self._open(unfinished, flags), "wb") as file:
            file.write(text)
        # In one step: the name always leads to a whole file, old or new.
        os.replace(
            unfinished,
            name,
            src_dir_fd=self.descriptor,
            dst_dir_fd=self.descriptor,
        )

    def _read(
        self,
        name: str,
        kind: type[Value],
    ) -> Value:
        try:
            with os.fdopen(self._open(name, os.O_RDONLY), "rb") as file:
                return from_json(kind, file.read())
        except InvalidValues as error:
            raise self._unusable(name, error) from None

    def _unusable(self, name: str, why: Exception) -> InvalidValues:
        path = self.directory / name
        hint = "remove the file to start without it"
        return InvalidValues([f"{path}: {why}; {hint}"])
