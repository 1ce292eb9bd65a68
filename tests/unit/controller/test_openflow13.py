"""Our bytes against those both libraries write, and against themselves."""

from __future__ import annotations

import importlib
import struct
import warnings
from ipaddress import IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fake_switches import decode_change, encode_flow_stats_reply
from controller import openflow13
from controller.flow_rules import (
    COOKIE_ALL_BITS,
    Action,
    AddFlow,
    Change,
    Drop,
    Flow,
    FlowReport,
    Goto,
    Match,
    Output,
    RemoveByCookie,
    RemoveFlow,
)

PACKAGES = ["ryu", "os_ken"]

macs = st.binary(min_size=6, max_size=6).map(lambda raw: raw.hex(":"))
addresses = st.ip_addresses(v=4).map(str)
prefixes = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 31)).map(
    lambda pair: (
        IPv4Network(
            (pair[0] >> 32 - pair[1] << 32 - pair[1], pair[1])
        ).with_prefixlen
    )
)
cookies = st.integers(0, COOKIE_ALL_BITS)
ports = st.integers(1, 0xFEFF)


@st.composite
def matches(draw: st.DrawFn) -> Match:
    ipv4 = draw(st.booleans())
    places = addresses | prefixes
    return Match(
        in_port=draw(st.none() | ports),
        untagged=draw(st.booleans()),
        ipv4=ipv4,
        eth_src=draw(st.none() | macs),
        nw_src=draw(st.none() | places) if ipv4 else None,
        nw_dst=draw(st.none() | places) if ipv4 else None,
    )


actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(Goto, st.integers(1, 253)),
    st.builds(Output, ports),
    st.just(Drop()),
)
flows = st.builds(
    Flow,
    st.integers(0, 253),
    st.integers(0, 65535),
    matches(),
    actions,
    cookies,
)
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(AddFlow, flows),
    st.builds(RemoveFlow, flows),
    st.builds(RemoveByCookie, cookies, cookies),
)


class Datapath:
    """As much of a library's datapath as its messages ask for."""

    def __init__(self, package: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Ryu's imports use what Python has deprecated.
            self.ofproto: Any = importlib.import_module(
                f"{package}.ofproto.ofproto_v1_3"
            )
            self.ofproto_parser: Any = importlib.import_module(
                f"{package}.ofproto.ofproto_v1_3_parser"
            )


def serialized(message: Any, xid: int) -> bytes:
    message.set_xid(xid)
    message.serialize()
    return bytes(message.buf)


def library_match(datapath: Datapath, match: Match) -> Any:
    fields: dict[str, object] = {}
    if match.in_port is not None:
        fields["in_port"] = match.in_port
    if match.eth_src is not None:
        fields["eth_src"] = match.eth_src
    if match.ipv4:
        fields["eth_type"] = 0x0800
    if match.untagged:
        fields["vlan_vid"] = datapath.ofproto.OFPVID_NONE
    for name, place in (
        ("ipv4_src", match.nw_src),
        ("ipv4_dst", match.nw_dst),
    ):
        if place is not None:
            network = IPv4Network(place)
            pair = (str(network.network_address), str(network.netmask))
            fields[name] = pair if "/" in place else place
    return datapath.ofproto_parser.OFPMatch(**fields)


def library_flow_mod(datapath: Datapath, change: Change) -> Any:
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser
    anything = {"out_port": ofproto.OFPP_ANY, "out_group": ofproto.OFPG_ANY}
    if isinstance(change, RemoveByCookie):
        return parser.OFPFlowMod(
            datapath,
            cookie=change.cookie,
            cookie_mask=change.mask,
            table_id=ofproto.OFPTT_ALL,
            command=ofproto.OFPFC_DELETE,
            priority=0,
            match=parser.OFPMatch(),
            **anything,
        )
    flow = change.flow
    instructions = []
    if isinstance(flow.action, Goto):
        instructions = [parser.OFPInstructionGotoTable(flow.action.table)]
    elif isinstance(flow.action, Output):
        output = parser.OFPActionOutput(
            flow.action.port, ofproto.OFPCML_NO_BUFFER
        )
        instructions = [
            parser.OFPInstructionActions(
                ofproto.OFPIT_APPLY_ACTIONS, [output]
            )
        ]
    strict = isinstance(change, RemoveFlow)
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        table_id=flow.table,
        command=ofproto.OFPFC_DELETE_STRICT
        if strict
        else ofproto.OFPFC_ADD,
        priority=flow.priority,
        match=library_match(datapath, flow.match),
        instructions=[] if strict else instructions,
        **anything,
    )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            package, marks=pytest.mark.needs(package.replace("_", "-"))
        )
        for package in PACKAGES
    ],
)
def datapath(request: pytest.FixtureRequest) -> Datapath:
    return Datapath(request.param)


