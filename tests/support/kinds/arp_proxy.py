"""Answers ARP requests itself: nothing is flooded."""

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.lib.packet import arp, ethernet, packet

KNOWN = {"10.0.0.2": "02:00:00:00:00:02"}


class ArpProxy(app_manager.RyuApp):
    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        asked = packet.Packet(message.data).get_protocol(arp.arp)
        if asked is None or asked.opcode != arp.ARP_REQUEST:
            return
        mac = KNOWN.get(asked.dst_ip)
        if mac is None:
            return
        answer = packet.Packet()
        answer.add_protocol(ethernet.ethernet(asked.src_mac, mac, 0x0806))
        answer.add_protocol(
            arp.arp_ip(
                arp.ARP_REPLY,
                mac,
                asked.dst_ip,
                asked.src_mac,
                asked.src_ip,
            )
        )
        answer.serialize()
        path = message.datapath
        parser = path.ofproto_parser
        output = parser.OFPActionOutput(message.match["in_port"])
        path.send_msg(
            parser.OFPPacketOut(
                datapath=path,
                buffer_id=path.ofproto.OFP_NO_BUFFER,
                in_port=path.ofproto.OFPP_CONTROLLER,
                actions=[output],
                data=answer.data,
            )
        )
