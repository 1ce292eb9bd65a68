"""Calls to peers that are not there yet."""

from __future__ import annotations

import errno
import selectors
import socket
import sys
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from jobs.live import connections as connections_module
from jobs.live.agent import Channel
from jobs.live.connections import Connections, pace
from jobs.live.patterns import VmTransfer
from tests.support.agent_watch import loopback_ips, transfer_plans

SOON_S, LATEST_S = 0.004, 0.020


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits of the caller, in s: nothing else takes time."""
    made: list[float] = []

    class Recording(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            made.append(timeout or 0.0)
            return super().select(0.0)

    class Clock:
        @staticmethod
        def monotonic_ns() -> int:
            return round(1e9 * sum(made))

    monkeypatch.setattr(selectors, "DefaultSelector", Recording)
    monkeypatch.setattr(connections_module, "time", Clock)
    return made


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Calls that were refused by the peer's kernel; after each of them this
    one's refuses the next call on the same socket.
    """
    made: list[int] = []
    codes = cycle((errno.ECONNREFUSED, errno.ECONNABORTED))

    class Refused(socket.socket):
        def connect_ex(self, _: Any) -> int:
            code = next(codes)
            if code == errno.ECONNREFUSED:
                made.append(code)
            return code

    monkeypatch.setattr(socket, "socket", Refused)
    return made


def test_a_refused_call_is_repeated_soon_and_later_less_often(
    waits: list[float], refusals: list[int]
) -> None:
    """A job's agents start within milliseconds of each other."""
    plans = transfer_plans([VmTransfer(0, 1, 1000)], loopback_ips(2))
    plan = replace(plans[0], connect_timeout_s=1.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        calling = Connections(plan, Channel(ours))
        with pytest.raises(
            connections_module.AgentFailure, match="refused"
        ):
            calling.establish()
        calling.close()
    assert waits[0] <= SOON_S
    assert waits[-1] == pytest.approx(LATEST_S)
    assert len(refusals) == len(waits)


def test_a_pace_may_need_more_than_32_bits() -> None:
    with socket.socket() as sock:
        for rate_bps in (20e9, 40e9):
            pace(sock, rate_bps)
            # SO_MAX_PACING_RATE
            raw = sock.getsockopt(socket.SOL_SOCKET, 47, 8)
            assert int.from_bytes(raw, sys.byteorder) == rate_bps / 8