@pytest.mark.slow
@given(change=changes, xid=st.integers(0, 2**32 - 1))
def test_a_change_is_the_flow_mod_that_the_library_writes(
    datapath: Datapath, change: Change, xid: int
) -> None:
    assert openflow13.encode_change(change, xid) == serialized(
        library_flow_mod(datapath, change), xid
    )


@pytest.mark.slow
@given(some=st.lists(changes, max_size=4), bundle=st.integers(0, 2**32 - 1))
def test_a_bundle_is_what_the_library_writes(
    datapath: Datapath, some: list[Change], bundle: int
) -> None:
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser
    flags = ofproto.ONF_BF_ATOMIC | ofproto.ONF_BF_ORDERED

    def control(kind: int) -> bytes:
        return serialized(
            parser.ONFBundleCtrlMsg(datapath, bundle, kind, flags, []), 9
        )

    parts = [control(ofproto.ONF_BCT_OPEN_REQUEST)]
    for change in some:
        inner = library_flow_mod(datapath, change)
        parts.append(
            serialized(
                parser.ONFBundleAddMsg(datapath, bundle, flags, inner, []),
                9,
            )
        )
    parts.append(control(ofproto.ONF_BCT_COMMIT_REQUEST))
    assert openflow13.encode_bundle(some, bundle, 9) == b"".join(parts)


@pytest.mark.slow
@given(some=st.lists(changes, min_size=1, max_size=3))
def test_a_batch_is_a_bundle_or_a_single_message_and_a_barrier(
    datapath: Datapath, some: list[Change]
) -> None:
    barrier = serialized(
        datapath.ofproto_parser.OFPBarrierRequest(datapath), 9
    )
    single = openflow13.encode_change(some[0], 9)
    whole = (
        single if len(some) == 1 else openflow13.encode_bundle(some, 5, 9)
    )
    assert openflow13.encode_batch(some, 5, 9) == whole + barrier


def test_the_question_for_all_rules_is_the_librarys(
    datapath: Datapath,
) -> None:
    question = datapath.ofproto_parser.OFPFlowStatsRequest(datapath)
    assert openflow13.encode_flow_stats_request(7) == serialized(
        question, 7
    )


@pytest.mark.slow
@given(st.lists(flows, max_size=5))
def test_statistics_are_read_as_the_library_reads_them(
    datapath: Datapath, some: list[Flow]
) -> None:
    (reply,) = encode_flow_stats_reply(some, 3)
    parsed = datapath.ofproto_parser.msg_parser(
        datapath,
        openflow13.OFP_VERSION,
        openflow13.OFPT_MULTIPART_REPLY,
        len(reply),
        3,
        reply,
    )
    assert [(s.table_id, s.priority, s.cookie) for s in parsed.body] == [
        (f.table, f.priority, f.cookie) for f in some
    ]
    for statistics, flow in zip(parsed.body, some, strict=True):
        expected = library_match(datapath, flow.match)
        assert sorted(statistics.match.items()) == sorted(expected.items())
    assert openflow13.decode_flow_stats_reply(reply) == FlowReport(
        tuple(some)
    )


@given(changes)
def test_a_change_survives_the_wire(change: Change) -> None:
    decoded = decode_change(openflow13.encode_change(change, 1))
    if isinstance(change, RemoveFlow):
        # A strict delete says which rule, not what it does.
        assert isinstance(decoded, RemoveFlow)
        assert decoded.flow.key == change.flow.key
    else:
        assert decoded == change


