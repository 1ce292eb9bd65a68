"""Gives connections to one address to two servers in turn."""

import itertools

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.lib.packet import ipv4, packet, tcp

SERVICE = "10.0.0.100"
SERVERS = [
    ("10.0.0.2", "02:00:00:00:00:02", 2),
    ("10.0.0.3", "02:00:00:00:00:03", 3),
]


class LoadBalancer(app_manager.RyuApp):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.servers = itertools.cycle(SERVERS)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        came = packet.Packet(message.data)
        ip, segment = (
            came.get_protocol(ipv4.ipv4),
            came.get_protocol(tcp.tcp),
        )
        if ip is None or segment is None or ip.dst != SERVICE:
            return
        address, mac, port = next(self.servers)
        print(
            f"connection from port {segment.src_port} to {address}\n",
            end="",
        )
        path = message.datapath
        protocol, parser = path.ofproto, path.ofproto_parser
        match = parser.OFPMatch(
            eth_type=0x0800,
            ip_proto=6,
            ipv4_src=ip.src,
            ipv4_dst=SERVICE,
            tcp_src=segment.src_port,
        )
        actions = [
            parser.OFPActionSetField(eth_dst=mac),
            parser.OFPActionSetField(ipv4_dst=address),
            parser.OFPActionOutput(port),
        ]
        apply = parser.OFPInstructionActions(
            protocol.OFPIT_APPLY_ACTIONS, actions
        )
        path.send_msg(
            parser.OFPFlowMod(
                path,
                match=match,
                instructions=[apply],
                priority=10,
                idle_timeout=10,
            )
        )
