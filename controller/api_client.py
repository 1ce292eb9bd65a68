"""The testbed's end of the controller's API. Standard library only.

One `ControllerClient` keeps one connection; use one per thread.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from controller.values import NetworkSwitches, Switch, Tenant, to_json

CONFIRM_TIMEOUT_S = 30.0
# For connecting, and for every answer that needs no switch.
ANSWER_TIMEOUT_S = 10.0
# How often a request is sent if it is refused, or loses its connection, since
# there are too many others.
_ATTEMPTS = 10
# Added to the controller's own time limit: its answer says more than a time-out
# here.
_SLACK_S = 5.0


class ControllerError(Exception):
    """The controller did not carry out a request. The message gives the reason."""


class ControllerUnreachable(ControllerError):
    """Nobody answers at the API's port, or another program does."""


class ControllerRefused(ControllerError):
    """The controller understood and declined; `problems` says all its reasons."""

    def __init__(
        self,
        status: int,
        error: str,
        problems: Sequence[str],
    ) -> None:
        self.status = status
        self.error = error
        self.problems = tuple(problems)
        message = error
        if problems:
            message += ": " + "; ".join(problems)
        super().__init__(message)


class SwitchesMissing(ControllerError):
    """A change is accepted, and these switches have not confirmed in time.

    They will when they connect.
    """

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"not confirmed in time by {', '.join(self.missing)}"
        )


class SwitchesRefused(ControllerError):
    """Switches refused the rules.

    A tenant that was to be added is not in; one that was to move is on its old
    tree. ``refused``: (name, reason) of each switch.
    """

    def __init__(
        self,
        refused: Sequence[tuple[str, str]],
    ) -> None:
        self.refused = tuple(refused)
        reasons = "; ".join(f"{name}: {why}" for name, why in self.refused)
        super().__init__(f"switches refused the rules: {reasons}")


class ControllerClient:
    """Calls to a controller on loopback.

    All raise `ControllerError` or one of its kinds.
    """

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> ControllerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def put_network(self, switches: Sequence[Switch]) -> None:
        """Replaces the switches; those connected are brought up at once."""
        self._call(
            "PUT", "/v1/network", to_json(NetworkSwitches(tuple(switches)))
        )

    def wait_connected(
        self,
        dpids: Iterable[int] | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Waits until these switches (None: the network's) have their rules.

        Raises `SwitchesMissing` with the names of those that have not.
        """
        wanted: dict[str, object] = {"timeout_s": float(timeout_s)}
        if dpids is not None:
            wanted["dpids"] = sorted(dpids)
        body = json.dumps(wanted).encode()
        self._call("POST", "/v1/wait", body, wait_s=timeout_s)

    def foreign_flows(self) -> dict[str, int]:
        """The number of others' flow rules that were found on a switch and
        removed, by the switch's name; switches without any are left out.
        """
        counts = {}
        for switch in self._call("GET", "/v1/state")["switches"]:
            if switch["foreign_flows"]:
                counts[switch["name"]] = switch["foreign_flows"]
        return counts

    def add_tenant(
        self,
        tenant: Tenant,
        timeout_s: float = CONFIRM_TIMEOUT_S,
    ) -> None:
        """Brings a tenant in; returns when all its switches have confirmed.

        The very same tenant may be added again. Raises `ControllerRefused` (a
        taken id or prefix, an unknown switch), `SwitchesMissing` (the tenant is
        in, and the missing switches get their rules when they connect) or
        `SwitchesRefused` (it is not in).
        """
        target = f"/v1/tenants?timeout_s={float(timeout_s)}"
        self._call("POST", target, to_json(tenant), wait_s=timeout_s)

    def move_tenant(
        self,
        tenant: Tenant,
        timeout_s: float = CONFIRM_TIMEOUT_S,
    ) -> None:
        """Brings a tenant to another tree, make before break.

        Returns when the old tree is empty. May be repeated. Raises as
        :meth:`add_tenant`; refused by a switch, the tenant is on its old tree.
        """
        target = f"/v1/tenants/{tenant.id}?timeout_s={float(timeout_s)}"
        self._call("PUT", target, to_json(tenant), wait_s=timeout_s)

    def remove_tenant(
        self,
        tenant_id: int,
        timeout_s: float = CONFIRM_TIMEOUT_S,
    ) -> None:
        """Takes a tenant out; returns when all its switches have confirmed."""
        target = f"/v1/tenants/{tenant_id}?timeout_s={float(timeout_s)}"
        self._call("DELETE", target, wait_s=timeout_s)

    # -- the wire

    def _call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        wait_s: float = 0.0,
    ) -> dict[str, Any]:
        timeout_s = max(ANSWER_TIMEOUT_S, wait_s + _SLACK_S)
        try:
            status, text = self._exchange(
                method, quote(target, safe="/?&=."), body, timeout_s
            )
        except (OSError, http.client.HTTPException) as error:
            self.close()
            at = f"127.0.0.1:{self._port}"
            why = f"no controller answers on {at}: {error!r}"
            if isinstance(error, TimeoutError):
                why = f"the controller on {at} has not answered within {timeout_s:g} s"
            raise ControllerUnreachable(why) from None
        except BaseException:
            # After a Ctrl-C the connection still owes an answer, without which
            # it takes no further request.
            self.close()
            raise
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ControllerUnreachable(
                f"port {self._port} is answered by something else"
            )
        if status >= 300:
            raise _error(status, answer)
        return answer

    def _exchange(
        self,
        method: str,
        target: str,
        body: bytes,
        timeout_s: float,
    ) -> tuple[int, bytes]:
        """Sends a request, up to _ATTEMPTS times.

        Returns the answer's status and body.
        """
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
        }
        attempts = _ATTEMPTS
        while True:
            was_kept = self._connection is not None
            # A controller that is not there is not asked again.
            connection = self._connected(timeout_s)
            try:
                connection.request(method, target, body, headers)
                response = connection.getresponse()
            except (ConnectionError, http.client.BadStatusLine) as error:
                # The server closes idle connections, its restart closes
                # all, and among very many new ones it may close this. Every
                # call may be repeated: the state it asks for is the same
                # state the second time.
                self.close()
                if was_kept:
                    continue
                # A new connection that ends without an answer had to make
                # room for another, and is tried again (http.client's
                # RemoteDisconnected is both a ConnectionError and a
                # BadStatusLine). Another program's answer that is no HTTP
                # would be none the next time.
                if attempts == 1 or not isinstance(error, ConnectionError):
                    raise
            else:
                # http.client sends no further request by this connection
                # until the answer has been read to its end.
                text = response.read()
                if response.will_close:
                    self.close()
                # 429: the owner's other clients have emptied the bucket. Only
                # another program does not say for how many seconds.
                wait_s = response.headers["Retry-After"] or ""
                asked_back = response.status == 429 and wait_s.isdecimal()
                if attempts == 1 or not asked_back:
                    return response.status, text
                time.sleep(int(wait_s))
            attempts -= 1

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                "127.0.0.1", self._port, timeout_s
            )
            self._connection.connect()
        # Kept connections have the time limit of the call before.
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        return self._connection


def _error(
    status: int,
    answer: dict[str, Any],
) -> ControllerError:
    error = str(answer.get("error", f"status {status}"))
    if status == 504 and "missing" in answer:
        return SwitchesMissing(answer["missing"])
    if status == 502 and "refused" in answer:
        refused = []
        for switch in answer["refused"]:
            refused.append((switch["switch"], switch["reason"]))
        return SwitchesRefused(refused)
    return ControllerRefused(status, error, answer.get("problems", []))
