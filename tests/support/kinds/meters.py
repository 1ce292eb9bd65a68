"""Polices one port to 1 Mbit/s, by a meter."""

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import CONFIG_DISPATCHER, set_ev_cls


class Meters(app_manager.RyuApp):
    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        path = event.msg.datapath
        protocol, parser = path.ofproto, path.ofproto_parser
        drop = parser.OFPMeterBandDrop(rate=1000, burst_size=10)
        meter = parser.OFPMeterMod(
            path, protocol.OFPMC_ADD, protocol.OFPMF_KBPS, 5, [drop]
        )
        path.send_msg(meter)
        metered = parser.OFPInstructionMeter(5, protocol.OFPIT_METER)
        match = parser.OFPMatch(in_port=1)
        path.send_msg(
            parser.OFPFlowMod(path, match=match, instructions=[metered])
        )
