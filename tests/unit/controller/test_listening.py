from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from controller import api


class Moody:
    """A listener that fails in passing, then works, then fails for good."""

    def __init__(self, outcomes: list[OSError | str]) -> None:
        self.outcomes: Iterator[OSError | str] = iter(outcomes)

    def accept(self) -> tuple[str, tuple[str, int]]:
        outcome = next(self.outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome, ("127.0.0.1", 1)


def test_what_passes_is_waited_for_and_what_does_not_is_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "_PAUSE_S", 0.0)
    moody = Moody(
        [
            "first",
            OSError(errno.EMFILE, "Too many open files"),
            OSError(errno.ECONNABORTED, "Software caused connection abort"),
            "second",
            OSError(errno.EBADF, "Bad file descriptor"),
        ]
    )
    listener: Any = moody
    coming: Iterator[tuple[Any, Any]] = api.connections(listener)
    assert [next(coming)[0] for _ in range(2)] == ["first", "second"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        next(coming)


def test_real_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        coming = api.connections(listener)
        with socket.create_connection(listener.getsockname()) as client:
            connection, address = next(coming)
            with connection:
                assert address == client.getsockname()