def test_many_rules_take_several_messages() -> None:
    many = [
        Flow(0, 1, Match(in_port=port), Drop(), port)
        for port in range(1, 3001)
    ]
    replies = list(encode_flow_stats_reply(many, 1))
    assert len(replies) > 1
    assert max(map(len, replies)) < 65536
    reports = [
        openflow13.decode_flow_stats_reply(reply) for reply in replies
    ]
    assert [flow for report in reports for flow in report.flows] == many
    more = [
        openflow13.MULTIPART.unpack_from(reply, openflow13.HEADER.size)[1]
        for reply in replies
    ]
    assert more == [openflow13.OFPMPF_REPLY_MORE] * (len(replies) - 1) + [0]


@pytest.mark.parametrize(
    "fields",
    [
        {"eth_type": 0x0800, "ip_proto": 6, "tcp_dst": 80},
        {"eth_type": 0x0806},
        {"eth_dst": "02:00:00:00:00:01"},
        {"eth_src": ("02:00:00:00:00:01", "ff:ff:ff:00:00:00")},
        {"vlan_vid": 0x1005},
        {"vlan_vid": (0x1000, 0x1000)},
        {"eth_type": 0x0800, "ipv4_src": ("10.0.0.1", "255.0.0.255")},
        {"eth_type": 0x0800, "ipv4_src": ("10.0.0.0", "0.0.0.255")},
        {"tunnel_id": 5},
    ],
)
def test_a_match_that_is_not_of_our_making(
    datapath: Datapath, fields: dict[str, Any]
) -> None:
    buffer = bytearray()
    datapath.ofproto_parser.OFPMatch(**fields).serialize(buffer, 0)
    with pytest.raises(ValueError, match=r"match|mask"):
        openflow13.decode_match(bytes(buffer))
    entry = openflow13.FLOW_STATS.pack(
        openflow13.FLOW_STATS.size + len(buffer),
        0,
        0,
        0,
        5,
        0,
        0,
        0,
        77,
        0,
        0,
    ) + bytes(buffer)
    reply = openflow13.message(
        openflow13.OFPT_MULTIPART_REPLY,
        1,
        openflow13.MULTIPART.pack(openflow13.OFPMP_FLOW, 0) + entry,
    )
    assert openflow13.decode_flow_stats_reply(reply) == FlowReport(
        (), (77,)
    )


@pytest.mark.parametrize(
    "position", [4, 5, 6], ids=["idle", "hard", "flags"]
)
def test_a_rule_with_a_timeout_or_a_flag_is_not_of_our_making(
    position: int,
) -> None:
    tail = openflow13.encode_match(Match(in_port=1))
    numbers = [
        openflow13.FLOW_STATS.size + len(tail),
        0,
        0,
        0,
        5,
        0,
        0,
        0,
        77,
        0,
        0,
    ]
    numbers[position + 1] = 1
    reply = openflow13.message(
        openflow13.OFPT_MULTIPART_REPLY,
        1,
        openflow13.MULTIPART.pack(openflow13.OFPMP_FLOW, 0)
        + openflow13.FLOW_STATS.pack(*numbers)
        + tail,
    )
    assert openflow13.decode_flow_stats_reply(reply) == FlowReport(
        (), (77,)
    )


@pytest.mark.slow
@given(flow=flows, noise=st.binary(max_size=200), data=st.data())
def test_mangled_statistics_are_refused_or_read_but_never_crash(
    flow: Flow, noise: bytes, data: st.DataObject
) -> None:
    (reply,) = encode_flow_stats_reply([flow], 3)
    cut = data.draw(st.integers(16, len(reply)))
    try:
        report = openflow13.decode_flow_stats_reply(reply[:cut] + noise)
    except ValueError:
        return
    assert isinstance(report, FlowReport)


@pytest.mark.parametrize(
    ("number", "size"),
    [(0, 0), (0, 3), (0, 255), (4, 0), (4, 5), (4, 255)],
    ids=str,
)
def test_a_match_field_of_another_size_is_not_of_our_making(
    number: int, size: int
) -> None:
    """It could not be written again, as the removal of the rule."""
    field = bytes([0x80, 0, number << 1, size]) + bytes([255]) * size
    match = struct.pack("!HH", 1, 4 + len(field)) + field
    with pytest.raises(ValueError, match=f"match field {number}"):
        openflow13.decode_match(match + bytes(-len(match) % 8))
