"""An agent's messages: what is said is what is understood, and nothing else gets in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from jobs.live.agent_protocol import (
    AgentMessage,
    AgentProgress,
    AgentReport,
    Ready,
    ReceivedPayload,
    SentPayload,
    encode,
)
from tests.support.examples import examples

NS = st.integers(0, 2**62)
INDEX = st.integers(0, 2**20)
MESSAGES = (
    st.builds(Ready, INDEX, NS)
    | st.builds(AgentProgress, INDEX, NS, NS, NS, st.floats(0, 1e9))
    | st.builds(
        AgentReport,
        INDEX,
        st.none() | NS,
        NS,
        st.lists(
            st.builds(
                ReceivedPayload, INDEX, NS, st.none() | NS, st.none() | NS
            )
        ).map(tuple),
        st.lists(
            st.builds(SentPayload, INDEX, NS, NS, st.none() | NS, INDEX)
        ).map(tuple),
        st.floats(0, 1e9),
        st.none() | st.just("cubic"),
        st.none() | st.text(min_size=1),
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=5,
)
REPORT = AgentReport(
    0,
    1,
    50,
    (ReceivedPayload(1, 9, 2, 30), ReceivedPayload(2, 9, 3, 40)),
    (),
    0.0,
    "cubic",
)


@pytest.fixture(scope="module")
def decoder() -> TypeAdapter[AgentMessage]:
    return TypeAdapter(AgentMessage)


@pytest.mark.slow
@settings(deadline=None)
@given(message=MESSAGES)
def test_a_message_is_one_line_and_survives_it(
    decoder: TypeAdapter[AgentMessage], message: AgentMessage
) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decoder.validate_json(line) == message


@pytest.mark.slow
@examples(50)
@given(
    packet=st.binary() | JSON.map(lambda value: json.dumps(value).encode())
)
def test_garbage_is_refused_as_such(
    decoder: TypeAdapter[AgentMessage], packet: bytes
) -> None:
    with pytest.raises(ValidationError):
        decoder.validate_json(packet)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("index", True),
        ("index", 1.0),
        ("index", "1"),
        ("end_ns", None),
        ("received", {}),
        ("received", [{"peer": 1}]),
        ("cpu_s", float("nan")),
        ("cpu_s", float("inf")),
        ("error", 5),
        ("more", 1),
    ],
)
def test_a_report_with_a_wrong_field_is_refused(
    decoder: TypeAdapter[AgentMessage], field: str, value: Any
) -> None:
    line = json.dumps({**json.loads(encode(REPORT)), field: value})
    with pytest.raises(ValidationError):
        decoder.validate_json(line)


def test_the_last_byte_is_known_only_when_all_peers_are_through() -> None:
    assert REPORT.last_byte_ns == 40
    cut_off = (ReceivedPayload(1, 9, 2, 30), ReceivedPayload(2, 3, 3, None))
    assert replace(REPORT, received=cut_off).last_byte_ns is None
    assert replace(REPORT, received=()).last_byte_ns is None
