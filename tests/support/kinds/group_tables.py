"""Spreads what comes over two ports, by a group of kind select."""

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import CONFIG_DISPATCHER, set_ev_cls


class GroupTables(app_manager.RyuApp):
    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        path = event.msg.datapath
        protocol, parser = path.ofproto, path.ofproto_parser
        buckets = []
        for port in (1, 2):
            output = parser.OFPActionOutput(port)
            buckets.append(parser.OFPBucket(weight=1, actions=[output]))
        group = parser.OFPGroupMod(
            path, protocol.OFPGC_ADD, protocol.OFPGT_SELECT, 7, buckets
        )
        path.send_msg(group)
        to_group = parser.OFPInstructionActions(
            protocol.OFPIT_APPLY_ACTIONS, [parser.OFPActionGroup(7)]
        )
        match = parser.OFPMatch(in_port=3)
        path.send_msg(
            parser.OFPFlowMod(path, match=match, instructions=[to_group])
        )
