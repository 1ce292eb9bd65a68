"""A sweep on a machine whose loopback device is down."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from jobs.linux import has_loopback
from testbed.sweeps import cluster
from tests.support.scripted_tasks import Square


def test_this_process_computes_all_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "has_loopback", lambda: False)
    said: list[str] = []
    with cluster.executor(None, 2, said.append) as here:
        done = list(here.results(Square(number) for number in range(5)))
        again = list(here.results([Square(7), Square(8)]))
    results = [outcome.result for _, outcome in [*done, *again]]
    assert len(results) == 7
    assert None not in results
    assert here.width == 1
    (sentence,) = said
    assert "loopback device is down" in sentence


def test_a_device_that_is_down_is_no_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreachable(*_: Any) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    assert not has_loopback()
