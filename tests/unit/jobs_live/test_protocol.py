"""Plans, messages and requests: what is said is what is understood, and nothing else gets in."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.live.agent_protocol import (
    AgentExited,
    AgentRefused,
    AgentReport,
    AgentStarted,
    Begin,
    CloseRequest,
    Plan,
    Progress,
    Ready,
    Received,
    Sent,
    SignalRequest,
    SpawnRequest,
    decode_answer,
    decode_message,
    decode_request,
)
from jobs.live.compute import ComputePlan
from jobs.live.json_decoding import ProtocolError, encode, to_object
from jobs.live.transfer_plan import Incoming, Outgoing, TransferPlan

NS = st.integers(0, 2**62)
SIZE = st.integers(1, 2**62)
INDEX = st.integers(0, 2**20)
SECONDS = st.floats(0.001, 1e6)
TRANSFER_PLANS = st.builds(
    TransferPlan,
    index=INDEX,
    ip=st.just("10.0.4.1"),
    port=st.integers(1, 65535),
    sends=st.lists(
        st.builds(Outgoing, INDEX, st.just("10.0.4.2"), st.integers(1, 65535), SIZE), max_size=3
    ).map(tuple),
    receives=st.lists(st.builds(Incoming, INDEX, SIZE), max_size=3).map(tuple),
    demand=st.sampled_from([(), ((1.0, 5),), ((0.25, 0), (1.0, 10**9))]),
    cpu_share=st.floats(0, 1),
    start_at_ns=st.none() | NS,
    congestion_control=st.sampled_from(["cubic", "reno"]),
    connect_timeout_s=SECONDS,
    stall_timeout_s=SECONDS,
    timeout_s=SECONDS,
    progress_every_s=SECONDS,
)
COMPUTE_PLANS = st.builds(
    ComputePlan, INDEX, SECONDS, st.floats(0.01, 1), st.none() | NS, SECONDS, SECONDS
)
PLANS = TRANSFER_PLANS | COMPUTE_PLANS
MESSAGES = (
    st.builds(Ready, INDEX, NS)
    | st.builds(Begin, NS)
    | st.builds(Progress, INDEX, NS, NS, NS, st.floats(0, 1e9))
    | st.builds(
        AgentReport,
        INDEX,
        st.none() | NS,
        NS,
        st.lists(st.builds(Received, INDEX, NS, st.none() | NS, st.none() | NS)).map(tuple),
        st.lists(st.builds(Sent, INDEX, NS, NS, st.none() | NS, INDEX)).map(tuple),
        st.floats(0, 1e9),
        st.none() | st.just("cubic"),
        st.none() | st.text(min_size=1).filter(lambda text: "\0" not in text),
    )
)
SPAWNS = st.builds(
    SpawnRequest,
    id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True),
    plan=PLANS,
    netns=st.none() | st.just("/run/netns/hn-s0v1"),
    cgroups=st.just(()) | st.just(("/sys/fs/cgroup/cpu/hn/cgroup.procs",)),
    uid=st.integers(0, 2**32 - 2),
    gid=st.integers(0, 2**32 - 2),
    log=st.none() | st.just("/tmp/agent.log"),  # noqa: S108 - a name, nothing is made
    log_uid=st.integers(0, 2**32 - 2),
    log_gid=st.integers(0, 2**32 - 2),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)

PLAN = TransferPlan(0, "10.0.4.1", 5001, (Outgoing(1, "10.0.4.2", 5001, 9),), (Incoming(1, 9),))
SPAWN = SpawnRequest("vm0", PLAN, None, (), 1000, 1000, None, 1000, 1000)


@settings(deadline=None)
@given(PLANS)
def test_a_plan_survives_json(plan: TransferPlan | ComputePlan) -> None:
    assert Plan.decode(json.loads(json.dumps(to_object(plan)))) == plan


@settings(deadline=None)
@given(MESSAGES)
def test_a_message_is_one_line_and_survives_it(message: Ready | Begin | Progress) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_message(line) == message


@settings(deadline=None)
@given(SPAWNS)
def test_a_spawn_request_survives_its_packet(request_: SpawnRequest) -> None:
    assert decode_request(encode(request_)) == request_


@pytest.mark.parametrize("request_", [SignalRequest("vm0", signal.SIGTERM), CloseRequest()])
def test_other_requests_survive(request_: SignalRequest | CloseRequest) -> None:
    assert decode_request(encode(request_)) == request_


@pytest.mark.parametrize(
    "answer",
    [
        AgentStarted("vm0", 7),
        AgentExited("vm0", 7, 1, None),
        AgentExited("vm0", 7, None, 9),
        AgentRefused(None, "no"),
    ],
)
def test_answers_survive(answer: AgentStarted | AgentExited | AgentRefused) -> None:
    assert decode_answer(encode(answer)) == answer


@settings(deadline=None, max_examples=50)
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_garbage_is_refused_as_such(packet: bytes) -> None:
    for read in (decode_message, decode_request, decode_answer):
        with pytest.raises(ProtocolError):
            read(packet)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["transfer", "compute", "ring"]),
    st.dictionaries(st.sampled_from(list(to_object(PLAN))), JSON, max_size=4),
)
def test_an_object_that_only_claims_to_be_a_plan_is_refused(
    kind: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(ProtocolError):
        Plan.decode({**fields, "kind": kind})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("index", -1, "index: a whole number from 0"),
        ("index", True, "index: a whole number"),
        ("port", 70000, "port: a port"),
        ("ip", "", "ip: a text"),
        ("sends", {}, "sends: a list"),
        ("sends", [{"peer": 1}], r"sends\[0\]\.ip: missing"),
        ("receives", [{"peer": 1, "size_bytes": 0}], r"receives\[0\]\.size_bytes: a size"),
        ("demand", [[0.5, 10]], "demand: a curve up to progress 1"),
        ("demand", [[1.0, 0]], "demand: a curve"),
        ("demand", [[0.5, 1], [0.5, 2], [1.0, 1]], r"demand\[1\]: a progress that rises"),
        ("demand", [[1.0]], r"demand\[0\]: a pair"),
        ("cpu_share", 1.5, "cpu_share: a share"),
        ("timeout_s", 0, "timeout_s: a number above 0"),
        ("timeout_s", float("inf"), "timeout_s: a finite number"),
        ("stall_timeout_s", "30", "stall_timeout_s: a number"),
    ],
)
def test_a_wrong_field_of_a_plan_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        Plan.decode({**json.loads(encode(PLAN)), field: value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("id", "../../etc", "id: letters"),
        ("id", "vm0\n", "id: letters"),
        ("uid", -1, "uid: a whole number"),
        ("uid", 2**32 - 1, "uid: 4294967295 is not the number of an account"),
        ("netns", "run/netns/x", "netns: an absolute path"),
        ("log", "agent.log", "log: an absolute path"),
        ("cgroups", ["/etc/passwd"], "is not a cgroup.procs below /sys/fs/cgroup"),
        ("cgroups", ["/sys/fs/cgroup/cpu/../../../../etc/cgroup.procs"], "is not a cgroup.procs"),
        ("cgroups", ["/sys/fs/cgroup/cgroup.procs"], "is not a cgroup.procs"),
        ("cgroups", [7], r"cgroups\[0\]: a text"),
    ],
)
def test_a_wrong_field_of_a_spawn_request_is_named(field: str, value: object, message: str) -> None:
    packet = {**json.loads(encode(SPAWN)), field: value}
    with pytest.raises(ProtocolError, match=message):
        decode_request(json.dumps(packet).encode())


def test_only_signals_for_agents_are_taken() -> None:
    packet = encode(SignalRequest("vm0", signal.SIGSEGV))
    with pytest.raises(ProtocolError, match="signum: 11 is not a signal that agents are sent"):
        decode_request(packet)


def test_the_last_byte_is_known_only_when_all_peers_are_through() -> None:
    report = AgentReport(
        0, 1, 50, (Received(1, 9, 2, 30), Received(2, 9, 3, 40)), (), 0.0, "cubic", None
    )
    assert report.last_byte_ns == 40
    assert (
        replace(report, received=(Received(1, 9, 2, 30), Received(2, 3, 3, None))).last_byte_ns
        is None
    )
    assert replace(report, received=()).last_byte_ns is None
