"""The desired state on disk, so that it outlives the controller's process.

One directory, one small file per tenant and one for the network: a change costs one write, however
many tenants there are. Each file is written beside its place and moved in, so that it is always
either the old or the new one. Nothing is synced to the medium: what has to be survived is the end
of the process, and after the end of the machine there is no switch left that would match.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from controller.values import (
    DesiredState,
    InvalidValues,
    Network,
    Switch,
    Tenant,
    from_json,
    to_json,
)

Value = TypeVar("Value")

_NETWORK = "network.json"
_TENANT = re.compile(r"tenant-[0-9]+\.json")
_UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class StateStore:
    """The files in `directory`, which exists and belongs to the controller alone."""

    directory: Path

    def load(self) -> DesiredState:
        """What was saved last. `InvalidValues` names the file that does not make sense."""
        for path in sorted(self.directory.glob(f"*{_UNFINISHED}")):
            path.unlink()
        state = DesiredState()
        network = self.directory / _NETWORK
        if network.exists():
            state = state.with_network(_read(network, Network).switches)
        for path in sorted(self.directory.iterdir()):
            if _TENANT.fullmatch(path.name):
                try:
                    state = state.with_tenant(_read(path, Tenant))
                except ValueError as error:
                    raise _useless(path, str(error)) from None
        return state

    def save_network(self, switches: Iterable[Switch]) -> None:
        """Replace the network."""
        self._write(_NETWORK, to_json(Network(tuple(switches))))

    def save_tenant(self, tenant: Tenant) -> None:
        """Add or replace one tenant."""
        self._write(f"tenant-{tenant.id}.json", to_json(tenant))

    def forget_tenant(self, tenant_id: int) -> None:
        """Remove one tenant."""
        (self.directory / f"tenant-{tenant_id}.json").unlink(missing_ok=True)

    def _write(self, name: str, text: bytes) -> None:
        unfinished = self.directory / (name + _UNFINISHED)
        descriptor = os.open(
            unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
        unfinished.replace(self.directory / name)


def _read(path: Path, kind: type[Value]) -> Value:
    try:
        return from_json(kind, path.read_bytes())
    except InvalidValues as error:
        raise _useless(path, str(error)) from None


def _useless(path: Path, why: str) -> InvalidValues:
    return InvalidValues([f"{path}: {why}; remove the file to start without it"])
