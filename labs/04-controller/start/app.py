"""Sends the entries of flows.py to every switch that comes. For Ryu or os-ken alike."""

import json
from ipaddress import IPv4Network
from pathlib import Path

from flows import rules

try:
    from ryu.base.app_manager import RyuApp as Application
    from ryu.controller import ofp_event
    from ryu.controller.handler import CONFIG_DISPATCHER, set_ev_cls
    from ryu.ofproto import ofproto_v1_3
except ImportError:
    from os_ken.base.app_manager import OSKenApp as Application
    from os_ken.controller import ofp_event
    from os_ken.controller.handler import CONFIG_DISPATCHER, set_ev_cls
    from os_ken.ofproto import ofproto_v1_3

TENANTS = json.loads(Path(__file__).with_name("tenants.json").read_text())
ADDRESSES = ("ipv4_src", "ipv4_dst")


class Reservations(Application):
    """A switch that connects is given its entries; no packet ever comes here."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, event):
        switch = event.msg.datapath
        for entry in rules(switch.id, TENANTS):
            switch.send_msg(flow_mod(switch, entry))


def flow_mod(switch, entry):
    """The OpenFlow message that adds an entry."""
    parser = switch.ofproto_parser
    return parser.OFPFlowMod(
        datapath=switch,
        table_id=entry["table"],
        priority=entry["priority"],
        cookie=entry["cookie"],
        match=parser.OFPMatch(**fields(entry["match"])),
        instructions=instructions(parser, entry["then"]),
    )


def fields(match):
    """A match as the library takes it: an address with its mask."""
    return {field: masked(value) if field in ADDRESSES else value for field, value in match.items()}


def masked(prefix):
    network = IPv4Network(prefix)
    return str(network.network_address), str(network.netmask)


def instructions(parser, then):
    """Instructions for a packet that matches. ["goto", TABLE] and ["drop"] are yours to write."""
    output = parser.OFPActionOutput(then[1])
    return [parser.OFPInstructionActions(ofproto_v1_3.OFPIT_APPLY_ACTIONS, [output])]
