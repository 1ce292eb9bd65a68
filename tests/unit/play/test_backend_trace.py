"""A traced backend takes what the engine may say to a backend, and passes it on."""

from __future__ import annotations

import inspect
from typing import Any
from unittest import mock

import pytest

from testbed.engine.backend import Backend
from testbed.play.backend_trace import ReplayBackend, TracingBackend

ANSWERED = ("now_s", "wait")
CALLS = {
    name: function
    for name, function in vars(Backend).items()
    if inspect.isfunction(function)
    and not name.startswith("_")
    and name not in ANSWERED
}


def arguments_of(function: Any) -> tuple[list[Any], dict[str, Any]]:
    """A value for each of its parameters, by place and by name."""
    places: list[Any] = []
    names: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[
        1:
    ]:
        value = (
            mock.Mock(id="a", kind="a") if not places else parameter.name
        )
        if parameter.name == "job_id":
            value = "a"
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            names[parameter.name] = value
        else:
            places.append(value)
    return places, names


@pytest.mark.parametrize("call", CALLS)
def test_every_argument_of_a_call_is_passed_on(call: str) -> None:
    places, names = arguments_of(CALLS[call])
    backend = mock.create_autospec(Backend, instance=True)
    backend.name = "fake"
    lines: list[dict[str, Any]] = []
    getattr(TracingBackend(backend, lines.append), call)(*places, **names)
    getattr(backend, call).assert_called_once_with(*places, **names)
    assert [answer[call] for answer in lines] == ["a"]
    replay = ReplayBackend(iter([(1, lines[0])]))
    getattr(replay, call)(*places, **names)


def test_a_call_has_arguments_by_name() -> None:
    """Or the test above says nothing of them."""
    assert any(arguments_of(function)[1] for function in CALLS.values())
