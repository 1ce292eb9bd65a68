"""The desired state on disk, so that it outlives the controller's process.

One directory, one small file per tenant and one for the network: a change costs one write, however
many tenants there are. Each file is written beside its place and moved in, so that it is always
either the old or the new one. Nothing is synced to the medium: what has to be survived is the end
of the process, and after the end of the machine there is no switch left that would match.
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
    Network,
    Switch,
    Tenant,
    Value,
    from_json,
    to_json,
)

_NETWORK = "network.json"
_TENANT = re.compile(r"tenant-[0-9]+\.json")
_UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class StateStore:
    """The files in a directory that belongs to the controller alone.

    Works on the open directory, not on its path: the path may lead through places that only the
    root of a moment ago could enter. `directory` is for messages.
    """

    directory: Path
    descriptor: int

    @classmethod
    def at(cls, directory: Path) -> StateStore:
        """The store in `directory`, which exists. It stays open as long as the process lives."""
        return cls(directory, os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def load(self) -> DesiredState:
        """The state that was saved last. `InvalidValues` names a file that does not make sense."""
        names = sorted(os.listdir(self.descriptor))  # noqa: PTH208 - the open directory
        for name in names:
            if name.endswith(_UNFINISHED):
                os.unlink(name, dir_fd=self.descriptor)
        state = DesiredState()
        if _NETWORK in names:
            state = state.with_network(self._read(_NETWORK, Network).switches)
        for name in names:
            if _TENANT.fullmatch(name):
                tenant = self._read(name, Tenant)
                try:
                    state = state.with_tenant(tenant)
                except ValueError as error:
                    raise self._useless(name, error) from None
        return state

    def save_network(self, switches: Iterable[Switch]) -> None:
        """Replace the network."""
        self._write(_NETWORK, to_json(Network(tuple(switches))))

    def save_tenant(self, tenant: Tenant) -> None:
        """Add or replace one tenant."""
        self._write(f"tenant-{tenant.id}.json", to_json(tenant))

    def forget_tenant(self, tenant_id: int) -> None:
        """Remove one tenant."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"tenant-{tenant_id}.json", dir_fd=self.descriptor)

    def _open(self, name: str, flags: int) -> int:
        return os.open(
            name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode=0o600, dir_fd=self.descriptor
        )

    def _write(self, name: str, text: bytes) -> None:
        unfinished = name + _UNFINISHED
        with os.fdopen(self._open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(text)
        os.replace(unfinished, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def _read(self, name: str, kind: type[Value]) -> Value:
        try:
            with os.fdopen(self._open(name, os.O_RDONLY), "rb") as file:
                return from_json(kind, file.read())
        except InvalidValues as error:
            raise self._useless(name, error) from None

    def _useless(self, name: str, why: Exception) -> InvalidValues:
        path = self.directory / name
        return InvalidValues([f"{path}: {why}; remove the file to start without it"])
