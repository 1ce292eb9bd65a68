"""A controller's client that also asks for what only tests and people look at."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from controller.api_client import ControllerClient, ControllerUnreachable
from controller.process import ControllerProcess
from controller.values import Tenant, from_json


class WatchingClient(ControllerClient):
    """Calls beside those of the testbed; objects are namespaces with the keys of the JSON."""

    @classmethod
    def of(cls, process: ControllerProcess) -> WatchingClient:
        return cls(process.api_port, process.token)

    def health(self) -> bool:
        """True if a controller answers."""
        try:
            return bool(self._call("GET", "/v1/health")["status"] == "ok")
        except ControllerUnreachable:
            return False

    def tenant(self, tenant_id: int) -> Tenant:
        """A tenant as it was given."""
        return from_json(
            Tenant,
            json.dumps(
                self._call("GET", f"/v1/tenants/{tenant_id}")
            ).encode(),
        )

    def state(self) -> Any:
        """The controller, its switches and tenants."""
        return namespaces(self._call("GET", "/v1/state"))

    def flows(self) -> dict[str, tuple[str, ...]]:
        """The intended rules as `ovs-ofctl` reads them, by the switch's name."""
        body = self._call("GET", "/v1/flows")
        return {
            switch["name"]: tuple(switch["flows"])
            for switch in body["switches"]
        }

    def reconcile(self, timeout_s: float = 30.0) -> list[Any]:
        """Have every switch compared with what it ought to have; those that had to be repaired."""
        target = f"/v1/reconcile?timeout_s={float(timeout_s)}"
        repaired: list[Any] = namespaces(
            self._call("POST", target, wait_s=timeout_s)
        ).repaired
        return repaired


def namespaces(body: dict[str, Any]) -> Any:
    """JSON with its objects as namespaces."""
    return json.loads(
        json.dumps(body),
        object_hook=lambda members: SimpleNamespace(**members),
    )
